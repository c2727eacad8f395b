"""What the studies of several ranks have in common: launches through a command that the user gives, calibrations, and
the middle of paired samples."""

import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import time

# Sums over the ranks in a ring, as the model has them, where MPI leaves the choice. What is set already stays.
RING = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
        "OMPI_MCA_coll_libnbc_iallreduce_algorithm": "1"}
QUIET = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}


class Launcher:
    """Runs programs on `ranks` ranks of `nodes` nodes. command, prepare: text with {ranks}, {nodes}, {per_node} and
    {rate}; `prepare` comes before the first launch on other nodes or at another rate."""

    def __init__(self, command, prepare="", timeout=600):
        self.command, self.prepare, self.timeout = command, prepare, timeout
        self.ready = None

    def run(self, program, ranks, nodes=1, rate="none"):
        words = dict(ranks=ranks, nodes=nodes, per_node=ranks // nodes, rate=rate)
        environment = RING | QUIET | dict(os.environ)
        if self.prepare and self.ready != (nodes, rate):
            done = subprocess.run(self.prepare.format(**words), shell=True, capture_output=True, text=True,
                                  env=environment, timeout=self.timeout)
            if done.returncode != 0:
                sys.exit(f"{self.prepare.format(**words)}: code {done.returncode}\n{done.stdout}{done.stderr}")
            self.ready = nodes, rate
        command = shlex.split(self.command.format(**words)) + [str(word) for word in program]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=self.timeout)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}: code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


def add_launcher_options(parser):
    parser.add_argument("--launcher", default="mpirun --oversubscribe -np {ranks}",
                        help="command that starts {ranks} ranks on {nodes} nodes, {per_node} on each [%(default)s]")
    parser.add_argument("--prepare", default="", help="command to be run before, where {nodes} or {rate} are others "
                        "than before: what makes nodes and shapes their links")


def output_of(words):
    """Of a program; ends with what it said where it failed."""
    words = [str(word) for word in words]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)
    if ended.returncode != 0:
        sys.exit(f"{shlex.join(words)}: exit code {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def rows(folder, kind):
    """Of a run's record."""
    with open(folder / "metrics.jsonl") as file:
        return [row for row in map(json.loads, file) if row["kind"] == kind]


class Clock:
    """What has passed of the minutes that a study may take."""

    def __init__(self, minutes):
        self.begin, self.seconds = time.monotonic(), 60 * minutes

    def left(self):
        return self.seconds - (time.monotonic() - self.begin)


def read_json(path):
    with open(path) as file:
        return json.load(file)


def median_interval(values, level=0.95):
    """Median, and the interval of order statistics that covers it with at least this probability, for samples that are
    independent: ranks k and n + 1 - k, where the binomial distribution (n, 1/2) has (1 - level)/2 below k. With fewer
    than six samples there is none: lowest and highest, which cover less."""
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while True:
        below += math.comb(n, k) / 2 ** n
        if below > (1 - level) / 2:
            break
        k += 1
    k = max(k, 1)
    return statistics.median(ordered), ordered[k - 1], ordered[n - k]
