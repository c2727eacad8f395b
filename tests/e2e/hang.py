"""Runs that hang end by themselves, soon after --comm-timeout, with one message that names the guilty rank; they leave
neither processes nor shared memory behind. DAT_HANG_CASE: the program of tests/support/hang_case.cpp."""

import os
import re
import select
import signal
import subprocess
import time

import common

CASES = os.environ.get("DAT_HANG_CASE") or common.beside("dat_hang_case")
TIMEOUT_S = 1.5
SLACK_S = 5  # within which all are gone
OPTIONS = ["train", "--network", "small_cnn", "--width", "16", "--attack-steps", "2", "--eval", "pgd1", "--limit-train",
           "64", "--limit-test", "16", "--batch", "8", "--epochs", "100000", "--warmup-epochs", "0", "--milestones",
           "99999", "--eval-every", "0", "--checkpoint-every", "1000000", "--threads", "1", "--out", "run", "--quiet",
           "--comm-timeout", str(TIMEOUT_S)]


class Hang(common.TestCase):
    def start(self, *arguments):
        """A run with three ranks that has made some steps, and its processes by rank."""
        running = self.start_run([*OPTIONS, *arguments], 3)
        return running, running.ranks()

    def gone(self, processes, since, timeout=TIMEOUT_S):
        while any(common.alive(pid) for pid in processes):
            self.assertLess(time.monotonic() - since, timeout + SLACK_S, "still there")
            time.sleep(0.02)
        self.assertGreater(time.monotonic() - since, timeout, "too early")

    def assert_told(self, text, *patterns):
        """One message, and no segment of shared memory: they are in the test's folder."""
        found = [line for line in text.splitlines() if line.startswith("dat_hpc: error: ")]
        self.assertEqual(len(found), 1, text)
        for pattern in patterns:
            self.assertRegex(found[0], pattern)
        self.assertEqual([name for name in common.entries(".") if "segment" in name], [])

    def test_stopped(self):
        running, ranks = self.start()
        since = time.monotonic()
        common.kill(ranks[1], signal.SIGSTOP)
        self.gone(ranks.values(), since)
        ended = self.expect(6, running.wait())
        self.assert_told(ended.text, rf"hang: rank 1 on \S+ \(process {ranks[1]}\) has sent no heartbeat for \S+ s: .* last heard ",
                         r"; ranks 0, 2 on \S+ wait in \S+ #\d+ of \S+ (bytes|kB) \(\w+", "--comm-timeout is 1.5 s; the same command goes on from the last checkpoint$")
        self.assertEqual(common.run("status", "run").code, 6)  # whom nobody has told anything
        lines = common.text_of("run/hang-rank-2.txt").splitlines()
        self.assertEqual(len(lines), 2 + 64)
        self.assertRegex(lines[0], rf"^rank 2 of 3 on \S+, process {ranks[2]}$")
        for line in lines[2:]:
            self.assertRegex(line, r"^ +\d+\.\d{6} +(under way|\d+\.\d{6}) +\d+  \S")
        self.assertRegex(lines[-1], "under way")
        times = [float(line.split()[0]) for line in lines[2:]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertLess(times[0], 600)  # seconds

    def test_killed_in_shared_memory(self):
        """Ranks that add up in the memory of a node are killed, all at once: no name of it was ever there."""
        running, ranks = self.start("--node-sums", "window")
        for pid in ranks.values():
            text = common.text_of(f"/proc/{pid}/maps")
            self.assertEqual(len(set(re.findall(r"(\d+) +/memfd:dat_hpc", text))), 3)  # files
            self.assertNotIn("/dev/shm/", text)
        os.kill(running.process.pid, signal.SIGKILL)
        for pid in ranks.values():
            common.kill(pid, signal.SIGKILL)
        running.wait()

    def test_records_that_take_long(self):
        """The first rank to end has mpirun kill the others: so it waits until they have written their records."""
        running, ranks = self.start()
        os.mkfifo("run/hang-rank-2.txt")  # takes nothing until somebody reads
        since = time.monotonic()
        common.kill(ranks[1], signal.SIGSTOP)
        time.sleep(TIMEOUT_S + 2)  # a second after the message could have been printed, at the earliest
        reader = os.open("run/hang-rank-2.txt", os.O_RDONLY | os.O_NONBLOCK)
        waiting = select.poll()
        waiting.register(reader, select.POLLIN)
        waiting.poll(5000)  # the rank opens it, too, and writes
        os.set_blocking(reader, True)
        self.assertEqual(len(common.text_of(reader).splitlines()), 2 + 64)
        self.gone(ranks.values(), since)
        self.assertEqual(running.wait().code, 6)

    def test_launcher_that_notices_nothing(self):
        """One rank is killed, another one stopped, and so is mpirun: the last rank ends what is left."""
        running, ranks = self.start()
        since = time.monotonic()
        os.kill(running.process.pid, signal.SIGSTOP)
        common.kill(ranks[0], signal.SIGKILL)
        common.kill(ranks[2], signal.SIGSTOP)
        self.gone(ranks.values(), since)
        os.kill(running.process.pid, signal.SIGCONT)
        ended = running.wait()
        self.assertNotEqual(ended.code, 0)  # that of the first rank that mpirun finds dead
        self.assert_told(ended.text, r"hang: ranks 0, 2 on \S+ have sent no heartbeat", "; rank 1 on .* waits in ")

    def hang_case(self, what, code, *patterns):
        begin = time.monotonic()
        ended = subprocess.run(["mpirun", "-np", "3", CASES, what, "1", str(TIMEOUT_S)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=common.LIMIT_S)
        seconds = time.monotonic() - begin
        self.assertEqual(common.exit_code(ended.returncode, ended.stdout), code, ended.stdout)
        if code == 0:
            self.assertNotIn("error", ended.stdout)
            self.assertGreater(seconds, 3 * TIMEOUT_S)
        else:
            self.assert_told(ended.stdout, *patterns)
            self.assertNotIn("last checkpoint", ended.stdout)  # it keeps none

    def test_cases(self):
        for what, code, *patterns in common.drawn([
                ("name", 6, r"rank 1 on \S+ \(process \d+\)", r"broadcast #\d+ of 8000 bytes \(after twenty sums\)",
                 r"ranks 0, 2 on \S+ (have called|wait in sum)"),
                ("still", 6, r"hang: rank 1 on \S+ \(process \d+\) has not moved for .* after sum #\d+ of 8000 bytes; ",
                 r"ranks 0, 2 on \S+ wait in sum #\d+ of 8000 bytes \(after twenty sums\)"),
                ("leave", 6, r"rank 1 on \S+ \(process \d+\) (waits in|has called|has left)"),
                ("liar", 6, r"hang: rank 2 on \S+ \(process \d+\) has not moved for ", r"rank 1 on \S+ \(process \d+\) has left"),
                ("slow", 0)], 2):
            with self.subTest(what):
                self.hang_case(what, code, *patterns)

    def test_straggler(self):
        """A rank that is stopped half of the time is flagged, in the record and on the terminal; the run goes on."""
        # A step must take longer than the moments in which the rank may go on, also on a fast machine.
        options = [*OPTIONS[:-1], "60", "--max-steps", "400"]
        options[options.index("--attack-steps") + 1] = "20"
        running = self.start_run(options, 2)
        slow, begin = running.ranks()[1], common.steps_written("run")
        while common.alive(slow) and not common.rows("run", "straggler"):
            common.kill(slow, signal.SIGSTOP)
            time.sleep(0.05)
            common.kill(slow, signal.SIGCONT)
            time.sleep(0.005)
        ended = self.expect(0, running.wait())
        first = common.rows("run", "straggler")[0]
        self.assertEqual((first["rank"], first["slow"]), (1, True))
        self.assertGreater(first["ratio"], 1.5)
        # 20 at least; more where the machine is busy, and the other rank often waits for its turn, too.
        self.assertLess(first["step"] - begin, 100)
        self.assertRegex(ended.text, r"rank 1 on \S+ is slow: ")
        self.assertRegex(common.text_of("run/SUMMARY.txt"), r"(?m)^slow +rank 1, ")


if __name__ == "__main__":
    common.main()
