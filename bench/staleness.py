"""What attacks on old weights cost in accuracy: staleness.py PROGRAM --data cifar10.h5 [--ages 0 1 4 8] [--seeds 3]

Trains the same network for the same number of steps with each --staleness, and prints clean accuracy and accuracy under PGD-20 on
the first 2,000 test images, then the differences from --staleness 0 with the same seed: their mean and its 95 % interval (Student's
t over the pairs). By rule, on one rank of two threads: the images are those that ranks which only attack would make.

The number of steps is what --staleness 0 makes in --minutes, measured once and kept in OUT/measured.json; the training images are
as many as these steps take, once each, or all of them as often as needed, and the learning rate falls to 0. A run that is
finished is not made again, one that was interrupted goes on; other options want another --out. OUT/table.jsonl has all
rows, OUT/accuracy.svg the picture (gnuplot). Options after `--` go to every run.
"""

import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import study
from launch import rows
from study import IMAGES

NETWORK = ["--network", "preact_resnet18", "--width", 16, "--threads", 2, "--batch", 64, "--attack", "pgd", "--attack-steps", 8,
           "--alpha", "2/255", "--lambda", 0, "--selector", "all", "--optimizer", "sgd:nesterov", "--lr", 0.1, "--momentum", 0.9,
           "--weight-decay", 5e-4, "--schedule", "linear", "--warmup-epochs", 0, "--eval", "pgd20", "--eval-every", 0,
           "--limit-test", 2000]
BATCH = 64
COLUMNS = ["clean", "PGD-20"]


def training(arguments, steps, *options):
    images = min(IMAGES, steps * BATCH)
    return ["--data", *map(os.path.abspath, arguments.data), *NETWORK, "--limit-train", images, "--epochs", math.ceil(steps * BATCH / images), "--max-steps",
            steps, *options, *arguments.options]


def steps_in(arguments, runs):
    """What --staleness 0 makes in so many minutes, evaluation left out."""
    def figures(folder):
        times = [row["wall_time"] for row in rows(folder, "step")]
        return {"seconds": statistics.median(later - earlier for earlier, later in zip(times[1:], times[2:]))}
    seconds = runs.trained("measured", training(arguments, 12, "--limit-test", 16), figures)["seconds"]
    return max(2, round(60 * arguments.minutes / seconds))


def row_of(arguments, runs, steps, age, seed):
    def figures(folder):
        if (made := len(rows(folder, "step"))) != steps:
            sys.exit(f"{folder}: {made} steps, not {steps}: {' '.join(arguments.data)} has too few images")
        return {"age": age, "seed": seed, "steps": steps} | study.accuracies(folder, **{"PGD-20": "pgd20"})
    return runs.trained(f"age{age}-seed{seed}", training(arguments, steps, "--seed", seed, "--staleness", age), figures)


def draw(arguments, found):
    """Accuracy against age."""
    if shutil.which("gnuplot") is None:
        print("no gnuplot: no picture")
        return
    lines = []
    with open(arguments.out / "accuracy.csv", "w") as file:
        for column, colour in zip(COLUMNS, ("#0072b2", "#d55e00")):
            for age, made in found.items():
                values = [row[column] for row in made]
                file.write(f"{age},{statistics.mean(values)},{min(values)},{max(values)}\n")
            file.write("\n\n")
            lines.append(f"'accuracy.csv' index {len(lines)} using 1:2:3:4 with yerrorlines lw 1.5 pt 7 lc rgb '{colour}' title '{column}'")
    script = ("set terminal svg size 800,500 background rgb 'white'\nset output 'accuracy.svg'\nset datafile separator ','\n"
              "set title 'accuracy against the age of the weights that are attacked (mean, lowest and highest seed)'\n"
              "set xlabel 'age K of the oldest weights, in steps'\nset ylabel 'accuracy (%)'\nset key outside bottom center\n"
              f"set grid\nset offsets 0.3,0.3,1,1\nplot {', '.join(lines)}\n")
    (arguments.out / "accuracy.gp").write_text(script)
    subprocess.run(["gnuplot", "accuracy.gp"], cwd=arguments.out, check=True)


def main():
    arguments, _ = study.parsed(
        __doc__, data=([...], "CIFAR-10, made by 'dat_hpc data convert'"), ages=([1, 4, 8], "beside 0"), seeds=3,
        minutes=(3.0, "of a training with --staleness 0"), out=pathlib.Path("runs/staleness"))
    runs = study.Runs(arguments.out, arguments.program)
    steps = steps_in(arguments, runs)
    found = {age: [] for age in [0, *arguments.ages]}
    for seed in range(1, arguments.seeds + 1):
        for age, made in found.items():
            made.append(row_of(arguments, runs, steps, age, seed))
            print(json.dumps(made[-1]), flush=True)
    (arguments.out / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for made in found.values() for row in made))
    print(f"\n{steps} steps of {BATCH} images, {arguments.seeds} seeds; points against --staleness 0, mean and 95 % interval of the mean")
    study.compared("age", {age: str(age) for age in found}, found, COLUMNS, 5)
    draw(arguments, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
