"""Numbers that are not finite, and catastrophic overfitting: what is skipped, where a run goes back to, and that it goes on
with the same bits wherever it was interrupted. How they get into a single step: tests/planted."""

import os
import re
import shutil
from unittest import mock

import common

SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
SMALL = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--batch", 10,
         "--optimizer", "sgd", "--eval", "pgd2", "--warmup-epochs", 0, "--check-every", 0, "--comm-timeout", 0]
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
        return self.expect(code, common.run("train", "--out", folder, *SMALL, "--lr", repr(lr), *arguments, ranks=ranks))

    def setbacks(self, folder, event):
        return [row for row in common.rows(folder, "setback") if row["event"] == event]

    def test_a_rollback_goes_on_with_the_lower_rate(self):
        """As if it had been the rate from the start: the checkpoint that it goes back to is of step 0."""
        for ranks in common.drawn([1, 2], 1):
            self.go("expected", "--max-steps", STEPS, ranks=ranks)
            for name, lr, extra in [("far", FAR, ["--max-bad-steps", 1, "--checkpoint-every", 1]), ("farther", FARTHER, ["--checkpoint-every", 1]),
                                    ("async", FARTHER, ["--checkpoint-every", 1, "DAT_CHECKPOINT_ASYNC=on"]),
                                    ("averaged", FARTHER, ["--checkpoint-every", 1, "--average", "ema"])]:
                with self.subTest(ranks=ranks, name=name):
                    ended = self.go(name, "--max-steps", STEPS, "--on-bad-steps", f"rollback:lr={RATE / lr!r}",
                                    *extra, ranks=ranks, lr=lr)
                    weights = {key: values for key, values in learned(name).items() if not key.startswith("optim/average/")}
                    self.assert_same(weights, learned("expected"))
                    rows = self.setbacks(name, "rollback")
                    self.assertEqual([(row["to_step"], row["lr_factor"]) for row in rows], [(0, RATE / lr)])
                    self.assertIn("is not finite", rows[0]["cause"])
                    self.assertNotIn("going back to the last checkpoint", ended.text)  # in place of the best one
                    self.assertEqual(self.setbacks(name, "skipped"), [])  # what was left is not in the record
                    self.assertEqual([row["step"] for row in common.rows(name, "step")], [*range(1, STEPS + 1)])
                    self.assertEqual({row["lr"] for row in common.rows(name, "step")}, {RATE})
                    self.assertRegex(common.text_of(f"{name}/SUMMARY.txt"),
                                     r"\nrollback        from step \d to 0, \S+ times the learning rate: ")
                    self.assertEqual(name == "far", any("the step is skipped" in line for line in ended.warnings))
            for name in "expected", "far", "farther", "async", "averaged":
                shutil.rmtree(name)

    def test_a_run_goes_on_behind_a_rollback_with_equal_bits(self):
        options = ["--on-bad-steps", f"rollback:lr={RATE / FAR!r}", "--checkpoint-every", 4, "--selector", "exp3",
                   "--codec", "powersgd", "--mask", "shared"]
        self.go("straight", *options, "--max-steps", STEPS, ranks=2, lr=FAR)
        for end, sums in zip([3, 9, STEPS], ["mpi", "window", "auto"]):
            self.go("parts", *options, "--max-steps", end, "--node-sums", sums, ranks=2, lr=FAR)
        self.assertIn("state/setbacks", common.state("parts"))
        self.assert_equal_runs("parts", "straight")

    def test_an_evaluation_that_a_checkpoint_owes_is_made_behind_a_rollback(self):
        # From epoch 2 on, weights are moved so far that no loss is finite.
        options = ["--awp-gamma", "0,1e30@2", "--on-bad-steps", "rollback:times=1", "--holdout", 20, "--eval-every", 1,
                   "--checkpoint-every", 100]
        epoch = 8
        self.go("run", *options, "--max-steps", epoch)
        self.go("run", *options, "--max-steps", 3 * epoch, code=7)
        self.assertEqual([row["to_step"] for row in self.setbacks("run", "rollback")], [epoch])
        self.assertEqual([row["step"] for row in common.rows("run", "evaluation") if row["split"] == "test"], [epoch, 2 * epoch])

    def test_it_goes_back_a_number_of_times(self):
        """The rate is halved; that is no help. The run ends with the weights before, all of which are finite."""
        for every in 1, 100:
            with self.subTest(every=every):
                folder = f"run{every}"
                options = ["--max-steps", STEPS, "--on-bad-steps", "rollback:times=2", "--eval-every", 1, "--checkpoint-every", every]
                ended = self.go(folder, *options, lr=FAR, code=7)
                self.expect_error(7, "is not finite.*gone back 2 times", ended)
                self.assertEqual(common.rows(folder, "evaluation"), [])  # no step was made that one is due after
                self.assertEqual([row["lr_factor"] for row in self.setbacks(folder, "rollback")], [0.5, 0.25])
                # A checkpoint after which no step was good is no good one: it goes back further.
                self.assertEqual({row["to_step"] for row in self.setbacks(folder, "rollback")}, {0})
                self.assertEqual(len(common.checkpoints(folder)), 2 if every == 1 else 1)
                # The same command ends in the same way: what it has gone through is in the checkpoint.
                self.assertEqual(self.go(folder, *options, lr=FAR, code=7).errors, ended.errors)

    def test_a_kill_within_a_rollback_loses_no_record(self):
        """When the checkpoint is written, and the record not yet cut."""
        options = ["train", *SMALL, "--max-steps", STEPS, "--on-bad-steps", "rollback:times=2", "--lr", repr(FAR)]
        self.assertEqual(common.run(*options, "--out", "straight").code, 7)
        with mock.patch.dict(os.environ, common.faults("metrics.jsonl:truncate", 0, 2)):
            self.assertEqual(common.run(*options, "--out", "killed").code, -9)
        self.assertGreater(common.steps_written("killed"), 0)
        self.assertEqual(common.run(*options, "--out", "killed").code, 7)
        setbacks = self.setbacks("straight", "rollback")
        self.assertEqual([row["lr_factor"] for row in setbacks], [0.5, 0.25])
        self.assertEqual(self.setbacks("killed", "rollback"), setbacks)
        self.assert_same(common.state("killed"), common.state("straight"))

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
        ended = self.expect(0, self.overfitting("warn"))
        accuracies = [row["adv_acc"] for row in common.rows("warn", "evaluation") if row["split"] == "holdout"]
        expected = [k for k, accuracy in enumerate(accuracies) if accuracy < max(accuracies[:k], default=0) - 0.2]
        self.assertGreater(len(expected), 0, accuracies)
        self.assertEqual(len(self.setbacks("warn", "overfitting")), len(expected))
        self.assertEqual(sum("catastrophic overfitting" in line for line in ended.warnings), len(expected))
        self.assertIn("\noverfitting     catastrophic overfitting: the robust accuracy", common.text_of("warn/SUMMARY.txt"))
        self.assertIn("catastrophic overfitting", common.text_of("warn/run.log"))
        self.expect_error(7, "catastrophic overfitting.*best.h5", self.overfitting("stop", "--on-overfitting", "stop"))
        seen = [row["adv_acc"] for row in common.rows("stop", "evaluation") if row["split"] == "holdout"]
        self.assertEqual(seen, accuracies[:expected[0] + 1])
        # Where --patience ends the run with that evaluation, too.
        since = [k - max(range(k + 1), key=lambda j: (accuracies[j], -j)) for k in range(len(accuracies))]
        last = next(k for k in expected if since[k] > max(since[:k]))
        ended = self.expect(0, self.overfitting("early", "--patience", since[last]))
        kinds = [row["kind"] for row in common.rows("early") if row["kind"] == "evaluation" or row.get("event") == "overfitting"]
        self.assertEqual(kinds[-2:], ["evaluation", "setback"])
        self.assertEqual(len(self.setbacks("early", "overfitting")), expected.index(last) + 1)
        self.assertEqual(self.overfitting("early").code, 0)
        self.assertEqual(self.setbacks("early", "overfitting"), self.setbacks("warn", "overfitting"))
        if last == expected[0]:
            self.expect(7, self.overfitting("both", "--patience", since[last], "--on-overfitting", "stop"))
            self.assertEqual([row["adv_acc"] for row in common.rows("both", "evaluation") if row["split"] == "holdout"], seen)

    def test_catastrophic_overfitting_goes_back_to_the_best(self):
        options = ["--on-overfitting", "rollback", "--on-bad-steps", "rollback:lr=0.001"]
        for ranks in 2, 1:
            self.expect(0, self.overfitting(f"back{ranks}", *options, ranks=ranks))
            rollback = self.setbacks(f"back{ranks}", "rollback")[0]
            before = [row for row in common.rows(f"back{ranks}", "evaluation")
                      if row["split"] == "holdout" and row["step"] <= rollback["to_step"]]
            self.assertEqual(before[-1]["adv_acc"], max(row["adv_acc"] for row in before))
            self.assertIn("catastrophic overfitting", rollback["cause"])
            steps = common.rows(f"back{ranks}", "step")
            self.assertEqual([row["step"] for row in steps], [*range(1, len(steps) + 1)])
            rates = [row["lr"] for row in steps]
            self.assertLess(max(rates[rollback["to_step"]:]), 0.001 * 2 * COLLAPSE_RATE)
        # In two parts, the second of them after the rollback.
        steps = common.rows("back1", "step")
        end = (rollback["to_step"] + len(steps)) // 2
        self.overfitting("parts", *options, "--max-steps", end)
        self.assertEqual(self.overfitting("parts", *options).code, 0)
        self.assert_same(common.state("parts"), common.state("back1"))
        # The last evaluation of a run is no end, either.
        self.expect(0, self.overfitting("last", *options, "--max-steps", rollback["step"]))
        self.assertIn(f"from step {rollback['step']} to {rollback['to_step']}, ", common.text_of("last/SUMMARY.txt"))


FAST = ["--lr", 512, "--weight-decay", 0.001]  # of layers whose steps are as long as their weights


class Law(common.TestCase):
    """Rolled back = restarted: a run that goes back to a checkpoint within itself goes on as a process does that starts from
    that checkpoint, in whatever it keeps from step to step."""

    # Every selector, codec, average and source of examples is in one of them.
    CASES = {
        "autofreeze": ["--selector", "autofreeze:percentile=50", "--average", "ema:decay=0.9:bn=raw", "--warm-start", 2],
        "powersgd": ["--selector", "exp3", "--codec", "powersgd", "--average", "swa:bn=raw", "--stale-attack", 1],
        "atomo": ["--selector", "oracle", "--codec", "atomo", "--average", "ema:decay=0.9:bn=rebuild", "--resample", 5],
        "int8": ["--selector", "freezeout", "--codec", "int8", "--average", "ema:decay=0.9:bn=ema"],
        "terngrad": ["--selector", "uniform", "--codec", "terngrad", "--bn-statistics", "local", "--momentum", 0.5],
        "per_worker": ["--selector", "exp3", "--mask", "per_worker", "--codec", "f16", "--weight-decay", 8],
        "lamb": ["--selector", "all", "--codec", "bf16", "--optimizer", "lamb:bias_correction:clamp=1e30", *FAST, "--lr", 64, "--warm-start", 3, "--attack-bn",
                 "train"],
        "seconds": ["--selector", "exp3", "--codec", "float32", "--budget-unit", "seconds", "--optimizer", "lars:clamp=1e30", *FAST, "--awp-gamma",
                    0.01, "DAT_CHECKPOINT_ASYNC=on", "--max-bad-steps", 1],
        "deterministic": ["--selector", "exp3", "--deterministic", "--total-batch", 16, "--micro-batch", 4, "--loss",
                          "trades", "--average", "ema:decay=0.9", "--staleness", 3],
    }
    STEPS, KEPT = 10, 4
    # A weight decay that multiplies weights by -511 in each step: after some steps more than KEPT they are not finite.
    OPTIONS = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--optimizer", "sgd", "--lr", 2,
               "--weight-decay", 256, "--no-decay", "norms", "--warmup-epochs", 0, "--max-steps", STEPS, "--eval", "pgd2", "--eval-every", 0,
               "--checkpoint-every", KEPT, "--on-bad-steps", f"rollback:lr={2.0**-11!r}:times=2"]

    def go(self, folder, case, ranks):
        batch = [] if case == "deterministic" else ["--batch", 16 // ranks]
        self.train(folder, *common.merged(*self.OPTIONS, *batch, *self.CASES[case]), ranks=ranks)

    def test_all_that_a_run_can_keep_is_in_a_case(self):
        text = common.run("train", "--help", "all").text
        for option in "selector", "codec", "average", "mask":
            words = re.search(rf"--{option} (\S+(?:\n +\S+\|\S+)*)", text)[1]
            for word in set(re.sub(r"\s", "", words).split("|")) - {"none", "auto", "shared"}:
                self.assertTrue(any(str(value).split(":")[0] == word for case in self.CASES.values()
                                    for name, value in zip(case, case[1:]) if name == f"--{option}"), (option, word))

    def check(self, ranks):
        common.synthetic("set.h5", train=64, test=10, size=16, classes=4)  # four steps an epoch
        # By day each case on one number of ranks, at night on both.
        all_cases = list(self.CASES)
        for case in all_cases if common.ALL_CASES else all_cases[ranks - 1 :: 2]:
            for folder in {"straight", "restarted"} & set(os.listdir(".")):
                shutil.rmtree(folder)
            with self.subTest(case=case, ranks=ranks):
                self.go("straight", case, ranks)
                kept = f"step-{self.KEPT:09}.h5"
                self.assertIn("state/setbacks", common.datasets(f"straight/ckpt/{kept}"))
                self.assertEqual({row["to_step"] for row in common.rows("straight", "setback") if row["event"] == "rollback"}, {self.KEPT})
                # What the run's folder would be, had the run been killed right after its rollback.
                shutil.copytree("straight", "restarted")
                for path in common.checkpoints("restarted"):
                    if os.path.basename(path) != kept:
                        os.remove(path)
                for name in {"results.h5", "SUMMARY.txt"} & set(os.listdir("restarted")):
                    os.remove(f"restarted/{name}")
                self.go("restarted", case, ranks)
                self.assert_same(common.state("restarted"), common.state("straight"))
                restarted, straight = ([row for row in common.figures(folder) if row["step"] > self.KEPT] for folder in ("restarted", "straight"))
                self.assertEqual(restarted, straight)
                self.assertGreater(len(straight), 4)

    def test_rolled_back_is_restarted(self):
        self.check(1)

    def test_rolled_back_is_restarted_on_two_ranks(self):
        self.check(2)


# The rate rises until what has been learned at a low one is lost: from 0.9 and more to a quarter, of four classes.
COLLAPSE_RATE = 4.0
COLLAPSE = ["--data", "large.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack", "fgsm", "--eps", "2/255",
            "--batch", 10, "--optimizer", "sgd", "--eval", "pgd5", "--eval-every", 1, "--holdout", 80, "--limit-test", 10,
            "--lr", COLLAPSE_RATE, "--warmup-epochs", 12, "--epochs", 0]

if __name__ == "__main__":
    common.main()
