"""Paired comparison with PyTorch: compare.py BENCH_STEP [--pairs N] [--form FORM ...] [--network ...] ...

Starts bench_step and peers/torch_step.py with --serve and lets them take turns, one training step each: A B A B. Only one
computes at a time. Threads that wait for work must not spin, or the idle program would slow down the busy one:
OMP_WAIT_POLICY=passive for both, unless it is already set in the environment.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

kFolder = pathlib.Path(__file__).resolve().parent


class Server:
    """One program that does a step for each line it gets."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            [str(word) for word in command] + ["--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def step(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            sys.exit(f"compare.py: {' '.join(self.process.args)} stopped with code {self.process.wait()}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def row(name, values, unit):
    low, middle, high = min(values), statistics.median(values), max(values)
    print(f"{name:44}{low:9.2f}{middle:9.2f}{high:9.2f}  {unit}")


def compare(form, ours_command, peer_command, pairs):
    ours, peer = Server(ours_command), Server(peer_command + ["--form", form])
    times = []
    for k in range(pairs + 1):
        pair = ours.step(), peer.step()
        if k > 0:  # the first pair warms up
            times.append([result["ms_per_image"] for result in pair])
    ours.close()
    peer.close()
    row("dat_hpc", [a for a, _ in times], "ms/image")
    row(f"PyTorch {pair[1]['torch']}, {form}", [b for _, b in times], "ms/image")
    row("times faster, pair by pair", [b / a for a, b in times], "x")
    return pair[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench_step", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--form", nargs="+", default=["channels_last_grad", "eager", "backward"])
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="of the attack")
    arguments = parser.parse_args()

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    options = []
    for name in ("network", "width", "batch", "threads", "steps"):
        options += [f"--{name}", getattr(arguments, name)]
    print(
        f"PGD-{arguments.steps} step of {arguments.network}, width {arguments.width}, batch {arguments.batch}, "
        f"{arguments.threads} threads, {arguments.pairs} pairs, {datetime.date.today()}, "
        f"load {os.getloadavg()[0]:.1f}, OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}"
    )
    print(f"{'':44}{'min':>9}{'median':>9}{'max':>9}")
    for form in arguments.form:
        last = compare(
            form,
            [arguments.bench_step] + options,
            [arguments.python, kFolder / "peers" / "torch_step.py"] + options,
            arguments.pairs,
        )
    print(f"dat_hpc: peak {last['peak_rss_mb']:.0f} MB, commit {last['commit']}")


if __name__ == "__main__":
    main()
