"""What a process takes in memory, as validate and eval say it, and as the system counts it; and what --recompute saves."""

import os
import re
import subprocess

import common

# Mostly activations and weights, so that the program itself does not hide what is forgotten.
TRAINING = ["--data", "set.h5", "--network", "preact_resnet18", "--width", 64, "--batch", 16, "--threads", 2,
            "--attack-steps", 1, "--epochs", 1, "--warmup-epochs", 0, "--max-steps", 1, "--eval", "pgd1", "--limit-test", 8]
PART = 0.05  # docs/results/2026-11-28-memory.txt has 3 % of three networks


def words(arguments):
    return [common.PROGRAM, *map(str, arguments)]


def peak(*arguments):
    """Of a process, in MB."""
    with open("output", "w") as output:
        process = subprocess.Popen(words(arguments), stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, common.text_of("output")
    return usage.ru_maxrss * 1024 / 1e6


def said(*arguments):
    return subprocess.run(words(arguments), capture_output=True, text=True, check=True).stdout


def megabytes(name, text):
    return float(re.search(rf"^ *{name} +([\d.]+) MB", text, re.M)[1])


class Memory(common.TestCase):
    def test_the_peak_is_what_was_said(self):
        common.synthetic("set.h5", train=16, test=8, size=16, classes=4)
        kept, again = said("validate", *TRAINING), said("validate", *TRAINING, "--recompute", "norms")
        self.assertLess(megabytes("activations", again), 0.6 * megabytes("activations", kept))
        self.check(kept, peak("train", "--out", "run", *TRAINING))
        evaluation = ["eval", "run", "--eval", "pgd1", "--threads", 2]
        plain = said(*evaluation, "--dry-run")
        self.check(plain, peak(*evaluation))
        self.assertNotIn("images", plain)
        for more, looked_at, handed_over in (["aa-quick"], 2 * 64, 2 * 64), (["pgd1", "--split", "train"], 16, 2 * 16):  # in float
            images = said("eval", "run", "--save-adversarial", "--out", "none", "--dry-run", "--eval", *more)
            self.assertEqual(megabytes("images looked at", images), round(looked_at * 16 * 16 * 3 * 4 / 1e6, 1))
            self.assertEqual(megabytes("images handed over", images), round(handed_over * (16 * 16 * 3 * 4 + 16) / 1e6, 1))

    def check(self, text, found):
        expected = megabytes("process", text)
        self.assertLess(abs(found - expected), PART * found, f"{found} MB: {text}")


if __name__ == "__main__":
    common.main()
