"""How a run goes on where that is no matter of course: with other ranks, batches and options, with damaged files, and in a folder
that is taken. That it ends as if it had not been interrupted: interrupted.py."""

import os
import shutil

import numpy as np

import common

# 8 steps an epoch on any number of ranks, 24 in all.
SET = {"train": 128, "test": 20, "size": 16, "classes": 4}
STEPS = 24
EPOCHS = ["--warmup-epochs", 1, "--epochs", 2]
TRAIN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 1, "--eval-every", 1, "--eval", "pgd1",
         "--optimizer", "lamb", "--selector", "exp3", "--resample", 3, "--checkpoint-every", 4]
# From epoch 1 on no loss is finite.
BAD = ["--awp-gamma", "0,1e30@1", "--on-bad-steps"]


class Restart(common.TestCase):
    set_h5 = SET

    def go(self, folder, *arguments, ranks=0, batch=16):
        return self.run_well("train", *TRAIN, *EPOCHS, "--batch", batch, "--out", folder, *arguments, ranks=ranks)

    def refuse(self, code, pattern, *arguments, ranks=0):
        return super().refuse(code, pattern, "train", *TRAIN, *EPOCHS, "--batch", 16, *arguments, ranks=ranks)


class Damaged(Restart):
    def test_none_is_left(self):
        self.go("run", "--max-steps", 9)
        for path in common.checkpoints("run"):
            os.truncate(path, 3000)
        before = sorted(os.listdir("run/ckpt"))
        for ranks in 0, 2:
            ended = self.refuse(4, "none of the 3 checkpoints", "--out", "run", ranks=ranks)
            self.assertEqual([line.endswith("; trying the one before it") for line in ended.warnings], [True] * 3)
        self.assertEqual(sorted(os.listdir("run/ckpt")), before)

    def test_a_shortened_record(self):
        self.go("run", "--max-steps", 9)
        os.truncate("run/metrics.jsonl", 100)
        self.refuse(4, "metrics.jsonl", "--out", "run")


class Occupied(Restart):
    def test_a_run_goes_on_only_with_its_own_options(self):
        self.go("run", "--max-steps", 4, "--warm-start", 2)
        warm = ["--out", "run", "--warm-start", 2]
        self.refuse(2, "lr \\(was 0.01, is 0.02\\)", *warm, "--lr", 0.02)
        self.refuse(2, "--out run holds a run", *warm, "--resume", "never")
        self.refuse(2, "--out run holds a run", *warm, "--resume", common.checkpoints("run")[0])
        self.refuse(2, "warm-start \\(was 2, is 3\\)", *warm[:-1], 3)
        self.refuse(2, "warm-start \\(was 2, is 0\\)", *warm[:-2])

    def test_a_checkpoint_starts_another_run(self):
        self.go("straight")
        self.go("first", "--max-steps", 8)
        self.go("second", "--resume", common.checkpoints("first")[-1])
        self.assert_same(common.state("second"), common.state("straight"))
        self.assertEqual([row["step"] for row in common.rows("second", "step")], [*range(9, STEPS + 1)])
        self.refuse(4, "missing.h5", "--out", "third", "--resume", "missing.h5")
        # A finished run is finished again.
        shutil.copytree("straight", "again")
        self.go("again")
        self.assert_same(common.history("again"), common.history("straight"))

    def test_a_run_in_progress_is_waited_for_and_then_refused(self):
        running = common.Running(["train", *TRAIN, *EPOCHS, "--out", "run"], 0, common.faults("run/metrics.jsonl:write", -1, 2, 1))
        try:
            self.assertTrue(running.wait_for(lambda: common.stopped(running.process.pid)))
            self.refuse(2, "another process is writing into the run run", "--out", "run")
        finally:
            running.end()


class OtherRanks(Restart):
    def parts(self, *arguments):
        """On two, three ranks and one, eight steps of each rank's batch; yields the state after each."""
        for ranks, steps in (2, 8), (3, 7), (1, 19):
            self.go("run", *arguments, "--max-steps", steps, ranks=ranks, batch=8)
            yield common.state("run")

    def test_go_on_at_the_same_place(self):
        """From 2 ranks to 1 with the same batch: an epoch then has 16 steps, of which the first 8 are done."""
        self.go("run", "--max-steps", 12, ranks=2, batch=8)
        before = common.weights("run")
        self.go("run", "--max-steps", 25, batch=8)
        steps = common.rows("run", "step")
        self.assertEqual([row["step"] for row in steps], [*range(1, 13), 25])
        self.assertEqual([row["epoch"] for row in steps], 8 * [0] + 5 * [1])
        after = common.weights("run")
        self.assertLess(np.linalg.norm(after - before) / np.linalg.norm(before), 0.1)
        self.assertFalse(np.array_equal(after, before))

    def test_perturbations_do_not_depend_on_where_they_are_kept(self):
        """A step moves the perturbations of its own images and of no other."""
        kept = [state["state/perturbations"] for state in self.parts("--warm-start", 2)]
        self.assertEqual((kept[0].shape, kept[0].dtype), ((SET["train"], SET["size"], SET["size"], 3), np.uint8))
        self.assertTrue((kept[0] > 0).any(axis=(1, 2, 3)).all())
        for before, after, images in zip(kept, kept[1:], (24, 8)):
            moved = (before != after).any(axis=(1, 2, 3)).sum()
            self.assertGreater(moved, 0)
            self.assertLessEqual(moved, images)

    def test_each_rank_has_an_error_of_its_codec(self):
        errors = [state["codec/powersgd_error"] for state in self.parts("--codec", "powersgd", "--mask", "per_worker")]
        self.assertEqual([len(error) for error in errors], [2, 3, 1])
        self.assertTrue((errors[0][0] != errors[0][1]).any())

    def test_steps_are_counted_anew(self):
        """A number of steps that was given for other epochs is not taken; checkpoints have numbers of now from the first on."""
        batch = ["train", *TRAIN, *EPOCHS, "--batch", 8, "--out", "run"]
        self.go("run", "--max-steps", 12, batch=8)
        for_ranks = "--max-steps {} was given for epochs of {} steps, and with {} they have {}: give --max-steps {} for"
        self.assertIn(for_ranks.format(12, 16, "2 ranks", 8, 6), common.run(*batch, "--max-steps", 12, ranks=2).errors[0])
        self.go("run", "--max-steps", 7, "--checkpoint-every", 100, ranks=2, batch=8)
        self.assertEqual([path[-12:-3] for path in common.checkpoints("run")], [f"{step:09d}" for step in (4, 6, 7)])
        self.assertIn(for_ranks.format(7, 8, "1 rank", 16, 14), common.run(*batch, "--max-steps", 7).errors[0])
        # A rollback knows where checkpoints of the other count stand: 8 of 8 is 16 of 16.
        bad = [*BAD, "rollback:times=1"]
        self.go("bad", *bad, "--max-steps", 8, ranks=2, batch=8)
        self.expect(7, common.run(*batch[:-1], "bad", *bad, "--max-steps", 20))
        self.assertEqual([row["to_step"] for row in common.rows("bad", "setback")], [8])
        # One that ends no run is no end.
        self.go("whole", "--max-steps", 1000, ranks=2, batch=8)
        self.assertIn("is finished", self.go("whole", "--max-steps", 1000, batch=8).text)

    def test_with_a_batch_above_the_share(self):
        """It is cut to the share of each rank; the options keep what was asked for."""
        for ranks, steps in (0, 1), (2, 2):
            self.go("run", "--max-steps", steps, ranks=ranks, batch=200)
        self.assertEqual([row["images"] for row in common.rows("run", "step")], 2 * [SET["train"]])
        self.assertEqual(common.run("train", "--config", "run/config.resolved.toml", "--out", "again").code, 0)

    def test_from_the_configuration_of_a_run(self):
        """Options that follow from others are written down where they count, and only there."""
        for selector, budget in ("all", '"auto"'), ("freezeout", '"auto"'), ("uniform", r"8.\d+"):
            out = f"of-{selector}"
            self.train(out, *TRAIN[:8], "--batch", 16, "--selector", selector, "--max-steps", 2)
            self.assertRegex(common.text_of(f"{out}/config.resolved.toml"), f"\nbudget = {budget}\n")
            self.train(f"{out}-again", "--config", f"{out}/config.resolved.toml")
            np.testing.assert_array_equal(common.weights(out), common.weights(f"{out}-again"))


class BatchByEpoch(Restart):
    """Each batch is a part of the training that goes on from the one before as a run of its own would."""

    def test_parts_are_runs_one_after_the_other(self):
        ended = self.go("run", ranks=2, batch="8,16@1,4@2")  # epochs of 8, 4 and 16 steps
        self.assertIn("from epoch 1 on steps have 32 images, and epochs 4 steps: step 5 is next", ended.text)
        self.assertRegex(common.text_of("run/SUMMARY.txt"), "(?m)^steps +48 of 48$")
        steps = common.rows("run", "step")
        self.assertEqual([row["step"] for row in steps], [*range(1, 9), *range(5, 9), *range(33, 49)])
        self.assertEqual([row["images"] for row in steps], 8 * [16] + 4 * [32] + 16 * [8])
        self.assertEqual([row["epoch"] for row in steps], 8 * [0] + 4 * [1] + 16 * [2])
        self.assertEqual([(row["step"], row["epoch"]) for row in common.rows("run", "evaluation")], [(8, 1), (8, 2), (48, 3)])
        self.go("first", "--max-steps", 8, ranks=2, batch=8)
        self.go("second", "--max-steps", 8, "--resume", "first", ranks=2, batch=16)
        self.go("third", "--resume", "second", ranks=2, batch=4)
        learned = [{name: values for name, values in common.state(folder).items() if name.startswith(("param/", "optim/", "bn/"))}
                   for folder in ("run", "third")]
        self.assertIn("optim/v/conv1.weight", learned[0])
        self.assert_same(*learned)

    def test_of_all_ranks(self):
        dealt = ["--deterministic", "--micro-batch", 4]
        self.go("each", *dealt, ranks=2, batch="8,16@1,4@2")
        self.assertIn('total-batch = "16,32@1,8@2"', common.text_of("each/config.resolved.toml"))
        self.assertIn("is finished", self.go("each", *dealt, ranks=2, batch="8,16@1,4@2").text)
        # A later part that cannot be dealt is refused before anything begins.
        odd = ["train", *TRAIN, *EPOCHS, "--total-batch", "16,9@1", "--out", "odd"]
        common.TestCase.refuse(self, 2, "--total-batch 9 is no multiple of 2 ranks", *odd, ranks=2)
        self.assertFalse(os.path.exists("odd"))

    @common.at_night
    def test_a_rollback_over_a_border(self):
        """It goes back into the part before."""
        ended = self.expect(7, common.run("train", *TRAIN, *EPOCHS, "--out", "bad", "--batch", "8,16@1", *BAD, "rollback:times=2",
                                          "--checkpoint-every", 100, ranks=2))
        self.assertEqual({row["to_step"] for row in common.rows("bad", "setback") if row["event"] == "rollback"}, {0})
        self.assertEqual(ended.text.count("from epoch 1 on steps have 32 images"), 3)


if __name__ == "__main__":
    common.main()
