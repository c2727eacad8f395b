"""The runner and the readers of gpu_slot.sh, with parts that fail in every way: python3 tests/slot/test_runner.py"""

import contextlib
import io
import json
import os
import pathlib
import signal
import tarfile
import tempfile
import time
import types
import unittest

import parts
import runner
from runner import Part


def says(text):
    def read(output):
        if text not in output:
            raise runner.Wrong("it does not say so")
        return text

    return read


def shell(name, script, seconds=20, **options):
    return Part(name, ["sh", "-c", script], seconds, **options)


class Slots(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def slot(self, seconds=60, only=()):
        slot = runner.Slot("test", self.folder.name, seconds, dict(os.environ), only)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        return slot

    def finish(self, slot):
        """Exit status and what is printed last."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = slot.finish()
        return code, output.getvalue()

    def run_parts(self, slot, *those, at_once=1):
        with contextlib.redirect_stdout(io.StringIO()):
            slot.run(those, at_once)
        return [row.status for row in slot.rows]

    def test_all_is_well(self):
        slot = self.slot()
        self.assertEqual(self.run_parts(slot, shell("one", "echo fine", read=says("fine"))), [runner.kOk])
        code, output = self.finish(slot)
        self.assertEqual(code, 0)
        self.assertRegex(output, r"\none +ok +0\.\d  fine\n")
        with tarfile.open(slot.archive) as archive:
            self.assertIn(b"fine", archive.extractfile("gpu_slot_test/one.txt").read())

    def test_an_exit_code_a_signal_and_a_missing_line_are_wrong(self):
        slot = self.slot()
        statuses = self.run_parts(slot, shell("code", "echo why; exit 4"), shell("signal", "kill -SEGV $$"),
                                  shell("silent", "true", read=says("fine")), shell("number", "echo x", read=int))
        self.assertEqual(statuses, [runner.kWrong] * 4)
        self.assertEqual([row.figure for row in slot.rows[:3]],
                         ["exit code 4: why", "ended by signal 11: no output", "it does not say so"])
        self.assertEqual(self.finish(slot)[0], 1)

    def test_a_part_that_hangs_is_ended_with_all_that_it_started(self):
        slot = self.slot()
        begin = time.monotonic()
        # As a launcher does: a rank in a process group of its own, and one that is deaf to SIGTERM.
        script = "set -m; sleep 60 & echo $!; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & wait"
        self.assertEqual(self.run_parts(slot, Part("hangs", ["bash", "-c", script], 1)), [runner.kTimeOut])
        self.assertLess(time.monotonic() - begin, 40)
        pids = [int(line) for line in slot.output("hangs").split() if line.isdigit()]
        self.assertEqual(len(pids), 2)
        for pid in pids:
            state = pathlib.Path(f"/proc/{pid}/stat")
            self.assertTrue(not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX")
        self.assertEqual(self.finish(slot)[0], 3)

    def test_what_this_machine_lacks_is_named_and_excuses_nothing_else(self):
        slot = self.slot()
        refuses = "echo Device not supported; exit 1"
        statuses = self.run_parts(slot, shell("tool", "true", missing="there is no such tool"),
                                  shell("device", refuses, excuse="Device not supported"), shell("others", refuses),
                                  shell("ran", "true"))
        self.assertEqual(statuses, [runner.kNotHere, runner.kNotHere, runner.kWrong, runner.kOk])

    def test_nothing_run_is_not_all_is_well(self):
        slot = self.slot()
        self.run_parts(slot, shell("tool", "true", missing="there is no such tool"))
        self.assertEqual(self.finish(slot)[0], 3)

    def test_without_time_nothing_is_begun(self):
        slot = self.slot(seconds=runner.kLeast - 1)
        self.assertEqual(self.run_parts(slot, shell("late", "true")), [runner.kSkipped])
        self.assertEqual(self.finish(slot)[0], 3)

    def test_side_by_side_rows_keep_their_order(self):
        slot = self.slot()
        waits = "until [ -e c ]; do sleep 0.05; done"
        statuses = self.run_parts(slot, shell("a", waits), shell("b", waits), shell("c", "touch c"), at_once=3)
        self.assertEqual(statuses, [runner.kOk] * 3)
        self.assertEqual([row.name for row in slot.rows], ["a", "b", "c"])

    def test_the_slot_ends_itself_whatever_it_waits_for(self):
        slot = self.slot()
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with self.assertRaises(runner.Stopped):
            self.run_parts(slot, shell("waits", "sleep 60"), shell("next", "true"))
        slot.stopped = True
        self.assertEqual([row.status for row in slot.rows], [runner.kTimeOut, runner.kSkipped])
        self.assertEqual(self.finish(slot)[0], 3)
        self.assertTrue(slot.archive.exists())

    def test_long_logs_are_cut_and_the_table_is_short(self):
        slot = self.slot()
        self.run_parts(slot, shell("long", "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"))
        slot.details += [f"line {k}" for k in range(100)]
        _, output = self.finish(slot)
        self.assertLessEqual(len(output.splitlines()), runner.kLines)
        self.assertIn("lines more in the archive", output)
        with tarfile.open(slot.archive) as archive:
            log = archive.extractfile("gpu_slot_test/long.txt").read()
            self.assertIn(b"line 99\n", archive.extractfile("gpu_slot_test/table.txt").read())
        self.assertLess(len(log), 2 * runner.kLogBytes + 100)
        self.assertIn(b"first\n", log[:200])
        self.assertTrue(log.endswith(b"last\n"))

    def test_only_some_parts_and_none_by_a_wrong_name(self):
        slot = self.slot(only=["b"])
        self.run_parts(slot, shell("a", "true"), shell("b", "true"))
        self.assertEqual([row.name for row in slot.rows], ["b"])
        self.assertEqual(self.finish(slot)[0], 0)
        slot = self.slot(only=["c"])
        self.run_parts(slot, shell("a", "true"))
        self.assertEqual(self.finish(slot)[0], 2)


class Readers(unittest.TestCase):
    def test_catch_must_have_run_something_on_every_rank(self):
        passed = "All tests passed (12 assertions in 3 test cases)\n"
        self.assertEqual(parts.read_catch()("x\n" + passed), "3 laws, 12 checks")
        for text in "No tests ran\n", "test cases: 3 | 2 passed | 1 failed\n":
            with self.assertRaises(runner.Wrong):
                parts.read_catch()(text)
        with self.assertRaises(runner.Wrong):
            parts.read_catch(2)(passed)

    def test_different_weights_of_equal_runs_are_wrong(self):
        lines = [f"weights         {digit * 32}\n" for digit in "aaab"]
        self.assertIn("the same", parts.read_same_weights(lines[0] * 4))
        with self.assertRaises(runner.Wrong):
            parts.read_same_weights("".join(lines))

    def test_hazards_and_errors_are_wrong(self):
        self.assertEqual(parts.read_sanitizer("========= ERROR SUMMARY: 0 errors\n"), "ERROR SUMMARY: 0 errors")
        for text in "ERROR SUMMARY: 3 errors\n", "RACECHECK SUMMARY: 10 hazards displayed (10 errors, 0 warnings)\n", "":
            with self.assertRaises(runner.Wrong):
                parts.read_sanitizer(text)

    def test_a_recipe_has_its_line(self):
        line = ("2026-11-26 ladder, width own, seed 1, 1 rank(s), --device cuda: clean 74.27 [73.4, 75.1] of 10000; aa-quick 40.25 "
                "[38.1, 42.4] of 2000; 15 epochs, 5865 steps, 1.00 attack passes")
        self.assertEqual(parts.read_recipe(f"ladder, seed 1: trained, 0 minutes\n{line}\n"),
                         "clean 74.27 [73.4, 75.1] of 10000; aa-quick 40.25 [38.1, 42.4] of 2000")
        with self.assertRaises(runner.Wrong):
            parts.read_recipe("ladder, seed 1: trained, 0 minutes\n")

    def test_a_table_is_finished_or_not(self):
        rows = "FGSM-RS               4.50           1.00     56.72     32.78     31.40\n" \
               "no decay of norms     4.50           1.00     56.00     32.00     31.00\n"
        self.assertEqual(parts.read_table("seed 1, FGSM-RS: clean 56.72 %, PGD-20 32.78 %, AA 31.40 %\n" + rows), "2 methods")
        with self.assertRaises(runner.Wrong):
            parts.read_table("seed 1, FGSM-RS: clean 56.72 %, PGD-20 32.78 %, AA 31.40 %\n")

    def test_plans_are_compared_pass_by_pass(self):
        def trial(algorithm, ms, **more):
            return json.dumps({"row": "trial", "convolution": "3x3, frozen, f16", "pass": "forward", "algorithm": algorithm,
                               "ms": ms, **more})

        slot = types.SimpleNamespace(details=[])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "layers.jsonl")
            path.write_text("\n".join([trial("GEMM", 0.3), trial("WINOGRAD", 0.2), trial("FFT", 0, refused="too large"),
                                       trial("graph eng0", 0, refused="wrong"), trial("graph eng1", 0.1),
                                       trial("graph eng2", 0)]))
            self.assertEqual(parts.read_plans(slot, path, "f16"),
                             "1 passes, 1 with both plans: graph faster in 1; sum 0.2000, 0.1000 ms")
            self.assertIn("   0.2000   0.1000  2.00  3x3, f16, forward: graph eng1", slot.details)
            self.assertIn("graph plans refused, 1 times: wrong", slot.details)
            path.write_text(trial("GEMM", 0.3))
            self.assertEqual(parts.read_plans(slot, path, "f16"), "1 passes, no graph plan for any")
            path.write_text("")
            with self.assertRaises(runner.Wrong):
                parts.read_plans(slot, path, "f16")

    def test_generations(self):
        names = {"sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32": "sm80",
                 "sm90_xmma_dgrad_implicit_gemm_f16f16": "sm90",
                 "void cutlass__5x_cudnn::Kernel<cutlass_80_tensorop_f16_s16816fprop>": "sm80",
                 "void dat::each_kernel<dat::MaskGradient>(long, dat::MaskGradient)": ""}
        self.assertEqual([parts.generation(name) for name in names], list(names.values()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
