"""What attacks on old weights cost in accuracy: staleness.py PROGRAM --data cifar10.h5 [--option staleness] [--values 1 4 8] [--seeds 3]

Trains the same network for the same number of steps with each value of the option and each seed, in turns, and prints clean and robust
accuracy on test images, then the differences from the value 0 with the same seed: their mean and its 95 % interval (Student's t over
the pairs). A run that is finished is not made again, one that was interrupted goes on; other options want another --out. Options after
`--` go to every run.

  staleness     the age of the weights in steps, on one rank of two threads, by rule: the images are those that ranks which only attack
                would make. 754 steps of 64 images, PGD-20 on the first 2,000 test images
  stale-attack  how many of ten iterations are made on the weights before, on two ranks: jobs/cifar10_small.toml with PGD-10
"""

import os
import pathlib
import sys

import study
from launch import rows

RECIPE = pathlib.Path(__file__).resolve().parent.parent / "jobs" / "cifar10_small.toml"
OPTIONS = {  # values beside 0, what is put before the program, other options
    "staleness": ([1, 4, 8], "", [
        "--network", "preact_resnet18", "--width", 16, "--threads", 2, "--batch", 64, "--attack", "pgd", "--attack-steps", 8,
        "--alpha", "2/255", "--lambda", 0, "--selector", "all", "--optimizer", "sgd:nesterov", "--lr", 0.1, "--momentum", 0.9,
        "--weight-decay", 5e-4, "--schedule", "linear", "--warmup-epochs", 0, "--eval", "pgd20", "--eval-every", 0,
        "--limit-test", 2000, "--limit-train", 48256, "--epochs", 1]),
    "stale-attack": ([1, 2, 5, 10], "mpirun -np 2", ["--config", RECIPE, "--attack-steps", 10, "--alpha", "2/255"]),
}


def figures(folder):
    last = rows(folder, "evaluation")[-1]
    return {"clean": 100 * last["clean_acc"], "robust": 100 * last["adv_acc"]}


def main():
    arguments, _ = study.parsed(
        __doc__, data=([...], "CIFAR-10, made by 'dat_hpc data convert'"), option=("staleness", "", list(OPTIONS)),
        values=([], "beside 0: 1 4 8, or 1 2 5 10"), seeds=3, launch=(None, "before the program: nothing, or mpirun -np 2"),
        out=(None, "runs/OPTION"))
    values, launch, options = OPTIONS[arguments.option]
    launch = launch if arguments.launch is None else arguments.launch
    runs = study.Runs(arguments.out or f"runs/{arguments.option}", arguments.program, launch)
    found = {value: [] for value in [0, *map(int, arguments.values or values)]}
    for seed in range(1, arguments.seeds + 1):
        for value, made in found.items():
            made.append(runs.trained(f"{arguments.option}{value}-seed{seed}", [
                "--data", *map(os.path.abspath, arguments.data), *options, "--seed", seed, f"--{arguments.option}", value,
                *arguments.options], figures))
            print(f"seed {seed}, --{arguments.option} {value}: {study.means(made[-1:], made[-1])}", flush=True)
    print(f"\n{arguments.seeds} seeds, points against --{arguments.option} 0, mean and 95 % interval of the mean")
    study.compared(f"--{arguments.option}", {value: str(value) for value in found}, found, ["clean", "robust"], 16)
    return 0


if __name__ == "__main__":
    sys.exit(main())
