"""Runs the entries of a slot, each a process with a limit and a folder, and leaves a table and one archive of results."""

import collections
import contextlib
import ctypes
import glob
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import typing

kResults = ("log.txt", "*.jsonl", "SUMMARY.txt", "row.json", "eval.json", "cudnn.txt")  # that an entry leaves
# What a machine lacks, in the output of what has ended well without a figure, and of what has failed.
kExcuses = re.compile('not run: .*|CUPTI refuses.*|"skipped": ".*?"'), re.compile("Device not supported")
kOk, kWrong, kTimeOut, kSkipped, kNotHere = "ok", "WRONG", "time-out", "skipped", "not here"


def last_line(text):
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no output"])[-1]


class Entry(typing.NamedTuple):
    name: str
    command: list
    seconds: float  # that it takes on a GPU; it is not begun where less is left
    read: typing.Callable = lambda text, folder: last_line(text)  # the key figure; raises where there is none
    environment: dict = {}  # None: without this variable
    needs: tuple = ()  # modules, commands, "data"
    alone: bool = False  # nothing runs beside it
    limit = property(lambda self: 2 * self.seconds + 10, doc="Seconds after which it hangs.")


Row = collections.namedtuple("Row", "name status figure seconds", defaults=[None])


def session(leader):
    """The processes of its session that have not ended: ranks and compilers have process groups of their own."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, number = pathlib.Path(path).read_text().rpartition(")")[2].split()[:4]
            found += [int(path.split("/")[2])] if int(number) == leader and state not in "ZX" else []
    return found


def kill(process):
    """Ends the process and what it has started. Gives up on what even SIGKILL does not end."""
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 3)):
        end = time.monotonic() + patience
        for pid in session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while (process.poll() is None or session(process.pid)) and time.monotonic() < end:
            time.sleep(0.02)


class Slot:
    """It ends itself within `seconds`. out: folder of the archive; None: there is none. missing: what this machine lacks for
    an entry, or an empty text. patience: what the entries' seconds are multiplied with."""

    def __init__(self, name, seconds, environment, out=None, missing=lambda entry: "", patience=1):
        self.name, self.missing, self.patience, self.stopped = name, missing, patience, False
        self.begin, self.deadline, self.rows = time.monotonic(), time.monotonic() + seconds, {}
        self.archive = out and pathlib.Path(out).resolve() / f"gpu_slot_{name}.tgz"
        if out:
            self.archive.parent.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"gpu_slot_{name}-"))
        self.environment = {**environment, "TMPDIR": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGALRM:
            signal.signal(number, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, seconds + 15)  # then it ends whatever it waits for

    def run(self, entries, at_once=1):
        """Runs them in their order, so many side by side. Whether none of them has failed."""
        waiting, running = collections.deque(entries), []
        try:
            while waiting or running:
                while waiting and len(running) < at_once and not (running and (waiting[0].alone or running[0][0].alone)):
                    entry = waiting.popleft()
                    needed, left, lack = entry.seconds * self.patience, self.deadline - time.monotonic(), self.missing(entry)
                    if lack:
                        self.add(Row(entry.name, kNotHere, lack))
                    elif left < needed:
                        self.add(Row(entry.name, kSkipped, f"needs {needed:.0f} s, {left:.0f} are left"))
                    else:
                        running.append((entry, self.start(entry), time.monotonic(), min(entry.limit * self.patience, left)))
                time.sleep(0.02)
                for each in list(running):
                    row = self.look(*each)
                    if row:
                        running.remove(each)
                        self.add(row)
        except KeyboardInterrupt:
            for number in signal.SIGTERM, signal.SIGINT, signal.SIGALRM:
                signal.signal(number, signal.SIG_IGN)
            self.stopped = True
            for entry, process, begin, _ in running:
                kill(process)
                self.add(Row(entry.name, kTimeOut, "the slot was ended", time.monotonic() - begin))
            for entry in waiting:
                self.add(Row(entry.name, kSkipped, "the slot was ended"))
        return not self.stopped and all(self.rows[entry.name].status not in (kWrong, kTimeOut) for entry in entries)

    def add(self, row):
        self.rows[row.name] = row
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        self.say(f"{row.name:<37}{row.status:<10}{seconds:>6}  {row.figure}".rstrip()[:200])

    def say(self, line):
        """Prints it, and renews the archive: there is one whatever happens."""
        print(line, flush=True)
        with open(self.folder / "log.txt", "a") as table:
            table.write(line + "\n")
        if self.archive:
            part = self.archive.with_suffix(".part")
            with tarfile.open(part, "w:gz") as archive:
                for path in (path for name in kResults for path in glob.glob(f"{self.folder}/**/{name}", recursive=True)):
                    with contextlib.suppress(OSError):  # an entry under way may have removed it
                        archive.add(path, f"{self.archive.stem}/{os.path.relpath(path, self.folder)}")
            os.replace(part, self.archive)

    def log(self, name):
        return self.folder / name / "log.txt"

    def start(self, entry):
        """Its process, in a folder of its own."""
        words = [str(word) for word in entry.command]
        settings = {name: value and str(value) for name, value in entry.environment.items()}
        environment = {name: value for name, value in {**self.environment, **settings}.items() if value is not None}
        self.log(entry.name).parent.mkdir()
        with open(self.log(entry.name), "wb", buffering=0) as log:
            log.write(f"$ {shlex.join([f'{name}={value}' for name, value in settings.items()] + words)}\n".encode())
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment,
                                    cwd=self.folder / entry.name, start_new_session=True,
                                    preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))  # with the slot

    def look(self, entry, process, begin, most):
        """Its row, if it has ended; ends it where its time is over."""
        code, seconds = process.poll(), time.monotonic() - begin
        if code is None and seconds < most:
            return None
        kill(process)  # or what it has left behind
        text = self.log(entry.name).read_text(errors="replace").partition("\n")[2]
        text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n")
        if code is None:
            return Row(entry.name, kTimeOut, last_line(text), seconds)
        if code == 77 and self.environment.get("DAT_REQUIRE_CUDA") != "1":  # of what finds no GPU
            return Row(entry.name, kNotHere, last_line(text), seconds)
        try:
            if code != 0:
                raise ValueError(f"{f'exit code {code}' if code > 0 else f'ended by signal {-code}'}: {last_line(text)}")
            return Row(entry.name, kOk, entry.read(text, self.folder / entry.name), seconds)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError) as error:
            excuse, what = kExcuses[code != 0].search(text), f"no figure, and at last: {last_line(text)}"
            what = excuse[0] if excuse else str(error) if isinstance(error, ValueError) else what
            return Row(entry.name, kNotHere if excuse else kWrong, what, seconds)

    def finish(self):
        """Returns the exit status: 1 something is wrong, 3 not all was run."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        counts = collections.Counter(row.status for row in self.rows.values())
        self.say(f"{self.name}: {', '.join(f'{counts[status]} {status}' for status in sorted(counts))}, "
                 f"{time.monotonic() - self.begin:.0f} s")
        if self.archive:
            print(f"results: {self.archive}, {self.archive.stat().st_size / 2**20:.2f} MiB")
        shutil.rmtree(self.folder, ignore_errors=True)
        return 1 if counts[kWrong] else 3 if self.stopped or counts[kTimeOut] or counts[kSkipped] or not counts[kOk] else 0
