"""Numbers that are not finite, and catastrophic overfitting: what is skipped, where a run goes back to, and that it goes on
with the same bits wherever it was interrupted. How they get into a single step: tests/planted."""

import shutil

import common

SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
SMALL = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--batch", 10,
         "--optimizer", "sgd", "--eval", "pgd2", "--warmup-epochs", 0]
STEPS = 12
# Powers of two: all products with them are exact. The first rate overflows f32 a step later, the second in the step itself.
FAR, FARTHER, RATE = 2.0**100, 2.0**900, 2.0**-4


def learned(folder):
    return {name: values for name, values in common.state(folder).items() if name.startswith(("param/", "optim/", "bn/"))}


class Numbers(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", **SET)
        common.synthetic("large.h5", **{**SET, "train": 400})

    def go(self, folder, *arguments, ranks=1, code=0, lr=RATE):
        ended = common.run("train", "--out", folder, *SMALL, "--lr", repr(lr), *arguments, ranks=ranks)
        self.assertEqual(ended.code, code, ended.text)
        return ended

    def setbacks(self, folder, event):
        return [row for row in common.rows(folder, "setback") if row["event"] == event]

    def test_a_rollback_goes_on_with_the_lower_rate(self):
        """As if it had been the rate from the start: the checkpoint that it goes back to is of step 0."""
        for ranks in 1, 2:
            self.go("expected", "--max-steps", STEPS, ranks=ranks)
            for name, lr, extra in [("far", FAR, ["--max-bad-steps", 1]), ("farther", FARTHER, ["--checkpoint-every", 1]),
                                    ("async", FARTHER, ["--checkpoint-every", 1, "--checkpoint-async"]),
                                    ("averaged", FARTHER, ["--checkpoint-every", 1, "--average", "ema"])]:
                with self.subTest(ranks=ranks, name=name):
                    ended = self.go(name, "--max-steps", STEPS, "--on-bad-steps", "rollback", "--rollback-lr",
                                    repr(RATE / lr), *extra, ranks=ranks, lr=lr)
                    weights = {key: values for key, values in learned(name).items() if not key.startswith("optim/average/")}
                    self.assert_same(weights, learned("expected"))
                    rows = self.setbacks(name, "rollback")
                    self.assertEqual([(row["to_step"], row["lr_factor"]) for row in rows], [(0, RATE / lr)])
                    self.assertIn("is not finite", rows[0]["cause"])
                    self.assertEqual(self.setbacks(name, "skipped"), [])  # what was left is not in the record
                    self.assertEqual([row["step"] for row in common.rows(name, "step")], [*range(1, STEPS + 1)])
                    self.assertEqual({row["lr"] for row in common.rows(name, "step")}, {RATE})
                    with open(f"{name}/SUMMARY.txt") as file:
                        self.assertRegex(file.read(), r"\nrollback        from step \d to 0, \S+ times the learning rate: ")
                    self.assertEqual(name == "far", any("the step is skipped" in line for line in ended.warnings))
            for name in "expected", "far", "farther", "async", "averaged":
                shutil.rmtree(name)

    def test_a_run_goes_on_behind_a_rollback_with_equal_bits(self):
        options = ["--on-bad-steps", "rollback", "--rollback-lr", repr(RATE / FAR), "--checkpoint-every", 4, "--selector", "exp3",
                   "--codec", "powersgd", "--mask", "shared"]
        self.go("straight", *options, "--max-steps", STEPS, ranks=2, lr=FAR)
        for ends in [6], [3, 9]:
            with self.subTest(ends=ends):
                for end in [*ends, STEPS]:
                    self.go("parts", *options, "--max-steps", end, ranks=2, lr=FAR)
                self.assert_same(common.state("parts"), common.state("straight"))
                self.assertIn("state/setbacks", common.state("parts"))
                steps = {folder: [(row["step"], row["lr"], row["loss_adv"]) for row in common.rows(folder, "step")]
                         for folder in ("parts", "straight")}
                self.assertEqual(steps["parts"], steps["straight"])
                self.assertEqual(self.setbacks("parts", "rollback"), self.setbacks("straight", "rollback"))
                shutil.rmtree("parts")

    def test_it_goes_back_a_number_of_times(self):
        """The rate is halved; that is no help. The run ends with the weights before, all of which are finite."""
        for every in 1, 100:
            with self.subTest(every=every):
                folder = f"run{every}"
                ended = self.go(folder, "--max-steps", STEPS, "--on-bad-steps", "rollback", "--max-rollbacks", 2,
                                "--checkpoint-every", every, lr=FAR, code=7)
                self.assertEqual(len(ended.errors), 1, ended.text)
                self.assertRegex(ended.errors[0], "is not finite.*gone back 2 times")
                self.assertEqual([row["lr_factor"] for row in self.setbacks(folder, "rollback")], [0.5, 0.25])
                # A checkpoint behind which no step was good is no good one: it goes back further.
                self.assertEqual({row["to_step"] for row in self.setbacks(folder, "rollback")}, {0})
                self.assertEqual(len(common.checkpoints(folder)), 2 if every == 1 else 1)
                # The same command ends in the same way: what it has gone through is in the checkpoint.
                again = self.go(folder, "--max-steps", STEPS, "--on-bad-steps", "rollback", "--max-rollbacks", 2,
                                "--checkpoint-every", every, lr=FAR, code=7)
                self.assertEqual(again.errors, ended.errors)

    def test_steps_are_skipped_up_to_a_number(self):
        """Weights that overflow stay so: skipping alone is no help, and is not gone on with for ever."""
        ended = self.go("run", "--max-steps", STEPS, "--max-bad-steps", 3, lr=FAR, code=7)
        skipped = [row["step"] for row in self.setbacks("run", "skipped")]
        self.assertEqual(len(skipped), 3)
        self.assertEqual(skipped, [*range(skipped[0], skipped[0] + 3)])
        self.assertRegex(ended.errors[0], f"in step {skipped[-1] + 1} .* after 3 skipped in a row")
        self.assertEqual(sum("the step is skipped" in line for line in ended.warnings), 3)
        # Skipped steps are steps: they are recorded, without figures that are none.
        self.assertEqual([row["step"] for row in common.rows("run", "step")], [*range(1, skipped[-1] + 1)])

    def overfitting(self, folder, *arguments, ranks=1):
        return common.run("train", "--out", folder, *COLLAPSE, *arguments, ranks=ranks)

    def test_catastrophic_overfitting_raises_an_alarm(self):
        ended = self.overfitting("warn")
        self.assertEqual(ended.code, 0, ended.text)
        accuracies = [row["adv_acc"] for row in common.rows("warn", "evaluation") if row["split"] == "holdout"]
        expected = [k for k, accuracy in enumerate(accuracies) if accuracy < max(accuracies[:k], default=0) - 0.2]
        self.assertGreater(len(expected), 0, accuracies)
        self.assertEqual(len(self.setbacks("warn", "overfitting")), len(expected))
        self.assertEqual(sum("catastrophic overfitting" in line for line in ended.warnings), len(expected))
        with open("warn/SUMMARY.txt") as file:
            self.assertIn("\noverfitting     catastrophic overfitting: the robust accuracy", file.read())
        with open("warn/run.log") as file:
            self.assertIn("catastrophic overfitting", file.read())
        ended = self.overfitting("stop", "--on-overfitting", "stop")
        self.assertEqual(ended.code, 7, ended.text)
        self.assertRegex(ended.errors[0], "catastrophic overfitting.*best.h5")
        seen = [row["adv_acc"] for row in common.rows("stop", "evaluation") if row["split"] == "holdout"]
        self.assertEqual(seen, accuracies[:expected[0] + 1])

    def test_catastrophic_overfitting_goes_back_to_the_best(self):
        options = ["--on-overfitting", "rollback", "--rollback-lr", 0.001]
        for ranks in 2, 1:
            ended = self.overfitting(f"back{ranks}", *options, ranks=ranks)
            self.assertEqual(ended.code, 0, ended.text)
            rollback = self.setbacks(f"back{ranks}", "rollback")[0]
            before = [row for row in common.rows(f"back{ranks}", "evaluation")
                      if row["split"] == "holdout" and row["step"] <= rollback["to_step"]]
            self.assertEqual(before[-1]["adv_acc"], max(row["adv_acc"] for row in before))
            self.assertIn("catastrophic overfitting", rollback["cause"])
            steps = common.rows(f"back{ranks}", "step")
            self.assertEqual([row["step"] for row in steps], [*range(1, len(steps) + 1)])
            rates = [row["lr"] for row in steps]
            self.assertLess(max(rates[rollback["to_step"]:]), 0.001 * 2 * COLLAPSE_RATE)
        # In two parts, the second of them behind the rollback.
        steps = common.rows("back1", "step")
        end = (rollback["to_step"] + len(steps)) // 2
        self.overfitting("parts", *options, "--max-steps", end)
        self.assertEqual(self.overfitting("parts", *options).code, 0)
        self.assert_same(common.state("parts"), common.state("back1"))


# The rate rises until what has been learned at a low one is lost: from 0.9 and more to a quarter, of four classes.
COLLAPSE_RATE = 4.0
COLLAPSE = ["--data", "large.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack", "fgsm", "--eps", "2/255",
            "--batch", 10, "--optimizer", "sgd", "--eval", "pgd5", "--eval-every", 1, "--holdout", 80, "--limit-test", 10,
            "--lr", COLLAPSE_RATE, "--warmup-epochs", 12, "--epochs", 0]

if __name__ == "__main__":
    common.main()
