"""What the comparison of the ranks costs a run: the seconds of its steps with --check-every 10 and without, in turns.

Usage: check_cost.py PATH/TO/dat_hpc [--launch "mpirun -np 2"] [--pairs N] [--epochs N] [--against "OPTIONS"] [options of train ...]
       e.g. check_cost.py build/dat_hpc --network resnet18 --width 64 --batch 16 --limit-train 640

Both kinds of run make the same steps, with the same bits (this is checked). Seconds are those of all steps but the first
two, evaluations and checkpoints aside. Beside them, what tells more where a machine has other work: within the run with
checks, the median of phase `other`, in which the comparison is, of the steps after one, less that of all other steps, over
the median seconds of ten steps (ten: --every). --against: other options than --check-every 10, for instance
"--check-every 0 --verify 100"; there only the whole runs are compared.
"""

import argparse
import os
import pathlib
import shlex
import statistics
import tempfile
import types

from launch import output_of, rows, seconds_of

FIRST = 2


def measure(a, options, folder):
    output_of([*shlex.split(a.launch), os.path.abspath(a.program), "train", "--out", folder, "--quiet", "--epochs", a.epochs,
               "--warmup-epochs", 0, "--milestones", 1000000, "--eval-every", 0, "--eval", "fgsm", "--limit-test", 16,
               *options, *a.options])
    steps = rows(folder, "step")[FIRST:]
    seconds = [*map(seconds_of, steps)]
    # What is done after a step is in the times of the next one; after the last step of an epoch there is more than a check.
    inside = [row for row in steps if (row["step"] - 1) % row["steps_per_epoch"]]
    other = [[row["t_other"] for row in inside if ((row["step"] - 1) % a.every == 0) == behind] for behind in (False, True)]
    weights = next(line for line in (folder / "SUMMARY.txt").read_text().splitlines() if line.startswith("weights"))
    return types.SimpleNamespace(seconds=sum(seconds), step=statistics.median(seconds), other=other, steps=len(steps), weights=weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--launch", default="mpirun -np 2")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--against", help="other options than --check-every EVERY")
    a, a.options = parser.parse_known_args()
    shares, checks = [], []
    for pair in range(a.pairs):
        with tempfile.TemporaryDirectory(prefix="dat-check-", dir=".") as folder:
            plain = measure(a, ["--check-every", "0"], pathlib.Path(folder) / "plain")
            checked = measure(a, shlex.split(a.against or f"--check-every {a.every}"), pathlib.Path(folder) / "checked")
        assert plain.weights == checked.weights, "the weights differ"
        shares.append(checked.seconds / plain.seconds - 1)
        line = f"{plain.seconds:9.3f} s without, {checked.seconds:9.3f} s with, of {plain.steps} steps: {100 * shares[-1]:+7.3f} %"
        if not a.against:
            without, behind = (statistics.median(times) for times in checked.other)
            checks.append((behind - without) / (a.every * checked.step))
            line += (f"; a check {1e3 * (behind - without):.3f} ms, a step {1e3 * checked.step:.1f} ms, {len(checked.other[1])} checks:"
                     f" {100 * checks[-1]:+.3f} %")
        print(line, flush=True)
    text = f"; within the runs {100 * statistics.median(checks):+.3f} %" if checks else ""
    print(f"whole runs, median {100 * statistics.median(shares):+.3f} %{text}")


main()
