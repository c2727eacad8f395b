"""Recipes trained to their end and evaluated: full_size.py RECIPE... --data cifar10.h5 [--width W] [--seeds N|A-B] [-- OPTIONS]

Each recipe (jobs/full/NAME.toml, or any other that --recipe knows) is trained with seeds 1 to N, or A to B, and evaluated: clean
accuracy on all test images; the worst of PGD-50 from ten random starts (steps of eps/4) and FGSM, and aa-quick
(AutoAttack's first two attacks), on the first 2,000 images. --all takes all images for PGD-50, --standard has
aa-standard, too. Options after `--` go to every training, those of --evaluation to every evaluation.

The same command goes on where it was stopped: trainings from their last checkpoint, evaluations from their journal; what is
finished is not made again, and other options or data want another --out. A finished run has one line in --results:
accuracies with 95 % intervals (Wilson) of the images drawn, hours, commit and machine of the training. Accuracies do not
depend on what else runs, hours do; --idle therefore measures on an idle machine, for each recipe, a step and `bench`'s FMA
ceiling, and says the minutes that they make, here and on cores that reach 550 GFLOP/s.
"""

import argparse
import os
import pathlib
import re
import shlex
import statistics
import sys
import tempfile
import time

from launch import begin, locked, of_evaluation, output_of, read_json, rows, write_json

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = 550  # GFLOP/s of multiply-adds, of two cores with AVX-512: what published minutes are counted in


def wilson(part, count):
    """The 95 % interval of a part of `count` images, in %."""
    z = 1.959964
    middle = (part + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (part * (1 - part) / count + z * z / (4 * count * count)) ** 0.5
    return 100 * (middle - half), 100 * (middle + half)


def seeds(text):
    """1 to N, or A to B."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)


class Study:
    def __init__(self, arguments):
        self.arguments = arguments
        self.program = os.path.abspath(arguments.program)
        self.launch = shlex.split(arguments.launch.format(ranks=arguments.ranks)) if arguments.ranks > 1 else []

    def training(self, recipe, folder, seed, *more):
        a = self.arguments
        width = ["--width", a.width] if a.width else []
        return [*self.launch, self.program, "train", "--recipe", recipe, "--data", *a.data, *width, "--seed", seed, "--out", folder,
                "--quiet", *a.options, *more]

    def attacked(self, folder, attack, limit):
        """What `eval` says of a sequence of attacks on the first images; limit 0: of all."""
        out = folder / f"eval-{attack.replace('+', '-')}-{limit or 'all'}"
        done = out / "eval.json"
        if not done.exists():
            given = shlex.split(self.arguments.evaluation or "")
            options = given or (["--math", "f32"] if attack.startswith("aa-") else [])
            output_of([*self.launch, self.program, "eval", folder, "--eval", attack, "--limit", limit, "--out", out, "--quiet",
                       *options, *of_evaluation(self.arguments.options)])
        return read_json(done)

    def row(self, recipe, seed):
        a = self.arguments
        folder = a.out / f"{recipe}-{f'w{a.width}' if a.width else 'own'}-seed{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        with locked(a.out / f"{folder.name}.lock", wait=True):
            row = self.made(recipe, seed, folder)
            if a.results:
                append(a.results, text_of(row))
        return row

    def made(self, recipe, seed, folder):
        a = self.arguments
        facts = {"ranks": a.ranks, "options": a.options, "evaluation": a.evaluation, "data": [os.path.abspath(path) for path in a.data]}
        begun = begin(folder / "begun.json", facts, folder, machine=machine())
        finished = folder / "row.json"
        attacks = [["pgd50x10+fgsmx10", 0 if a.all else a.images], ["aa-quick", a.images], *([["aa-standard", a.images]] if a.standard else [])]
        if finished.exists():
            row = read_json(finished)
            if row["attacks"] == attacks and "date" in row:
                return row
        output_of(self.training(recipe, folder, seed))
        steps = rows(folder, "step")
        print(f"{recipe}, seed {seed}: trained, {steps[-1]['wall_time'] / 60:.0f} minutes", flush=True)
        found = {}
        for attack, limit in attacks:
            told = self.attacked(folder, attack, limit)
            found[attack] = told["sequence"]["accuracy"], told["images"]
            print(f"{recipe}, seed {seed}: {attack} {100 * found[attack][0]:.2f} %", flush=True)
        last = [row for row in rows(folder, "evaluation") if row["split"] == "test" and row.get("weights", "raw") == told["weights"]][-1]
        found["clean"] = last["clean_acc"], last["images"]
        provenance = read_json(folder / "provenance.json")
        row = {"date": time.strftime("%Y-%m-%d"), "recipe": recipe, "width": a.width, "seed": seed, "ranks": a.ranks,
               "options": a.options, "evaluation": a.evaluation, "attacks": attacks, "found": found, "epochs": steps[-1]["epoch"] + 1, "steps": len(steps), "minutes": steps[-1]["wall_time"] / 60,
               "bytes": statistics.fmean(step["bytes_sent"] for step in steps),
               "attack_passes": sum(step["attack_passes"] for step in steps) / sum(step["images"] for step in steps),
               "commit": provenance["git_sha1"][:7] + ("+" if provenance["git_dirty"] else ""),
               "machine": begun["machine"] if provenance["backend"].startswith("cpu") else provenance["backend"]}
        write_json(finished, row)
        return row

    def idle(self, recipe):
        """Minutes of a training on an idle machine, and its GFLOP/s."""
        a = self.arguments
        ceiling = output_of([self.program, "bench", "--network", "small_cnn", "--width", 16, "--batch", 16, "--seconds", 8])
        gflops = re.search(r"FMA in registers +\S+ +(\S+) GFLOP/s", ceiling)
        if gflops is None:
            sys.exit("--idle counts in GFLOP/s of a CPU, which this program's bench has not measured here")
        gflops = float(gflops[1])
        version = output_of([self.program, "--version"])
        commit = re.search(r"commit +(\w+)", version)[1][:7] + ("+" if "local changes" in version else "")
        with tempfile.TemporaryDirectory() as folder:
            plan = output_of([*self.training(recipe, folder, 1, "--max-steps", a.idle_steps, "--eval-every", 0, "--limit-test", 16)])
            steps = rows(pathlib.Path(folder), "step")
        times = [step["wall_time"] for step in steps]
        second = statistics.median(b - a for a, b in zip(times[len(times) // 3:], times[len(times) // 3 + 1:]))
        all_steps = int(re.search(r"\d+ of (\d+) steps", plan)[1])
        minutes = all_steps * second / 60
        print(f"{recipe}, width {a.width or 'own'}: a step {second:.3f} s, {all_steps} steps: {minutes:.1f} minutes on an idle machine with "
              f"{gflops:.0f} GFLOP/s of multiply-adds, {minutes * gflops / CORES:.1f} on one with {CORES}; {machine()}, {commit}", flush=True)


def append(path, line):
    """Adds the line to a file, once."""
    with open(path, "a+") as file:
        file.seek(0)
        if line not in file.read().splitlines():
            file.write(line + "\n")


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", text)
    return f"{os.cpu_count()} cores {model[1] if model else ''} {'AVX-512' if ' avx512f ' in text else 'AVX2'}"


def text_of(row):
    parts = []
    for attack in ["clean", *(name for name in row["found"] if name != "clean")]:
        part, count = row["found"][attack]
        low, high = wilson(part, count)
        parts.append(f"{attack} {100 * part:.2f} [{low:.1f}, {high:.1f}] of {count}")
    return (f"{row['date']} {row['recipe']}, width {row['width'] or 'own'}, seed {row['seed']}, {row['ranks']} rank(s)"
            f"{', ' + shlex.join(row['options']) if row['options'] else ''}"
            f"{', evaluated with ' + row['evaluation'] if row.get('evaluation') else ''}: {'; '.join(parts)}; {row['epochs']} epochs, {row['steps']} steps, "
            f"{row['attack_passes']:.2f} attack passes, {row['bytes'] / 1e6:.2f} MB a step; {row['minutes'] / 60:.2f} h beside other work; {row['commit']}; "
            f"{row['machine']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="\n".join(__doc__.splitlines()[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--program", default=ROOT / "build" / "cpu" / "dat_hpc")
    parser.add_argument("--data", nargs="+", required=True, help="CIFAR-10, made by 'dat_hpc data convert'")
    parser.add_argument("--width", type=int, help="of the network, in place of the recipe's")
    parser.add_argument("--seeds", type=seeds, default=range(1, 2), metavar="N|A-B")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--launch", default="mpirun -np {ranks}")
    parser.add_argument("--images", type=int, default=2000, help="for the attacks (2000)")
    parser.add_argument("--all", action="store_true", help="PGD-50 on all images")
    parser.add_argument("--standard", action="store_true", help="aa-standard, too")
    parser.add_argument("--evaluation", metavar="OPTIONS", help="of `dat_hpc eval`, as --evaluation='--math tf32 --batch 1024'; without it "
                        "AutoAttack's products are f32")
    parser.add_argument("--idle", action="store_true", help="measure the time of a step, nothing else")
    parser.add_argument("--idle-steps", type=int, default=16)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/full_size"))
    parser.add_argument("--results", help="file that a line is appended to for each finished run, as docs/results/DATE-full-size.txt")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.options = words[at + 1:]
    if arguments.results:
        try:
            open(arguments.results, "a").close()
        except OSError as error:
            sys.exit(f"--results {arguments.results}: {error.strerror}")
    study = Study(arguments)
    for recipe in arguments.recipes:
        if arguments.idle:
            study.idle(recipe)
            continue
        for seed in arguments.seeds:
            print(text_of(study.row(recipe, seed)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
