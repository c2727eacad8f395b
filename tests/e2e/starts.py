"""How a run begins: alone in its folder, from its own checkpoint, from another run's, from given weights, or not at all."""

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from unittest import mock

import h5py
import numpy as np

import common

RUN = ["--network", "small_cnn", "--width", "16", "--attack-steps", "2", "--eval", "pgd2", "--limit-train", "64",
       "--limit-test", "32", "--batch", "16", "--epochs", "2", "--warmup-epochs", "0", "--eval-every", "1", "--threads",
       "1", "--lambda", "0", "--quiet"]


def command(*more):
    return ["train", *common.merged(*RUN, *more)]


def checkpoints(folder):
    return sorted(name for name in os.listdir(f"{folder}/ckpt") if name.startswith("step-"))


def run(*more):
    return common.run(*command(*more))


def weights(path):
    return {name.removeprefix("param/"): values for name, values in common.datasets(path).items() if name.startswith("param/")}


class Starts(common.TestCase):
    def refuse_start(self, code, pattern, *more):
        self.expect_error(code, pattern, run(*more))

    def test_a_second_start_loses_nothing(self):
        """The second start waits for the first, says so, and then finds what the first one left; it is killed at some
        moment soon after the first ended. No checkpoint is lost, no line of the record doubled or lost. At night on two
        ranks, and the second start at any moment of the first."""
        ranks = 2 if common.ALL_CASES else 0
        longer = command("--epochs", 20, "--checkpoint-every", 7, "--out")  # the second is at the lock before the first has ended
        begin = time.monotonic()
        self.expect(0, common.run(*longer, "alone", ranks=ranks))
        length = time.monotonic() - begin
        expected = [(row["kind"], row.get("step")) for row in common.rows("alone")]
        waited = 0
        for attempt in range(30 if common.ALL_CASES else 2):
            folder = f"twice{attempt}"
            rng = random.Random(common.SEED + attempt)
            first = common.Running([*longer, folder], ranks)
            first.wait_for(lambda: os.path.exists(f"{folder}/metrics.jsonl"))
            time.sleep((length if common.ALL_CASES else 0.05) * rng.random())
            second = common.Running([*longer, folder], ranks)
            self.expect(0, first.wait())
            time.sleep((length / 2 if common.ALL_CASES else 0.15) * rng.random())
            second.end()
            waited += "another process is writing into the run" in second.text()
            self.assertEqual(checkpoints(folder), checkpoints("alone"))
            self.expect(0, common.run(*longer, folder, ranks=ranks))
            self.assertEqual(checkpoints(folder), checkpoints("alone"))
            self.assertEqual([(row["kind"], row.get("step")) for row in common.rows(folder)], expected)
        self.assertGreater(waited, 0)

    def test_without_locks_two_starts_do_not_both_write(self):
        """Lustre without `flock`, NFS: they are warned, and the first one, whose record the second has begun anew, ends. So
        does the second, where the first wrote between its own look at the record and the new beginning."""
        without = common.faults(".lock:flock", errno.ENOSYS)
        second_of = ("--eval-every", 0, "--checkpoint-every", 100_000, "--out")
        for folder, place, epochs, codes in (("before", "before/run.log:open", 80, (2, 0)),
                                             ("within", "within/metrics.jsonl:write", 2000, (2, 2))):
            first_stop = common.faults(place, -1, 1 if folder == "before" else 7, 1)
            both = without | {"DAT_FAULTS": f"{without['DAT_FAULTS']},{first_stop['DAT_FAULTS']}"}
            with mock.patch.dict(os.environ, both):
                first = common.Running(command(*second_of, folder, "--epochs", 2000), 0)
            self.assertTrue(first.wait_for(lambda: common.stopped(first.process.pid)), first.text())
            with mock.patch.dict(os.environ, without):
                second = common.Running(command(*second_of, folder, "--epochs", epochs), 0)
            try:
                other = second.wait() if codes[1] == 0 else None
                second.wait_for(lambda: common.steps_written(folder) > 20)
            finally:
                os.kill(first.process.pid, signal.SIGCONT)
            ended, other = first.wait(), other or second.wait()
            self.assertEqual((ended.code, other.code), codes, ended.text + other.text)
            for one in ended, other:
                if one.code:
                    self.assertRegex(one.errors[0], f"another process is writing into {folder}/metrics.jsonl, which has")
            for one in (other,) if folder == "before" else (ended, other):
                self.assertRegex(one.warnings[0], rf"the folder {folder} cannot be locked \(Function not implemented\)")
            self.assertIn("cannot be locked", common.text_of(f"{folder}/run.log"))
        self.assertEqual([row["step"] for row in common.rows("before", "step")], [*range(1, 321)])

    def test_a_record_that_is_cut_leaves_no_checkpoint_that_wants_more_of_it(self):
        """The run goes on from the checkpoint of step 4, as another process writes that of step 8 only then; and is killed
        before it writes its own."""
        more = ("--out", "run", "--eval-every", 0)
        self.assertEqual(run(*more, "--max-steps", 8).code, 0)
        with mock.patch.dict(os.environ, common.faults("step-000000008.h5:open", errno.EIO)):
            killed = common.Running(command(*more, "--epochs", 2000, "--checkpoint-every", 100_000), 0)
        try:
            self.assertTrue(killed.wait_for(lambda: common.steps_written("run") not in (4, 8)), killed.text())
        finally:
            killed.end()
        self.assertEqual(run(*more, "--max-steps", 12, "--epochs", 3).code, 0)
        self.assertEqual([row["step"] for row in common.rows("run", "step")], [*range(1, 13)])

    def test_starts_of_one_second_have_folders_of_their_own(self):
        starts = [(1, 0), (1, 0), (2, 2)]
        running = [common.Running(command("--max-steps", 1, "--seed", seed, "--batch", 16 // max(ranks, 1)), ranks)
                   for seed, ranks in starts]
        for (seed, _), one in zip(starts, running):
            ended = self.expect(0, one.wait())
            folder = ended.text.split("run folder ")[1].split(",")[0]
            self.assertIn(f"seed = {seed}\n", common.text_of(f"{folder}/config.resolved.toml"))
            self.assertEqual(len(common.rows(folder, "step")), 1)
        self.assertEqual(len(os.listdir("runs")), 3)

    def test_closed_descriptors_are_no_files(self):
        """What is printed goes nowhere, and not into the first file that is opened."""
        closed = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", common.PROGRAM,
                                   *map(str, command("--epochs", 2000, "--out", "run"))])
        try:
            deadline = time.monotonic() + common.LIMIT_S
            while closed.poll() is None and common.steps_written("run") == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual([os.readlink(f"/proc/{closed.pid}/fd/{file}") for file in range(3)], ["/dev/null"] * 3)
            closed.send_signal(signal.SIGUSR1)
            self.assertEqual(closed.wait(common.LIMIT_S), 75)
        finally:
            closed.kill()
            closed.wait()

    def test_a_result_that_cannot_be_printed_is_told(self):
        ended = subprocess.run(["sh", "-c", f"exec {common.PROGRAM} --help >&-"], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 9)
        self.assertEqual(ended.stderr, "dat_hpc: error: cannot write to standard output; is the disk full?\n")

    def test_a_finished_run_stays_as_it_is(self):
        self.assertEqual(run("--out", "run").code, 0)
        before = {name: os.stat(f"run/{name}").st_mtime_ns for name in os.listdir("run")}
        again = self.expect(0, run("--out", "run"))
        self.assertIn("is finished", again.text)
        self.assertIn("Final: clean_acc=", again.text)
        self.assertEqual({name: os.stat(f"run/{name}").st_mtime_ns for name in os.listdir("run")}, before)
        other = self.expect(0, run("--out", "run", "--eval", "pgd2,pgd3"))
        self.assertIn("pgd3_acc=", other.text)
        self.assertEqual(checkpoints("run"), ["step-000000004.h5", "step-000000008.h5"])

    def test_a_longer_run_is_the_run_that_was_planned_longer(self):
        self.assertEqual(run("--out", "short").code, 0)
        self.assertEqual(run("--out", "short", "--epochs", 3).code, 0)
        self.assertEqual(run("--out", "long", "--epochs", 3).code, 0)
        self.assert_same(common.state("short"), common.state("long"))
        self.assertEqual(common.figures("short"), common.figures("long"))
        self.refuse_start(2, "raise --epochs", "--out", "short", "--epochs", 2)
        self.assertEqual(run("--out", "linear", "--schedule", "linear").code, 0)
        longer = self.expect(0, run("--out", "linear", "--schedule", "linear", "--epochs", 3))
        self.assertIn("depends on it", longer.warnings[0])
        self.assertIn("depends on it", common.text_of("linear/run.log"))

    def test_another_run_goes_on_from_a_checkpoint_with_other_options(self):
        self.assertEqual(run("--out", "base").code, 0)
        for where in "base", "base/ckpt", "base/ckpt/step-000000008.h5":
            shutil.rmtree("branch", ignore_errors=True)
            self.expect(0, run("--out", "branch", "--resume", where, "--lr", 0.005, "--epochs", 3))
            self.assertIn("going on after step 8 of", common.text_of("branch/run.log"))
            self.assertIn("lr (was 0.01, is 0.005)", common.text_of("branch/run.log"))
            self.assertEqual([row["step"] for row in common.rows("branch", "step")], [9, 10, 11, 12])
        # The same command goes on, as any other; another one does not take its place.
        again = self.expect(0, run("--out", "branch", "--resume", where, "--lr", 0.005, "--epochs", 3))
        self.assertIn("is finished", again.text)
        for other in "never", "base":
            self.refuse_start(2, "holds a run already", "--out", "branch", "--resume", other, "--lr", 0.005, "--epochs", 3)
        self.refuse_start(2, "--resume base goes on from it with other options", "--out", "base", "--lr", 0.005)
        self.refuse_start(4, "--initialize takes the weights alone", "--out", "sgd", "--resume", "base", "--optimizer", "sgd")

    def test_checkpoints_without_a_record_are_not_overwritten(self):
        self.assertEqual(run("--out", "run").code, 0)
        os.remove("run/metrics.jsonl")
        kept = checkpoints("run")
        for resume in "never", "auto":
            self.expect(2, run("--out", "run", "--resume", resume, "--lr", 0.3))
            self.assertEqual(checkpoints("run"), kept)

    def test_a_run_begins_with_given_weights(self):
        """Those of a checkpoint, and of a PyTorch state_dict in HDF5: one step of rate (almost) zero keeps them."""
        self.assertEqual(run("--out", "base").code, 0)
        known = weights("base/ckpt/step-000000008.h5")
        statistics = {name[3:]: values for name, values in common.datasets("base/ckpt/step-000000008.h5").items() if name.startswith("bn/")}
        common.write_arrays("state_dict.h5", {"module." + name: values for name, values in
                                              {**known, **statistics, "bn1.num_batches_tracked": np.int64(7)}.items()})
        for source in "base", "base/ckpt/step-000000008.h5", "state_dict.h5":
            shutil.rmtree("tuned", ignore_errors=True)
            tuned = "--out", "tuned", "--initialize", source, "--max-steps", 1, "--lr", "1e-12", "--optimizer", "sgd"
            self.expect(0, run(*tuned))
            for name, values in weights("tuned/ckpt/step-000000001.h5").items():
                np.testing.assert_allclose(values, known[name], atol=1e-9)
        # It is a run like others: the same command goes on, and does not begin again.
        self.assertIn("is finished", run(*tuned).text)
        # Where it was killed before its first checkpoint, it takes them once more.
        begun = weights("tuned/ckpt/step-000000001.h5")
        shutil.rmtree("tuned/ckpt")
        os.remove("tuned/results.h5")
        self.expect(0, run(*tuned))
        self.assert_same(weights("tuned/ckpt/step-000000001.h5"), begun)
        with h5py.File("state_dict.h5", "a") as out:
            out["fc.bias"] = np.zeros(3, np.float32)
        self.refuse_start(4, "fc.bias", "--out", "strange", "--initialize", "state_dict.h5")
        self.assertEqual(run("--out", "both", "--initialize", "base", "--resume", "base").code, 2)

    def test_the_best_checkpoint_is_that_of_the_images_kept_aside(self):
        """16 of the 64 training images are not trained on; best.h5 is the state of the step with the best robust accuracy
        on them, under the attack that hurts most; `eval` gives that figure again."""
        self.assertEqual(run("--out", "run", "--holdout", 16, "--epochs", 6, "--eval", "pgd2,fgsm").code, 0)
        held = [row for row in common.rows("run", "evaluation") if row["split"] == "holdout"]
        self.assertEqual({row["images"] for row in held}, {16})
        by_step = {}
        for row in held:
            by_step[row["step"]] = min(1, by_step.get(row["step"], 1), row["adv_acc"])
        best = max(by_step.values())
        step = min(step for step, accuracy in by_step.items() if accuracy == best)
        with h5py.File("run/ckpt/best.h5") as file:
            self.assertEqual(file["state"].attrs["step"], step)
            self.assertEqual(file["state/best"][0], best)
        self.run_well("eval", "--checkpoint", "run/ckpt/best.h5", "--split", "holdout", "--eval", "pgd2,fgsm", "--out", "best.json")
        told = common.load("best.json")
        self.assertAlmostEqual(min(attack["accuracy"] for attack in told["attacks"]), best, delta=1.01 / 16)
        # Figures of another attack are not compared with it: the weaker one would put the last network in its place.
        before = common.bytes_of("run/ckpt/best.h5")
        for other in ["--eval", "fgsm"], ["--eval", "pgd2,fgsm", "--eval-eps", "1/255"]:
            self.refuse_start(2, "was made with other options: eval", "--out", "run", "--holdout", 16, "--epochs", 6, *other)
        self.assertEqual(common.bytes_of("run/ckpt/best.h5"), before)

    def test_an_evaluation_has_its_own_step_size(self):
        """A run trained with a step size of 0.1/255 is judged by PGD with eps/4; `eval` says the same."""
        self.assertEqual(run("--out", "weak", "--alpha", "0.1/255", "--eval", "pgd10").code, 0)
        row = common.rows("weak", "evaluation")[-1]
        self.assertEqual((row["eps"], row["alpha"], row["restarts"]), (8 / 255, 2 / 255, 1))
        ended = common.run("eval", "--checkpoint", "weak", "--limit", 32, "--out", "weak.json")
        self.assertIn("eps 8/255 as in the training, alpha 2/255", ended.text)
        told = common.load("weak.json")
        self.assertEqual(told["attacks"][0]["accuracy"], row["adv_acc"])
        self.assertEqual(len(told["per_image"]["pgd10_correct"]), 32)
        self.assertEqual(sum(told["per_image"]["pgd10_correct"]) / 32, row["adv_acc"])
        self.assertEqual(sum(c["images"] * (c["clean_accuracy"] or 0) for c in told["classes"]) / 32,
                         told["clean"]["accuracy"])
        flattering = common.run("eval", "--checkpoint", "weak", "--limit", 32, "--alpha", "0.1/255")
        self.assertIn("flatters", flattering.warnings[0])
        self.run_well("eval", "--checkpoint", "weak", "--limit", 32, "--eval", "pgd10x3", "--out", "worst.json")
        several = common.load("worst.json")
        for one, all_of_them in zip(told["per_image"]["pgd10_loss"], several["per_image"]["pgd10x3_loss"]):
            self.assertGreaterEqual(all_of_them, one)
        for one, all_of_them in zip(told["per_image"]["pgd10_correct"], several["per_image"]["pgd10x3_correct"]):
            self.assertLessEqual(all_of_them, one)

    def test_data_of_other_classes_is_refused(self):
        self.assertEqual(run("--out", "run").code, 0)
        for classes in 4, 12:
            common.synthetic(f"{classes}.h5", size=16, train=20, test=20, classes=classes)
            self.refuse(3, "classes", "eval", "--checkpoint", "run", "--data", f"{classes}.h5")
        common.synthetic("large.h5", size=32, train=20, test=20)
        self.assertEqual(common.run("eval", "--checkpoint", "run", "--data", "large.h5").code, 3)
        split = np.zeros((4, 16, 16, 1), np.uint8), np.arange(4, dtype=np.uint8)
        common.write_data("grey.h5", split, split, common.attribute("large.h5", "class_names"))
        self.refuse(3, "have 1 channels, the network in", "eval", "--checkpoint", "run", "--data", "grey.h5")

    def test_damage_is_in_the_log(self):
        self.assertEqual(run("--out", "run", "--checkpoint-every", 2, "--max-steps", 7).code, 0)
        with open("run/ckpt/step-000000007.h5", "r+b") as file:
            file.seek(5000)
            file.write(b"damage")
        ended = self.expect(0, run("--out", "run", "--checkpoint-every", 2, "--max-steps", 7))
        self.assertIn("step-000000007.h5", ended.warnings[0])
        self.assertIn("trying the one before it", common.text_of("run/run.log"))


if __name__ == "__main__":
    common.main()
