"""The runner and the readers of gpu_slot.sh, with entries that fail in every way: python3 tests/slot/test_runner.py"""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import entries
import runner
from runner import Entry, kNotHere, kOk, kSkipped, kTimeOut, kWrong


def shell(name, script, seconds=20, **more):
    return Entry(name, ["bash", "-c", script], seconds, **more)


class Slots(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(subprocess.run, ["rm", "-r", self.folder])
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def results(self, *those, at_once=1, seconds=60, code=None, after=None):
        self.slot = runner.Slot("test", seconds, os.environ, self.folder, lambda entry: " ".join(entry.needs))
        if after:
            signal.setitimer(signal.ITIMER_REAL, after)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.slot.run(those, at_once)
            self.assertEqual(self.slot.finish(), code)
        self.table = output.getvalue()
        return [self.slot.rows[entry.name].status for entry in those]

    def test_results_are_in_the_archive_as_they_are_made(self):
        inside = f"tar -tf {self.folder}/gpu_slot_test.tgz | grep -c one/log.txt"
        self.assertEqual(self.results(shell("one", "echo fine; echo {} >row.json"), shell("two", inside), code=0), [kOk] * 2)
        self.assertRegex(self.table, r"^one +ok +0\.\d  fine\n")
        with tarfile.open(self.slot.archive) as archive:
            self.assertIn("gpu_slot_test/one/row.json", archive.getnames())

    def test_what_is_wrong_and_what_is_not_here(self):
        found = self.results(shell("code", "echo why; exit 4"), shell("signal", "kill -SEGV $$"),
                             shell("mute", "echo so", read=entries.says("(fine)")),
                             shell("number", "echo x", read=int), shell("gpu", "exit 77"),
                             shell("tool", "true", needs=("tool",)),
                             shell("old", "echo Device not supported; exit 1"), code=1)
        self.assertEqual(found, [kWrong] * 4 + [kNotHere] * 3)
        self.assertEqual([row.figure for row in self.slot.rows.values()][:3],
                         ["exit code 4: why", "ended by signal 11: no output", "no figure, and at last: so"])
        self.results(shell("tool", "true", needs=("tool",)), code=3)

    def test_what_hangs_is_ended_with_all_that_it_started(self):
        begin = time.monotonic()
        # As a launcher does: a rank in a process group of its own, and one that is deaf to SIGTERM.
        deaf = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done'"
        hangs = shell("hangs", f"exec >{self.folder}/pids; set -m; sleep 60 & echo $!; {deaf} & wait", -4.5)  # limit: 1 s
        self.assertEqual(self.results(hangs, code=3), [kTimeOut])
        self.assertLess(time.monotonic() - begin, 40)
        for pid in (self.folder / "pids").read_text().split():
            state = pathlib.Path(f"/proc/{pid}/stat")
            self.assertTrue(not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX")

    def test_what_does_not_fit_is_not_begun_and_what_fits_is(self):
        self.assertEqual(self.results(shell("long", "touch begun", 70), shell("short", "true"), code=3), [kSkipped, kOk])
        self.assertRegex(self.table, "long +skipped +needs 70 s, (60|59) are left")

    def test_side_by_side_but_for_what_is_alone(self):
        waits, begun = "until [ -e ../c/c ]; do sleep 0.05; done", "[ $(ls .. | wc -l) = 4 ]"
        those = [shell("a", waits), shell("c", "touch c"), shell("one", f"{begun} && sleep 1 && {begun}", alone=True),
                 shell("d", "true")]
        self.assertEqual(self.results(*those, at_once=3, code=0), [kOk] * 4)

    def test_the_slot_ends_itself_whatever_it_waits_for(self):
        self.assertEqual(self.results(shell("waits", "sleep 60"), shell("b", "true"), code=3, after=1), [kTimeOut, kSkipped])

    def program(self, name, script):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return path

    def gpu_slot(self, *words):
        return subprocess.run([sys.executable, "-B", entries.kRoot / "tests/slot", *words], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    def test_catch_must_have_run_something_on_every_rank(self):
        passed = "All tests passed (12 assertions in 3 test cases)\n"
        self.assertEqual(entries.catch()("x\n" + passed, None), "3 laws, 12 checks")
        for text, ranks in ("No tests ran\n", 1), ("test cases: 3 | 2 passed | 1 failed\n", 1), (passed, 2):
            with self.assertRaises(ValueError):
                entries.catch(ranks)(text, None)

    def test_both_halves_of_the_laws_are_all_of_them(self):
        program = self.program("laws", "[ $1 = --help ] && echo --list-test-names-only || printf 'a\\nb, b\\nc\\n'")
        halves = []
        for half in 1, 2:
            subprocess.run(["bash", "-c", entries.names_of_half(program, half)], cwd=self.folder, check=True)
            halves.append((self.folder / "names.txt").read_text().splitlines())
        self.assertEqual(halves, [["a", "c"], [r"b\, b"]])

    def test_an_archive_is_unpacked_once_and_another_one_again(self):
        mine = self.folder / "gpu_slot/mine"
        for text, left in ("one", False), ("one", True), ("two", False):
            self.program("pack/gpu_slot/tests/gpu_slot.sh", f"echo {text} $*")
            subprocess.run(["tar", "--mtime=@0", "-cf", "a.tar", "-C", "pack", "gpu_slot"], cwd=self.folder, check=True)
            self.assertEqual(self.gpu_slot("laws", "--archive", "a.tar"), f"{text} laws --archive a.tar\n")
            self.assertEqual(mine.exists(), left)
            mine.touch()

    def test_data_comes_in_pieces(self):
        self.program("tests/dat_hpc_double", 'cat "$3"; exit 1')
        for name, text in ("a", "who"), ("b", "le"):
            (self.folder / name).write_text(text)
        self.assertIn("--data a b: whole. It", self.gpu_slot("run", "nan", "--build", ".", "--double", "--data", "a", "b"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
