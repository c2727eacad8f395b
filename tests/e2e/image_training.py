"""Trainings on images of any shape: with --deterministic the same bits on any number of ranks and threads that read, on a
folder of files and on tars of it, where a run is cut short and goes on, with ranks that check, ban or attack for others.
"""

import glob
import json
import math
import os
import tarfile

import common
import numpy as np
import ranks as any_ranks
from PIL import Image

CLASSES, STEPS = ["ant", "bee", "cow", "dog"], 10
RUN = any_ranks.SMALL[2:]
DATA = ["--data", "folder.h5"]
VIEWS = ["--size", 16, "--augment", "resized"]


def make_folder(name, train=100, test=30):
    """Images of all shapes, some of them grey, one a PNG that is called .JPEG."""
    draw = np.random.default_rng(4)
    for split, count in ("train", train), ("val", test):
        for k in range(count):
            folder = os.path.join(name, split, CLASSES[k % len(CLASSES)])
            os.makedirs(folder, exist_ok=True)
            shape = (*draw.integers(17, 60, 2), 3)
            noise = Image.fromarray(draw.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize(shape[1::-1])
            image = noise.convert("L") if k % 7 == 3 else noise
            image.save(os.path.join(folder, f"{k:03}.JPEG"), "PNG" if k == 5 else "JPEG", quality=90)


def losses(folder):
    return [row["loss_adv"] for row in common.rows(folder, "step")]


class Training(common.TestCase):
    def setUp(self):
        super().setUp()
        make_folder("folder")
        self.index("folder", "folder.h5")

    def index(self, *arguments):
        self.run_well("data", "index", *arguments)

    def go(self, folder, *arguments, ranks, data="folder.h5"):
        self.train(folder, *RUN, "--data", data, *any_ranks.DEALT, *VIEWS, *arguments, ranks=ranks)

    def test_ranks_threads_folders_and_tars(self):
        self.go("reference", ranks=1)
        self.assertEqual(len(common.rows("reference", "step")), STEPS)
        with tarfile.open("folder.tar", "w") as tar:  # in another order than that of the names
            for split in "val", "train":
                tar.add(f"folder/{split}")
        self.index("folder.tar", "tar.h5", "--threads", 2)
        self.index("folder", "shards", "--pack", "--shard-size", 1)
        self.index("shards", "shards.h5")
        for folder, ranks, data, *arguments in [("threads", 1, "folder.h5", "--data-threads", 4, "DAT_PREFETCH=5"),
                                                ("three", 3, "tar.h5", "--data-threads", 2),
                                                ("shards", 1, "shards.h5", "DAT_PREFETCH=1")]:
            self.go(folder, *arguments, ranks=ranks, data=data)
            self.assert_equal_runs(folder, "reference")
        for ranks, end, threads in (3, 3, 1), (2, STEPS, 3):  # also amid an epoch
            self.go("parts", "--max-steps", end, "--data-threads", threads, ranks=ranks)
        self.assert_equal_runs("parts", "reference")
        for folder, ranks, threads in ("fast1", 1, 1), ("fast2", 2, 3):
            self.go(folder, "--decode", "fast", "--holdout", 10, "--max-steps", 3, "--data-threads", threads, ranks=ranks)
        self.assert_equal_runs("fast2", "fast1")
        self.go("exact", "--holdout", 10, "--max-steps", 3, ranks=1)
        self.assertNotEqual(losses("exact"), losses("fast1"))
        self.go("crops", "--augment", "crop", "--max-steps", 2, ranks=1)
        self.go("none", "--augment", "none", "--max-steps", 2, ranks=1)
        self.assertEqual(len({losses(folder)[1] for folder in ("reference", "crops", "none")}), 3)

    def test_checks_bans_generators_and_growing_windows(self):
        self.go("reference", "--train-size", "9,16@1", ranks=1)
        self.go("checked", "--train-size", "9,16@1", "--verify", 1, "--data-threads", 2, ranks=3)
        self.assert_same(common.state("checked"), common.state("reference"))
        self.go("generated", "--train-size", "9,16@1", "--generators", 1, ranks=3)
        self.assertEqual(losses("generated"), losses("reference"))
        byzantine = ["--byzantine", "--aggregator", "centered_clip", "--faults", 1, "--validators", 2, "--selector", "all",
                     "--lambda", 0, "--attackers", 1, "--cheat", "sign_flip@2"]
        for folder, threads in ("one", 1), ("four", 4):
            self.run_well("train", *RUN, *DATA, "--total-batch", 25, "--micro-batch", 5, *VIEWS, "--max-steps", 3, *byzantine,
                          "--data-threads", threads, "--out", folder, ranks=5)
        self.assert_same(common.state("four"), common.state("one"))

    def test_bench_and_validate_tell_whether_images_come_fast_enough(self):
        ended = self.run_well("bench", "--network", "small_cnn", "--width", 8, "--batch", 8, "--attack-steps", 1, "--seconds", 1,
                              *DATA, "--size", 16, "--data-threads", 2, "--out", "bench")
        for row in ["whole images decoded, 1 thread", "whole images decoded, 2 threads", "batches of the loader, 2 threads"]:
            self.assertRegex(ended.text, f"(?m)^{row} +[0-9.]+ +[0-9.]+$")
        self.assertRegex(ended.text, "a loader with --data-threads 2 (feeds|does not feed) it")
        found = common.load("bench/bench.json")
        self.assertEqual([found["size"], found["reading"]["threads"]], [16, 2])
        for speed, size, word in (1, 16, "feeds it"), (1e9, 17, "does not feed it"):
            found["times"]["step"]["median_ms"], found["size"] = 1e3 * found["batch"] / speed, size
            common.write("other.json", json.dumps(found))
            ended = common.run("validate", *RUN, "--batch", 8, *DATA, *VIEWS, "--bench", "other.json", "--data-threads", 32)
            self.assertRegex(ended.text, f"(?m)^step +{speed:.1f} images/s .*small_cnn on {size}x{size}: the loader {word}$")
            for warning in "step waits for images", "that step is not this training's, which has small_cnn on 16x16\n":
                self.assertEqual(warning in ended.text, speed > 1)
        # Three batches, and of each thread an image as it is decoded, and what of it is resized.
        largest = max(math.prod(Image.open(path).size) for path in glob.glob("folder/train/*/*"))
        self.assertIn(f"  batches ahead           {(3 * 8 * 3 * 16 * 16 + 32 * 6 * largest) / 1e6:.1f} MB\n", ended.text)
        common.write("other.json", '{"network": "small_cnn", "size": 16}')
        self.refuse(3, "other.json: is no bench.json", "validate", *RUN, "--batch", 8, *DATA, *VIEWS, "--bench", "other.json")
        self.refuse(2, "say how --data is read", "bench", "--data-threads", 2)
        # A job has three batches of either set in memory: one, and two that are read ahead.
        script = self.run_well("slurm", *RUN, "--batch", 8, *DATA, "--size", 64, "--augment", "resized").text
        self.assertIn(f"# Memory of a rank: {2 * 3 * 8 * 3 * 64 * 64 / 1e6:.1f} MB of images, ", script)

    def test_evaluations_see_the_centre(self):
        """As Pillow makes it; a run takes its size from the network."""
        self.go("run", "--max-steps", 2, ranks=1)
        self.index("folder", "plain.h5", "--size", 16)
        self.train("of_one_size", *RUN, "--data", "plain.h5", *any_ranks.DEALT, "--max-steps", 2)
        for run in "run", "of_one_size":
            found = []
            for data in "folder.h5", "plain.h5":
                self.run_well("eval", run, "--data", data, "--eval", "pgd2", "--out", f"{run} {data}.json", "--quiet")
                found.append(common.load(f"{run} {data}.json"))
            self.assertEqual(*[[one["clean"], one["attacks"][0]["accuracy"]] for one in found])
        with common.h5py.File("plain.h5") as file:
            pixels = file["test/images"][:]
        names = sorted(f"{folder}/{name}" for folder, _, files in os.walk("folder/val") for name in files)
        for name, own in zip(names, pixels, strict=True):
            image = Image.open(name).convert("RGB")
            shorter = 16 * 256 // 224
            w, h = image.size
            to = (shorter, int(shorter * h / w)) if w < h else (int(shorter * w / h), shorter)
            image = image.resize(to, Image.BILINEAR)
            left, top = int(round((to[0] - 16) / 2)), int(round((to[1] - 16) / 2))
            np.testing.assert_array_equal(np.asarray(image.crop((left, top, left + 16, top + 16))), own, name)

    def test_what_is_refused(self):
        self.refuse(2, "several shapes.*--size N", "train", *RUN, *DATA)
        self.refuse(2, "warm-start keeps perturbations of pixels", "train", *RUN, *DATA, *VIEWS, "--warm-start", 2)
        with open("folder/train/ant/000.JPEG", "r+b") as file:
            file.seek(60)
            file.write(b"\x00\x01\x02")
        self.refuse(3, "folder/train/ant/000.JPEG: has other bytes", "train", *RUN, *DATA, *VIEWS, "--out", "x")
        os.rename("folder", "elsewhere")
        self.refuse(3, "folder.*(moved|cannot be opened)", "train", *RUN, *DATA, *VIEWS, "--out", "x")


if __name__ == "__main__":
    common.main()
