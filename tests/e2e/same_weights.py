"""What the weights may depend on: a run twice, and one batch on different numbers of ranks."""

import shutil

import numpy as np

import common

SMALL = ["--data", "set.h5", "--width", 16, "--threads", 1, "--attack-steps", 3,
         "--eval-every", 0, "--eval", "pgd2", "--limit-test", 8, "--warmup-epochs", 0, "--epochs", 2]


def distance(one, other):
    return np.linalg.norm(one - other) / np.linalg.norm(other)


class Repeated(common.TestCase):
    """Two runs of the same command leave the same bits."""

    def check(self, *arguments, ranks, network="small_cnn", other=()):
        """other: what the second run has besides."""
        common.synthetic("set.h5", train=50, test=8, size=16, classes=4)
        for folder, more in ("a", ()), ("b", other):
            self.train(folder, *SMALL, "--network", network, *arguments, *more, ranks=ranks)
        self.assert_same(common.state("a"), common.state("b"))
        self.assert_same(common.history("a"), common.history("b"))

    def test_on_two_ranks(self):
        self.check("--batch", 8, "--optimizer", "lars", "--lambda", 1, "--overlap", "DAT_BUCKET=4096", ranks=2)

    def test_where_one_makes_again_what_the_other_keeps(self):
        self.check("--batch", 10, "--micro-batch", 5, "--max-steps", 1, "--deterministic", "--attack-bn", "train",
                   network="resnet18", ranks=3, other=["--recompute", "norms"])

    @common.at_night
    def test_where_one_makes_again_what_the_other_keeps_with_silu(self):
        self.check("--batch", 16, "--micro-batch", 8, "--limit-train", 32, "--activation", "silu", "--loss", "trades",
                   network="preact_resnet18", ranks=1, other=["--recompute", "norms"])

    @common.at_night
    def test_of_a_residual_network(self):
        self.check("--batch", 8, "--limit-train", 32, "--bn-statistics", "local", network="preact_resnet18", ranks=2)

    def test_but_not_with_another_seed(self):
        common.synthetic("set.h5", train=50, test=8, size=16, classes=4)
        for seed in 1, 2:
            self.train(f"seed{seed}", *SMALL, "--network", "small_cnn", "--batch", 16, "--seed", seed)
        self.assertGreater(distance(common.weights("seed1"), common.weights("seed2")), 0.1)


class Split(common.TestCase):
    """R ranks with batches of B, and one rank with a batch of R B in micro-batches of B, make the same updates.

    The samples, the starts of the attacks and the micro-batches of batch norm are the same, and the same numbers are
    added up in another order: gradients differ by some units of 2^-24, as weights do that a step moves by less than
    their own size. Six steps that each add ten units leave ROUNDING.

    An attack takes signs. Where rounding turns one over, a pixel moves by up to 2 eps, one of the 24,576 of a step:
    that changes the gradient by about 1/sqrt(24,576) = 0.6 %, and the weights, which a step moves by 1 %, by 6e-5.
    TURNED leaves room for sixteen; other data in a single step make several times that (the last test). A ReLU whose
    argument rounding moves across zero does as much, with and without an attack, and the steps after it multiply that (seen:
    3e-5 in the step, 2e-4 one later). A last batch that is not dealt alike makes 1e-2 in its step.
    """

    ROUNDING = 6 * 10 * 2.0**-24
    TURNED = 1e-3

    def runs(self, *arguments, splits, images=96):
        common.synthetic("set.h5", train=images, test=8, size=16, classes=4)
        found = []
        for ranks, batch in splits if common.ALL_CASES else [splits[0], splits[-1]]:
            folder = f"{ranks}x{batch}"
            shutil.rmtree(folder, ignore_errors=True)
            self.train(folder, *SMALL, "--network", "small_cnn", "--batch", batch, "--optimizer", "sgd", "--lr", 0.1,
                       *arguments, ranks=ranks)
            found.append((folder, common.history(folder)))
        return found

    def check(self, bound, *arguments, splits, images=96, steps=6):
        """Of three seeds one must keep to the bound: what is wrong is wrong with each of them, and what rounding turns
        over is rare, and another thing on another machine."""
        for seed in 1, 2, 3:
            (reference, record), *others = self.runs("--seed", seed, *arguments, splits=splits, images=images)
            self.assertEqual(len(record["history/step/step"]), steps)
            self.assertLess(record["history/step/n_active"].min(), len(record["jointspar/layer_name"]))
            # A turned sign shows in momentum and statistics as it does in the gradient, before a small step shrinks it.
            parts = ["param/"] if bound == self.TURNED else ["param/", "optim/", "bn/"]
            worst = 0
            for folder, other in others:
                for part in parts:
                    worst = max(worst, distance(common.weights(folder, part), common.weights(reference, part)))
                loss = record["history/step/loss_adv"]
                worst = max(worst, np.abs(other["history/step/loss_adv"] / loss - 1).max())
                for name in "history/step/images", "history/step/epoch", "history/step/lr":
                    np.testing.assert_array_equal(other[name], record[name], name)
            if worst < bound:
                for _, other in others:
                    np.testing.assert_array_equal(other["jointspar/active"], record["jointspar/active"])
                return
        self.fail(f"apart by {worst} with the last of three seeds, at most {bound} is rounding")

    def test_two_losses_on_four_ranks(self):
        self.check(self.ROUNDING, "--micro-batch", 8, "--attack", "none", "--lambda", 1,
                   splits=[(1, 32), (2, 16), (4, 8)])

    def test_fgsm_with_batch_statistics(self):
        self.check(self.TURNED, "--micro-batch", 16, "--lambda", 1, "--attack", "fgsm", splits=[(1, 32), (2, 16)])

    def test_pgd_from_the_perturbations_of_the_epoch_before(self):
        self.check(self.TURNED, "--micro-batch", 8, "--warm-start", 2, splits=[(1, 32), (2, 16), (4, 8)])

    def test_epochs_that_end_with_a_part_of_a_batch(self):
        """83 images are 84 for four micro-batches: 8, 8, then 5 in each; the first image of the order comes again."""
        self.check(self.TURNED, "--micro-batch", 8, "--attack", "none", "--lambda", 1, "--max-steps", 3,
                   splits=[(1, 32), (2, 16), (4, 8)], images=83, steps=3)
        self.assertEqual(common.history("1x32")["history/step/images"].tolist(), [32, 32, 20])

    def test_batches_larger_than_the_data(self):
        """One step an epoch: 21 images are 24 for four micro-batches of 6."""
        self.check(self.ROUNDING, "--micro-batch", 16, "--attack", "none", splits=[(1, 64), (2, 32), (4, 16)],
                   images=21, steps=2)

    def test_other_data_are_told_apart(self):
        (one, _), (other, _) = self.runs("--micro-batch", 16, "--max-steps", 1, splits=[(1, 32), (1, 16)])
        self.assertGreater(distance(common.weights(one), common.weights(other)), 5 * self.TURNED)


if __name__ == "__main__":
    common.main()
