"""ckpt/best.h5 through histories: whatever is lost, killed or left, it is the best network of what the run has recorded, and
the run goes on."""

import glob
import os
import random
import re
import shutil
import signal
import time

import common
import h5py

KILLS = int(os.environ.get("DAT_KILLS", "6"))
OPTIONS = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--optimizer",
           "sgd", "--lr", 1, "--warmup-epochs", 0, "--epochs", 9, "--holdout", 64, "--eval", "pgd2", "--eval-every", 1,
           "--checkpoint-every", 10, "--batch", 4]
# Learns steadily, so that evaluations become better between two checkpoints.
STEADY = [*OPTIONS[:OPTIONS.index("--lr")], "--lr", 0.02, "--warmup-epochs", 0, "--epochs", 20, "--holdout", 64, "--eval",
          "pgd2", "--eval-every", 1, "--checkpoint-every", 50, "--batch", 4]
SHORT, LONG = ([epochs if word == 9 else word for word in OPTIONS] for epochs in (4, 100000))
ROLLBACK = ["--on-overfitting", "rollback", "--on-bad-steps", "rollback:lr=0.5:times=3"]


def record(path):
    with h5py.File(path) as file:
        return file["state/best"][0], file["state"].attrs["best_step"], file["state"].attrs["best_bytes"]


class Best(common.TestCase):
    set_h5 = dict(train=112, test=10, size=16, classes=4)  # twelve steps an epoch, of one rank

    def go(self, folder, *arguments, ranks=0):
        return common.Running(["train", "--out", folder, *OPTIONS, *arguments], ranks)

    def end(self, running):
        """A good end; or what is seen once more after three rollbacks."""
        ended = running.wait()
        if ended.code != 0:
            self.assertEqual(ended.code, 7, ended.text)
            self.assertIn("the run has gone back 3 times already", ended.text)
        return ended

    def holdout(self, folder):
        return [row for row in common.rows(folder, "evaluation") if row["split"] == "holdout"]

    def check_best(self, folder, alone=False):
        """Its record is in the last checkpoint, and it is the first of the best evaluations of the whole record."""
        held = self.holdout(folder)
        best = max(row["adv_acc"] for row in held)
        accuracy, step, length = record(f"{folder}/ckpt/best.h5")
        self.assertEqual((accuracy, step), (best, next(row["step"] for row in held if row["adv_acc"] == best)))
        if held[-1]["adv_acc"] < best:  # the last evaluation of a run may come after its last checkpoint
            self.assertEqual(record(common.checkpoints(folder)[-1]), (accuracy, step, length))
        with open(f"{folder}/metrics.jsonl", "rb") as file:
            text = file.read(int(length))
        self.assertEqual(text[-1:], b"\n")
        evaluation, ranks = text.splitlines()[-2:]
        self.assertIn(b'"holdout"', evaluation)
        self.assertIn(b'"kind":"ranks"', ranks)  # times and bytes until then, which a rollback to it keeps
        if alone:
            return
        # What is kept beside it is named by a checkpoint.
        named = {record(path)[1] for path in common.checkpoints(folder)}
        for name in os.listdir(f"{folder}/ckpt"):
            if found := re.fullmatch(r"best-(\d+)\.h5", name):
                self.assertIn(int(found[1]), named)

    def lose_the_best(self, folder):
        """Killed between a best.h5 and the next checkpoint. False: the run was faster."""
        running = common.Running(["train", "--out", folder, *STEADY], 0)

        def lost():
            try:
                paths = common.checkpoints(folder)
                named = record(paths[-1]) if paths else (-1,)
                return named[0] >= 0 and record(f"{folder}/ckpt/best.h5") != named
            except OSError:
                return False

        if not running.wait_for(lost):
            return False
        running.end()
        return lost()

    def test_a_best_network_of_a_part_that_was_lost(self):
        tried = 0
        for ranks in 2, 1, 3:
            for _ in range(20):
                shutil.rmtree("run", ignore_errors=True)
                if self.lose_the_best("run"):
                    break
            else:
                self.fail("the run could not be killed between a best network and the next checkpoint")
            tried += 1
            ended = self.end(common.Running(["train", "--out", "run", *STEADY, *ROLLBACK], ranks))
            self.assertNotIn("is gone", ended.text)  # the one before is at hand
            # Where the run does not go back, the network before the lost one may stay beside best.h5.
            self.check_best("run", alone=True)
        self.assertEqual(tried, 3)

    def test_random_kills_with_changing_numbers_of_ranks(self):
        chosen = random.Random(5)
        kills = 0
        for number in range(100):
            if kills >= KILLS:
                break
            folder = f"run{number}"
            options = [*chosen.choice([ROLLBACK, []]), *chosen.choice([[], ["DAT_CHECKPOINT_ASYNC=on"]])]
            for _ in range(30):
                running = self.go(folder, *options, ranks=chosen.choice([0, 2, 3]))
                before = len(self.holdout(folder))
                # Around an evaluation: most of them write best.h5 or go back.
                wanted = before + chosen.randrange(1, 5)
                alive = running.wait_for(lambda: len(self.holdout(folder)) >= wanted)
                if not alive or kills >= KILLS:
                    self.end(running)
                    break
                time.sleep(chosen.random() * 0.02)
                running.end()
                kills += 1
            else:
                self.fail("30 parts have not brought the run to its end")
            self.check_best(folder)
            shutil.rmtree(folder)
        self.assertGreaterEqual(kills, KILLS)

    def test_one_that_is_gone_is_chosen_anew(self):
        self.expect(0, common.Running(["train", "--out", "run", *SHORT], 0).wait())
        for path in glob.glob("run/ckpt/best*.h5"):  # the one before it stays where the last evaluation was the best
            os.remove(path)
        ended = self.end(self.go("run", *ROLLBACK))
        self.assertTrue(any(re.search(r"ckpt/best\.h5, the network after step \d+, is gone", line)
                            for line in ended.warnings), ended.text)
        self.assertTrue(os.path.exists("run/ckpt/best.h5"))

    def test_a_stop_says_what_goes_on(self):
        """Without --out each call has a folder of its own."""
        for out in [], ["--out", "run"]:
            running = common.Running(["train", *out, *LONG], 0)
            self.assertTrue(running.wait_for(lambda: any(common.steps_written(folder) > 2 for folder in
                                                         ["run", *(f"runs/{name}" for name in common.entries("runs"))])))
            os.kill(running.process.pid, signal.SIGTERM)
            ended = self.expect(75, running.wait())
            said = re.search(r"the same command( with --out (\S+))? goes on from here", ended.text)
            self.assertEqual(bool(said[1]), not out, ended.text)
            if not out:
                self.assertTrue(common.checkpoints(said[2]))
                on = common.Running(["train", *LONG, "--out", said[2]], 0)
                self.assertTrue(on.wait_for(lambda: "going on after step" in on.text()))
                on.end()
                shutil.rmtree("runs")


if __name__ == "__main__":
    common.main()
