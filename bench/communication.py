"""Communication time against bits (DAT's table 4) and against the budget of layers (TU Delft's runs), measured in this
program: clean and FGSM training, where communication is most of a step, and PGD-10, where it is not. See bench/README.md.

Each variant takes turns with float32 and all layers: A B C, A D E. Step k of A and step k of B or C after it are a pair;
ratios are A / B, medians over the pairs with the interval of order statistics that holds 95 % (for independent pairs, which
steps of one launch are not quite). Bytes are the program's own counts, as MPI gets them.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import launch
import study

# What a run has to say of communication, by the names of its record: the first list that it has.
PHASES = [["t_encode", "t_exposed", "t_decode"], ["t_reduce"]]

REGIMES = {
    "clean": ["--attack", "none", "--lambda", "0"],
    "fgsm": ["--attack", "fgsm", "--lambda", "0"],
    "pgd10": ["--attack", "pgd", "--attack-steps", "10", "--lambda", "1"],
}
BASE = ["--selector", "all", "--codec", "float32"]
VARIANTS = {
    "16 bits": ["--selector", "all", "--codec", "f16"],
    "8 bits, 1-sided": ["--selector", "all", "--codec", "int8", "--codec-transport", "gather"],
    "8 bits, 2-sided": ["--selector", "all", "--codec", "int8", "--codec-transport", "two_sided"],
    **{f"budget {budget} of 54": ["--selector", "exp3", "--codec", "float32", "--budget", str(budget)]
       for budget in (45, 40, 35, 30)},
}
# Published: ratio of C to that of 32 bits, DAT poster, table 4 (ImageNet, ResNet-50, 36 GPUs); ratio of the epoch's time
# to that of all layers, TU Delft (CIFAR10-Ext, PreActResNet-18, 8 GPUs): PGD-10, 297 s and 295.5 s; without attack, 62.5
# and 51.5 s on the cluster, with the loader as its limit.
DAT_SECONDS = {"fgsm": (859, 849, 594, 1013), "pgd10": (898, 850, 592, 1091)}
PUBLISHED = {}
for regime, (full, *others) in DAT_SECONDS.items():
    for variant, seconds in zip(list(VARIANTS)[:3], others):
        PUBLISHED[regime, variant] = f"C {full / seconds:.2f}x (DAT)"
PUBLISHED["pgd10", "budget 40 of 54"] = f"epoch {297 / 295.5:.3f}x (TU Delft)"
PUBLISHED["clean", "budget 40 of 54"] = f"epoch {62.5 / 51.5:.2f}x (TU Delft)"


class Runs:
    def __init__(self, arguments):
        self.arguments = arguments
        self.launcher = launch.Launcher(arguments.launcher, arguments.prepare)
        self.number = 0

    def program(self, words):
        a = self.arguments
        return [f"{a.build}/dat_hpc", "train", "--network", a.network, "--width", a.width, "--batch", a.batch,
                *(["--data", *a.data] if a.data else []), "--threads", 1, "--warmup-epochs", 0, "--epochs", 1000000,
                "--max-steps", a.repeat + 2, "--limit-test", 8, "--eval", "pgd1", "--eval-every", 0, "--check-every", 0,
                "--checkpoint-every", 1000000, "--resume", "never", "--quiet", *a.options.split(), *words]

    def known(self, words):
        """Whether this build has the variant."""
        program = [str(word) for word in self.program(words)]
        program[1] = "validate"
        return subprocess.run(program, capture_output=True).returncode == 0

    def steps(self, words):
        """[{"step": seconds, "C": seconds, "bytes": of a rank}], one launch."""
        a = self.arguments
        folder = f"{a.out}/run{self.number}"
        self.number += 1
        self.launcher.run([*self.program(words), "--out", folder], a.ranks, a.nodes, a.rate)
        records = launch.rows(folder, "step")
        shutil.rmtree(folder)
        names = next(names for names in PHASES if names[0] in records[0])
        times = [record["wall_time"] for record in records]
        return [{"step": times[k] - times[k - 1], "C": sum(records[k][name] for name in names),
                 "bytes": records[k]["bytes_sent"]} for k in range(2, len(records))]


def main():
    a, _ = study.parsed(
        __doc__, program="build", **launch.OPTIONS, nodes=2, ranks=2, rate=("1gbit", "{rate} of --prepare"), regimes=[],
        network="preact_resnet18", width=64, batch=(8, "images of a rank"), data=([], "none: the built-in set"),
        repeat=(6, "steps of a launch, after two that do not count"),
        minutes=(14.0, "rounds begin while they fit; one in any case"),
        options=("", "more options of `dat_hpc train` for all launches, e.g. --overlap"), out=("communication", "folder for tables"))
    a.regimes = study.chosen(a.regimes, REGIMES, "regime")
    os.makedirs(a.out, exist_ok=True)
    runs, clock = Runs(a), launch.Clock(a.minutes)
    variants = {name: words for name, words in VARIANTS.items() if runs.known(REGIMES["clean"] + words)}
    missing = [name for name in VARIANTS if name not in variants]
    if missing:
        print(f"not in this build: {', '.join(missing)}", file=sys.stderr)
    pairs = {(regime, name): [] for regime in a.regimes for name in variants}
    bases = {regime: [] for regime in a.regimes}
    longest = 0.0
    while clock.left() > longest or not any(pairs.values()):
        before = clock.left()
        for regime in a.regimes:
            for number, name in enumerate(variants):
                if number % 2 == 0:
                    base = runs.steps(REGIMES[regime] + BASE)
                    bases[regime] += base
                pairs[regime, name] += zip(base, runs.steps(REGIMES[regime] + variants[name]))
        longest = max(longest, before - clock.left())

    lines = [f"{a.network}, width {a.width}, {a.batch} images a rank, {a.ranks} ranks on {a.nodes} nodes, {a.rate}"
             f"{' ' + a.options if a.options else ''}; C: communication that a step waits for, with its encoding\n",
             f"{'regime':8}{'variant':18}{'pairs':>6}{'MB a step':>11}{'of all':>8}{'C, ms':>9}{'C, s/50k':>10}"
             f"{'step, ms':>10}{'C, gain (95 %)':>24}{'step, gain (95 %)':>24}  published"]
    table = []
    for (regime, name), all_pairs in pairs.items():
        if name == list(variants)[0]:
            table.append(({"regime": regime, "variant": "32 bits, all", "pairs": len(bases[regime])}, bases[regime], None))
        table.append(({"regime": regime, "variant": name, "pairs": len(all_pairs)}, [pair[1] for pair in all_pairs],
                      all_pairs))
    rows = []
    for row, steps, paired in table:
        if paired is None:
            full = statistics.fmean(step["bytes"] for step in steps)
        waited = statistics.median(step["C"] for step in steps)
        row |= {"bytes": statistics.fmean(step["bytes"] for step in steps), "C_ms": 1e3 * waited,
                "C_s_per_50000_images": waited * 50000 / (a.ranks * a.batch),
                "step_ms": 1e3 * statistics.median(step["step"] for step in steps)}
        gains = ["", ""]
        for number, key in enumerate(("C", "step")):
            if paired:
                middle, low, high = launch.median_interval([first[key] / other[key] for first, other in paired])
                row |= {f"{key}_gain": middle, f"{key}_low": low, f"{key}_high": high}
                gains[number] = f"{middle:.3f} ({low:.3f}-{high:.3f})"
        row["published"] = PUBLISHED.get((row["regime"], row["variant"]), "")
        rows.append(row)
        lines.append(f"{row['regime']:8}{row['variant']:18}{row['pairs']:6}{1e-6 * row['bytes']:11.3f}"
                     f"{100 * row['bytes'] / full if full else 0:7.1f}%{row['C_ms']:9.1f}{row['C_s_per_50000_images']:10.1f}"
                     f"{row['step_ms']:10.1f}{gains[0]:>24}{gains[1]:>24}  {row['published']}")
    if min(row["pairs"] for row in rows) < 6:
        lines += ["", "Fewer than six pairs: instead of the interval stand the lowest and the highest ratio."]
    lines += ["", "Also published: JointSpar against full precision 1.9x (CIFAR-10) and 1.4x (CIFAR-100), 64 GPUs on 16 "
              "nodes;", "on one GPU without attack 10,213 s and, in the mean over budgets and p_min, 8,503 s: 1.20x (TU Delft)."]
    print("\n".join(lines))
    pathlib.Path(a.out, "communication.txt").write_text("\n".join(lines) + "\n")
    launch.write_csv(f"{a.out}/communication.csv", rows)
    print(f"\n{a.out}/communication.txt\n{a.out}/communication.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
