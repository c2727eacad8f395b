"""Robust training methods at equal cost: robust_table.py PROGRAM --data cifar10.h5 [--table T] [--seeds 5] [-- OPTIONS]

Trains a narrow PreActResNet-18 by each method with the same seeds, and prints clean accuracy, PGD-20 and AutoAttack
(standard, first 200 test images), then the difference from the first method with the same seed: its mean and two 95 % intervals
of the mean, by Student's t over the pairs and, which few seeds need, by the scatter of all methods over the seeds, beside what
is published about the sign of it, and whether that holds here.

  losses  PGD of --steps steps, and what changes its loss, its weights or its attack
  fast    N-FGSM, and what else is said to help training with one step (fast adversarial training)

All runs cost the same: --passes passes over 50,000 images, where a pass is one way forward and back through the network,
of the attack or of the training, and a way forward alone is half a one. So a method with dearer steps makes fewer of them,
and its learning rate falls to zero sooner. What an attack that stops early takes is not known before: a run with the length
of PGD's measures it. The passes that the attacks really took are printed.

Methods that the program does not offer are left out, and a line says so. A run in which the program raises its alarm
for catastrophic overfitting counts as it ends (--on-overfitting warn or rollback; stop ends the table, too). What is
finished is not made again; what was interrupted goes on; other options want another --out, but for the numbers of
images and --aa, which are evaluated again. The same command typed in several places that see --out shares the runs out:
each makes those that no other has begun. Options after `--` go to every training run.
"""

import collections
import itertools
import math
import pathlib
import re
import statistics

import student
import study
from launch import locked, of_evaluation, read_json, rows, write_json
from study import IMAGES, merged, slug, words

COLUMNS = ["clean", "PGD-20", "AA"]

# name; options beside the table's; passes of a step but those of an attack of k steps; steps of the attack, of k; what
# --help must show; published: the sign of the difference from the first one by column, and who says so. In the options {HALF}
# is half of the epochs, in whole ones.
Method = collections.namedtuple("Method", "name options training steps needs published source")
# Of a table: options of all its methods, what part of the epochs is warm-up, its methods.
Table = collections.namedtuple("Table", "options warmup methods")

LOSSES = Table(["--network", "preact_resnet18", "--attack", "pgd", "--lr", 0.1, "--schedule", "linear"], 0, [
    Method("PGD", ["--lambda", 0], 1, lambda k: k, [], {}, ""),
    # Of the clean images: a way forward for the attack, one more for the joint loss, and a pass.
    Method("TRADES", ["--loss", "trades", "--beta", 6], 3, lambda k: k, [r"--loss \S*\btrades\b"], {"PGD-20": 1, "AA": 1},
           "ResNet-18 of MAIR: +0.74 (PGD-10), +0.78"),
    Method("MART", ["--loss", "mart"], 2.5, lambda k: k, [r"--loss \S*\bmart\b"], {"PGD-20": 1, "AA": -1},
           "ResNet-18 of MAIR: +2.00 (PGD-10), -1.16"),
    Method("AWP", ["--lambda", 0, "--awp-gamma", 0.01], 2, lambda k: k, ["--awp-gamma "], {"PGD-20": 1, "AA": 1},
           "ResNet-18 of MAIR: +2.79 (PGD-10), +2.13"),
    Method("EMA", ["--lambda", 0, "--average", "ema"], 1, lambda k: k, [r"--average \S*\bema\b"], {"PGD-20": 1, "AA": 1},
           "Gowal et al. 2020 name averaging among what helps"),
    Method("FAT", ["--lambda", 0, "--attack-stop", 0], 1, lambda k: k, ["--attack-stop "], {"clean": 1, "AA": -1},
           "more clean accuracy: Zhang et al. 2020; ResNet-18 with AA 41.56 (MTandHJ/PyTorch-Robust), 48.67 of AT (MAIR)"),
    Method("ATTA", ["--lambda", 0, "--warm-start", 10], 1, lambda k: max(1, k // 2), ["--warm-start "],
           {"PGD-20": 1}, "up to +7.2 on CIFAR-10, or the same in a twelfth of the time: Zheng et al. 2020"),
])

BENCHMARK = "ResNet-18, 100 epochs, AA of FastAT_Benchmark: "  # repository fzjcdt/FastAT_Benchmark, mean of three seeds


def fgsm(name, *options, training=1, steps=1, needs=(), published=None, source=""):
    loss = [] if "--loss" in options else ["--lambda", 0]
    return Method(name, [*loss, *options], training, lambda k: steps, list(needs), published or {}, source)


WARM = ["--attack-start", "uniform", "--warm-start", 100]  # what is kept of an attack is in the box as it is


def nfgsm(name, *options, needs=(), **more):
    return fgsm(name, "--attack-start", "uniform:2", "--project", "off", "--alpha", "8/255", *options, needs=["--attack-start ", *needs], **more)


# Passes: the attack's, those of both images (forward and back), and a way forward more where neither is a constant. All are compared
# with N-FGSM, and what is no attack of its own is added to that: FGSM-RS overfits catastrophically with one seed and not with another.
FAST = Table(["--network", "preact_resnet18", "--normalize", "cifar10", "--attack", "fgsm", "--attack-start", "uniform:box=on", "--attack-bn", "train",
              "--lr", 0.2, "--schedule", "cyclic", "--optimizer", "sgd:peak_momentum=0.8", "--weight-decay", 5e-4], 0.4, [
    nfgsm("N-FGSM"),
    fgsm("FGSM-RS", published={"AA": -1}, source=BENCHMARK + "43.09 against 47.77"),
    fgsm("PGI", "--loss", "pgi", training=2.5, needs=[r"--loss \S*\bpgi\b"], published={"AA": 1}, source=BENCHMARK + "49.89"),
    fgsm("PGI, constant", "--loss", "pgi:detach", needs=["pgi:detach"]),
    fgsm("GAT", "--attack-bn", "eval", "--loss", "gat", training=2.5, needs=[r"--loss \S*\bgat\b"], published={"AA": 1}, source=BENCHMARK + "49.15"),
    fgsm("GAT, constant", "--attack-bn", "eval", "--loss", "gat:detach", training=2, needs=["gat:detach"]),
    fgsm("NuAT", "--attack-bn", "eval", "--loss", "nuat", training=2.5, needs=[r"--loss \S*\bnuat\b"], published={"AA": 1}, source=BENCHMARK + "50.10"),
    fgsm("NuAT, constant", "--attack-bn", "eval", "--loss", "nuat:detach", training=2, needs=["nuat:detach"]),
    fgsm("PGD-1, warm", "--attack", "pgd", "--attack-steps", 1, "--alpha", "8/255", *WARM, needs=["--warm-start "]),
    fgsm("PGD-2", "--attack", "pgd", "--attack-steps", 2, "--alpha", "5/255", steps=2),
    fgsm("1, then 2 steps", "--attack-bn", "eval", "--attack", "pgd", "--attack-steps", "1,2@{HALF}", "--alpha", "8/255,5/255@{HALF}", steps=1.5,
         needs=["change by epoch"]),
    nfgsm("N-FGSM + eps grows", "--eps", "0..8/255@0-{HALF}", "--alpha", "0.01/255..8/255@0-{HALF}", needs=["change by epoch"]),
    nfgsm("N-FGSM + images grow", "--train-size", "24,32@{HALF}", training=2 * (1 + 0.5625) / 2 - 1, needs=["--train-size "]),
    nfgsm("N-FGSM + one_cycle", "--schedule", "one_cycle", "--momentum", 0.95, "--optimizer", "sgd:peak_momentum=0.85", needs=[r"\bone_cycle\b"]),
    nfgsm("N-FGSM + no decay", "--no-decay", "norms", needs=["--no-decay "]),
    nfgsm("N-FGSM + smoothing", "--label-smoothing", 0.2),
    nfgsm("N-FGSM + EMA", "--average", "ema:decay=0.995", published={"AA": 1}, source=BENCHMARK + "its averages"),
])
TABLES = {"losses": LOSSES, "fast": FAST}


class Study:
    def __init__(self, arguments):
        self.arguments = arguments
        self.images = arguments.ranks * arguments.batch  # of a step
        self.runs = study.Runs(arguments.out, arguments.program, arguments.launch.format(ranks=arguments.ranks))
        alone = study.Runs(arguments.out, arguments.program)
        help_of = {verb: " ".join(alone.say(verb, "--help", "all").split()) for verb in ("train", "eval")}
        self.methods = []
        self.of = TABLES[arguments.table]
        for method in self.of.methods:
            missing = [need for need in method.needs if not re.search(need, help_of["train"])]
            if missing:
                beside = method.options[2:] if "--lambda" in method.options else method.options
                print(f"{method.name}: left out, this program's train has no {' '.join(map(str, beside))}")
            else:
                self.methods.append(method)
        self.autoattack = "aa-standard" in help_of["eval"]
        self.columns = COLUMNS if self.autoattack else COLUMNS[:-1]
        if not self.autoattack:
            print("AutoAttack: left out, this program's eval has no aa-standard")

    def training(self, method, seed, steps):
        arguments = self.arguments
        epochs = math.ceil(steps * self.images / IMAGES)
        warmup = round(self.of.warmup * epochs, 6)
        losses = arguments.table == "losses"
        options = merged(["--optimizer", "sgd"], ["--alpha", arguments.alpha] if losses else [], self.of.options,
                         ["--attack-steps", method.steps(arguments.steps)] if losses else [], method.options)
        options = [word.replace("{HALF}", str(max(1, epochs // 2))) for word in options]
        return words("--data", arguments.data, "--width", arguments.width, "--batch", arguments.batch, "--warmup-epochs", warmup, "--epochs", round(epochs - warmup, 6), "--max-steps", steps, "--selector", "all",
                     "--eval", "pgd20", "--eval-every", 0, "--limit-test", arguments.test_images, "--seed", seed, "--quiet", *options,
                     *arguments.options)

    def steps_of(self, passes):
        return max(1, int(self.arguments.passes * IMAGES / (passes * self.images)))

    def plan(self, method):
        """Steps of its runs."""
        passes = method.steps(self.arguments.steps)
        if "--attack-stop" in method.options:
            name = f"{slug(method.name)}-measured"
            with locked(self.arguments.out / f"{name}.lock", wait=True):
                passes = self.train(name, self.training(method, 0, self.steps_of(passes + method.training)))
        return self.steps_of(passes + method.training)

    def train(self, name, training):
        """Passes of the attack of an image and step, as recorded. Other options than the run was begun with are refused, numbers of test images left out."""
        kept = [word for at, word in enumerate(training) if "--limit-test" not in training[max(at - 1, 0):at + 1]]
        self.runs.begin(name, kept, ranks=self.arguments.ranks)
        self.runs.say("train", "--out", self.arguments.out / name, *training)
        steps = rows(self.arguments.out / name, "step")
        return sum(row["attack_passes"] for row in steps) / sum(row["images"] for row in steps)

    def accuracies(self, method, seed, steps):
        name = f"{slug(method.name)}-seed{seed}"
        folder, finished = self.arguments.out / name, self.arguments.out / f"{name}.json"
        training = self.training(method, seed, steps)
        aa, images = self.arguments.aa, self.arguments.aa_images
        attack = words("--eval", aa, "--limit", images) if self.autoattack else []
        if finished.exists() and (row := read_json(finished))["commands"] == [training, attack]:
            return row["found"]
        passes = self.train(name, training)
        found = study.accuracies(folder, **{"PGD-20": "pgd20"}) | {"passes": passes}  # of the averaged weights, where there are any
        if self.autoattack:
            text = self.runs.say("eval", folder, *attack, "--out", f"{folder}-{aa}-{images}", "--quiet", "--math", "f32",
                                 *of_evaluation(self.arguments.options))
            found["AA"] = 100 * float(re.search(rf" {re.escape(aa)}_acc=(\S+)", text)[1])
        write_json(finished, {"commands": [training, attack], "found": found})
        return found

    def shared_out(self, methods, seeds, steps):
        """Accuracies by method and seed, of runs that other processes may make part of: what they are at comes last."""
        found = {}
        for wait in (False, True):
            for seed, method in itertools.product(range(1, seeds + 1), methods):
                if (method.name, seed) in found:
                    continue
                with locked(self.arguments.out / f"{slug(method.name)}-seed{seed}.lock", wait) as free:
                    if free:
                        found[method.name, seed] = self.accuracies(method, seed, steps[method.name])
                        said = ", ".join(f"{column} {found[method.name, seed][column]:.2f} %" for column in self.columns)
                        print(f"seed {seed}, {method.name}: {said}", flush=True)
        return {method.name: [found[method.name, seed] for seed in range(1, seeds + 1)] for method in methods}


def holds(sign, mean, half):
    """Whether a difference is as published, or cannot be told from none."""
    if not half < abs(mean):
        return "not decided"
    return "yes" if mean * sign > 0 else "no"


def report(found, steps, methods, columns, images):
    seeds = len(next(iter(found.values())))
    wide = max(len(method.name) for method in methods) + 2
    print(f"\n{'method':<{wide}}{'epochs':>8}{'attack passes':>15}" + "".join(f"{column + ' %':>10}" for column in columns))
    for method in methods:
        of = found[method.name]
        print(f"{method.name:<{wide}}{steps[method.name] * images / IMAGES:>8.2f}{statistics.fmean(r['passes'] for r in of):>15.2f}" +
              study.means(of, columns))
    print(f"\npoints above {methods[0].name}, {seeds} paired seeds: mean, its 95 % interval from these pairs, half the width of that from the"
          "\nscatter of all methods over the seeds; published sign, and whether it holds here by the latter")
    pooled = {column: student.block_interval([[r[column] for r in found[method.name]] for method in methods]) for column in columns}
    for method in methods[1:]:
        for column in columns:
            mean, half = study.differences(found[method.name], found[methods[0].name], column)
            sign = method.published.get(column)
            said = "" if sign is None else f"{'+' if sign > 0 else '-':>4}  {holds(sign, mean, pooled[column])}"
            widths = f"[{mean - half:+.2f}, {mean + half:+.2f}]  +- {pooled[column]:.2f}" if seeds > 1 else ""
            print(f"{method.name:<{wide}}{column:<8}{mean:>+8.2f} {widths:<27}{said}")
    print("\nwho says so:")
    for method in methods[1:]:
        print(f"{method.name:<{wide}}{method.source}")


def main():
    arguments, parser = study.parsed(
        __doc__, data=(..., "CIFAR-10, made by 'dat_hpc data convert'"), seeds=5, passes=(9.0, "over 50,000 images, of each run"),
        steps=(0, "losses: of the attack of PGD: 2; ATTA has half of them"), alpha=(None, "losses: 5/255"), width=16,
        batch=(64, "of a rank"), ranks=2, launch="mpirun -np {ranks}", table=("losses", "", list(TABLES)),
        methods=([], "the first one is always there"), test_images=(2000, "for clean and PGD-20; 0: all"),
        aa_images=(200, "for AutoAttack"), aa=("aa-standard", "what stands for AutoAttack; aa-quick costs a fourth"),
        out=(None, "runs/robust_table-TABLE"))
    if arguments.table == "fast" and (arguments.steps or arguments.alpha):
        parser.error("each method of the table fast has its own steps: --steps and --alpha are about --table losses")
    arguments.steps, arguments.alpha = arguments.steps or 2, arguments.alpha or "5/255"
    known = [method.name for method in TABLES[arguments.table].methods]
    names = [known[0], *study.chosen(arguments.methods, known, "method")]
    arguments.out = pathlib.Path(arguments.out or f"runs/robust_table-{arguments.table}")
    table = Study(arguments)
    methods = [method for method in table.methods if method.name in names]
    steps = {}
    for method in methods:
        steps[method.name] = table.plan(method)
        print(f"{method.name}: {steps[method.name]} steps of {table.images} images", flush=True)
    report(table.shared_out(methods, arguments.seeds, steps), steps, methods, table.columns, table.images)


if __name__ == "__main__":
    main()
