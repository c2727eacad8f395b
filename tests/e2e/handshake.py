"""Ranks that do not fit together end before the first step, with the names of what differs, of the ranks and the values."""

import os
import shutil
import subprocess

import numpy as np

import common

OPTIONS = ["--network", "small_cnn", "--width", "16", "--attack-steps", "1", "--eval", "pgd1", "--limit-train", "32",
           "--limit-test", "16", "--batch", "8", "--epochs", "1", "--warmup-epochs", "0", "--threads", "1", "--quiet"]


def launch(*parts):
    """Each part: a number of ranks, mpirun's options, the program's arguments."""
    words = ["mpirun"]
    for ranks, settings, arguments in parts:
        words += [":"] if len(words) > 1 else []
        words += ["-np", str(ranks), *settings, common.PROGRAM, *arguments]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=common.LIMIT_S)
    return common.Ended(ended.returncode, ended.stdout)


def train(*more):
    return ["train", *map(str, common.merged(*OPTIONS, "--out", "run", *more))]


def write_data(path, changed=None):
    """Two classes; `changed`: a pixel that is another one."""
    random = np.random.default_rng(5)
    splits = {split: (random.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8), np.arange(count) % 2)
              for split, count in (("train", 40), ("test", 16))}
    if changed:
        splits[changed[0]][0][changed[1]] ^= 1
    common.write_data(path, **splits)


class Handshake(common.TestCase):
    def refused(self, ended, *words):
        self.expect_error(2, "the ranks do not fit together", ended)
        for word in words:
            self.assertIn(word, ended.errors[0])
        self.assertFalse(os.path.exists("run/metrics.jsonl"))

    def test_options(self):
        self.refused(launch((2, [], train("--lr", "0.01")), (1, [], train("--lr", "0.02"))),
                     "--lr is 0.01 on ranks 0, 1 (", ", 0.02 on rank 2 (")
        # Options with which the ranks would not even form the same groups, or plan alike.
        self.refused(launch((1, [], train("--network", "resnet18")), (1, [], train("--epochs", "3"))),
                     '--network is "resnet18" on rank 0', '"small_cnn" on rank 1', "--epochs is 1 on rank 0", "3 on rank 1")

    def test_verbs(self):
        self.refused(launch((1, [], train()), (1, [], ["bench"])), "verb is train on rank 0",
                     "bench on rank 1")

    def test_images(self):
        """The same path is another file on the other rank: one label's image, at one place, is another one."""
        for changed in ("train", (39, 15, 15, 2)), ("test", (0, 0, 0, 0)):
            os.makedirs("other", exist_ok=True)
            write_data("data.h5")
            write_data("other/data.h5", changed)
            name = {"train": "training", "test": "test"}[changed[0]]
            arguments = train("--data", "data.h5", "--limit-train", 0, "--limit-test", 0)
            self.refused(launch((1, [], arguments), (1, ["-wdir", os.path.abspath("other")], arguments)),
                         f"hash of the {name} images is ", "on rank 0", "on rank 1")
            shutil.rmtree("other")

    def test_instructions(self):
        """A rank that computes with other instructions rounds otherwise."""
        if "AVX-512" not in common.run("doctor").text:
            self.skipTest("this machine has one set of instructions")
        self.refused(launch((1, [], train()), (1, ["-x", "DNNL_MAX_CPU_ISA=AVX2"], train())), "device is cpu: oneDNN",
                     "AVX-512 on rank 0", "AVX2 on rank 1")

    def test_evaluation(self):
        self.assertEqual(launch((2, [], train("--max-steps", 1))).code, 0)
        os.makedirs("other")
        shutil.copytree("run", "other/run")
        self.assertEqual(launch((2, [], ["eval", "--checkpoint", "run", "--quiet"])).code, 0)
        self.assertEqual(common.run(*train("--max-steps", 1, "--seed", 2, "--out", "second")).code, 0)
        shutil.rmtree("other/run")
        shutil.move("second", "other/run")
        command = ["eval", "--checkpoint", "run", "--quiet"]
        ended = self.expect(2, launch((1, [], command), (1, ["-wdir", os.path.abspath("other")], command)))
        self.assertIn("hash of the weights is ", ended.errors[0])


if __name__ == "__main__":
    common.main()
