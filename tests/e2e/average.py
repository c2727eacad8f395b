"""Averaged weights: a run goes on with equal bits, `eval` takes them, best.h5 is theirs; and the early end by --patience."""

import os
import shutil
import signal

import h5py

import common

SET = {"train": 144, "test": 50, "size": 16, "classes": 4}
# 128 images are trained on: 8 steps an epoch, 24 in all.
RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--eval", "pgd2",
       "--eval-every", 1, "--warmup-epochs", 1, "--epochs", 2, "--holdout", 16, "--lr", 0.05, "--checkpoint-every", 4]
SWA = ["--average", "none,swa@1"]
EMA = ["--average", "ema:decay=0.8:bn=ema"]


def options(*others, ranks=1):
    return common.merged(*RUN, "--batch", 16 // ranks, *others)


class Runs(common.TestCase):
    set_h5 = SET

    def go(self, folder, *others, ranks=1):
        self.train(folder, *options(*others, ranks=ranks), ranks=ranks)

    def launch(self, folder, *others, ranks=1):
        return common.Running(["train", "--out", folder, *options(*others, ranks=ranks)], ranks)

    def evaluate(self, path, *arguments):
        ended = self.run_well("eval", "--checkpoint", path, "--threads", 1, "--eval", "pgd2", "--batch", 50, "--out", "eval.json",
                              *arguments)
        return common.load("eval.json"), ended

    def of(self, folder, split, weights):
        return [row for row in common.rows(folder, "evaluation") if (row["split"], row["weights"]) == (split, weights)]


class Averages(Runs):
    def test_an_evaluation_is_that_of_a_checkpoint_with_these_weights(self):
        """And the raw weights are those of a run without."""
        self.go("plain", ranks=2)
        for name, average in ("swa", SWA), ("ema", EMA), ("raw", ["--average", "ema:decay=0.8:bn=raw"]):
            with self.subTest(name):
                self.go(name, *average, ranks=2)
                plain, averaged = common.state("plain"), common.state(name)
                self.assert_same({key: averaged[key] for key in plain if key != "state/best"},
                                 {key: plain[key] for key in plain if key != "state/best"})
                for split in "test", "holdout":
                    for row, other in zip(self.of("plain", split, "raw"), self.of(name, split, "raw"), strict=True):
                        self.assertEqual({**row, "wall_time": 0}, {**other, "wall_time": 0})
                    self.assertEqual([row["step"] for row in self.of(name, split, "average")], [8, 16, 24])
                told, ended = self.evaluate(name)
                self.assertIn(" test images, averaged weights\n", ended.text)
                last = self.of(name, "test", "average")[-1]
                self.assertRegex(ended.text, f"Final: clean_acc={last['clean_acc']:.4f} pgd2_acc={last['adv_acc']:.4f} ")
                self.assertIn(f" average_clean_acc={last['clean_acc']:.4f} average_pgd2_acc={last['adv_acc']:.4f} ",
                              common.text_of(f"{name}/SUMMARY.txt"))
                shutil.copy(common.checkpoints(name)[-1], "replaced.h5")
                with h5py.File("replaced.h5", "r+") as file:
                    for key, values in file["optim/average"].items():
                        file["bn" if "running" in key else "param"][key][...] = values[()]
                    own = [key for key in file["optim/average"] if "running" in key]
                    self.assertEqual(len(own), 0 if name == "raw" else 6)
                common.seal("replaced.h5")
                other, ended = self.evaluate("replaced.h5", "--weights", "raw")
                self.assertNotIn("averaged", ended.text)
                self.assertEqual((told["weights"], other["weights"]), ("average", "raw"))
                self.assertEqual(told["per_image"], other["per_image"])
                raw, _ = self.evaluate(name, "--weights", "raw")
                self.assertNotEqual(raw["per_image"], other["per_image"])
        self.assertEqual(self.evaluate("plain")[0]["weights"], "raw")
        self.refuse(4, "trained without --average", "eval", "--checkpoint", "plain", "--weights", "average")

    def test_a_checkpoint_in_haste_has_no_rebuilt_statistics(self):
        running = self.launch("run", "--epochs", 400, "--average", "ema:bn=rebuild")
        try:
            self.assertTrue(running.wait_for(lambda: common.steps_written("run") >= 9))
            common.kill(running.ranks()[0], signal.SIGUSR1)
            ended = running.wait()
        finally:
            running.end()
        self.assertEqual(ended.code, 75, ended.text)
        with h5py.File(common.checkpoints("run")[-1]) as file:
            self.assertNotIn("bn1.running_mean", file["optim/average"])
        self.assertEqual(self.evaluate("run")[0]["weights"], "raw")
        self.assertIn("the raw ones are taken", self.run_well("export", "run", "--out", "raw.onnx").text)
        self.refuse(4, "written in haste", "eval", "--checkpoint", "run", "--weights", "average")

    def test_the_best_checkpoint_is_that_of_the_average(self):
        self.go("run", *EMA, "--epochs", 5)
        held = self.of("run", "holdout", "average")
        best = max(row["adv_acc"] for row in held)
        with h5py.File("run/ckpt/best.h5") as file:
            self.assertEqual(file["state/best"][0], best)
            self.assertEqual(file["state"].attrs["step"], min(row["step"] for row in held if row["adv_acc"] == best))
        told, _ = self.evaluate("run/ckpt/best.h5", "--split", "holdout")
        # Of another batch size, which may round otherwise and turn an image on the edge.
        self.assertAlmostEqual(told["attacks"][0]["accuracy"], best, delta=1.01 / 16)

    def test_averaging_may_begin_in_a_run_that_goes_on(self):
        self.go("first", "--max-steps", 4)
        self.go("second", *EMA, "--resume", "first", "--max-steps", 5)
        first, second = common.state("first"), common.state("second")
        self.assertEqual(second["state/optimizer"][-1], 1)
        # The fifth step keeps (1 + 5)/(10 + 5) = 0.4, which is less than tau = 0.8, of the weights that it went on from.
        name = "linear.weight"
        expected = .4 * first["param/" + name].astype(float) + .6 * second["param/" + name].astype(float)
        # One rounding to f32, of numbers below 1.
        self.assertLess(abs(second["optim/average/" + name] - expected).max(), 2.0**-24)

    def test_averaged_statistics_may_begin_in_a_run_that_goes_on(self):
        """From the running statistics that it went on from: kept by (1 + n)/(10 + n), at most tau, at the n-th step."""
        self.go("first", "--average", "ema:decay=0.8:bn=raw", "--max-steps", 4)
        self.go("second", *EMA, "--resume", "first", "--max-steps", 5)
        first, second = common.state("first"), common.state("second")
        for name in "bn1.running_mean", "bn3.running_var":
            expected = .4 * first["bn/" + name].astype(float) + .6 * second["bn/" + name].astype(float)
            self.assertLess(abs(second["optim/average/" + name] - expected).max(), 2.0**-23 * abs(expected).max())

    def test_a_run_goes_on_with_another_average_or_without(self):
        self.go("first", *EMA, "--max-steps", 12)
        self.go("second", *SWA, "--resume", "first", "--max-steps", 20)
        second = common.state("second")
        self.assertEqual(second["state/optimizer"][-1], 1)  # the end of the epoch at step 16
        self.assertEqual(common.attribute(common.checkpoints("second")[-1], "average"), "swa")
        self.go("third", "--resume", "first", "--max-steps", 16)
        self.assertEqual([name for name in common.state("third") if name.startswith("optim/average")], [])
        self.assertEqual({row["weights"] for row in common.rows("third", "evaluation")}, {"raw"})


class Patience(Runs):
    """Weights that stand still: once the running statistics have settled, no evaluation is better than another."""

    STILL = ["--optimizer", "sgd", "--lr", 1e-12, "--attack", "none", "--epochs", 40, "--patience", 3]

    def check(self, folder):
        text = common.text_of(f"{folder}/SUMMARY.txt")
        held = [row["adv_acc"] for row in self.of(folder, "holdout", "raw")]
        best = held.index(max(held))
        self.assertEqual(len(held) - 1 - best, 3, held)
        # Nowhere before have three evaluations gone by without a better one.
        for k in range(3, len(held) - 1):
            self.assertGreater(max(held[k - 2 : k + 1]), max(held[: k - 2]), held)
        steps = [row["step"] for row in common.rows(folder, "step")]
        self.assertEqual(steps, [*range(1, 8 * len(held) + 1)])
        self.assertLess(len(held), 41)
        self.assertIn(f"stopped early after step {steps[-1]} of 328: no better robust accuracy on held-out training images "
                      f"than {100 * max(held):.2f} % in 3 evaluations; ckpt/best.h5", text)
        self.assertIn(" VALID\n", text)
        return steps[-1]

    def test_ends_a_run(self):
        self.go("straight", *self.STILL)
        end = self.check("straight")
        for path in common.checkpoints("straight"):
            last = path.endswith(f"-{end:09d}.h5")  # the evaluation that ends the run is still due there
            self.assertEqual(common.attribute(path, "stopped_early", "state"), last)
            if last:
                self.assertEqual(common.attribute(path, "since_best", "state"), 2)
        before = {path: os.path.getmtime(f"straight/{path}") for path in ("metrics.jsonl", "results.h5", "run.log")}
        self.go("straight", *self.STILL)  # is finished
        self.assertEqual({path: os.path.getmtime(f"straight/{path}") for path in before}, before)
        # Killed in the evaluation that ends it, and after the checkpoint that follows.
        for name, moment in (("early", lambda folder: common.steps_written(folder) >= end - 3),
                             ("late", lambda folder: f"step-{end:09d}.h5" in common.entries(f"{folder}/ckpt"))):
            running = self.launch(name, *self.STILL)
            try:
                self.assertTrue(running.wait_for(lambda: moment(name)))
            finally:
                running.end()
            self.go(name, *self.STILL)
            self.check(name)
            self.assert_same(common.state(name), common.state("straight"))
            self.assert_same(common.history(name), common.history("straight"))
        # With less patience, a run may be at its end where it goes on: it is evaluated there.
        held = [row["adv_acc"] for row in self.of("straight", "holdout", "raw")]
        self.go("less", *self.STILL[:-1], 30, "--max-steps", end + 4)  # a checkpoint between two evaluations
        one = [*self.STILL[:-1], 1]
        self.go("less", *one)
        text = common.text_of("less/SUMMARY.txt")
        self.assertIn(f"stopped early after step {end + 4} of 328", text)
        self.assertRegex(text, f"clean_acc=[0-9.]+ pgd2_acc=[0-9.]+ .* VALID\n")
        self.assertEqual(common.datasets("less/results.h5")["history/evaluation/step"][-1], end + 4)
        before = os.path.getmtime("less/metrics.jsonl")
        self.go("less", *one)  # is finished
        self.assertEqual(os.path.getmtime("less/metrics.jsonl"), before)
        self.assertEqual(max(held), max(row["adv_acc"] for row in self.of("less", "holdout", "raw")))
        # Where the checkpoint is that of an evaluation which the record has, it is not there twice.
        self.go("again", *self.STILL[:-1], 30, "--max-steps", end + 4)
        for name in f"ckpt/step-{end + 4:09d}.h5", "results.h5", "SUMMARY.txt":
            os.remove(f"again/{name}")
        self.go("again", *self.STILL)
        for more in [], ["--quiet"], [*self.STILL[-2:-1], 30, "--max-steps", end + 1]:  # at its end, with other words, and after it
            self.go("again", *(self.STILL if not more or len(more) == 1 else self.STILL[:-2]), *more)
            steps = [row["step"] for row in self.of("again", "holdout", "raw")]
            self.assertEqual(steps, [*range(8, end + 1, 8), *([end + 1] if len(more) > 1 else [])])
        # With more patience it goes on.
        self.go("straight", *self.STILL[:-1], 5, "--max-steps", end + 4)
        self.assertEqual(common.rows("straight", "step")[-1]["step"], end + 4)
        self.assertEqual([row["step"] for row in self.of("straight", "holdout", "raw")], [*range(8, end + 1, 8), end + 4])


if __name__ == "__main__":
    common.main()
