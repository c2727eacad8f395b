"""Images are read from the file when they are needed: a rank's private memory does not grow with the file.

DAT_STREAM_IMAGES: images of the larger file (30,000; nightly.sh: 550,000, 1.7 GB). The smaller one has an eleventh, as
CIFAR-10 has of CIFAR10-Ext.
"""

import os
import shutil
import time
from unittest import mock

import h5py
import numpy as np

import common

LARGE = int(os.environ.get("DAT_STREAM_IMAGES", 30000))
SMALL = LARGE // 11
SIZE = 32
TRAIN = ["train", "--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 64, "--warmup-epochs", 0,
         "--attack", "none", "--eval", "fgsm", "--max-steps", 40, "DAT_RESIDENT=off"]

# What a rank may keep of a training image that it does not read: its label (1 byte), its place in the permutation (16),
# and while the file is opened the label as it is stored and checked (at most 8 bytes, twice). Noise of the allocator
# and of MPI, which differs from run to run: 4 MB.
BYTES_OF_AN_IMAGE, NOISE = 1 + 16 + 2 * 8, 4e6


def write(path, count):
    random = np.random.default_rng(count)
    with h5py.File(path, "w") as file:
        for split, n in ("train", count), ("test", 100):
            pixels = file.create_dataset(f"{split}/images", (n, SIZE, SIZE, 3), np.uint8)
            for first in range(0, n, 10000):
                last = min(first + 10000, n)
                pixels[first:last] = random.integers(0, 256, (last - first, SIZE, SIZE, 3), np.uint8)
            file[f"{split}/labels"] = random.integers(0, 10, n)


def private_bytes(pid):
    """Anonymous memory of a process: what it does not share through the page cache."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return sum(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))
    except OSError:
        return 0


def peak(data, ranks, *options):
    """The most private memory that a rank ever has."""
    out = f"run-{data}-{ranks}{len(options)}"
    running = common.Running([*TRAIN, "--out", out, "--data", *data.split(), *options], ranks)
    most = 0
    while running.process.poll() is None:
        most = max([most, *map(private_bytes, running.ranks().values())])
        time.sleep(0.005)
    ended = running.wait()
    assert ended.code == 0, ended.text
    return most


class Streaming(common.TestCase):
    def test_private_memory_does_not_grow_with_the_file(self):
        write("small.h5", SMALL)
        shutil.copy("small.h5", "labelled.h5")
        write("large.h5", LARGE)
        allowed = BYTES_OF_AN_IMAGE * (LARGE - SMALL) + NOISE
        self.assertLess(4 * allowed, 3 * SIZE * SIZE * (LARGE - SMALL))  # else nothing would be shown
        for ranks in (1, 2) if LARGE > 30000 else (2,):
            for name, more in ("a pool", []), ("balanced", ["--mix", "balanced:0.5"]):
                files = [f"labelled.h5 {other}" if more else other for other in ("small.h5", "large.h5")]
                small, large = (peak(data, ranks, *more) for data in files)
                print(f"{name}, {ranks} ranks: {small / 1e6:.1f} MB private with {SMALL} images, {large / 1e6:.1f} MB "
                      f"with {LARGE}; {allowed / 1e6:.1f} MB more are allowed", flush=True)
                self.assertLess(large - small, allowed)

    def test_what_is_held_in_memory_is_seen(self):
        """The measurement finds a byte of each pixel: the perturbations that --warm-start keeps."""
        write("plain.h5", SMALL)
        attacked = [word if word != "none" else "pgd" for word in TRAIN] + ["--attack-steps", 1]
        with mock.patch.dict(globals(), TRAIN=attacked):
            without, kept = peak("plain.h5", 1), peak("plain.h5", 1, "--warm-start", 2)
        self.assertGreater(kept - without, 0.9 * 3 * SIZE * SIZE * SMALL - NOISE)


if __name__ == "__main__":
    common.main()
