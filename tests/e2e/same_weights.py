"""What the weights may depend on: a run twice, and one batch on different numbers of ranks."""

import unittest

import numpy as np

import common

SMALL = ["--data", "set.h5", "--width", 16, "--threads", 1, "--attack-steps", 3,
         "--eval-every", 0, "--eval-attack-steps", 2, "--limit-test", 8, "--warmup-epochs", 0, "--epochs", 2]


class Repeated(common.TestCase):
    """Two runs of the same command leave the same bits."""

    def check(self, *arguments, ranks, network="small_cnn"):
        common.synthetic("set.h5", train=50, test=8, size=16, classes=4)
        for folder in "ab":
            self.train(folder, *SMALL, "--network", network, *arguments, ranks=ranks)
        self.assert_same(common.state("a"), common.state("b"))
        self.assert_same(common.history("a"), common.history("b"))

    def test_on_one_rank(self):
        self.check("--batch", 16, "--optimizer", "lamb", ranks=1)

    def test_on_two_ranks(self):
        self.check("--batch", 8, "--optimizer", "lars", "--lambda", 1, "--overlap", "--bucket", 4096, ranks=2)

    def test_on_three_ranks(self):
        self.check("--batch", 8, "--micro-batch", 4, "--attack", "fgsm", "--optimizer", "sgd", "--granularity", "module",
                   "--lr", 0.05, ranks=3)

    def test_of_a_residual_network(self):
        self.check("--batch", 8, "--limit-train", 32, "--bn-statistics", "local", network="preact_resnet18", ranks=2)

    def test_but_not_with_another_seed(self):
        common.synthetic("set.h5", train=50, test=8, size=16, classes=4)
        for seed in 1, 2:
            self.train(f"seed{seed}", *SMALL, "--network", "small_cnn", "--batch", 16, "--seed", seed)
        one, other = common.weights("seed1"), common.weights("seed2")
        self.assertGreater(np.linalg.norm(one - other) / np.linalg.norm(one), 0.1)


class Split(common.TestCase):
    """R ranks with batches of B, and one rank with a batch of R B in micro-batches of B, make the same updates.

    The samples, the starts of the attacks and the micro-batches of batch norm are the same, and the sums of the same
    numbers differ in their order only: by a few units of 2^-24 of the gradient in a step. A step moves the weights by
    some percent of their norm here, so that rounding alone stays below 1e-7 of it in each of the 6 steps. It is
    amplified where the sign of a gradient pixel turns over; a factor of 100 is left for that. One step on other data
    moves the weights by more than 1e-3 (the last test).
    """

    BOUND = 6 * 1e-7 * 100

    def runs(self, *arguments, splits):
        common.synthetic("set.h5", train=96, test=8, size=16, classes=4)
        found = []
        for ranks, batch in splits:
            folder = f"{ranks}x{batch}"
            self.train(folder, *SMALL, "--network", "small_cnn", "--batch", batch, "--optimizer", "sgd", "--lr", 0.1,
                       *arguments, ranks=ranks)
            found.append((common.weights(folder), common.history(folder)))
        return found

    def check(self, *arguments, splits):
        (reference, record), *others = self.runs(*arguments, splits=splits)
        self.assertEqual(len(record["history/step/step"]), 6)
        self.assertLess(record["history/step/n_active"].min(), len(record["jointspar/layer_name"]))
        for weights, other in others:
            print(np.linalg.norm(weights - reference) / np.linalg.norm(reference))
            self.assertLess(np.linalg.norm(weights - reference) / np.linalg.norm(reference), self.BOUND)
            np.testing.assert_array_equal(other["jointspar/active"], record["jointspar/active"])
            np.testing.assert_array_equal(other["history/step/images"], record["history/step/images"])
            np.testing.assert_allclose(other["history/step/loss_adv"], record["history/step/loss_adv"], rtol=1e-4)

    def test_pgd(self):
        self.check("--micro-batch", 16, splits=[(1, 32), (2, 16)])

    def test_four_ranks(self):
        self.check("--micro-batch", 8, splits=[(1, 32), (2, 16), (4, 8)])

    def test_with_a_clean_loss(self):
        self.check("--micro-batch", 16, "--lambda", 1, splits=[(1, 32), (2, 16)])

    def test_fgsm_with_batch_statistics(self):
        self.check("--micro-batch", 16, "--lambda", 1, "--attack", "fgsm", splits=[(1, 32), (2, 16)])

    def test_the_bound_tells_other_data_apart(self):
        (one, _), (other, _) = self.runs("--micro-batch", 16, "--max-steps", 1, splits=[(1, 32), (1, 16)])
        print(np.linalg.norm(one - other) / np.linalg.norm(one))
        self.assertGreater(np.linalg.norm(one - other) / np.linalg.norm(one), 1e-3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
