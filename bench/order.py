"""What one order of sums at any number of ranks costs: order.py PROGRAM [--ranks 1 2] [--micro-batches 4 6]

Runs `PROGRAM train` with and without --deterministic in turns (A B A B), with the same total batch and micro-batches, for each
number of ranks and of micro-batches, and prints, as medians over the steps of all runs but the first two of each run:

    fast, ordered   seconds of a step without and with --deterministic
    price           what the order adds, in percent of the fast step: the median over the pairs, and the least and the most
    MB fast, MB     gradients that rank 0 gives to MPI in a step

On a CPU; on a GPU --deterministic also chooses other algorithms. Numbers of micro-batches that the ranks do not divide have no
fast run beside them: there "ordered" is compared with nothing.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

kFirst = 2  # steps of a run that are not counted


def train(arguments, ranks, micro_batches, ordered, folder):
    total = micro_batches * arguments.micro_batch
    batch = ["--deterministic", "--total-batch", str(total)] if ordered else ["--batch", str(total // ranks)]
    command = shlex.split(arguments.launch) + ["-np", str(ranks), os.path.abspath(arguments.program), "train", "--out", str(folder)]
    command += [*batch, "--micro-batch", str(arguments.micro_batch), "--network", arguments.network, "--width", str(arguments.width),
                "--attack", arguments.attack, "--attack-steps", str(arguments.attack_steps), "--device", "cpu", "--warmup-epochs", "0",
                "--epochs", "1000", "--limit-test", "1", "--eval", "fgsm", "--eval-every", "0", "--checkpoint-every", "1000000",
                "--max-steps", str(arguments.steps), "--threads", str(max(1, arguments.cores // ranks)), "--quiet"]
    command += ["--data", *arguments.data] if arguments.data else []
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit code {ended.returncode}\n{ended.stdout}")
    with open(folder / "metrics.jsonl") as file:
        steps = [record for record in map(json.loads, file) if record["kind"] == "step"][kFirst:]
    inside = [name for name in steps[0] if name.startswith("t_") and name not in ("t_hidden", "t_evaluate", "t_checkpoint")]
    return (statistics.median(sum(step[name] for name in inside) for step in steps),
            statistics.median(step["bytes_sent"] for step in steps) * 1e-6)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--launch", default="mpirun", help="what stands before -np and the program")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[4, 6], help="of a step, on all ranks together")
    parser.add_argument("--micro-batch", type=int, default=16, help="images")
    parser.add_argument("--network", default="preact_resnet18")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--attack", default="pgd")
    parser.add_argument("--attack-steps", type=int, default=10)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="shared out to the ranks")
    parser.add_argument("--data", nargs="*", default=[], help="none: the built-in set")
    parser.add_argument("--steps", type=int, default=6, help="of a run")
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
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
