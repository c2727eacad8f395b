"""With --deterministic a run leaves the same bits on any number of ranks and threads, and wherever it went on with another."""

import json
import os
import re

import h5py
import numpy as np

import common

# An epoch of 100 images in micro-batches of 4, six of them a step, has 102 entries: four steps of 24 images, and one
# whose micro-batches have one image each.
SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
STEPS = 10
RUN = ["--data", "set.h5", "--width", 16, "--deterministic", "--attack-steps", 2, "--eval-every", 1, "--eval-attack-steps", 2,
       "--warmup-epochs", 1, "--epochs", 1]
SMALL = [*RUN, "--network", "small_cnn", "--threads", 1]
DEALT = ["--total-batch", 24, "--micro-batch", 4]


def attributes(folder):
    """Numbers and texts of the newest checkpoint, but those about where it was made."""
    with h5py.File(common.checkpoints(folder)[-1], "r") as file:
        found = {name: file["state"].attrs[name] for name in file["state"].attrs}
    for name in "ranks", "threads", "metrics_bytes", "best_bytes":
        found.pop(name, None)
    return {name: np.asarray(value) for name, value in found.items() if not isinstance(value, (str, bytes))}


def history(folder):
    """All that is recorded, but times and bytes."""
    return {name: values for name, values in common.history(folder).items() if not name.split("/")[-1].startswith("bytes_")}


def losses(folder):
    """The loss of each step, as it is printed."""
    return [(row["step"], row["loss_adv"], row["acc_adv"], row["images"], row["weight_gradients"], row["attack_passes"])
            for row in common.rows(folder, "step")]


class AnyNumber(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", **SET)

    def go(self, folder, *arguments, ranks):
        self.train(folder, *SMALL, *arguments, ranks=ranks)

    def assert_equal_runs(self, folder, reference):
        self.assert_same(common.state(folder), common.state(reference))
        self.assert_same(attributes(folder), attributes(reference))
        self.assert_same(history(folder), history(reference))
        self.assertEqual(losses(folder), losses(reference))

    def check(self, *arguments, numbers=(1, 2, 3, 4), parts=((3, 3), (2, 7), (4, STEPS)), dealt=DEALT):
        """Straight runs, and one whose parts ended after so many steps."""
        arguments = [*dealt, *arguments]
        reference, *others = numbers
        self.go("reference", *arguments, ranks=reference)
        self.assertEqual(len(common.rows("reference", "step")), STEPS)
        for ranks in others:
            self.go(f"on{ranks}", *arguments, ranks=ranks)
            self.assert_equal_runs(f"on{ranks}", "reference")
        for ranks, end in parts:
            self.go("parts", *arguments, "--max-steps", end, ranks=ranks)
        if parts:
            self.assert_equal_runs("parts", "reference")

    def test_validate_knows_the_order_of_several_ranks(self):
        said = [common.run("validate", *SMALL, *batch, "--micro-batch", 4, ranks=4).text for batch in (["--batch", 8], ["--total-batch", 32])]
        self.assertEqual(*(re.search(r"(?m)^.* per step on average.*$", text)[0] for text in said))

    def test_lamb_and_the_bandit(self):
        self.check("--optimizer", "lamb", "--bias-correction", "--checkpoint-every", 4, "--average", "ema", "--average-bn", "ema",
                   numbers=(1, 2, 3, 4, 6))

    @common.at_night
    def test_lars_with_clipped_gradients(self):
        self.check("--optimizer", "lars", "--lr", 0.02, "--clip-norm", 0.5, "--resample", 3, "--average", "swa")

    def test_eight_ranks_and_a_power_of_two(self):
        """Each rank has one partial sum here; on three ranks they have two, one and two."""
        self.check("--optimizer", "sgd", "--lr", 0.05, "--selector", "all", "--lambda", 0, "--limit-train", 70,
                   dealt=["--total-batch", 16, "--micro-batch", 2], numbers=(8, 1, 3), parts=())

    def test_batch_statistics_in_the_attack(self):
        self.check("--attack", "fgsm", "--optimizer", "sgd", "--lr", 0.05, "--lambda", 1, numbers=(1, 3), parts=((2, 6), (3, STEPS)))

    def test_losses_of_both_predictions(self):
        self.check("--loss", "trades", "--label-smoothing", 0.1, numbers=(1, 3), parts=((2, 6), (3, STEPS)))

    def test_a_norm_of_each_micro_batch(self):
        self.check("--loss", "nuat", numbers=(1, 3), parts=((2, 6), (3, STEPS)))

    def test_logits_of_where_the_attack_began(self):
        self.check("--loss", "pgi", "--attack", "fgsm", "--start-radius", 2, "--project", "off", numbers=(1, 4), parts=())

    def test_mart_from_warm_starts(self):
        self.check("--loss", "mart", "--warm-start", 2, numbers=(1, 4), parts=())

    def test_perturbed_weights(self):
        self.check("--awp-gamma", 0.01, "--awp-from", 1, "--loss", "trades", numbers=(1, 2, 3), parts=((3, 3), (1, 7), (4, STEPS)))

    def test_noise(self):
        self.check("--noise", 0.2, "--noise-samples", 3, "--attack", "none", "--average", "ema", numbers=(1, 3),
                   parts=((3, 3), (2, 7), (4, STEPS)))

    def evaluation(self, *arguments, ranks=1):
        """Accuracy and loss, clean and of pgd2, of the newest weights of `reference`."""
        ended = common.run("eval", "reference", "--data", "set.h5", "--batch", 4, "--deterministic", "--threads", 1, "--eval",
                           "pgd2", "--out", "eval.json", "--weights", "raw", "--quiet", *arguments, ranks=ranks)
        self.assertEqual(ended.code, 0, ended.text)
        with open("eval.json") as file:
            found = json.load(file)
        return [found["clean"]["accuracy"], found["clean"]["loss"], found["attacks"][0]["accuracy"], found["attacks"][0]["loss"]]

    def test_evaluations_under_noise(self):
        """As in the training, unless told otherwise."""
        self.go("reference", *DEALT, "--noise", 0.2, "--noise-samples", 2, "--attack", "none", "--eval", "pgd2", ranks=2)
        row = common.rows("reference", "evaluation")[-1]
        own = [row["clean_acc"], row["clean_loss"], row["adv_acc"], row["adv_loss"]]
        for found in self.evaluation(), self.evaluation("--noise", 0.2, "--noise-samples", 2, ranks=3):
            np.testing.assert_allclose(found, own, rtol=1e-6)
        one, without, more = self.evaluation("--noise-samples", 1), self.evaluation("--noise", 0), self.evaluation("--noise", 0.3)
        self.assertEqual(len({found[1] for found in (own, one, without, more)}), 4)
        refused = common.run("eval", "reference", "--data", "set.h5", "--eval", "aa-quick")
        self.assertEqual(refused.code, 2, refused.text)
        self.assertIn("add --noise 0", refused.text)

    def test_a_smoothed_network_that_is_attacked(self):
        self.check("--noise", 0.2, "--noise-samples", 2, "--attack", "smooth-pgd", "--norm", "l2", "--eps", "0..0.5@0-1",
                   "--eval", "pgd2,smooth-pgd2", numbers=(1, 4), parts=((2, 6), (3, STEPS)))

    @common.at_night
    def test_stability(self):
        self.check("--noise", 0.2, "--noise-samples", 2, "--attack", "none", "--loss", "kl", "--awp-gamma", 0.01,
                   numbers=(1, 3), parts=())

    def test_warm_starts(self):
        self.check("--warm-start", 2, numbers=(1, 4, 3))

    def test_a_warm_start_from_the_training_pass(self):
        self.check("--warm-start", 2, "--attack-reuse", "--attack-bn", "train", numbers=(1, 4), parts=())

    def test_images_that_grow(self):
        self.check("--train-size", "11,16@1", "--warm-start", 2, "--average", "ema", numbers=(1, 3),
                   parts=((2, 3), (3, 6), (1, STEPS)))

    def test_attacks_on_old_weights(self):
        self.check("--staleness", 3, numbers=(1, 3), parts=((2, 2), (3, 4), (1, STEPS)))

    def test_attacks_on_the_oldest_weights(self):
        self.check("--staleness", 2, "--refresh", "attack", "--loss", "trades", numbers=(1, 4), parts=((4, 5), (1, STEPS)))

    def test_early_stop_and_what_is_held_out(self):
        self.check("--attack-stop", 1, "--holdout", 16, numbers=(1, 4), parts=(), dealt=["--total-batch", 18, "--micro-batch", 3])

    def test_threads(self):
        """Also of convolutions that the library computes: of few tiles, of one pixel, with stride."""
        for network in "small_cnn", "resnet18":
            for threads, ranks in (1, 1), (2, 1), (3, 2):
                self.train(f"{network}{threads}", *RUN, *DEALT, "--network", network, "--threads", threads, "--max-steps", 3,
                           ranks=ranks)
                self.assert_equal_runs(f"{network}{threads}", f"{network}1")

    def test_batches_of_ranks(self):
        """--batch is a rank's: half of it on twice as many ranks is the same run, also for one that goes on."""
        for ranks, batch in (1, 24), (2, 12):
            self.go(f"on{ranks}", "--batch", batch, "--micro-batch", 4, "--max-steps", 6, ranks=ranks)
        self.assert_same(common.state("on2"), common.state("on1"))
        self.go("on1", "--batch", 8, "--micro-batch", 4, ranks=3)
        self.go("on2", *DEALT, ranks=1)
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
        self.go("run", *DEALT, "--max-steps", 3, ranks=2)
        found = []
        for ranks in 1, 2, 3:
            ended = common.run("eval", "--checkpoint", "run", "--data", "set.h5", "--batch", 8, "--deterministic", "--threads", ranks,
                               "--eval", "pgd3", "--out", f"{ranks}.json", "--quiet", ranks=ranks)
            self.assertEqual(ended.code, 0, ended.text)
            with open(f"{ranks}.json") as file:
                found.append({name: value for name, value in json.load(file).items()
                              if name in ("clean", "attacks", "classes", "per_image")})
        self.assertEqual(len(found[0]["per_image"]["pgd3_loss"]), SET["test"])
        self.assertEqual(found, 3 * found[:1])

    def test_what_depends_on_ranks_is_refused(self):
        for option in (["--codec", "int8"], ["--codec-transport", "gather"], ["--mask", "per_worker"], ["--bn-statistics", "local"],
                       ["--budget-unit", "seconds"], ["--stale-attack", 1], ["--overlap"],
                       ["--awp-gamma", 0.01, "--awp", "local"]):
            self.refuse(2, f"--deterministic .* which {' '.join(map(str, option[-2:]))} does not allow", "train", *SMALL, *DEALT,
                        *option)
        self.refuse(2, "6 micro-batches of a step are dealt .* 7 ranks are more", "train", *SMALL, *DEALT, "--out", "x", ranks=7)
        self.refuse(2, "--total-batch 24 and --batch 8 both", "train", *SMALL, *DEALT, "--batch", 8)
        self.refuse(2, "--total-batch 24 is no multiple of --micro-batch 5", "train", *SMALL, "--total-batch", 24, "--micro-batch", 5)
        self.refuse(2, "say how large these are: --micro-batch", "train", *SMALL, "--total-batch", 24)
        self.refuse(2, "--warm-start wants each image once in a step", "train", *SMALL, "--limit-train", 20, *DEALT, "--warm-start", 1,
                    "--out", "y")
        self.assertFalse(os.path.exists("x") or os.path.exists("y"))


if __name__ == "__main__":
    common.main()
