"""What checkpoints cost a run: the share of phase `checkpoint` in the time of its steps, with and without
DAT_CHECKPOINT_ASYNC, a checkpoint per epoch.

Usage: checkpoint_stall.py PATH/TO/dat_hpc [options of train ...]     e.g. --data cifar10.h5 --limit-train 5000 --width 64
Runs in a folder of its own, one after the other: two pairs, so that a slow minute shows. What is measured is the time in
which no step goes on; that a thread beside the steps slows them down shows in the seconds of the whole.
"""

import os
import pathlib
import sys
import tempfile

from launch import output_of, rows


def measure(program, folder, beside, options):
    output_of(["env", f"DAT_CHECKPOINT_ASYNC={beside}", program, "train", "--out", folder, "--quiet", "--epochs", 4, "--warmup-epochs", 0,
               "--eval", "fgsm", *options])
    steps = rows(folder, "step")
    stall = sum(row["t_checkpoint"] or 0 for row in steps)
    wall = steps[-1]["wall_time"]
    return stall, wall, max((folder / "ckpt").glob("step-*")).stat().st_size


def main():
    program, options = os.path.abspath(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="dat-stall-", dir=".") as folder:
        for pair in range(2):
            for name, more in ("stops for checkpoints", "off"), ("beside the steps", "on"):
                stall, wall, size = measure(program, pathlib.Path(folder) / f"{pair}{more}", more, options)
                print(f"{name:24}{stall:8.3f} s of {wall:8.2f} s: {100 * stall / wall:6.2f} %  "
                      f"(checkpoints of {size / 1e6:.1f} MB)", flush=True)


main()
