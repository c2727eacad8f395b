"""What --stale-attack costs in accuracy: stale_attack.py PROGRAM --data cifar10.h5 [--iterations 0 1 2 5 10] [--seeds 5]

Trains the recipe once for each number of iterations and each seed, in turns, and prints clean and robust accuracy on the
test images, then the difference from --stale-attack 0 with the same seed: its mean and the 95 % interval of the mean
(Student's t over the pairs). What follows `--` goes to every run; a run that is finished is not made again.

The recipe is jobs/cifar10_small.toml with PGD-10 in training, so that 10 iterations can be stale.
"""

import argparse
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

import h5py
import student

kRecipe = pathlib.Path(__file__).resolve().parent.parent / "jobs" / "cifar10_small.toml"


def accuracy(arguments, iterations, seed):
    """Clean and robust accuracy of a run in per cent, which is made if need be."""
    folder = arguments.out / f"stale{iterations}-seed{seed}"
    command = shlex.split(arguments.launch) + [
        os.path.abspath(arguments.program), "train", "--config", str(kRecipe), "--data", arguments.data, "--out",
        str(folder), "--attack-steps", str(arguments.steps), "--alpha", arguments.alpha, "--seed", str(seed),
        "--stale-attack", str(iterations), "--quiet", *arguments.options]
    if not (folder / "results.h5").exists():
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
        if ended.returncode != 0:
            sys.exit(f"{shlex.join(command)}: exit code {ended.returncode}\n{ended.stdout}")
    with h5py.File(folder / "results.h5") as file:
        return tuple(100 * float(file[f"history/evaluation/{name}"][-1]) for name in ("clean_acc", "adv_acc"))


def against_exact(differences):
    mean, half = student.interval(differences)
    return f"{mean:+.2f}" + (f" [{mean - half:+.2f}, {mean + half:+.2f}]" if len(differences) > 1 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--data", required=True, help="CIFAR-10, made by 'dat_hpc data convert'")
    parser.add_argument("--launch", default="mpirun -np 2")
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 2, 5, 10], help="beside 0")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="--attack-steps of the training")
    parser.add_argument("--alpha", default="2/255")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/stale_attack"))
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.options = words[at + 1:]
    numbers = [0] + [number for number in arguments.iterations if number != 0]
    found = {number: [] for number in numbers}
    for seed in range(1, arguments.seeds + 1):
        for number in numbers:
            found[number].append(accuracy(arguments, number, seed))
            print(f"seed {seed}, --stale-attack {number}: clean {found[number][-1][0]:.2f} %, "
                  f"attacked {found[number][-1][1]:.2f} %", flush=True)
    print(f"\n{arguments.seeds} seeds, points against --stale-attack 0, mean and 95 % interval of the mean")
    print(f"{'--stale-attack':<16}{'clean %':>9}{'attacked %':>12}{'clean':>26}{'attacked':>26}")
    for number in numbers:
        means = [statistics.mean(run[k] for run in found[number]) for k in range(2)]
        against = ["-" if number == 0 else against_exact([run[k] - exact[k] for run, exact in zip(found[number], found[0])])
                   for k in range(2)]
        print(f"{number:<16}{means[0]:>9.2f}{means[1]:>12.2f}{against[0]:>26}{against[1]:>26}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
