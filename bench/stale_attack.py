"""What --stale-attack costs in accuracy: stale_attack.py PROGRAM --data cifar10.h5 [--iterations 0 1 2 5 10] [--seeds 5]

Trains the recipe once for each number of iterations and each seed, in turns, and prints clean and robust accuracy on the
test images, then the difference from --stale-attack 0 with the same seed: its mean and the 95 % interval of the mean
(Student's t over the pairs). What follows `--` goes to every run; a run that is finished is not made again.

The recipe is jobs/cifar10_small.toml with PGD-10 in training, so that 10 iterations can be stale.
"""

import os
import pathlib
import sys

import study
from launch import rows

RECIPE = pathlib.Path(__file__).resolve().parent.parent / "jobs" / "cifar10_small.toml"


def figures(folder):
    last = rows(folder, "evaluation")[-1]
    return {"clean": 100 * last["clean_acc"], "robust": 100 * last["adv_acc"]}


def main():
    arguments, _ = study.parsed(
        __doc__, data=(..., "CIFAR-10, made by 'dat_hpc data convert'"), launch="mpirun -np 2",
        iterations=([1, 2, 5, 10], "beside 0"), seeds=5, steps=(10, "--attack-steps of the training"), alpha="2/255",
        out=pathlib.Path("runs/stale_attack"))
    runs = study.Runs(arguments.out, arguments.program, arguments.launch)
    found = {number: [] for number in [0, *arguments.iterations]}
    for seed in range(1, arguments.seeds + 1):
        for number, made in found.items():
            options = ["--config", RECIPE, "--data", os.path.abspath(arguments.data), "--attack-steps", arguments.steps,
                       "--alpha", arguments.alpha, "--seed", seed, "--stale-attack", number, *arguments.options]
            made.append(runs.trained(f"stale{number}-seed{seed}", options, figures))
            print(f"seed {seed}, --stale-attack {number}: {study.means(made[-1:], made[-1])}", flush=True)
    print(f"\n{arguments.seeds} seeds, points against --stale-attack 0, mean and 95 % interval of the mean")
    study.compared("--stale-attack", {number: str(number) for number in found}, found, ["clean", "robust"], 16)
    return 0


if __name__ == "__main__":
    sys.exit(main())
