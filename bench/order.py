"""What one order of sums at any number of ranks costs: order.py PROGRAM [--ranks 1 2] [--micro-batches 4 6]

Runs `PROGRAM train` with and without --deterministic in turns (A B A B), with the same total batch and micro-batches, for each
number of ranks and of micro-batches, and prints, as medians over the steps of all runs but the first two of each run:

    fast, ordered   seconds of a step without and with --deterministic
    price           what the order adds, in percent of the fast step: the median over the pairs, and the least and the most
    MB fast, MB     gradients that rank 0 gives to MPI in a step

On a CPU; on a GPU --deterministic also chooses other algorithms. Numbers of micro-batches that the ranks do not divide have no
fast run beside them: there "ordered" is compared with nothing.
"""

import os
import pathlib
import shlex
import statistics
import tempfile

import study
from launch import output_of, rows, seconds_of

FIRST = 2  # steps of a run that are not counted


def train(arguments, ranks, micro_batches, ordered, folder):
    total = micro_batches * arguments.micro_batch
    batch = ["--deterministic", "--total-batch", total] if ordered else ["--batch", total // ranks]
    output_of([*shlex.split(arguments.launch), "-np", ranks, os.path.abspath(arguments.program), "train", "--out", folder,
               *batch, "--micro-batch", arguments.micro_batch, "--network", arguments.network, "--width", arguments.width,
               "--attack", arguments.attack, "--attack-steps", arguments.attack_steps, "--device", "cpu",
               "--warmup-epochs", 0, "--epochs", 1000, "--limit-test", 1, "--eval", "fgsm", "--eval-every", 0,
               "--checkpoint-every", 1000000, "--max-steps", arguments.steps, "--threads", max(1, arguments.cores // ranks),
               "--quiet", *(["--data", *arguments.data] if arguments.data else [])])
    steps = rows(folder, "step")[FIRST:]
    return statistics.median(map(seconds_of, steps)), statistics.median(step["bytes_sent"] for step in steps) * 1e-6


def main():
    arguments, _ = study.parsed(
        __doc__, launch=("mpirun", "what stands before -np and the program"), ranks=[1, 2],
        micro_batches=([4, 6], "of a step, on all ranks together"), micro_batch=(16, "images"),
        network="preact_resnet18", width=64, attack="pgd", attack_steps=10,
        cores=(len(os.sched_getaffinity(0)), "shared out to the ranks"), data=([], "none: the built-in set"),
        steps=(6, "of a run"), pairs=5)
    print(f"{'ranks':>5}{'micro-batches':>15}{'fast, s':>11}{'ordered, s':>12}{'price, %':>22}{'MB fast':>10}{'MB':>8}")
    for ranks in arguments.ranks:
        for micro_batches in arguments.micro_batches:
            if micro_batches < ranks:
                continue
            found = {False: [], True: []}
            for pair in range(arguments.pairs):
                for ordered in (False, True) if pair % 2 == 0 else (True, False):
                    if not ordered and micro_batches % ranks != 0:
                        continue
                    with tempfile.TemporaryDirectory() as top:
                        found[ordered].append(train(arguments, ranks, micro_batches, ordered, pathlib.Path(top) / "run"))
            seconds = {kind: [one[0] for one in runs] for kind, runs in found.items()}
            line = f"{ranks:5}{micro_batches:15}"
            if found[False]:
                prices = sorted(100 * (slow / fast - 1) for fast, slow in zip(seconds[False], seconds[True]))
                price = f"{statistics.median(prices):+.1f} ({prices[0]:+.1f} .. {prices[-1]:+.1f})"
                line += f"{statistics.median(seconds[False]):11.4f}{statistics.median(seconds[True]):12.4f}{price:>22}{found[False][0][1]:10.1f}"
            else:
                line += f"{'':11}{statistics.median(seconds[True]):12.4f}{'':>22}{'':>10}"
            print(line + f"{found[True][0][1]:8.1f}", flush=True)


if __name__ == "__main__":
    main()
