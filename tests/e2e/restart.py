"""A run that is killed, stopped or damaged goes on with the same command and ends like one that was left alone."""

import glob
import os
import shutil
import signal
import unittest
from unittest import mock

import numpy as np

import common

# 8 steps an epoch on any number of ranks (on three, the last one has one image each), 24 in all; checkpoints fall into
# epochs and into the 3 steps of a draw.
SET = {"train": 128, "test": 400, "size": 16, "classes": 4}
STEPS = 24
EPOCHS = ["--warmup-epochs", 1, "--epochs", 2]
TRAIN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 10,
         "--eval-every", 1, "--eval-attack-steps", 10, "--optimizer", "lamb", "--selector", "exp3", "--resample", 3,
         "--checkpoint-every", 4]


ATTEMPTS = 5  # to strike in a moment of some milliseconds, on a machine with other work to do


def options(*arguments, ranks=2):
    return ["train", *TRAIN, *EPOCHS, "--batch", {1: 16, 2: 8, 3: 6}[ranks], *arguments]


def launch(folder, *arguments, ranks=2):
    return common.Running(options("--out", folder, *arguments, ranks=ranks), ranks)


def temporary(folder, of):
    return any(name.startswith(f".{of}") and ".tmp-" in name for name in common.entries(folder))


# When to strike: the moment has come as soon as the condition holds.
MOMENTS = {
    "at the start": lambda folder: True,
    "before the first step": lambda folder: os.path.exists(f"{folder}/metrics.jsonl"),
    "before the first checkpoint": lambda folder: common.steps_written(folder) >= 2,
    "while the first checkpoint is written": lambda folder: temporary(f"{folder}/ckpt", "step-"),
    "in an epoch": lambda folder: common.steps_written(folder) >= 6,
    "in an evaluation": lambda folder: common.steps_written(folder) == 8,
    "while a later checkpoint is written":
        lambda folder: common.steps_written(folder) >= 12 and temporary(f"{folder}/ckpt", "step-"),
    "while the newest one is named":
        lambda folder: common.steps_written(folder) >= 12 and temporary(f"{folder}/ckpt", "latest"),
    "late": lambda folder: common.steps_written(folder) >= 22,
    "in the last evaluation": lambda folder: common.steps_written(folder) == STEPS,
    "while the results are written": lambda folder: temporary(folder, "results.h5"),
}

# What a law of another file shows as well, in another way.


class Restart(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", **SET)

    def go(self, folder, *arguments, ranks=2):
        ended = launch(folder, *arguments, ranks=ranks).wait()
        self.assertEqual(ended.code, 0, ended.text)
        return ended

    def refuse(self, code, pattern, *arguments, ranks=2):
        return super().refuse(code, pattern, *options(*arguments, ranks=ranks), ranks=ranks)

    def straight(self, *arguments, ranks=2):
        self.go("straight", *arguments, ranks=ranks)
        self.assertEqual([row["step"] for row in common.rows("straight", "step")], [*range(1, STEPS + 1)])
        self.assertEqual([row["step"] for row in common.rows("straight", "evaluation")], [8, 16, 24])

    def finish(self, folder, *arguments, ranks=2):
        """Goes on with a run, which must end like the straight one."""
        ended = self.go(folder, *arguments, ranks=ranks)
        self.assert_same(common.state(folder), common.state("straight"))
        self.assert_same(common.history(folder), common.history("straight"))
        self.assertEqual([(row["kind"], row.get("step")) for row in common.rows(folder) if row["kind"] != "ranks"],
                         [(row["kind"], row.get("step")) for row in common.rows("straight") if row["kind"] != "ranks"])
        self.assertEqual(glob.glob(f"{folder}/**/.*", recursive=True), [f"{folder}/.lock"])
        return ended


class Killed(Restart):
    """kill -9 of a rank, of all ranks, of the launcher."""

    def strike(self, folder, moment, target, *arguments, ranks=2):
        """Whether the moment was seen, and the run ended by it."""
        running = launch(folder, *arguments, ranks=ranks)
        try:
            running.wait_for(lambda: len(running.ranks()) == ranks)
            if not running.wait_for(lambda: MOMENTS[moment](folder)):
                return False
            found = running.ranks()
            victims = {"rank 0": [found.get(0)], "rank 1": [found.get(1)], "launcher": [running.process.pid],
                       "all ranks": list(found.values()), "all": [running.process.pid, *found.values()]}[target]
            for pid in filter(None, victims):
                common.kill(pid, signal.SIGKILL)
            return running.wait().code != 0
        finally:
            running.end()

    def test_at_any_moment(self):
        self.straight()
        targets = ["rank 0", "all", "launcher", "all ranks", "rank 1"]
        # By day every third one, some of them in the middle of a write.
        for number, moment in list(enumerate(MOMENTS))[:: 1 if common.NIGHT else 3]:
            with self.subTest(moment):
                for attempt in range(ATTEMPTS):
                    folder = f"run{number}-{attempt}"
                    hit = self.strike(folder, moment, targets[number % len(targets)])
                    self.finish(folder)
                    if hit:
                        break
                self.assertTrue(hit)

    def test_where_the_attack_changes_by_epoch(self):
        changes = ["--attack-steps", "2,4@1", "--eps", "4/255..10/255@0-2", "--momentum", 0.9, "--peak-momentum", 0.8,
                   "--optimizer", "sgd", "--schedule", "cyclic", "--warmup-epochs", 1.5, "--epochs", 1.5]
        self.straight(*changes)
        self.assertEqual([round(255 * row["eps"], 6) for row in common.rows("straight", "step")],
                         [4] * 8 + [7] * 8 + [10] * 8)
        hits = [self.strike("run", moment, target, *changes) for moment, target in
                [("before the first checkpoint", "all"), ("in an epoch", "rank 0"), ("late", "all")]]
        self.assertGreaterEqual(sum(hits), 2, hits)
        self.finish("run", *changes)

    @common.at_night
    def test_under_noise(self):
        noise = ["--noise", 0.2, "--noise-samples", 2, "--micro-batch", 4, "--attack", "smooth-pgd", "--attack-steps", 2, "--norm", "l2",
                 "--eps", "0..0.5@0-2"]
        self.straight(*noise)
        hits = [self.strike("run", moment, target, *noise) for moment, target in
                [("before the first checkpoint", "all"), ("in an epoch", "rank 1"), ("late", "all")]]
        self.assertGreaterEqual(sum(hits), 2, hits)
        self.finish("run", *noise)

    @common.at_night
    def test_again_and_again_with_statistics_of_each_rank(self):
        local = ["--bn-statistics", "local"]
        self.straight(*local, ranks=3)
        hits = [self.strike("run", moment, target, *local, ranks=3) for moment, target in
                [("before the first checkpoint", "all"), ("while the first checkpoint is written", "rank 0"),
                 ("in an epoch", "launcher"), ("while a later checkpoint is written", "all"), ("late", "rank 1"),
                 ("while the results are written", "all ranks")]]
        self.assertGreaterEqual(sum(hits), 3, hits)
        self.finish("run", *local, ranks=3)


class Stopped(Restart):
    """A signal to any process: the step is finished, a checkpoint written, the exit code is 75."""

    def stop(self, folder, number, target, moment="in an epoch"):
        running = launch(folder)
        try:
            self.assertTrue(running.wait_for(lambda: MOMENTS[moment](folder)), running.text())
            common.kill(running.process.pid if target == "launcher" else running.ranks()[target], number)
            return running.wait()
        finally:
            running.end()

    def check(self, number, target, moment="in an epoch"):
        for _ in range(ATTEMPTS):
            shutil.rmtree("run", ignore_errors=True)
            ended = self.stop("run", number, target, moment)
            if ended.code != 0:  # else it came too late
                break
        self.assertEqual(ended.code, 75, ended.text)
        self.assert_stopped(ended)
        self.finish("run")

    def assert_stopped(self, ended):
        """The last step has a checkpoint. Returns it."""
        self.assertEqual(ended.errors, [])
        last = common.rows("run", "step")[-1]["step"]
        self.assertEqual(common.checkpoints("run")[-1], f"run/ckpt/step-{last:09d}.h5")
        self.assertRegex(ended.text, f"stopped on a signal after step {last};")
        return last

    def test_by_signals_to_ranks_and_launcher(self):
        self.straight()
        for number, target in [(signal.SIGUSR1, "launcher"), (signal.SIGUSR1, 1), (signal.SIGTERM, 0),
                               (signal.SIGINT, 1)]:
            with self.subTest(f"{number.name} to {target}"):
                self.check(number, target)

    @common.at_night
    def test_by_ending_the_launcher(self):
        """Told to end, Open MPI's launcher tells its ranks, waits, kills those that are left, and ends with a code of its
        own. The second that it waits otherwise is too short for a checkpoint on a busy machine."""
        longer = ["train", *TRAIN, "--epochs", 400, "--batch", 8]
        with mock.patch.dict(os.environ, OMPI_MCA_odls_base_sigkill_timeout="15"):
            running = common.Running([*longer, "--out", "run"], 2)
        try:
            running.wait_for(lambda: common.steps_written("run") >= 6)
            common.kill(running.process.pid, signal.SIGTERM)
            ended = running.wait()
        finally:
            running.end()
        self.assertNotEqual(ended.code, 0)
        last = self.assert_stopped(ended)
        for folder in "run", "straight":
            self.assertEqual(common.run(*longer, "--out", folder, "--max-steps", last + 5, ranks=2).code, 0)
        self.assert_same(common.state("run"), common.state("straight"))
        self.assert_same(common.history("run"), common.history("straight"))

    def test_at_any_moment(self):
        self.straight()
        for moment in "before the first step", "in an evaluation", "while a later checkpoint is written":
            with self.subTest(moment):
                self.check(signal.SIGTERM, 0, moment)

    @common.at_night
    def test_before_an_evaluation(self):
        """The checkpoint comes first; the evaluation is made up for."""
        # Steps so long that a signal in the one before comes before the last step of the epoch begins.
        slow = [150 if before == "--attack-steps" else word for before, word in zip([None, *TRAIN], TRAIN)]
        patch = mock.patch.dict(globals(), TRAIN=slow)
        patch.start()
        self.addCleanup(patch.stop)
        self.straight()
        for _ in range(ATTEMPTS):
            shutil.rmtree("run", ignore_errors=True)
            running = launch("run")
            try:
                self.assertTrue(running.wait_for(lambda: common.steps_written("run") >= 6))
                common.kill(running.ranks()[0], signal.SIGUSR1)
                ended = running.wait()
            finally:
                running.end()
            self.assertEqual(ended.code, 75, ended.text)
            last = [(row["kind"], row["step"]) for row in common.rows("run")[-2:]]
            if last != [("step", 7), ("ranks", 7)]:  # else the signal came between the sixth record and the step behind
                break
        self.assertEqual(last, [("step", 8), ("ranks", 8)])
        self.finish("run")


class Damaged(Restart):
    """A damaged checkpoint is told from a whole one before it is used."""

    def cut_run(self):
        running = launch("run")
        running.wait_for(lambda: len(common.checkpoints("run")) == 3 and common.steps_written("run") >= 13)
        running.end()
        self.assertEqual(len(common.checkpoints("run")), 3)

    def test_the_one_before_is_taken(self):
        self.straight()
        self.cut_run()

        def flip(path):
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 16]))

        def truncate(path):
            os.truncate(path, os.path.getsize(path) - 100)

        def empty(path):
            os.truncate(path, 0)

        for damage in flip, truncate, empty:
            with self.subTest(damage.__name__):
                shutil.copytree("run", damage.__name__)
                newest = common.checkpoints(damage.__name__)[-1]
                damage(newest)
                ended = self.finish(damage.__name__)
                self.assertEqual(len(ended.warnings), 1, ended.text)
                self.assertIn(newest, ended.warnings[0])

    def test_none_is_left(self):
        self.cut_run()
        for path in common.checkpoints("run"):
            os.truncate(path, 3000)
        before = sorted(os.listdir("run/ckpt"))
        for ranks in 1, 2:
            self.refuse(4, "none of the 3 checkpoints", "--out", "run", ranks=ranks)
        self.assertEqual(sorted(os.listdir("run/ckpt")), before)

    def test_a_shortened_record(self):
        self.cut_run()
        os.truncate("run/metrics.jsonl", 100)
        self.refuse(4, "metrics.jsonl", "--out", "run")


class Occupied(Restart):
    def test_a_run_goes_on_only_with_its_own_options(self):
        self.go("run", "--max-steps", 4)
        self.refuse(2, "lr \\(was 0.01, is 0.02\\)", "--out", "run", "--lr", 0.02)
        self.refuse(2, "--out run holds a run", "--out", "run", "--resume", "never")
        self.refuse(2, "--out run holds a run", "--out", "run", "--resume", common.checkpoints("run")[0])

    def test_a_checkpoint_starts_another_run(self):
        self.straight()
        self.go("first", "--max-steps", 8)
        self.go("second", "--resume", common.checkpoints("first")[-1])
        self.assert_same(common.state("second"), common.state("straight"))
        self.assertEqual([row["step"] for row in common.rows("second", "step")], [*range(9, STEPS + 1)])
        self.refuse(4, "missing.h5", "--out", "third", "--resume", "missing.h5")

    def test_a_run_in_progress_is_waited_for_and_then_refused(self):
        running = launch("run", "--max-steps", 1)
        try:
            self.assertTrue(running.wait_for(lambda: common.steps_written("run") == 1))
            for pid in running.ranks().values():
                common.kill(pid, signal.SIGSTOP)
            self.refuse(2, "another process is writing into the run run", "--out", "run", "--max-steps", 1)
        finally:
            running.end()

    def test_a_finished_run_is_finished_again(self):
        self.straight()
        shutil.copytree("straight", "again")
        self.finish("again")


class Perturbations(Restart):
    """With --warm-start the perturbations of all samples belong to the state."""

    WARM = ["--warm-start", 2]

    def test_survive_a_kill_and_a_stop(self):
        self.straight(*self.WARM)
        kept = common.state("straight")["state/perturbations"]
        self.assertEqual((kept.shape, kept.dtype), ((SET["train"], SET["size"], SET["size"], 3), np.uint8))
        self.assertTrue((kept > 0).any(axis=(1, 2, 3)).all())
        running = launch("killed", *self.WARM)
        try:
            self.assertTrue(running.wait_for(lambda: common.steps_written("killed") >= 14))
        finally:
            running.end()
        self.finish("killed", *self.WARM)
        self.go("stopped", *self.WARM, "--max-steps", 11)  # in the second epoch, which starts from the first one's
        self.finish("stopped", *self.WARM)

    def test_go_on_with_other_ranks(self):
        """What is kept does not depend on where: a step moves the perturbations of its own images and of no other."""
        batch = ["train", *TRAIN, *EPOCHS, *self.WARM, "--batch", 8, "--out", "run"]
        kept = []
        for ranks, steps in (2, 8), (3, 7), (1, 19):
            ended = common.run(*batch, "--max-steps", steps, ranks=ranks)
            self.assertEqual(ended.code, 0, ended.text)
            kept.append(common.state("run")["state/perturbations"])
        for before, after, images in zip(kept, kept[1:], (24, 8)):
            moved = (before != after).any(axis=(1, 2, 3)).sum()
            self.assertGreater(moved, 0)
            self.assertLessEqual(moved, images)

    def test_are_refused_where_they_do_not_belong(self):
        self.go("run", *self.WARM, "--max-steps", 4)
        self.refuse(2, "warm-start \\(was 2, is 3\\)", "--out", "run", "--warm-start", 3)
        self.refuse(2, "warm-start \\(was 2, is 0\\)", "--out", "run")
        self.go("without", "--max-steps", 4)
        self.refuse(2, "warm-start \\(was 0, is 2\\)", "--out", "without", *self.WARM)


@common.at_night  # by day: setbacks.py
class Codecs(Restart):
    """What the codec of the gradients remembers belongs to the state of each rank."""

    def test_survive_a_kill_and_a_stop(self):
        for name, *codec in (("int8",), ("int8", "--codec-transport", "two_sided", "--overlap", "--bucket", 700),
                             ("powersgd", "--mask", "per_worker", "--overlap", "--bucket", 700)):
            with self.subTest(codec):
                shutil.rmtree("straight", ignore_errors=True)
                codec = ["--codec", name, *codec]
                self.straight(*codec)
                kept = common.state("straight")
                self.assertEqual("codec/powersgd_error" in kept, name == "powersgd")
                if name == "powersgd":
                    self.assertEqual(kept["codec/powersgd_error"].shape[0], 2)
                    self.assertTrue((kept["codec/powersgd_error"][0] != kept["codec/powersgd_error"][1]).any())
                folder = "-".join(map(str, codec))
                running = launch(folder, *codec)
                try:
                    self.assertTrue(running.wait_for(lambda: common.steps_written(folder) >= 14))
                finally:
                    running.end()
                self.finish(folder, *codec)
                self.go(folder + "-stopped", *codec, "--max-steps", 11)
                self.finish(folder + "-stopped", *codec)

    def test_go_on_with_other_ranks(self):
        batch = ["train", *TRAIN, *EPOCHS, "--codec", "powersgd", "--batch", 8, "--out", "run"]
        for ranks, steps in (2, 8), (3, 7), (1, 19):
            ended = common.run(*batch, "--max-steps", steps, ranks=ranks)
            self.assertEqual(ended.code, 0, ended.text)
        self.assertEqual(common.state("run")["codec/powersgd_error"].shape[0], 1)
        self.refuse(2, "codec-rank", "--out", "run", "--codec", "powersgd", "--codec-rank", 3)


class OtherRanks(Restart):
    def test_go_on_at_the_same_place(self):
        """From 2 ranks to 1 with the same batch: an epoch then has 16 steps, of which the first 8 are done."""
        batch = ["train", *TRAIN, *EPOCHS, "--batch", 8, "--out", "run"]
        self.assertEqual(common.run(*batch, "--max-steps", 12, ranks=2).code, 0)
        before = common.weights("run")
        self.assertEqual(common.run(*batch, "--max-steps", 25, ranks=1).code, 0)
        steps = common.rows("run", "step")
        self.assertEqual([row["step"] for row in steps], [*range(1, 13), 25])
        self.assertEqual([row["epoch"] for row in steps], 8 * [0] + 5 * [1])
        after = common.weights("run")
        self.assertLess(np.linalg.norm(after - before) / np.linalg.norm(before), 0.1)
        self.assertFalse(np.array_equal(after, before))

    def test_steps_are_counted_anew(self):
        """A number of steps that was given for other epochs is not taken; checkpoints have numbers of now from the first on."""
        batch = ["train", *TRAIN, *EPOCHS, "--batch", 8, "--out", "run"]
        self.assertEqual(common.run(*batch, "--max-steps", 12, ranks=1).code, 0)
        for_ranks = "--max-steps {} was given for epochs of {} steps, and with {} they have {}: give --max-steps {} for"
        ended = common.run(*batch, "--max-steps", 12, ranks=2)
        self.assertIn(for_ranks.format(12, 16, "2 ranks", 8, 6), ended.errors[0])
        self.assertEqual(common.run(*batch, "--max-steps", 7, "--checkpoint-every", 100, ranks=2).code, 0)
        self.assertEqual([path[-12:-3] for path in common.checkpoints("run")], [f"{step:09d}" for step in (4, 6, 7)])
        ended = common.run(*batch, "--max-steps", 7, ranks=1)
        self.assertIn(for_ranks.format(7, 8, "1 rank", 16, 14), ended.errors[0])
        # A rollback knows where checkpoints of the other count stand: from epoch 1 on no loss is finite, and 8 of 8 is 16 of 16.
        bad = [*batch[:-1], "bad", "--awp-from", 1, "--awp-gamma", 1e30, "--on-bad-steps", "rollback", "--max-rollbacks", 1]
        self.assertEqual(common.run(*bad, "--max-steps", 8, ranks=2).code, 0)
        ended = common.run(*bad, "--max-steps", 20, ranks=1)
        self.assertEqual(ended.code, 7, ended.text)
        self.assertEqual([row["to_step"] for row in common.rows("bad", "setback")], [8])
        # One that ends no run is no end.
        whole = ["--max-steps", 1000]
        self.assertEqual(common.run(*batch[:-1], "whole", *whole, ranks=2).code, 0)
        ended = common.run(*batch[:-1], "whole", *whole, ranks=1)
        self.assertEqual(ended.code, 0, ended.text)
        self.assertIn("is finished", ended.text)

    def test_with_a_batch_above_the_share(self):
        """It is cut to the share of each rank; the options keep what was asked for."""
        batch = ["train", *TRAIN, *EPOCHS, "--batch", 200, "--out", "run"]
        for ranks, steps in (1, 1), (2, 2):
            self.assertEqual(common.run(*batch, "--max-steps", steps, ranks=ranks).code, 0)
        self.assertEqual([row["images"] for row in common.rows("run", "step")], 2 * [SET["train"]])
        self.assertEqual(common.run("train", "--config", "run/config.resolved.toml", "--out", "again").code, 0)

    def test_from_the_configuration_of_a_run(self):
        """Options that follow from others are written down where they count, and only there."""
        for selector, budget in ("all", '"auto"'), ("freezeout", '"auto"'), ("uniform", r"8.\d+"):
            out = f"of-{selector}"
            self.assertEqual(common.run("train", "--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 16,
                                        "--attack-steps", 2, "--selector", selector, "--max-steps", 2, "--out", out).code, 0)
            with open(f"{out}/config.resolved.toml") as file:
                self.assertRegex(file.read(), f"\nbudget = {budget}\n")
            self.assertEqual(common.run("train", "--config", f"{out}/config.resolved.toml", "--out", f"{out}-again").code, 0)
            np.testing.assert_array_equal(common.weights(out), common.weights(f"{out}-again"))


class BatchByEpoch(Restart):
    """Each batch is a part of the training that goes on from the one before as a run of its own would."""

    BATCHES = ["--batch", "8,16@1,4@2"]  # on two ranks epochs of 8, 4 and 16 steps
    COUNTED = [*range(1, 9), *range(5, 9), *range(33, 49)]

    def command(self, folder, *arguments):
        return ["train", *TRAIN, *EPOCHS, "--out", folder, *arguments]

    def go(self, folder, *arguments, ranks=2):
        ended = common.run(*self.command(folder, *arguments), ranks=ranks)
        self.assertEqual(ended.code, 0, ended.text)
        return ended

    def cut(self, folder, steps, *arguments, ranks=2, kind=signal.SIGKILL):
        """A run that is killed, or stopped, when it has made so many steps."""
        running = common.Running(self.command(folder, *arguments), ranks)
        self.assertTrue(running.wait_for(lambda: common.steps_written(folder) >= steps))
        for pid in [running.process.pid, *running.ranks().values()] if kind == signal.SIGKILL else [running.process.pid]:
            common.kill(pid, kind)
        running.wait()

    def test_parts_are_runs_one_after_the_other(self):
        ended = self.go("run", *self.BATCHES)
        self.assertIn("from epoch 1 on steps have 32 images, and epochs 4 steps: step 5 is next", ended.text)
        steps = common.rows("run", "step")
        self.assertEqual([row["step"] for row in steps], self.COUNTED)
        self.assertEqual([row["images"] for row in steps], 8 * [16] + 4 * [32] + 16 * [8])
        self.assertEqual([row["epoch"] for row in steps], 8 * [0] + 4 * [1] + 16 * [2])
        self.assertEqual([(row["step"], row["epoch"]) for row in common.rows("run", "evaluation")], [(8, 1), (8, 2), (48, 3)])
        self.go("first", "--batch", 8, "--max-steps", 8)
        self.go("second", "--batch", 16, "--max-steps", 8, "--resume", "first")
        self.go("third", "--batch", 4, "--resume", "second")
        mine, theirs = common.state("run"), common.state("third")
        self.assertIn("optim/v/conv1.weight", mine)
        learned = lambda state: {name: values for name, values in state.items() if name.startswith(("param/", "optim/", "bn/"))}
        self.assert_same(learned(mine), learned(theirs))

    def test_cut_short_anywhere(self):
        self.go("straight", *self.BATCHES)
        for folder, steps, kind in [("at a border", 8, signal.SIGTERM), ("in the third", 17, signal.SIGKILL),
                                    ("in the second", 10, signal.SIGTERM)][: 3 if common.NIGHT else 2]:
            with self.subTest(folder):
                self.cut(folder, steps, *self.BATCHES, kind=kind)
                self.go(folder, *self.BATCHES)
                self.assert_same(common.state(folder), common.state("straight"))
                self.assert_same(common.history(folder), common.history("straight"))
                self.assertEqual([row["step"] for row in common.rows(folder, "step")], self.COUNTED)

    def test_the_same_bits_on_any_ranks(self):
        dealt = ["--deterministic", "--micro-batch", 4, "--total-batch", "16,32@1,12@2", "--train-size", "9,16@1"]
        self.go("reference", *dealt, ranks=1)
        self.go("on3", *dealt, ranks=3)
        self.cut("parts", 5, *dealt, ranks=3)
        self.cut("parts", 10, *dealt, ranks=2)
        self.go("parts", *dealt, ranks=1)
        for folder in "on3", "parts":
            self.assert_same(common.state(folder), common.state("reference"))
        of_each = [*dealt[:3], "--batch", "8,16@1,4@2"]
        self.go("each", *of_each)
        with open("each/config.resolved.toml") as file:
            self.assertIn('total-batch = "16,32@1,8@2"', file.read())
        self.assertIn("is finished", self.go("each", *of_each).text)

    @unittest.skipUnless(common.NIGHT, "at night")
    def test_a_rollback_over_a_border(self):
        """From epoch 1 on no loss is finite: it goes back into the part before."""
        bad = ["--batch", "8,16@1", "--awp-from", 1, "--awp-gamma", 1e30, "--on-bad-steps", "rollback", "--max-rollbacks", 2,
               "--checkpoint-every", 100]
        ended = common.run(*self.command("bad", *bad), ranks=2)
        self.assertEqual(ended.code, 7, ended.text)
        self.assertEqual({row["to_step"] for row in common.rows("bad", "setback") if row["event"] == "rollback"}, {0})
        self.assertEqual(ended.text.count("from epoch 1 on steps have 32 images"), 3)


if __name__ == "__main__":
    common.main()
