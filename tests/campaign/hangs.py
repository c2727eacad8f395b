#!/usr/bin/env python3
"""A hundred runs that hang, over two nodes: hangs.py PROGRAM CASES [options]

PROGRAM is dat_hpc, CASES the dat_hang_case of the same build. Each run has four ranks, two on each node, and meets one
fault at a random moment, of these kinds in turn:

    stopped       a rank is stopped
    frozen        a rank is stopped, and so are the launcher and its daemons, which then notice nothing
    dead          a rank is killed, and the launcher and its daemons are stopped
    cut           a node's network goes down (with --cut)
    name, bytes, skip, still, leave    CASES

All ranks must be gone within the timeout and 5 s, none before the timeout (but where MPI itself returns an error), a
message must name the guilty rank, or the ranks of the node that is cut off, and nothing may be left (--left). Exit code
of the launcher, where it lives: 6. Ranks are looked for in this machine's /proc, so the nodes are namespaces of it, or
there is one node. Without --launcher they are four processes of this machine under mpirun, and nothing is cut.

    --launcher COMMAND   starts ranks as mpirun does, in equal blocks on two nodes, e.g. "mpirun --hostfile FILE"
    --cut, --mend        take the second node off the network, and bring it back
    --left COMMAND       prints the shared memory of all nodes
    --count N            of runs (100)
    --timeout SECONDS    --comm-timeout (4)
    --kinds KIND,...     these only
    --seed N             of the moments and ranks (1)
"""

import argparse
import collections
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import common

OPTIONS = ("train --network small_cnn --width 16 --attack-steps 2 --eval pgd1 --limit-train 64 --limit-test 16 --batch 4 "
           "--epochs 1000000 --warmup-epochs 0 --milestones 999999 --eval-every 0 --checkpoint-every 200 --threads 1 --out run "
           "--quiet").split()
KINDS = ["stopped", "frozen", "dead", "cut", "name", "bytes", "skip", "still", "leave"]
RANKS, SLACK_S, PATIENCE_S = 4, 5, 120
MARK = "DAT_HANGS_RUN"


def send(pids, number):
    for pid in pids:
        common.kill(pid, number)


def parent(pid):
    return int(common.text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])


def processes(mark, program):
    """Process ids by rank, of those that run the program with this mark in their environment."""
    found = {}
    for name in os.listdir("/proc"):
        try:
            if not name.isdigit() or os.readlink(f"/proc/{name}/exe") != program:
                continue
            environment = dict(entry.split(b"=", 1) for entry in common.bytes_of(f"/proc/{name}/environ").split(b"\0") if b"=" in entry)
            if environment.get(MARK.encode()) == mark.encode():
                found[int(environment[b"OMPI_COMM_WORLD_RANK"])] = int(name)
        except (OSError, ValueError, KeyError):
            pass
    return found


def shell(command):
    return subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


class Trial:
    def __init__(self, number, kind, options):
        self.number, self.kind, self.options = number, kind, options
        self.random = random.Random(f"{options.seed} {number}")
        self.mark = f"{os.getpid()}-{number}"
        self.guilty = self.random.randrange(RANKS)
        self.program = os.path.realpath(common.PROGRAM if kind in KINDS[:4] else options.cases)

    def launch(self):
        arguments = ([*OPTIONS, "--comm-timeout", str(self.options.timeout)] if self.kind in KINDS[:4]
                     else [self.kind, str(self.guilty), str(self.options.timeout)])
        words = [*shlex.split(self.options.launcher), "-np", str(RANKS), "-x", MARK, "-x", "OMP_NUM_THREADS", self.program, *arguments]
        self.output = open(f"output-{self.number}", "w+")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env=os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1"}, start_new_session=True)

    def started(self):
        """Ranks that all live and have made steps; those of CASES begin to hang by themselves."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ranks = processes(self.mark, self.program)
            if len(ranks) == RANKS and (self.kind not in KINDS[:4] or common.steps_written("run") > 5):
                return ranks
            time.sleep(0.05)
        raise AssertionError("it has not begun:\n" + self.text())

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def left(self):
        return set(shell(self.options.left).split()) if self.options.left else set()

    def run(self):
        """What is wrong, as texts; and the seconds from the fault to the end of the last rank."""
        shutil.rmtree("run", ignore_errors=True)
        before = self.left()
        self.launch()
        ranks = self.started()
        launchers = {parent(pid) for pid in ranks.values()}
        if self.kind in KINDS[:4]:
            time.sleep(self.random.uniform(0, 2))
        culprit = ranks[self.guilty]
        begin = time.monotonic()
        if self.kind in ("frozen", "dead"):
            send(launchers, signal.SIGSTOP)
        if self.kind in ("stopped", "frozen"):
            send([culprit], signal.SIGSTOP)
        elif self.kind == "dead":
            send([culprit], signal.SIGKILL)
        elif self.kind == "cut":
            shell(self.options.cut)
        limit = self.options.timeout + SLACK_S + (0 if self.kind in KINDS[:4] else 1)  # CASES begin a moment later
        wrong = []
        # A rank that is stopped, with nobody beside it but its stopped daemon, waits for whoever lets it go on.
        still = 0  # seconds in which this machine did not run at all: nobody's watch could see anything then
        while any(common.alive(pid) for pid in ranks.values()) and time.monotonic() - begin - still < limit:
            asleep = time.monotonic()
            time.sleep(0.02)
            if (gap := time.monotonic() - asleep) > 1:
                still += gap
        took = time.monotonic() - begin - still
        left = [rank for rank, pid in ranks.items() if common.alive(pid)]
        if left:
            wrong.append(f"ranks {left} live {took:.1f} s after the fault")
        if took < self.options.timeout and self.kind != "bytes":
            wrong.append(f"all gone after {took:.1f} s already")
        if self.kind == "cut":
            shell(self.options.mend)
        send(launchers, signal.SIGCONT)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = "none: the launcher hangs"
            send([self.process.pid, *launchers, *ranks.values()], signal.SIGKILL)
        if code != 6 and self.kind not in ("frozen", "dead"):
            wrong.append(f"exit code {code}")
        deadline = time.monotonic() + 10
        while any(common.alive(pid) for pid in launchers) and time.monotonic() < deadline:
            time.sleep(0.05)
        if any(common.alive(pid) for pid in launchers):
            wrong.append("a daemon of the launcher is left")
        if found := self.left() - before:
            wrong.append(f"left: {sorted(found)}")
        messages = [line for line in self.text().splitlines() if line.startswith("dat_hpc: error: ")]
        if len(messages) != (2 if self.kind == "cut" else 1):
            wrong.append(f"{len(messages)} messages")
        wanted = [[0, 1], [2, 3]] if self.kind == "cut" else [[self.guilty]]
        for who in wanted:
            names = (f"rank {who[0]} on " if len(who) == 1 else f"ranks {who[0]}, {who[1]} on ")
            if not any(self.names(message, names) for message in messages):
                wrong.append(f"no message names {names.strip()}")
        return wrong, took

    def names(self, message, who):
        """Whether the message begins with the guilty; of an error of MPI, which comes first, it may be what follows."""
        blamed = message.split("; ")[0]
        return re.search(re.escape(who), blamed) is not None and re.search(r" #\d+", message) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases")
    parser.add_argument("--launcher", default="mpirun")
    for name in "cut", "mend", "left":
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=4)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.cases = os.path.abspath(options.cases)
    kinds = options.kinds.split(",") if options.kinds else [kind for kind in KINDS if kind != "cut" or options.cut]
    bad, times = 0, collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number in range(options.count):
            trial = Trial(number, kinds[number % len(kinds)], options)
            try:
                wrong, took = trial.run()
            except AssertionError as error:
                wrong, took = [str(error)], float("nan")
            times[trial.kind].append(took)
            bad += bool(wrong)
            print(f"{number + 1:4} {trial.kind:8} rank {trial.guilty} {took:6.2f} s  {'; '.join(wrong) or 'good'}", flush=True)
            if wrong:
                print(trial.text()[-3000:], flush=True)
        os.chdir("/")
    for kind, all_times in times.items():
        print(f"{kind:8} {len(all_times):4} runs, {min(all_times):.2f} to {max(all_times):.2f} s until the last rank was gone")
    print(f"{options.count - bad} of {options.count} good, --comm-timeout {options.timeout:g}")
    sys.exit(bad > 0)


main()
