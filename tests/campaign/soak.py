"""Many steps with constant memory, file handles and threads: soak.py PROGRAM [STEPS]

Trains a small network on two ranks for STEPS steps (100000), with everything that happens between steps: evaluations,
checkpoints, some of them written beside the steps, comparisons of the ranks, the hang watch. Each rank's private memory
(RssAnon), open files and threads are read from /proc while it runs. After a fifth of the steps none of them may grow any
more (writing the first checkpoint takes 2 MB that stay): files and threads by one at most, that of a checkpoint which a
slow disk has under way at every look, memory by no more than LEAK. The least of one half is compared with the least of the
other: two files that are open for a moment may meet once, while one that a checkpoint leaves behind makes four. What is
asked for once per step and forgotten takes 32 bytes with malloc, 1.3 MB in 40,000 steps. The exit code is 1 where
something grows.
"""

import ctypes
import os
import re
import shutil
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import common

RANKS = 2
LEAK = 1 << 20  # bytes; also of a page of malloc's that happens to be touched late
EVERY_S = 0.05
PR_SET_THP_DISABLE = 41


def private_memory(pid):
    found = re.search(r"^RssAnon:\s+(\d+)", common.text_of(f"/proc/{pid}/status"), re.MULTILINE)
    if not found:
        raise OSError
    return int(found[1]) << 10


def look(pid):
    """Memory, open files and threads of a process."""
    return private_memory(pid), len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    folder = tempfile.mkdtemp(prefix="dat-soak-")
    os.chdir(folder)
    # For the ranks, too: where the kernel makes one huge page of small ones, memory grows by what was never touched.
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    try:
        common.synthetic("set.h5", train=256, test=32, size=8, classes=4)
        epochs = steps // 64 + 1
        # 64 steps of 2 images on each rank are an epoch.
        running = common.Running(
            ["train", "--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 2, "--attack-steps", 1,
             "--eval", "pgd2", "--eval-every", 20, "--warmup-epochs", 0, "--epochs", epochs, "--max-steps", steps,
             "--checkpoint-every", 500, "DAT_CHECKPOINT_ASYNC=on", "--max-bad-steps", 1, "--codec", "powersgd", "--out", "run", "--quiet"],
            RANKS)
        seen = {rank: [] for rank in range(RANKS)}
        begin = time.monotonic()
        while running.process.poll() is None and steps_done() < steps:
            done = steps_done()
            for rank, pid in running.ranks().items():
                try:
                    seen[rank].append((done, *look(pid)))
                except OSError:
                    pass  # it has ended
            time.sleep(EVERY_S)
        ended = running.wait(7200)
        if ended.code != 0:
            print(ended.text)
            return 1
        failed = 0
        for rank, looks in seen.items():
            steady = [one for one in looks if steps // 5 <= one[0] < steps]
            first = [one for one in steady if one[0] < steps * 3 // 5]
            second = steady[len(first):]
            if not first or not second:
                print(f"rank {rank}: too few looks: {len(looks)}")
                return 1
            for place, (what, allowed) in enumerate((("bytes of private memory", LEAK), ("open files", 1), ("threads", 1)), 1):
                before, after = min(one[place] for one in first), min(one[place] for one in second)
                bad = after > before + allowed
                failed += bad
                print(f"rank {rank}: {before} {what} up to the middle, {after} to the end{': GROWS' if bad else ''}")
        print(f"{steps} steps on {RANKS} ranks in {time.monotonic() - begin:.0f} s, {len(seen[0])} looks")
        return 1 if failed else 0
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


def steps_done():
    """By the length of the record: reading it all would be work that grows with the run."""
    try:
        with open("run/metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
            found = file.read().split(b'{"kind":"step","step":')
            return int(found[-1].split(b",")[0]) if len(found) > 1 else 0
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
