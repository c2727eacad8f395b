"""What cannot be done ends with the right exit code and one message, on one rank or several, and never hangs."""

import os
import re
import subprocess

import numpy as np

import common

TRAIN = ["--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 1, "--eval-every", 0,
         "--eval", "pgd1"]


class Refused(common.TestCase):
    set_h5 = dict(train=24, test=6, size=16, classes=3)

    def on_any_ranks(self, code, pattern, *arguments, data=("set.h5",), several=(0, 2)):
        for ranks in several:
            self.refuse(code, pattern, "train", *TRAIN, "--data", *data, *arguments, ranks=ranks)

    def test_missing_data(self):
        self.on_any_ranks(3, "nothing.h5", data=["nothing.h5"], several=[0])
        self.on_any_ranks(3, "nothing.h5", data=["set.h5", "nothing.h5"])
        self.assertEqual(sorted(name for name in os.listdir() if not name.startswith("output-")), ["set.h5"])

    def test_shortened_data(self):
        os.truncate("set.h5", os.path.getsize("set.h5") - 1)
        self.on_any_ranks(3, "set.h5: .* bytes instead of")

    def test_shortened_data_without_a_seal(self):
        split = np.zeros((20, 16, 16, 3), np.uint8), np.arange(20) % 3
        common.write_data("own.h5", split, split)
        os.truncate("own.h5", os.path.getsize("own.h5") // 2)
        self.on_any_ranks(3, "own.h5", data=["own.h5"])

    def write_labelled(self, label, split_of_it):
        """own.h5: four images a split in three classes, one of them with that label."""
        common.write_data("own.h5", names=["a", "b", "c"], **{
            split: (np.zeros((4, 16, 16, 3), np.uint8), np.array([0, 1, 2, label if split == split_of_it else 0]))
            for split in ("train", "test")})

    def test_labels_out_of_range(self):
        for label, split_of_it in (3, "train"), (256, "train"), (-2, "train"), (3, "test"), (-1, "test"):
            self.write_labelled(label, split_of_it)
            self.on_any_ranks(3, f"own.h5: label {label} of sample 3", data=["own.h5"],
                              several=[0, 2] if (label, split_of_it) == (3, "train") else [0])

    def test_unknown_labels(self):
        self.write_labelled(-1, "train")
        self.on_any_ranks(2, "some training images have no labels .* --loss cross_entropy --lambda 0 does not take",
                          "--lambda", 0, data=["own.h5"], several=[0])
        ended = self.run_well("train", *TRAIN, "--data", "own.h5")
        self.assertIn("4 training and 4 test images, 1 of the training images without a label", ended.text)

    def test_no_images(self):
        common.write_data("own.h5", (np.zeros((0, 16, 16, 3), np.uint8), np.zeros(0, np.uint8)))
        self.on_any_ranks(3, "own.h5", data=["own.h5"])

    def test_files_that_do_not_fit_together(self):
        common.synthetic("small.h5", train=8, test=4, size=8, classes=3)
        self.on_any_ranks(3, "small.h5", data=["set.h5", "small.h5"])

    def test_a_folder_that_cannot_be_written(self):
        common.write("file", "")
        for out in "file", "file/run", "/proc/run":
            self.on_any_ranks(9, out, "--out", out, several=[0, 2] if out == "file" else [0])

    def test_options_that_do_not_fit_together(self):
        self.on_any_ranks(2, "budget 1 .*p_min 0.2 times 11 layers", "--out", "run", "--budget", 1, "--selector", "exp3:p_min=0.2")
        self.on_any_ranks(2, "budget 12 .*11 layers", "--out", "run", "--budget", 12, several=[0])
        self.on_any_ranks(2, "--batch 10 .*--micro-batch 4", "--out", "run", "--batch", 10, "--micro-batch", 4,
                          several=[0])
        self.on_any_ranks(2, "nothing to train", "--out", "run", "--epochs", 0, "--warmup-epochs", 0, several=[0])
        self.on_any_ranks(2, "--ltr", "--out", "run", "--ltr", 1)
        self.assertFalse(os.path.exists("run"))

    def test_an_image_alone(self):
        common.synthetic("one.h5", train=1, test=1, size=8, classes=2)
        self.refuse(2, "batch norm needs more than one value", "train", "--data", "one.h5", "--network", "resnet18",
                    "--width", 16, "--threads", 1, "--out", "run")

    def test_numbers_that_are_not_finite(self):
        for ranks in 0, 2:
            # A step that throws the weights so far that the next loss overflows, and one that is not even finite.
            train = ["train", *TRAIN, "--data", "set.h5", "--batch", 4, "--warmup-epochs", 0, "--optimizer", "sgd"]
            self.refuse(7, r"error: in step [23] \(epoch 1\) .* is not finite", *train, "--out", f"loss{ranks}", "--lr", 1e38, ranks=ranks)
            self.refuse(7, "not finite after step 1", *train, "--out", f"weights{ranks}", "--lr", 1e300, "--max-steps",
                        1, ranks=ranks)
            self.assertEqual(common.checkpoints(f"weights{ranks}"), [])

    def test_evaluation_of_what_is_no_network(self):
        for ranks in 0, 2:
            self.refuse(4, "set.h5", "eval", "--checkpoint", "set.h5", ranks=ranks)
        self.train("run", *TRAIN, "--data", "set.h5", "--max-steps", 1)
        common.synthetic("more.h5", train=8, test=8, size=16, classes=4)
        for ranks in 0, 2:
            self.refuse(3, "classes", "eval", "--checkpoint", "run", "--data", "more.h5", ranks=ranks)
        two = np.zeros((4, 16, 16, 3), np.uint8), np.arange(4) % 2
        common.write_data("less.h5", two, two, ["class 0", "class 1"])
        for verb in ["eval", "--eval", "fgsm"], ["certify", "--sigma", 0.25, "--n", 10, "--limit", 1]:
            self.run_well(*verb, "--checkpoint", "run", "--data", "less.h5")

    def test_doctor_looks_at_all_ranks(self):
        ended = self.run_well("doctor", ranks=2)
        self.assertRegex(ended.text, r"(?m)^MPI .*, 2 ranks$")
        self.assertEqual(re.findall(r"(?m)^rank (\d) on \S+: (?!nothing)\S.*\S$", ended.text), ["0", "1"])

    def test_results_that_nobody_can_read(self):
        options = [*TRAIN, "--data", "set.h5", "--epochs", 1, "--warmup-epochs", 0, "--batch", 8]
        program = [common.PROGRAM]
        # A reader that stops reading does not stop the run, whose folder has it all.
        with subprocess.Popen([*program, "train", *map(str, options), "--out", "run"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=os.environ | {"DAT_PROGRESS": "0.001"}) as train:
            train.stdout.close()
            self.assertEqual(train.wait(common.LIMIT_S), 0)
        self.assertRegex(common.text_of("run/SUMMARY.txt").splitlines()[-1], "^Final: .* VALID$")
        # What is only printed, and cannot be, is an error.
        certify = ["certify", "run", "--sigma", "0.25", "--n", "100", "--limit", "1"]
        for arguments in ["eval", "--checkpoint", "run", "--eval", "fgsm"], ["doctor"], certify:
            with open("/dev/full", "w") as full:
                ended = subprocess.run([*program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(ended.returncode, 9, ended.stderr)
            self.assertIn("cannot write to standard output", ended.stderr)


class Odd(common.TestCase):
    """Sizes at the edge, that work."""

    def finished(self, out, images, *arguments, ranks=1, verdict="VALID"):
        ended = self.run_well("train", *TRAIN, "--out", out, *arguments, ranks=ranks)
        self.assertRegex(ended.final, f"^Final: .* {verdict}$")
        self.assertEqual([row["images"] for row in common.rows(out, "step")], images)

    def test_batches_larger_than_the_data(self):
        common.synthetic("set.h5", train=24, test=6, size=16, classes=3)
        for batch in 25, 2**31 - 1:
            self.finished(f"run {batch}", [24, 24], "--data", "set.h5", "--batch", batch, "--max-steps", 2)
        self.finished("micro", [24, 24], "--data", "set.h5", "--batch", 2**31 - 8, "--micro-batch", 10, "--max-steps",
                      2)

    def test_one_image_per_rank(self):
        common.synthetic("set.h5", train=8, test=6, size=16, classes=3)
        self.finished("run", [3, 3, 3], "--data", "set.h5", "--batch", 1, "--max-steps", 3, ranks=3)

    def test_more_ranks_than_images(self):
        common.synthetic("set.h5", train=2, test=1, size=16, classes=2)
        self.finished("run", [4, 4], "--data", "set.h5", "--batch", 8, "--max-steps", 2, ranks=4)

    def test_one_image(self):
        common.synthetic("set.h5", train=24, test=6, size=16, classes=3)
        self.finished("run", [1, 1], "--data", "set.h5", "--limit-train", 1, "--limit-test", 1, "--max-steps", 2,
                      verdict="PARTIAL")

    def test_the_last_batch_is_shorter(self):
        # 26 images on 2 ranks are 13 each: 5 + 5 + 3.
        common.synthetic("set.h5", train=26, test=6, size=16, classes=3)
        self.finished("run", [10, 10, 6] * 2, "--data", "set.h5", "--batch", 5, "--warmup-epochs", 0, "--epochs", 2,
                      ranks=2)
        # 13 are 8 + 5 in micro-batches of 4, the last one of a single image.
        self.finished("micro", [16, 12] * 2, "--data", "set.h5", "--batch", 8, "--micro-batch", 4, "--warmup-epochs", 0,
                      "--epochs", 2, ranks=2)
        # 25 images are 13 for each of 2 ranks: one comes twice.
        self.finished("wrapped", [10, 10, 6], "--data", "set.h5", "--limit-train", 25, "--batch", 5,
                      "--warmup-epochs", 0, "--epochs", 1, ranks=2)

    def test_any_number_of_classes(self):
        for classes in 2, 256:
            common.synthetic("set.h5", train=300, test=6, size=8, classes=classes)
            self.finished(f"run{classes}", [32], "--data", "set.h5", "--batch", 32, "--max-steps", 1)

    def test_warm_up_alone(self):
        common.synthetic("set.h5", train=24, test=6, size=16, classes=3)
        self.finished("run", [12, 12], "--data", "set.h5", "--batch", 12, "--epochs", 0, "--warmup-epochs", 1)

    def test_paths_with_spaces_and_quotes(self):
        common.synthetic("a set, \"quoted\".h5", train=24, test=6, size=16, classes=3)
        self.finished("a run/of 'mine'", [12], "--data", "a set, \"quoted\".h5", "--batch", 12, "--max-steps", 1)
        self.train("a run/of 'mine'", *TRAIN, "--data", "a set, \"quoted\".h5", "--batch", 12, "--max-steps", 2)
        self.run_well("plot", "a run/of 'mine'")
        self.assertEqual(common.run("eval", "--checkpoint", "a run/of 'mine'").code, 0)


if __name__ == "__main__":
    common.main()
