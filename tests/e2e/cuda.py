"""Whole runs on a GPU, or on the double of CUDA's libraries: what the weights may depend on, and what is said."""

import hashlib
import os
import re
import shutil
import signal
import time
import unittest
from unittest import mock

import common

NCCL = os.path.join(os.path.dirname(common.PROGRAM), "nccl/libnccl.so.2")

SMALL = ["--device", "cuda", "--deterministic", "--data", "set.h5", "--network", "small_cnn", "--width", 16, "--batch", 8,
         "--threads", 1, "--attack-steps", 2, "--eval-every", 0, "--eval", "pgd1", "--limit-test", 4,
         "--warmup-epochs", 0, "--epochs", 1]


class Runs(common.TestCase):
    set_h5 = dict(train=26, test=4, size=16, classes=4)

    def test_a_resumed_run_has_the_bits_of_a_straight_one(self):
        """Also one whose attacks stop early, with warm starts, and with images that grow: which are replayed, and evaluated whole."""
        two, growing = [*SMALL[:-1], 2], ["--train-size", "8,16@1", "--average", "ema", "--warm-start", 2]  # of 2 steps an epoch on two ranks
        for options, ranks, ends in [
                ([*SMALL, "--attack-stop", 1, "--attack-precision", "f16"], 1, [2]), ([*two, *growing, "--micro-batch", 4], 2, [1, 3]),
                *common.ALL_CASES * [(SMALL, 2, [1]), ([*two, "--warm-start", 3, "--micro-batch", 4], 2, [3]),
                                 ([*two, "--train-size", "11,16@1", "--attack-stop", 1, "--attack-precision", "f16"], 1, [5])]]:
            with self.subTest(options=options[len(SMALL) - 1 :]):
                for folder in {"straight", "parts"} & set(os.listdir()):
                    shutil.rmtree(folder)
                self.train("straight", *options, ranks=ranks)
                for end in ends:
                    self.train("parts", *options, "--max-steps", end, ranks=ranks)
                self.train("parts", *options, ranks=ranks)
                self.assert_same(common.state("straight"), common.state("parts"))
        if common.ALL_CASES:
            for folder, more in ("grown", []), ("called", ["DAT_GRAPHS=off", "--eval-every", 1]):
                self.train(folder, *two, *growing, *more, ranks=2)
            self.assert_same(common.state("grown"), common.state("called"))

    def test_batches_and_images_that_change_together(self):
        """A part has programs for its own sizes alone, and nothing of the next one is queued ahead of it."""
        at, alone = SMALL.index("--batch"), SMALL.index("--deterministic")
        changing = [*SMALL[:alone], *SMALL[alone + 1 : at], *SMALL[at + 2 : -1], 2]
        self.train("run", *changing, "--batch", "8,4@1", "--train-size", "8,16@1", "--selector", "all")
        images = [row["images"] for row in common.rows("run", "step")]
        self.assertEqual(images, 3 * [8] + [2] + 6 * [4] + [2])

    def test_where_the_pixels_lie_and_what_is_recorded_changes_nothing(self):
        ranks = 2 if common.ALL_CASES else 1
        self.train("resident", *SMALL, "DAT_RESIDENT=on", ranks=ranks)
        self.train("streamed", *SMALL, "DAT_RESIDENT=off", ranks=ranks)
        self.train("called", *SMALL, "DAT_GRAPHS=off", ranks=ranks)
        self.assert_same(common.state("resident"), common.state("streamed"))
        self.assert_same(common.state("resident"), common.state("called"))

    def test_any_number_of_ranks_leaves_the_same_bits(self):
        at = SMALL.index("--batch")
        dealt = [*SMALL[:at], *SMALL[at + 2 :], "--total-batch", 24, "--micro-batch", 4]
        self.train("one", *dealt)
        self.train("parts", *dealt, "--max-steps", 1, "--node-sums", "mpi", ranks=2)
        self.train("parts", *dealt, "--node-sums", "window", ranks=4)
        self.assert_same(common.state("one"), common.state("parts"))

    def test_who_cheats_is_banned_by_bits(self):
        """Hashes by the kernel, and claims; at night the work of another rank done once more, and restarted, too."""
        at = SMALL.index("--batch")
        options = [*SMALL[:at], *SMALL[at + 2 :], "--total-batch", 8, "--micro-batch", 2, "--aggregator", "centered_clip", "--byzantine",
                   "--faults", 1, "--selector", "all", "--epochs", 3 if common.ALL_CASES else 1]
        for cheat, rule in [("weak", "gradient")] * common.ALL_CASES + [("wrong_aggregate", "aggregate")]:
            cheats = ["--attackers", 2, "--cheat", f"{cheat}@2"]
            self.train(cheat, *options, *cheats, ranks=4)
            self.assertEqual([(row["rank"], row["rule"], row["upheld"]) for row in common.rows(cheat, "accusation")], [(2, rule, True)])
        if common.ALL_CASES:
            self.train("parts", *options, *cheats, "--max-steps", 6, ranks=4)
            self.train("parts", *options, *cheats, ranks=4)
            self.assert_same(common.state("wrong_aggregate"), common.state("parts"))

    def test_16_bit_attacks_train_and_micro_batches_work(self):
        for precision in common.drawn(["f16", "bf16"], 1):
            ended = self.train(precision, *SMALL, "--attack-precision", precision, "--micro-batch", 4, "--lambda", 1)
            self.assertRegex(ended.final, " VALID$")

    def test_ranks_that_share_a_gpu_are_told(self):
        """And MPI gets none of its memory: the double ends a program that gives it any, and counts here."""
        os.environ["DAT_DOUBLE_MPI"] = os.path.abspath("calls")
        ended = self.train("shared", *SMALL, "--max-steps", 1, ranks=2)
        del os.environ["DAT_DOUBLE_MPI"]
        self.assertRegex(ended.text, "warning: ranks 0, 1 share one GPU")
        if os.path.exists("calls"):  # on the double
            self.assertRegex(common.text_of("calls"), r"^([1-9]\d+ calls, 0 with device memory\n){2}$")

    def ends_of_nccl(self):
        with open("log") as file:
            ends = sorted(re.sub(r"\d+ sums, ", "", line.strip()) for line in file)
        os.remove("log")
        return ends

    @unittest.skipUnless(os.path.exists(NCCL), "for NCCL's double")
    def test_nccl_trains_as_mpi_and_its_failures_end_all_ranks(self):
        """Two GPUs, and which rank has which is told."""
        sums = [option for option in SMALL if option != "--deterministic"] + ["DAT_PLANNING_SECONDS=0", "--max-steps", 2, "--node-sums"]
        environment = {"DAT_DOUBLE_DEVICES": "2", "DAT_DOUBLE_NCCL_LOG": os.path.abspath("log")}
        with mock.patch.dict(os.environ, environment):
            self.train("mpi", *sums, "mpi", ranks=2)
            told = self.train("nccl", *sums, "nccl", ranks=2).text
            self.assertRegex(told, "GPUs of the ranks, in their order: 0, 1 on ")
            self.assertNotRegex(told, "share one GPU")
            self.assert_same(common.state("mpi"), common.state("nccl"))
            self.assertEqual(self.ends_of_nccl(), ["rank 0: ended", "rank 1: ended"])
            for fault, message in [("async@1#2", "rank 1 .*NCCL has failed: a sum: remote process exited"),
                                   ("stuck@1#2", "hang: .*sum #")]:
                with mock.patch.dict(os.environ, {"DAT_DOUBLE_NCCL": fault}):
                    self.refuse(6, message, "train", "--out", fault, *sums, "nccl", "--comm-timeout", 2, ranks=2)
                self.assertEqual(self.ends_of_nccl(), ["rank 0: aborted", "rank 1: aborted"])
            options = [*sums[: sums.index("--max-steps")], "--epochs", 1000, "--milestones", 999, "--node-sums", "nccl"]
            running = self.start_run(["train", "--out", "killed", *options, "--comm-timeout", 2], 2, "killed", steps=1)
            common.kill(running.ranks()[1], signal.SIGKILL)
            ended = running.wait(30)
            self.assertNotEqual(ended.code, 0)
            self.assertRegex(ended.text, r"hang: rank 1 on |process rank 1 with PID \d+ .*signal 9")
        self.refuse(6, "--node-sums nccl cannot be had: ranks 0 and 1 share one GPU", "train", "--out", "shared", *sums, "nccl", ranks=2)

    def test_the_checkpoint_evaluates_on_the_cpu(self):
        self.train("gpu", *SMALL)
        for device in "cuda", "cpu":
            ended = self.run_well("eval", "--checkpoint", "gpu", "--device", device, "--limit", 8, "--threads", 1)
            self.assertRegex(ended.final, " VALID$")

    def test_certificates_and_attacks_on_them_do_not_depend_on_ranks(self):
        self.train("smoothed", *SMALL, "--noise", 0.1, "--attack", "none", "--lambda", 0)
        found = []
        for ranks, precision in [(1, "f32"), (2, "f32")] + [(1, "f16")] * common.ALL_CASES:
            out = f"{precision}-{ranks}"
            self.run_well("certify", "smoothed", "--device", "cuda", "--threads", 1, "--every", 8, "--n0", 50, "--n", 300, "--precision",
                          precision, "--attack-steps", 2, "--noise-samples", 3, "--out", out, ranks=ranks)
            told = common.load(f"{out}/certify.json")
            self.assertEqual(told["settings"]["precision"], precision)
            found.append([[one[name] for name in ("index", "prediction", "votes")] for one in told["images"] + told["attacked"]["images"]])
        self.assertEqual(found[0], found[1])

    def test_choices_of_algorithms_are_kept_for_the_next_start(self):
        """By two processes at once; a damaged file is ignored with a word, and nothing of it where bits are promised."""
        free = [option for option in SMALL if option != "--deterministic"]
        free += ["--attack-precision", "f16", "DAT_PLANNING_SECONDS=1000", "--max-steps", 1, "DAT_VERBOSE=true", "--resume", "never"]
        plans = os.path.join(os.environ["XDG_CACHE_HOME"], "dat_hpc/plans")
        self.train("fixed", *SMALL, "--max-steps", 1)
        self.assertFalse(os.path.exists(plans))

        def is_whole():
            body, _, seal = common.bytes_of(plans).rpartition(b"sha256 ")
            return seal.decode() == hashlib.sha256(body).hexdigest() + "\n"

        running = [common.Running(["train", *free, "--out", f"run{k}"], 0) for k in range(2)]
        while any(one.process.poll() is None for one in running):
            if os.path.exists(plans):
                self.assertTrue(is_whole())
            time.sleep(0.01)
        for one in running:
            ended = self.expect(0, one.wait())
            self.assertNotIn("chosen GPU algorithms", ended.text)
        with open(plans, "r+b") as file:
            good = file.read()
            self.assertGreater(good.count(b"\n"), 5)  # a choice is a line
            self.assertNotRegex(good, rb"\t[\d.]+\n")  # and there was time for all
            file.seek(len(good) // 2)
            file.write(b"#")
        ended = self.train("damaged", *free)
        self.assertRegex(ended.text, f"warning: .*{re.escape(plans)}, is ignored and written anew: its hash is another one")
        self.assertNotIn("(--threads)", ended.text)  # fewer of them make no GPU slower
        self.assertTrue(is_whole())
        self.assertNotIn("is ignored", self.train("after", *free).text)

    @common.at_night
    def test_a_start_takes_seconds(self):
        """Where building an engine takes .3 s under one lock: 35 s, and 5 s with what was kept."""
        network = ["--device", "cuda", "--network", "resnet18", "--width", 8, "--data", "set.h5", "--batch", 2, "--attack-steps", 1,
                   "--attack-bn", "eval", "--attack-precision", "f16", "--max-steps", 1, "--eval-every", 0, "--limit-test", 1,
                   "--eval", "pgd1", "DAT_CHECKPOINT_ASYNC=off", "--resume", "never"]
        os.environ["DAT_DOUBLE_ENGINE_MS"] = "300"
        self.addCleanup(os.environ.pop, "DAT_DOUBLE_ENGINE_MS")
        for limit in 35, 5:
            begin = time.monotonic()
            running = common.Running(["train", *network, "--out", f"start{limit}"], 0)
            self.assertTrue(running.wait_for(lambda: common.steps_written(f"start{limit}") >= 1), running.text())
            self.assertLess(time.monotonic() - begin, limit)
            running.wait()

    def test_16_bits_without_effect_are_told(self):
        ended = self.train("told", *SMALL, "--attack-precision", "f16", "--attack-bn", "train", "--max-steps", 1)
        self.assertRegex(ended.text, "--attack-precision f16 has no effect: attacks on batch statistics")

    def test_training_in_f16_skips_overflows_and_resumes_with_equal_bits(self):
        common.synthetic("set.h5", train=50, test=8, size=16, classes=4)
        # A loss of this weight overflows at the first scales.
        f16 = [*SMALL, "--selector", "all", "--precision", "f16", "--attack-bn", "train", "--attack-steps", 2, "--lambda", 2000, "--lr", 1e-4]
        # One rank queues a step ahead, with the scale that the step before has not changed yet.
        for folder, ranks in ("alone", 1), ("straight", 2):
            self.train(folder, *f16, ranks=ranks)
            self.train("parts", *f16, "--max-steps", 1, "--resume", "never", ranks=ranks)
            self.train("parts", *f16, ranks=ranks)
            self.assert_same(common.state(folder), common.state("parts"))
            shutil.rmtree("parts")
        self.train("called", *f16, "DAT_GRAPHS=off")
        self.assert_same(common.state("alone"), common.state("called"))
        shutil.rmtree("called")
        lines = common.rows("straight")
        overflows = [line for line in lines if line["kind"] == "overflow"]
        steps = [line["step"] for line in lines if line["kind"] == "step"]
        self.assertEqual([line["scale"] for line in overflows], [512 / 2 ** k for k in range(len(overflows))])
        self.assertEqual([line["step"] for line in overflows], list(range(1, 1 + len(overflows))))
        self.assertGreater(len(overflows), 1)
        self.assertLess(len(overflows), len(steps))
        self.assertFalse([line for line in lines if line["kind"] == "setback"])
        self.assertIn(f"overflows       {len(overflows)} in f16", common.text_of("straight/SUMMARY.txt"))
        if not common.ALL_CASES:
            return
        self.train("called", *f16, "DAT_GRAPHS=off", ranks=2)
        self.assert_same(common.state("straight"), common.state("called"))
        self.train("bf16", *SMALL, "--precision", "bf16", "--overlap", ranks=2)

    def test_validate_says_what_the_gpu_has_left(self):
        ended = common.run("validate", *SMALL, "--precision", "f16")
        self.assertRegex(ended.text, r"\nprecision        activations of training passes in f16; gradients times a loss "
                         r"scale, 1024 at first, 65536 at most\n")
        self.assertRegex(ended.text, r"memory per rank .*cuda.* MB of the GPU's remain")

    def test_a_script_that_reserves_gpus_trains_on_them(self):
        for given in [], ["--device", "auto"], ["--device", "cuda"]:
            last = self.run_well("slurm", "--gpus-per-node", 1, *given, "--network", "small_cnn").text.splitlines()[-1]
            self.assertCountEqual(last.split(), ["dat_train", "--network", "small_cnn", "--device", "cuda"])


if __name__ == "__main__":
    common.main()
