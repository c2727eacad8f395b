"""Batches, evaluations and threads of runs that leave the same bits on any number of ranks: interrupted.py goes on with others."""

import os
import re

import numpy as np

import common

# An epoch of 100 images in micro-batches of 4, six of them a step, has 102 entries: four steps of 24 images, and one
# whose micro-batches have one image each.
SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
RUN = ["--data", "set.h5", "--width", 16, "--deterministic", "--attack-steps", 2, "--eval-every", 1, "--eval", "pgd2",
       "--warmup-epochs", 1, "--epochs", 1]
SMALL = [*RUN, "--network", "small_cnn", "--threads", 1]
DEALT = ["--total-batch", 24, "--micro-batch", 4]


class AnyNumber(common.TestCase):
    set_h5 = SET

    def go(self, folder, *arguments, ranks):
        self.train(folder, *SMALL, *arguments, ranks=ranks)

    def test_validate_knows_the_order_of_several_ranks(self):
        said = [common.run("validate", *SMALL, *batch, "--micro-batch", 4, ranks=4).text for batch in (["--batch", 8], ["--total-batch", 32])]
        self.assertEqual(*(re.search(r"(?m)^.* per step on average.*$", text)[0] for text in said))

    def evaluation(self, *arguments, ranks=0):
        """Accuracy and loss, clean and of pgd2, of the newest weights of `reference`."""
        self.run_well("eval", "reference", "--data", "set.h5", "--batch", 4, "--deterministic", "--threads", 1, "--eval",
                      "pgd2", "--out", "eval.json", "--weights", "raw", "--quiet", *arguments, ranks=ranks)
        found = common.load("eval.json")
        return [found["clean"]["accuracy"], found["clean"]["loss"], found["attacks"][0]["accuracy"], found["attacks"][0]["loss"]]

    def test_evaluations_under_noise(self):
        """As in the training, unless told otherwise."""
        self.go("reference", *DEALT, "--noise", 0.2, "--noise-samples", 2, "--attack", "none", ranks=2)
        row = common.rows("reference", "evaluation")[-1]
        own = [row["clean_acc"], row["clean_loss"], row["adv_acc"], row["adv_loss"]]
        for found in self.evaluation(), self.evaluation("--noise", 0.2, "--noise-samples", 2, ranks=3):
            np.testing.assert_allclose(found, own, rtol=1e-6)
        one, without, more = self.evaluation("--noise-samples", 1), self.evaluation("--noise", 0), self.evaluation("--noise", 0.3)
        self.assertEqual(len({found[1] for found in (own, one, without, more)}), 4)
        refused = self.expect(2, common.run("eval", "reference", "--data", "set.h5", "--eval", "aa-quick"))
        self.assertIn("add --noise 0", refused.text)

    def test_threads(self):
        """Also of convolutions that the library computes: of few tiles, of one pixel, with stride."""
        for network in "small_cnn", "resnet18":
            for threads, ranks in (1, 0), (2, 0), (3, 2):
                self.train(f"{network}{threads}", *RUN, *DEALT, "--network", network, "--threads", threads, "--max-steps", 2,
                           "--attack-steps", 1, "--limit-test", 4, ranks=ranks)
                self.assert_equal_runs(f"{network}{threads}", f"{network}1")

    def test_batches_of_ranks(self):
        """--batch is a rank's: half of it on twice as many ranks is the same run, also for one that goes on."""
        for ranks, batch in (1, 24), (2, 12):
            self.go(f"on{ranks}", "--batch", batch, "--micro-batch", 4, "--max-steps", 6, ranks=ranks)
        self.assert_same(common.state("on2"), common.state("on1"))
        self.go("on1", "--batch", 8, "--micro-batch", 4, ranks=3)
        self.go("on2", *DEALT, ranks=0)
        self.assert_same(common.state("on2"), common.state("on1"))
        self.refuse(2, "total-batch \\(was 24, is 16\\)", "train", *SMALL, "--out", "on1", "--batch", 8, "--micro-batch", 4, ranks=2)

    def test_a_batch_of_all_ranks_without_an_order(self):
        """An equal share for each: the bits of --batch, and a run that goes on at another number of ranks."""
        plain = [word for word in SMALL if word != "--deterministic"]
        self.train("shares", *plain, "--total-batch", 24, "--max-steps", 3, ranks=2)
        self.train("batches", *plain, "--batch", 12, "--max-steps", 3, ranks=2)
        self.assert_same(common.state("shares"), common.state("batches"))
        self.train("shares", *plain, "--total-batch", 24, ranks=3)
        self.assertEqual([row["images"] for row in common.rows("shares", "step")], [24, 24, 24, 24, 6, 24, 24, 24, 24, 6])
        self.refuse(2, "--total-batch 24 is no multiple of 5 ranks, .* choose 20 or 25, or add --deterministic", "train", *plain,
                    "--total-batch", 24, "--out", "x", ranks=5)

    def test_an_evaluation(self):
        self.go("run", *DEALT, "--max-steps", 3, ranks=0)
        found = []
        for ranks in 1, 3:
            self.run_well("eval", "--checkpoint", "run", "--data", "set.h5", "--batch", 8, "--deterministic", "--threads", ranks,
                          "--eval", "pgd3", "--out", f"{ranks}.json", "--quiet", ranks=ranks)
            found.append({name: value for name, value in common.load(f"{ranks}.json").items()
                          if name in ("step", "clean", "attacks", "classes", "per_image")})
        self.assertEqual((found[0]["step"], len(found[0]["per_image"]["pgd3_loss"])), (3, SET["test"]))
        self.assertEqual(*found)

    def test_what_depends_on_ranks_is_refused(self):
        self.refuse(2, "24 images to 7 ranks in whole micro-batches, and --micro-batch 4 makes 6", "train", *SMALL, *DEALT, "--out", "x", ranks=7)
        self.refuse(2, "--warm-start wants each image once in a step", "train", *SMALL, "--limit-train", 20, *DEALT, "--warm-start", 1,
                    "--out", "y")
        self.assertFalse(os.path.exists("x") or os.path.exists("y"))


if __name__ == "__main__":
    common.main()
