"""A look at runs under way, stale, stopped, killed, failed and finished, by `status`, which shares no file with who writes there."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time

import common

RUN = ["--network", "small_cnn", "--width", 4, "--attack-steps", 1, "--eval", "pgd1,pgd2", "--limit-train", 64, "--limit-test", 32,
       "--batch", 8, "--warmup-epochs", 0, "--eval-every", 1, "--threads", 1, "--lambda", 0]
os.environ["DAT_PROGRESS"] = "0.5"
READS = 500 if common.ALL_CASES else 25


def command(folder, epochs, *more):
    return ["train", *common.merged(*RUN, "--epochs", epochs, *more), "--out", folder]


def status(*arguments):
    return subprocess.run([common.PROGRAM, "status", *map(str, arguments)], capture_output=True, text=True, timeout=common.LIMIT_S)


def in_terminal(arguments, columns=60, lines=24):
    """What a program prints to a terminal, and its exit code."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "rows", str(lines), "cols", str(columns)], stdin=slave, check=True)
    process = subprocess.Popen([common.PROGRAM, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    text = b""
    try:
        while select.select([master], [], [], common.LIMIT_S)[0]:
            text += os.read(master, 1 << 16)
    except OSError:  # the other side is closed
        pass
    os.close(master)
    return text.decode(), process.wait(common.LIMIT_S)


class Status(common.TestCase):
    def seen(self, folder, state, code):
        """The JSON of a run that must be in this state."""
        ended = status(folder, "--json")
        self.assertEqual((ended.returncode, ended.stderr), (code, ""))
        found = json.loads(ended.stdout)
        self.assertEqual((found["state"], found["exit_code"]), (state, code), found)
        page = status(folder)
        self.assertEqual((page.returncode, page.stderr), (code, ""))
        self.assertIn(f"\nstate           {state}", page.stdout)
        self.assertLess(max(map(len, page.stdout.splitlines())), 80)
        return found

    def under_way(self, folder="run"):
        running = common.Running(command(folder, 100_000), 0)
        self.addCleanup(running.end)
        before = common.steps_written(folder)
        self.assertTrue(running.wait_for(lambda: common.steps_written(folder) > before + 20), running.text())
        return running

    def test_a_run_from_its_start_to_its_end(self):
        running = self.under_way()
        for _ in range(READS):  # with an evaluation and a checkpoint at each eighth step
            found = self.seen("run", "RUNNING", 75)
            self.assertEqual((found["process"], found["damaged_lines"], found["restarts"]), (running.process.pid, 0, 0))
        self.assertEqual((found["recent"]["steps"], found["steps"], found["epochs"]), (100, 800_000, 100_000))
        self.assertLess(found["checkpoint_age_seconds"], 60)
        os.kill(running.process.pid, signal.SIGSTOP)
        while not common.stopped(running.process.pid):
            time.sleep(0.01)
        self.seen("run", "RUNNING", 75)
        for name in "run/metrics.jsonl", "run/.lock":  # minutes later
            os.utime(name, (time.time() - 1000,) * 2)
        self.assertAlmostEqual(self.seen("run", "STALE", 75)["silent_seconds"], 1000, delta=100)
        os.kill(running.process.pid, signal.SIGCONT)
        steps = common.steps_written("run")
        self.assertTrue(running.wait_for(lambda: common.steps_written("run") > steps))
        self.seen("run", "RUNNING", 75)
        threading.Timer(1.5, os.kill, (running.process.pid, signal.SIGTERM)).start()
        followed, code = in_terminal(["status", "run", "--follow"])
        self.assertEqual((code, running.wait().code), (75, 75))
        self.assertRegex(followed, r"(?s)state +RUNNING on .*\x1b\[10A.*state +STOPPED; the same command goes on\x1b\[K\r\n")
        self.assertEqual(self.seen("run", "STOPPED", 75)["code"], 75)
        running = self.under_way()
        self.assertEqual(self.seen("run", "RUNNING", 75)["restarts"], 1)
        running.end()
        self.assertEqual(self.seen("run", "STOPPED", 75)["code"], None)
        step = common.rows("run", "step")[-1]["step"]
        ended = self.run_well(*command("run", step // 8 + 20))
        lines = [line for line in ended.text.splitlines() if line.startswith("step ")]
        self.assertLess(max(map(len, lines)), 80)
        self.assertTrue(all("ETA " in line for line in lines[1:]), lines)  # the first one has nothing to reckon with
        found = self.seen("run", "DONE", 0)
        self.assertEqual(found["restarts"], 2)
        rows = common.rows("run", "evaluation")[-2:]
        self.assertEqual(found["evaluation"], [{name: value for name, value in row.items() if name != "kind"} for row in rows])
        self.assertEqual(f"run/ckpt/step-{found['checkpoint']:09}.h5", common.checkpoints("run")[-1])
        # What fails leaves its code; the table of a folder has a line for each run.
        ended = self.expect(7, common.run(*command("failed", 9, "--lr", 1e30, "--warmup-epochs", 2)))
        found = self.seen("failed", "FAILED", 7)
        self.assertEqual((found["code"], found["epochs"]), (7, 11))
        self.assertEqual(common.run(*command("failed", 9)).code, 2)  # with other options: the run is as it was
        self.seen("failed", "FAILED", 7)
        os.mkdir("other")  # no run yet
        table = status(".")
        self.assertEqual((table.returncode, table.stderr), (7, ""))
        self.assertEqual([line.split()[:2] for line in table.stdout.splitlines()],
                         [["run", "state"], ["./failed", "FAILED"], ["./run", "DONE"]])
        self.assertEqual([status(*words).returncode for words in (["nothing"], ["other"], [])], [3, 3, 3])  # there is no folder "runs"
        # One of another version is named, and the others are told.
        common.write("other/metrics.jsonl", '{"kind":"run","format_version":2}\n')
        for words, code in (["run", "other"], 3), (["other"], 3), (["run", "other", "failed"], 7):
            ended = status(*words)
            self.assertEqual(ended.returncode, code, ended.stderr)
            self.assertRegex(ended.stderr, "^dat_hpc: (warning|error): other/metrics.jsonl is of another format")
            self.assertEqual("DONE" in ended.stdout, "run" in words)
        # One that the same command would go on with does not hide one that failed.
        os.mkdir("begun")
        common.write("begun/metrics.jsonl", common.text_of("run/metrics.jsonl").partition("\n")[0] + "\n")
        self.assertEqual([status(*words).returncode for words in (["begun"], ["begun", "failed"])], [75, 7])
        for more, lines, drawn in (["--follow"], 4, 3), (["--follow"], 1, 0), (["--follow", "--json"], 24, 0), ([], 24, 0):
            text, code = in_terminal(["status", "run", *more], lines=lines)  # one of which is for the cursor
            self.assertEqual((text.count("\x1b[K\r\n"), "DONE" in text, code), (drawn, lines > 1, 0))
        self.assertRegex(status("run", "--follow").stdout, r"\Arun +state .*\nrun +DONE ")

    def test_a_terminal_shows_a_line_that_moves(self):
        text, code = in_terminal(command("run", 4))
        self.assertEqual(code, 0, text)
        drawn = [line.removesuffix("\x1b[K") for line in re.findall(r"\r([^\r\n]*)", text) if not line.startswith("\x1b")]
        self.assertTrue(any(re.match(r"step \d+/32 .*evaluation 0 %", line) for line in drawn), text)
        self.assertTrue(any(re.search(r"acc .* ETA", line) for line in drawn), text)
        self.assertLess(max(map(len, drawn)), 60)
        self.assertLess(sum("evaluation" in line for line in drawn), 12)  # four, and not one for each of 16 batches
        text, code = in_terminal(command("narrow", 1), columns=6)  # of which the last one stays empty
        self.assertEqual((code, {len(line) for line in re.findall(r"\r([^\r\n\x1b]+)", text)}), (0, {5}), text)

    @common.at_night
    def test_long_records_are_read_at_once(self):
        """200,000 steps, of which those before the last hundred are passed over."""
        self.train("run", *RUN, "--epochs", 1)
        lines = common.text_of("run/metrics.jsonl").splitlines(keepends=True)
        step = next(line for line in lines if line.startswith('{"kind":"step"'))
        os.makedirs("long")
        with open("long/metrics.jsonl", "w") as file:
            file.write(lines[0])
            for begin in range(1, 200_001, 1000):
                file.write("".join(step.replace('"step":1,', f'"step":{number},', 1) for number in range(begin, begin + 1000)))
                file.writelines(line for line in lines if line.startswith('{"kind":"evaluation"'))
        self.seen("long", "STOPPED", 75)
        begin = time.monotonic()
        self.assertEqual(json.loads(status("long", "--json").stdout)["step"], 200_000)
        self.assertLess(time.monotonic() - begin, 5)  # 0.1 s on a machine that is not busy


if __name__ == "__main__":
    common.main()
