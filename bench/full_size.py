"""Recipes trained to their end and evaluated: full_size.py RECIPE... --data cifar10.h5 [--width W] [--seeds N] [-- OPTIONS]

Each recipe (jobs/full/NAME.toml, or any other that --recipe knows) is trained with seeds 1 to N and evaluated: clean
accuracy on all test images; the worst of PGD-50 from ten random starts (steps of eps/4) and FGSM, and aa-quick
(AutoAttack's first two attacks), on the first 2,000 images. --all takes all images for PGD-50, --standard has
aa-standard, too. Options after `--` go to every training.

The same command goes on where it was stopped: trainings from their last checkpoint, evaluations from their journal; what is
finished is not made again. A finished run appends one line to --results: accuracies with 95 % intervals (Wilson) of the
images drawn, hours, commit, machine. Accuracies do not depend on what else runs, hours do; --idle therefore measures on an
idle machine, for each recipe, a step and `bench`'s FMA ceiling, and says the minutes that they make, here and on cores that
reach 550 GFLOP/s.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import sys
import tempfile
import time

from launch import output_of, rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = 550  # GFLOP/s of multiply-adds, of two cores with AVX-512: what published minutes are counted in


def wilson(part, count):
    """The 95 % interval of a part of `count` images, in %."""
    z = 1.959964
    middle = (part + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (part * (1 - part) / count + z * z / (4 * count * count)) ** 0.5
    return 100 * (middle - half), 100 * (middle + half)


class Study:
    def __init__(self, arguments):
        self.arguments = arguments
        self.program = os.path.abspath(arguments.program)
        self.launch = shlex.split(arguments.launch.format(ranks=arguments.ranks)) if arguments.ranks > 1 else []
        version = output_of([self.program, "--version"])
        self.commit = re.search(r"commit +(\w+)", version)[1][:7] + ("+" if "local changes" in version else "")

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
            options = ["--restarts", 10] if "pgd" in attack else []
            output_of([*self.launch, self.program, "eval", "--checkpoint", folder, "--eval", attack, "--limit", limit, "--out", out, "--quiet",
                  *options])
        return json.loads(done.read_text())

    def row(self, recipe, seed):
        a = self.arguments
        folder = a.out / f"{recipe}-{f'w{a.width}' if a.width else 'own'}-seed{seed}"
        finished = folder / "row.json"
        attacks = [["pgd50+fgsm", 0 if a.all else a.images], ["aa-quick", a.images], *([["aa-standard", a.images]] if a.standard else [])]
        if finished.exists():
            row = json.loads(finished.read_text())
            if [row["ranks"], row["options"]] != [a.ranks, a.options]:
                sys.exit(f"{folder} was made with {row['ranks']} rank(s) and the options '{shlex.join(row['options'])}': choose another --out")
            if row["attacks"] == attacks:
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
        row = {"recipe": recipe, "width": a.width, "seed": seed, "ranks": a.ranks, "options": a.options, "attacks": attacks,
               "found": found, "epochs": steps[-1]["epoch"] + 1, "steps": len(steps), "minutes": steps[-1]["wall_time"] / 60,
               "bytes": statistics.fmean(step["bytes_sent"] for step in steps),
               "attack_passes": sum(step["attack_passes"] for step in steps) / sum(step["images"] for step in steps),
               "commit": self.commit, "machine": machine(told["provenance"]["backend"])}
        finished.write_text(json.dumps(row) + "\n")
        if a.results:
            with open(a.results, "a") as file:
                file.write(text_of(row) + "\n")
        return row

    def idle(self, recipe):
        """Minutes of a training on an idle machine, and its GFLOP/s."""
        a = self.arguments
        ceiling = output_of([self.program, "bench", "--network", "small_cnn", "--width", 16, "--batch", 16, "--seconds", 8])
        gflops = float(re.search(r"FMA in registers +\S+ +(\S+) GFLOP/s", ceiling)[1])
        with tempfile.TemporaryDirectory() as folder:
            plan = output_of([*self.training(recipe, folder, 1, "--max-steps", a.idle_steps, "--eval-every", 0, "--limit-test", 16)])
            steps = rows(pathlib.Path(folder), "step")
        times = [step["wall_time"] for step in steps]
        second = statistics.median(b - a for a, b in zip(times[len(times) // 3:], times[len(times) // 3 + 1:]))
        all_steps = int(re.search(r"\d+ of (\d+) steps", plan)[1])
        minutes = all_steps * second / 60
        print(f"{recipe}, width {a.width or 'own'}: a step {second:.3f} s, {all_steps} steps: {minutes:.1f} minutes on an idle machine with "
              f"{gflops:.0f} GFLOP/s of multiply-adds, {minutes * gflops / CORES:.1f} on one with {CORES}; {machine()}, {self.commit}", flush=True)


def machine(backend="cpu"):
    """backend: what an evaluation says of it."""
    if not backend.startswith("cpu"):
        return backend
    with open("/proc/cpuinfo") as file:
        text = file.read()
    model = re.search(r"model name\s*: (.*)", text)
    return f"{os.cpu_count()} cores {model[1] if model else ''} {'AVX-512' if ' avx512f ' in text else 'AVX2'}"


def text_of(row):
    parts = []
    for attack in ["clean", *(name for name in row["found"] if name != "clean")]:
        part, count = row["found"][attack]
        low, high = wilson(part, count)
        parts.append(f"{attack} {100 * part:.2f} [{low:.1f}, {high:.1f}] of {count}")
    return (f"{time.strftime('%Y-%m-%d')} {row['recipe']}, width {row['width'] or 'own'}, seed {row['seed']}, {row['ranks']} rank(s)"
            f"{', ' + shlex.join(row['options']) if row['options'] else ''}: {'; '.join(parts)}; {row['epochs']} epochs, {row['steps']} steps, "
            f"{row['attack_passes']:.2f} attack passes, {row['bytes'] / 1e6:.2f} MB a step; {row['minutes'] / 60:.2f} h beside other work; {row['commit']}; "
            f"{row['machine']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="\n".join(__doc__.splitlines()[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--program", default=ROOT / "build" / "cpu" / "dat_hpc")
    parser.add_argument("--data", nargs="+", required=True, help="CIFAR-10, made by 'dat_hpc data convert'")
    parser.add_argument("--width", type=int, help="of the network, in place of the recipe's")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--launch", default="mpirun -np {ranks}")
    parser.add_argument("--images", type=int, default=2000, help="for the attacks (2000)")
    parser.add_argument("--all", action="store_true", help="PGD-50 on all images")
    parser.add_argument("--standard", action="store_true", help="aa-standard, too")
    parser.add_argument("--idle", action="store_true", help="measure the time of a step, nothing else")
    parser.add_argument("--idle-steps", type=int, default=16)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/full_size"))
    parser.add_argument("--results", help="file that a line is appended to for each finished run, as docs/results/DATE-full-size.txt")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.options = words[at + 1:]
    study = Study(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for recipe in arguments.recipes:
        if arguments.idle:
            study.idle(recipe)
            continue
        for seed in range(1, arguments.seeds + 1):
            print(text_of(study.row(recipe, seed)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
