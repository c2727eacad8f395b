"""Files that cannot be written, files that should not be trusted, and checkpoints written beside the steps."""

import errno
import os
import re
import signal
import subprocess
import tarfile
import time
import zipfile
from unittest import mock

import h5py
import numpy as np

import common

EVER = 10**6


# Six checkpoints, in epochs of eight steps.
SET = {"train": 128, "test": 20, "size": 16, "classes": 4}
TRAIN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 4, "--eval", "pgd4", "--eval-every", 1,
         "--warmup-epochs", 1, "--epochs", 2, "--resample", 3, "--checkpoint-every", 4]


def options(folder, *arguments, ranks=0):
    return ["train", *TRAIN, "--batch", 16 // max(ranks, 1), "--out", folder, *arguments]


class Files(common.TestCase):
    set_h5 = SET

    def launch(self, folder, *arguments, ranks=0, environment=None):
        return common.Running(options(folder, *arguments, ranks=ranks), ranks, environment)

    def go(self, folder, *arguments, ranks=0):
        self.expect(0, self.launch(folder, *arguments, ranks=ranks).wait())

    def finish(self, folder, *arguments):
        """Goes on with a run, which must end like the straight one."""
        self.go(folder, *arguments)
        self.assert_equal_runs(folder, "straight")

    def faulty(self, faults, folder, *arguments, ranks=0):
        """A run that some calls fail in: "PART:CALL", errno, the first of them and how many."""
        return self.launch(folder, *arguments, ranks=ranks, environment=common.faults(*faults)).wait()

    def steps_of_checkpoints(self, folder):
        return [int(path[-12:-3]) for path in common.checkpoints(folder)]


class Full(Files):
    """No space, no quota, a broken or read-only disk: old checkpoints stay."""

    def test_the_run_ends_with_code_9(self):
        """Whatever it was that could not be written; the same command goes on. Checkpoints: interrupted.py."""
        self.go("straight", "--holdout", 16)
        for folder, kind in ("best", "best.h5:write"), ("record", "metrics.jsonl:write"), ("results", "results.h5:write"):
            with self.subTest(kind):
                ended = self.faulty((kind, errno.ENOSPC, 9 if folder == "record" else 1, EVER), folder, "--holdout", 16)
                self.expect_error(9, kind.split(":")[0] + ".*disk full", ended)
                self.finish(folder, "--holdout", 16)
        self.expect(0, self.faulty(("metrics.jsonl:write", errno.EINTR, 3, 2), "again", "--holdout", 16))  # is tried again
        self.assert_equal_runs("again", "straight")

    def test_a_checkpoint_beside_the_steps_ends_the_run_as_soon_as_the_next_one_is_due(self):
        ended = self.faulty(("step-000000012.h5:write", errno.EIO, 1, EVER), "run", "DAT_CHECKPOINT_ASYNC=on", ranks=2)
        self.assertNotEqual(ended.code, 0, ended.text)
        self.assertEqual(len(ended.errors), 1, ended.text)
        self.assertIn("step-000000012.h5", ended.errors[0])
        self.assertEqual(self.steps_of_checkpoints("run"), [4, 8])

    def test_a_rank_that_fails_alone_says_which_it_is(self):
        ended = self.faulty(("metrics.jsonl:write", errno.ENOSPC, 3, EVER), "run", ranks=2)
        self.assertNotEqual(ended.code, 0, ended.text)
        self.assertRegex("\n".join(ended.errors), r"error: rank 0 on \S+: .*metrics\.jsonl.*disk full")

    def test_an_evaluation_that_cannot_be_written_is_told(self):
        self.go("straight")
        wanted = common.run("eval", "straight", "--eval", "fgsm")
        with mock.patch.dict(os.environ, common.faults("eval.json:rename", errno.EROFS)):
            ended = common.run("eval", "straight", "--eval", "fgsm", "--out", "here")
        self.assertEqual(ended.code, 9, ended.text)
        final = re.search(r"Final: (.*) time_s", wanted.text)[1]
        self.assertIn(f"Final: {final} ", ended.text)
        self.assertIn("here/eval.json", ended.errors[0])
        self.assertFalse(os.path.exists("here"))  # which was made for it


class Starting(Files):
    """A first TERM, INT or USR1 while the program starts ends it at once: there is nothing to lose yet."""

    SECONDS = 5  # what a busy machine may take for what is done in a moment

    def end_by(self, running, pid, number, halted=None, forwarded=False):
        """halted: a rank that stands, and goes on once the signal is sent; forwarded: once it has come to it, too."""
        common.kill(pid, number)
        if forwarded:  # the launcher itself may have let it go on, where another rank has ended: then the run has ended
            running.wait_for(lambda: common.waits_for(halted, number))
        begin = time.monotonic()
        if halted is not None:
            common.kill(halted, signal.SIGCONT)
        ended = running.wait()
        self.assertLess(time.monotonic() - begin, self.SECONDS)
        self.assertEqual(ended.code, 75, ended.text)
        self.assertEqual(ended.errors, [], ended.text)
        self.assertIn("stopped on a signal before the first step", ended.text)

    def test_reading_and_planning(self):
        """When the data are about to be read, and when all is planned and the folder about to be locked: it stands there."""
        self.go("straight")
        for moment, number in (("set.h5:open", signal.SIGTERM), (".lock:flock", signal.SIGINT), (".lock:flock", signal.SIGUSR1)):
            with self.subTest(moment, number=number.name):
                with mock.patch.dict(os.environ, common.faults(moment, -1, 1, 1)):
                    running = common.Running(options("run"), 0)
                try:
                    self.assertTrue(running.wait_for(lambda: common.stopped(running.process.pid)), running.text())
                    self.end_by(running, running.process.pid, number, running.process.pid)
                finally:
                    running.end()
                self.assertEqual([name for name in common.entries("run") if name != ".lock"], [])
        self.finish("run")

    def test_of_a_program_that_has_hardly_begun(self):
        """Slurm's warning may come that early. The program first starts itself anew, with a word more in its environment."""
        most = 299_999 if os.uname().machine == "x86_64" else 300_000  # elsewhere a pause may take next to no time

        def begun(pid):  # with a time that is measured: neither of its limits
            turns = re.search(rb"GOMP_SPINCOUNT=(\d+)\0", common.bytes_of(f"/proc/{pid}/environ"))
            return turns is not None and 100 < int(turns[1]) <= most

        for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1:
            with self.subTest(number.name), mock.patch.dict(os.environ):
                for name in {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
                    del os.environ[name]
                running = common.Running(options("run"), 0)
                try:
                    running.wait_for(lambda: begun(running.process.pid))
                    self.end_by(running, running.process.pid, number)
                finally:
                    running.end()
                self.assertEqual([name for name in common.entries("run") if name != ".lock"], [])

    def test_that_came_before_the_program(self):
        """Kept back by whoever starts it."""
        def send():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            os.kill(os.getpid(), signal.SIGUSR1)

        for words, code in (options("run"), 75), (["status", "run"], -signal.SIGUSR1):  # who does not train leaves it to the system
            ended = subprocess.run([common.PROGRAM, *map(str, words)], preexec_fn=send, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((ended.returncode, common.entries("run")), (code, []), ended.stderr)

    def test_of_several_ranks(self):
        """Rank 0 stands at the folder, the other one waits for it: a mpirun to which a rank is not known yet may hang."""
        for target in common.drawn([0, 1, "launcher"], 1):
            with self.subTest(target):
                with mock.patch.dict(os.environ, common.faults("run/.lock:flock", -1, 1, 1)):
                    running = self.launch("run", ranks=2)
                try:
                    ranks = running.wait_until_stopped()
                    self.end_by(running, ranks.get(target, running.process.pid), signal.SIGUSR1, ranks[0], target == "launcher")
                finally:
                    running.end()

    def test_waiting_for_the_folder(self):
        first = self.launch("run", "--max-steps", 1)
        try:
            self.assertTrue(first.wait_for(lambda: common.steps_written("run") == 1))
            for pid in first.ranks().values():
                common.kill(pid, signal.SIGSTOP)
            second = self.launch("run", "--max-steps", 1)
            try:
                self.assertTrue(second.wait_for(lambda: "waiting for its end" in second.text()), second.text())
                self.end_by(second, second.ranks()[0], signal.SIGTERM)
            finally:
                second.end()
        finally:
            first.end()


class Outside(common.TestCase):
    """Files that others have made."""

    TRAIN = ["--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 8, "--max-steps", 2, "--attack-steps", 1,
             "--eval-every", 0, "--eval", "pgd1"]

    def write(self, path, **how):
        random = np.random.default_rng(1)
        splits = ((random.integers(0, 256, (count, 16, 16, 3), np.uint8), np.arange(count) % 3) for count in (40, 9))
        common.write_data(path, *splits, ["a", "b", "c"], **how)

    def test_packed_weights_are_converted_first(self):
        self.write("plain.h5")
        self.train("base", *self.TRAIN, "--data", "plain.h5")
        with h5py.File(common.checkpoints("base")[-1]) as file, h5py.File("packed.h5", "w") as out:
            for group in "param", "bn":
                for name, item in file[group].items():
                    out.create_dataset(name, data=item[()], chunks=True, compression="gzip")
        start = ["train", *self.TRAIN, "--data", "plain.h5", "--initialize"]
        ended = self.refuse(4, "compressed", *start, "packed.h5", "--out", "run")
        # The command that the message names works.
        command = ended.errors[0].split("'")[1].split()
        self.assertEqual(command, ["dat_hpc", "data", "convert", "packed.h5", "NEW"])
        self.assertEqual(common.run(*command[1:]).code, 0)
        self.assertEqual(common.run(*start, "NEW", "--out", "a").code, 0)
        self.assertEqual(common.run(*start, "base", "--out", "b").code, 0)
        self.assert_same(common.state("a"), common.state("b"))

    def test_mutated_files_are_refused_or_read_and_never_hang(self):
        self.write("plain.h5")
        self.write("packed.h5", chunks=(5, 16, 16, 3), compression="gzip")
        for name, mode in ("set.tar", "w"), ("set.tar.gz", "w:gz"):
            with tarfile.open(name, mode) as file:
                file.add("packed.h5")
        with zipfile.ZipFile("set.zip", "w", zipfile.ZIP_DEFLATED) as file:
            file.write("packed.h5")
        random = np.random.default_rng(2)
        seen = set()
        for source, *verb in ("plain.h5", "inspect"), *((name, "convert") for name in ("packed.h5", "set.tar", "set.tar.gz", "set.zip")):
            mutated = source.replace(source.split(".")[0], "mutant", 1)
            whole = np.frombuffer(common.bytes_of(source), np.uint8)
            for _ in range(int(os.environ.get("DAT_MUTANTS", 3))):
                mutant = whole.copy()
                for at in random.integers(0, min(4096, len(whole)), 3):
                    mutant[at] = random.integers(0, 256)
                if source == "set.zip":  # its directory stands at the end
                    mutant[-random.integers(1, 100)] = random.integers(0, 256)
                mutant.tofile(mutated)
                ended = common.run("data", *verb, mutated, *(["out.h5"] if verb == ["convert"] else []), limit=120)
                self.assertIn(ended.code, (0, 3), ended.text)
                self.assertEqual(len(ended.errors), ended.code == 3, ended.text)
                seen.add(ended.code)
                self.assertEqual([name for name in os.listdir() if ".tmp-" in name], [])
        self.assertIn(3, seen)

    def test_what_an_author_has_sealed_is_not_trusted_either(self):
        """A seal is no signature: a sealed file whose groups lead in a circle is refused like any other."""
        self.write("plain.h5")
        self.assertEqual(common.run("data", "convert", "plain.h5", "sealed.h5").code, 0)
        with h5py.File("sealed.h5", "a") as file:
            file["train/again"] = file["/"]
        common.seal("sealed.h5")
        self.refuse(3, "second name of", "train", *self.TRAIN, "--data", "sealed.h5", "--out", "run")


if __name__ == "__main__":
    common.main()
