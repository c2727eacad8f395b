"""What the comparison of the ranks costs a run: the seconds of its steps with --check-every 10 and without, in turns.

Usage: check_cost.py PATH/TO/dat_hpc [--launch "mpirun -np 2"] [--pairs N] [--epochs N] [--against "OPTIONS"] [options of train ...]
       e.g. check_cost.py build/dat_hpc --network resnet18 --width 64 --batch 16 --limit-train 640

Both kinds of run make the same steps, with the same bits (this is checked). Seconds are those of all steps but the first
two, evaluations and checkpoints aside. Beside them, phase `other`, in which the comparison is: it tells more than the
difference of two runs where a machine has other work. --against: other options than --check-every 10, for instance
"--check-every 0 --verify 100".
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile

FIRST = 2
ASIDE = ("t_evaluate", "t_checkpoint", "t_hidden")


def measure(a, options, folder):
    command = [*shlex.split(a.launch), os.path.abspath(a.program), "train", "--out", folder, "--quiet", "--epochs", str(a.epochs),
               "--warmup-epochs", "0", "--milestones", "1000000", "--eval-every", "0", "--eval", "none", "--limit-test", "16",
               *options, *a.options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/metrics.jsonl") as file:
        steps = [row for row in map(json.loads, file) if row["kind"] == "step"][FIRST:]
    seconds = [sum(value or 0 for name, value in row.items() if name.startswith("t_") and name not in ASIDE) for row in steps]
    with open(f"{folder}/SUMMARY.txt") as file:
        weights = next(line for line in file if line.startswith("weights"))
    return sum(seconds), sum(row["t_other"] for row in steps), len(steps), weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--launch", default="mpirun -np 2")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--against", default="--check-every 10")
    a, a.options = parser.parse_known_args()
    shares, others = [], []
    for pair in range(a.pairs):
        with tempfile.TemporaryDirectory(prefix="dat-check-", dir=".") as folder:
            plain = measure(a, ["--check-every", "0"], f"{folder}/plain")
            checked = measure(a, shlex.split(a.against), f"{folder}/checked")
        assert plain[3] == checked[3], "the weights differ"
        shares.append(checked[0] / plain[0] - 1)
        others.append((checked[1] - plain[1]) / plain[0])
        print(f"{plain[0]:9.3f} s without, {checked[0]:9.3f} s with, of {plain[2]} steps: {100 * shares[-1]:+7.3f} %;"
              f" phase other {plain[1]:.4f} and {checked[1]:.4f} s: {100 * others[-1]:+7.3f} %", flush=True)
    print(f"median {100 * statistics.median(shares):+.3f} %; by phase other {100 * statistics.median(others):+.3f} %")


main()
