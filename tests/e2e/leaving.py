"""Ranks that leave a run: it goes on without them to the bits of one rank, also where it has gone back to a checkpoint; they sleep
until its end, and end as it does. Killed meanwhile: interrupted.py. At night: many patterns, on sixteen ranks."""

import os
import random
import shutil
import signal
import subprocess
import time

import common

SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--eval-every", 1,
       "--eval", "pgd2", "--warmup-epochs", 1, "--epochs", 1, "--deterministic", "--micro-batch", 2]
# What is kept from step to step by one rank, or by all.
STATES = {
    "bandit": ["--optimizer", "lamb", "--selector", "exp3", "--resample", 3, "--average", "ema", "DAT_CHECKPOINT_ASYNC=on", "--checkpoint-every", 2],
    "warm starts": ["--optimizer", "sgd", "--lr", 0.05, "--warm-start", 2, "--selector", "all"],
    "sums of weights": ["--optimizer", "lars", "--lr", 0.02, "--average", "swa", "--loss", "trades", "--selector", "uniform", "--verify", 3],
    "perturbed weights": ["--awp-gamma", 0.01, "--loss", "trades"],
}
WHOLE = common.ALL_CASES


def leave(who, when):
    return ["--attackers", ",".join(map(str, who)), "--cheat", ",".join(f"leave@{step}" for step in when)]


def left(folder):
    return [(row["rank"], row["step"], row["why"]) for row in common.rows(folder, "left")]


def processor_seconds(pid):
    user, system = common.text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Leaving(common.TestCase):
    set_h5 = SET

    def go(self, folder, *arguments, ranks, code=0):
        return self.expect(code, common.run("train", "--out", folder, *RUN, *arguments, ranks=ranks))

    def test_the_bits_of_one_rank(self):
        ranks, many, total = (16, 7, 32) if WHOLE else (5, 2, 20)
        for number in range(20) if WHOLE else [common.SEED % len(STATES)]:
            name = list(STATES)[number % len(STATES)]
            options = ["--total-batch", total, *STATES[name]]
            if not os.path.exists(name):
                self.go(name, *options, ranks=0)
            steps = len(common.rows(name, "step"))
            draw = random.Random(number)
            who, when = draw.sample(range(1, ranks), many), [draw.randrange(steps) for _ in range(many)]
            with self.subTest(state=name, who=who, when=when):
                self.go("left", *options, *leave(who, when), ranks=ranks)
                self.assert_equal_runs("left", name)
                self.assertEqual(sorted(left("left")), sorted((rank, step, "--cheat leave") for rank, step in zip(who, when)))
                last = common.rows("left", "ranks")[-1]
                self.assertEqual([rank for rank in range(ranks) if last["bytes"][rank] is None], sorted(who))
                summary = common.text_of("left/SUMMARY.txt")
                for rank, step in zip(who, when):
                    self.assertIn(f"\nleft            rank {rank}, after step {step}: --cheat leave\n", summary)
                shutil.rmtree("left")

    def test_back_to_a_checkpoint_from_before(self):
        """Whoever has left stays away. As if the rate had been the lower one from the start: see setbacks.py."""
        far, rate = 2.0**100, 2.0**-4
        options = ["--total-batch", 16, "--optimizer", "sgd", "--max-steps", 5]
        self.go("expected", *options, "--lr", repr(rate), ranks=0)
        options += ["--lr", repr(far), "--max-bad-steps", 1, "--on-bad-steps", f"rollback:lr={rate / far!r}"]
        self.go("back", *options, *leave([2, 1], [1, 4]), ranks=5)
        arrays = {folder: {name: values for name, values in common.state(folder).items() if name.startswith(("param/", "optim/", "bn/"))}
                  for folder in ("back", "expected")}
        self.assert_same(arrays["back"], arrays["expected"])
        self.assertEqual(left("back"), [(2, 1, "--cheat leave"), (1, 4, "--cheat leave")])
        kinds = [row["kind"] for row in common.rows("back") if row["kind"] in ("setback", "left")]
        self.assertEqual(kinds, ["left", "setback", "left"])

    def test_a_signal_and_another_number_of_ranks(self):
        options = ["--total-batch", 16, "--optimizer", "sgd"]
        self.go("one", *options, ranks=0)
        for again in (4, 3) if WHOLE else (3,):
            with self.subTest(ranks=again):
                running = common.Running(["train", "--out", "run", *RUN, *options, *leave([1], [2]), "--checkpoint-every", 2], 4)
                self.assertTrue(running.wait_for(lambda: common.steps_written("run") >= 4 and len(running.ranks()) == 4), running.text())
                common.kill(running.ranks()[0], signal.SIGUSR1)
                self.assertRegex(self.expect(75, running.wait()).text, "[^\n]\ndat_hpc: a signal: the run ends")
                ended = self.go("run", *options, *leave([1], [2]), "--checkpoint-every", 2, ranks=again)
                self.assert_equal_runs("run", "one")
                self.assertEqual(any("1 of 4 ranks had left at the checkpoint; with 3 ranks all take part" in line
                                     for line in ended.warnings), again == 3, ended.text)
                self.assertIn("the run goes on with 3 of 4 ranks" if again == 4 else "the run goes on with 2 of 3 ranks", ended.text)
                shutil.rmtree("run")

    def test_a_run_that_fails(self):
        """All ranks end with its code, those that have left, too."""
        with open("ranks.sh", "w") as file:  # mpirun tells one code, and kills whoever is slower than the first
            file.write('trap "" TERM\n"$@"\ncode=$?\necho $code > code.$OMPI_COMM_WORLD_RANK\nexit $code\n')
        ended = subprocess.run(["mpirun", "-np", "4", "sh", "ranks.sh", common.PROGRAM, "train", "--out", "run", *map(str, RUN),
                                "--total-batch", "16", "--optimizer", "sgd", "--lr", repr(2.0**100), *leave([2], [1])],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=common.LIMIT_S, env=os.environ | common.own_session() | {"OMPI_MCA_odls_base_sigkill_timeout": "6"})
        self.assertEqual(common.exit_code(ended.returncode, ended.stdout), 7, ended.stdout)
        errors = [line for line in ended.stdout.splitlines() if line.startswith("dat_hpc: error: ")]
        self.assertEqual(len(errors), 1, ended.stdout)
        self.assertRegex(errors[0], "is not finite")
        self.assertEqual(len(left("run")), 1)
        self.assertEqual([common.text_of(f"code.{rank}") for rank in range(4)], 4 * ["7\n"])
        running = common.Running(["train", "--out", "full", *RUN, "--total-batch", 16, "--checkpoint-every", 2, *leave([2], [3])], 4)
        self.assertTrue(running.wait_for(lambda: len(left("full")) == 1), running.text())
        shutil.rmtree("full/ckpt", ignore_errors=True)
        common.write("full/ckpt", "")  # no folder any more
        self.expect_error(9, ".", running.wait())

    def test_asleep_beside_a_stopped_rank(self):
        options = [*RUN, "--total-batch", 16, "--epochs", 100000, "--milestones", 99999, "--eval-every", 0, "--checkpoint-every",
                   1000000, "--quiet", "--comm-timeout", 2.5, *leave([2], [3])]
        running = common.Running(["train", "--out", "run", *options], 4)
        self.addCleanup(running.end)
        self.assertTrue(running.wait_for(lambda: common.steps_written("run") > 10 and len(running.ranks()) == 4), running.text())
        ranks, seconds = running.ranks(), 1
        before, steps = processor_seconds(ranks[2]), common.steps_written("run")
        time.sleep(seconds)
        self.assertLess(processor_seconds(ranks[2]) - before, 0.025 * seconds)
        self.assertGreater(common.steps_written("run"), steps)
        # That it is silent for longer than the timeout is no hang.
        common.kill(ranks[2], signal.SIGSTOP)
        time.sleep(3)
        common.kill(ranks[2], signal.SIGCONT)
        time.sleep(0.2)
        self.assertIsNone(running.process.poll(), running.text())
        common.kill(ranks[1], signal.SIGSTOP)
        ended = self.expect_error(6, rf"hang: rank 1 on \S+ \(process {ranks[1]}\) has sent no heartbeat for ", running.wait())
        self.assertRegex(ended.errors[0], rf"rank 2 on \S+ \(process {ranks[2]}\) has left")
        self.assertRegex(common.text_of("run/hang-rank-2.txt"), r"^rank 2 of 4 on \S+, process \d+, has left\n")
        self.assertNotIn("has left", common.text_of("run/hang-rank-0.txt").splitlines()[0])
        self.assertEqual([name for name in common.entries(".") if "segment" in name], [])

    @common.at_night
    def test_stopped_until_the_end(self):
        """The end of MPI wants all ranks. The run is whole."""
        running = common.Running(["train", "--out", "run", *RUN, "--total-batch", 16, "--comm-timeout", 2.5, *leave([2], [3])], 4)
        self.addCleanup(running.end)
        self.assertTrue(running.wait_for(lambda: len(left("run")) == 1 and len(running.ranks()) == 4), running.text())
        process = running.ranks()[2]
        common.kill(process, signal.SIGSTOP)
        ended = self.expect(6, running.wait())
        self.assertIn(" VALID", ended.final)
        self.assertRegex(ended.errors[0], rf"rank 2 on \S+ \(process {process}\) has sent no heartbeat for .*, last heard asleep, having left; ")

    def test_what_is_refused(self):
        for ranks, pattern, *arguments in [
                (3, "rank 0, which holds", "--attackers", 0, "--cheat", "leave"),
                (4, "names 2 of 4 ranks; more than half must be honest", "--attackers", "1,2", "--cheat", "leave"),
                (3, "names rank 3, and the ranks are 0 to 2", "--attackers", 3, "--cheat", "leave")]:
            with self.subTest(pattern=pattern):
                self.expect_error(2, pattern, common.validate(*RUN, "--total-batch", 16, *arguments, ranks=ranks))


if __name__ == "__main__":
    common.main()
