"""What attacks on old weights cost in accuracy: staleness.py PROGRAM --data cifar10.h5 [--ages 0 1 4 8] [--seeds 3]

Trains the same network for the same number of steps with each --staleness, with newer weights between the iterations of an
attack (--refresh iteration) and with the oldest throughout (attack; one and the same at an age of 1), and prints clean
accuracy and accuracy under PGD-20 on the first 2,000 test images, then the differences from --staleness 0 with the same
seed: their mean and its 95 % interval (Student's t over the pairs). By rule, on one rank of two threads: the images are
those that ranks which only attack would make.

The number of steps is what --staleness 0 makes in --minutes, measured once and kept in OUT/steps; the training images are
as many as these steps take, once each, or all of them as often as needed, and the learning rate falls to 0. A run that is
finished is not made again, one that was interrupted goes on; other options want another --out. OUT/table.jsonl has all
rows, OUT/accuracy.svg the picture (gnuplot). Options after `--` go to every run.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import student
from launch import begin, output_of, read_json, rows, write_json

NETWORK = ["--network", "preact_resnet18", "--width", 16, "--threads", 2, "--batch", 64, "--attack", "pgd", "--attack-steps", 8,
           "--alpha", "2/255", "--lambda", 0, "--selector", "all", "--optimizer", "sgd", "--lr", 0.1, "--momentum", 0.9, "--nesterov",
           "--weight-decay", 5e-4, "--schedule", "linear", "--warmup-epochs", 0, "--eval", "pgd20", "--eval-every", 0,
           "--limit-test", 2000, "--quiet"]
BATCH = 64
IMAGES = 50_000  # of an epoch of CIFAR-10


def train(arguments, folder, steps, *options):
    images = min(IMAGES, steps * BATCH)
    output_of([os.path.abspath(arguments.program), "train", "--data", *arguments.data, "--out", folder, *NETWORK, "--limit-train", images,
               "--epochs", math.ceil(steps * BATCH / images), "--max-steps", steps, *options, *arguments.options])
    made = len(rows(folder, "step"))
    if made != steps:
        sys.exit(f"{folder}: {made} steps, not {steps}: {' '.join(arguments.data)} has too few images")


def number_of_steps(arguments):
    """What --staleness 0 makes in so many minutes, evaluation left out."""
    kept = arguments.out / "steps"
    if not kept.exists():
        folder = arguments.out / "measured"
        shutil.rmtree(folder, ignore_errors=True)
        train(arguments, folder, 12, "--limit-test", 16)
        times = [row["wall_time"] for row in rows(folder, "step")]
        seconds = statistics.median(later - earlier for earlier, later in zip(times[1:], times[2:]))
        kept.write_text(f"{max(2, round(60 * arguments.minutes / seconds))}\n")
    return int(kept.read_text())


def row_of(arguments, steps, age, refresh, seed):
    """A run, which is made if need be."""
    folder = arguments.out / f"age{age}-{refresh}-seed{seed}"
    row = folder / "row.json"
    if not row.exists():
        options = ["--staleness", age, "--refresh", refresh] if age > 0 else []
        train(arguments, folder, steps, "--seed", seed, *options)
        last = [one for one in rows(folder, "evaluation") if (one["split"], one["attack"]) == ("test", "pgd20")][-1]
        write_json(row, {"age": age, "refresh": refresh, "seed": seed, "steps": steps, "images": last["images"],
                         "clean": 100 * last["clean_acc"], "pgd20": 100 * last["adv_acc"]})
    return read_json(row)


def draw(arguments, cells, found):
    """Accuracy against age, a line for each refresh; every line begins with age 0."""
    if shutil.which("gnuplot") is None:
        print("no gnuplot: no picture")
        return
    lines = []
    with open(arguments.out / "accuracy.csv", "w") as file:
        for key, title in ("clean", "clean"), ("pgd20", "PGD-20"):
            for refresh, colour in ("iteration", "#0072b2"), ("attack", "#d55e00"):
                for age, of in cells:
                    if of == refresh or age <= 1:
                        values = [row[key] for row in found[age, of]]
                        file.write(f"{age},{statistics.mean(values)},{min(values)},{max(values)}\n")
                file.write("\n\n")
                lines.append(f"'accuracy.csv' index {len(lines)} using 1:2:3:4 with yerrorlines lw 1.5 pt 7 "
                             f"dt {1 if key == 'pgd20' else 2} lc rgb '{colour}' title '{title}, refresh {refresh}'")
    script = ("set terminal svg size 800,500 background rgb 'white'\nset output 'accuracy.svg'\nset datafile separator ','\n"
              "set title 'accuracy against the age of the weights that are attacked (mean, lowest and highest seed)'\n"
              "set xlabel 'age K of the oldest weights, in steps'\nset ylabel 'accuracy (%)'\nset key outside bottom center\n"
              f"set grid\nset offsets 0.3,0.3,1,1\nplot {', '.join(lines)}\n")
    (arguments.out / "accuracy.gp").write_text(script)
    subprocess.run(["gnuplot", "accuracy.gp"], cwd=arguments.out, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--data", nargs="+", required=True, help="CIFAR-10, made by 'dat_hpc data convert'")
    parser.add_argument("--ages", type=int, nargs="+", default=[1, 4, 8], help="beside 0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=3, help="of a training with --staleness 0")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/staleness"))
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.options = words[at + 1:]
    cells = [(0, "iteration")] + [(age, refresh) for age in arguments.ages if age > 0
                                  for refresh in (("iteration", "attack") if age > 1 else ("iteration",))]
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin(arguments.out / "begun.json", {"data": [os.path.abspath(path) for path in arguments.data], "options": arguments.options,
                                         "minutes": arguments.minutes})
    steps = number_of_steps(arguments)
    found = {cell: [] for cell in cells}
    for seed in range(1, arguments.seeds + 1):
        for cell in cells:
            found[cell].append(row_of(arguments, steps, *cell, seed))
            print(json.dumps(found[cell][-1]), flush=True)
    (arguments.out / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for rows in found.values() for row in rows))
    print(f"\n{steps} steps of {BATCH} images, {arguments.seeds} seeds; points against --staleness 0, mean and 95 % interval of the mean")
    print(f"{'age':<5}{'refresh':<11}{'clean %':>9}{'PGD-20 %':>10}{'clean':>24}{'PGD-20':>24}")
    for age, refresh in cells:
        text = f"{age:<5}{refresh if age > 1 else '-':<11}"
        text += "".join(f"{statistics.mean(row[key] for row in found[age, refresh]):>{width}.2f}" for key, width in (("clean", 9), ("pgd20", 10)))
        for key in "clean", "pgd20":
            differences = [row[key] - exact[key] for row, exact in zip(found[age, refresh], found[cells[0]])]
            mean, half = student.interval(differences) if len(differences) > 1 else (differences[0], 0)
            cell = "-" if age == 0 else f"{mean:+.2f}" + (f" [{mean - half:+.2f}, {mean + half:+.2f}]" if half else "")
            text += f"{cell:>24}"
        print(text)
    draw(arguments, cells, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
