"""Runs that are killed with -9 at a random moment and go on with another number of ranks: kill_cycles.py PROGRAM [N] [SEED]

Each of the N cycles (300) starts a run with --deterministic on 1, 2, 3, 4, 6 or 8 ranks, kills a rank, all of them or the
launcher somewhere between its start and its end (every second step writes a checkpoint, so writes are met, too), and lets
another number of ranks go on, up to three times; the last part is left alone. All that the run leaves must have the bits of
one that nobody has killed: arrays of the checkpoint, records of steps and evaluations but times and bytes. Moments are drawn
with SEED (1), but what they meet depends on the machine. The exit code is 1 where a final state differs.
"""

import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import common

RANKS = 1, 2, 3, 4, 6, 8
OPTIONS = ["train", "--data", "set.h5", "--network", "small_cnn", "--width", 16, "--deterministic", "--total-batch", 24, "--micro-batch",
           2, "--threads", 1, "--attack-steps", 2, "--warm-start", 2, "--eval", "pgd2", "--eval-every", 1, "--warmup-epochs", 1,
           "--epochs", 2, "--checkpoint-every", 2, "--quiet"]


def final_state(folder):
    arrays = common.state(folder)
    arrays.update((name, values) for name, values in common.history(folder).items()
                  if not name.split("/")[-1].startswith("bytes_"))
    return {name: common.bits(values) for name, values in arrays.items()}


def launch(folder, ranks):
    return common.Running([*OPTIONS, "--out", folder], ranks)


def strike(running, drawn):
    """Kills somebody of a run that is under way, and says whom; None where it has ended before."""
    ranks = running.ranks()
    if running.process.poll() is not None:
        return None
    whom = drawn.choice(["a rank", "all ranks", "the launcher"])
    pids = {"a rank": [drawn.choice(sorted(ranks.values()))] if ranks else [], "all ranks": ranks.values(),
            "the launcher": [running.process.pid]}[whom] or [running.process.pid]
    for pid in pids:
        common.kill(pid, signal.SIGKILL)
    return whom if ranks else "the launcher"


def settle(running):
    """Until nothing is left of a run that somebody has been killed of: ranks without a launcher end by themselves, or later."""
    deadline = time.monotonic() + 10
    while running.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    running.end()
    os.unlink(running.output.name)


def main():
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    drawn = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    counts, bad = collections.Counter(), []
    with tempfile.TemporaryDirectory(prefix="dat-kill-") as top:
        os.chdir(top)
        os.environ["OMPI_MCA_btl_vader_backing_directory"] = top
        common.synthetic("set.h5", train=100, test=24, size=16, classes=4)
        seconds = {}
        for ranks in RANKS:
            begin = time.monotonic()
            ended = launch(f"straight{ranks}", ranks).wait()
            seconds[ranks] = time.monotonic() - begin
            if ended.code != 0 or final_state(f"straight{ranks}") != final_state("straight1"):
                print(f"{ranks} ranks do not leave what one leaves; exit code {ended.code}\n{ended.text}")
                return 1
        expected = final_state("straight1")
        for cycle in range(cycles):
            told = []
            for _ in range(drawn.randint(1, 3)):
                ranks = drawn.choice(RANKS)
                running = launch("run", ranks)
                time.sleep(drawn.random() * seconds[ranks])
                writing = any(".tmp-" in name for name in common.entries("run/ckpt"))
                whom = strike(running, drawn)
                settle(running)
                told.append(f"{whom or 'nobody'} of {ranks} after step {common.steps_written('run')}")
                counts[whom or "over before"] += 1
                counts["while a checkpoint was written"] += writing and whom is not None
            ranks = drawn.choice(RANKS)
            ended = launch("run", ranks).wait()
            if ended.code != 0 or final_state("run") != expected:
                bad.append(cycle)
                print(f"cycle {cycle}: killed {'; '.join(told)}; then {ranks} ranks, exit code {ended.code}\n{ended.text}", flush=True)
            shutil.rmtree("run")
            for name in common.entries("."):
                if name.startswith("output-"):
                    os.unlink(name)
            if (cycle + 1) % 20 == 0:
                print(f"{cycle + 1 - len(bad)} of {cycle + 1} equal", flush=True)
    print(f"{cycles - len(bad)} of {cycles} final states equal; killed: " +
          ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
