"""What the studies have in common: launches through a command that the user gives, runs that are not mixed with others,
and the middle of paired samples."""

import contextlib
import csv
import fcntl
import json
import math
import os
import pathlib
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
            done = run([self.prepare.format(**words)], shell=True, capture_output=True, env=environment, timeout=self.timeout)
            if done.returncode != 0:
                sys.exit(f"{self.prepare.format(**words)}: code {done.returncode}\n{done.stdout}{done.stderr}")
            self.ready = nodes, rate
        command = shlex.split(self.command.format(**words)) + [str(word) for word in program]
        done = run(command, capture_output=True, env=environment, timeout=self.timeout)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}: code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


# Options of a study with a Launcher, as study.parsed takes them.
OPTIONS = dict(launcher=("mpirun --oversubscribe -np {ranks}", "command that starts {ranks} ranks on {nodes} nodes, {per_node} on each"),
               prepare=("", "command to be run before, where {nodes} or {rate} are others than before: what makes nodes and "
                        "shapes their links"))


def run(words, **how):
    """As subprocess.run; ends where there is no such program."""
    try:
        return subprocess.run(words, text=True, check=False, **how)
    except OSError as error:
        sys.exit(f"{words[0]}: {error.strerror}; build the program, or install what starts ranks")


def output_of(words):
    """Of a program; ends with what it said where it failed."""
    words = [str(word) for word in words]
    ended = run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode != 0:
        sys.exit(f"{shlex.join(words)}: exit code {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def forecast(program, folder, calibration, *options):
    """What `dat_hpc forecast` says of a calibration, for the first network and number of ranks."""
    path = pathlib.Path(folder, "calibration.json")
    write_json(path, calibration)
    output_of([program, "forecast", "--calibration", path, *options, "--out", folder])
    return read_json(f"{folder}/forecast.json")["networks"][0]["rows"][0]


def rows(folder, kind):
    """Of a run's record."""
    with open(f"{folder}/metrics.jsonl") as file:
        return [row for row in map(json.loads, file) if row["kind"] == kind]


def seconds_of(step):
    """Of a step's record: its phases, but evaluations, checkpoints, and what goes on beside them."""
    return sum(value or 0 for name, value in step.items()
               if name.startswith("t_") and name not in ("t_hidden", "t_evaluate", "t_checkpoint"))


@contextlib.contextmanager
def locked(path, wait):
    """Whether the file is this process's until the end of the block; the system lets go of it where a process dies."""
    with open(path, "w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            free = True
        except BlockingIOError:
            free = False
        yield free


def write_json(path, value):
    """In one piece: whoever reads the file finds all of it, or what was there before."""
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text(json.dumps(value) + "\n")
    written.replace(path)


def write_csv(path, rows):
    """A line for each row; columns are those of the longest."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, max(map(list, rows), key=len))
        writer.writeheader()
        writer.writerows(rows)


def begin(path, facts, run=None, **beside):
    """Writes down in `path` what a run is made with, the first time; ends where that was something else, which must not be
    gone on with. run: its folder, where nothing has begun without a record. beside: what is kept with it and may differ.
    Returns what the file has."""
    if not path.exists() or (run is not None and not (run / "metrics.jsonl").exists()):
        write_json(path, facts | beside)
    begun = read_json(path)
    for name, value in facts.items():
        if begun.get(name) != value:
            sys.exit(f"{path}: begun with {name} {told(begun.get(name))}, not {told(value)}: choose another --out")
    return begun


def told(value):
    return repr(shlex.join(map(str, value)) if isinstance(value, list) else value)


def of_evaluation(options):
    """Of a training's options those that its evaluation needs, too: where it computes."""
    found = []
    for at, word in enumerate(options):
        name, _, value = word.partition("=")
        if name in ("--device", "--threads"):
            found += [name, value or options[at + 1]]
    return found


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
