"""Runs the parts of a slot, each a process with a time limit and a log, and ends with a table and one archive."""

import collections
import dataclasses
import io
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

kLines, kWidth = 60, 140  # of the table that is printed
kLogBytes = 1 << 20  # of a log's beginning, and of its end, that the archive keeps
kArchiveBytes = 16 << 20
kLeast = 10  # seconds that must be left for a part to begin
kGrace = 15  # seconds beyond its limit after which a slot ends whatever it waits for

kOk, kWrong, kTimeOut, kSkipped, kNotHere = "ok", "WRONG", "time-out", "skipped", "not here"


class Wrong(Exception):
    """A part's output says that something is wrong, or lacks what says that it is right."""


class NotHere(Exception):
    """A part found that this machine lacks what it needs."""


class Stopped(BaseException):
    """Somebody ends the slot."""


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    command: typing.Sequence
    seconds: int  # at most
    read: typing.Callable[[str], str] = lambda text: ""  # the key figure from the output; Wrong, NotHere
    environment: dict = dataclasses.field(default_factory=dict)
    missing: str = ""  # what the part needs and this machine lacks; empty: nothing
    excuse: str = ""  # where the command fails and its output matches this, the machine lacks what it needs


class Row(typing.NamedTuple):
    name: str
    status: str
    seconds: typing.Optional[float]
    figure: str


class Running(typing.NamedTuple):
    part: Part
    process: subprocess.Popen
    begin: float
    end: float


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def session(leader):
    """The processes of its session that have not ended: ranks and compilers have process groups of their own."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                state, _, _, number = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(number) == leader and state not in "ZX":
            found.append(int(entry))
    return found


def kill(process):
    """Ends the process and what it has started. Gives up on what even SIGKILL does not end."""
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 3)):
        end = time.monotonic() + patience
        left = session(process.pid)
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        while (process.poll() is None or session(process.pid)) and time.monotonic() < end:
            time.sleep(0.02)


def judge(part, code, text):
    """The key figure of a part that has ended; Wrong, NotHere."""
    if code != 0:
        if part.excuse and re.search(part.excuse, text):
            raise NotHere(last_line(text))
        what = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        raise Wrong(f"{what}: {last_line(text)}")
    try:
        return part.read(text)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ZeroDivisionError, OSError) as error:
        raise Wrong(f"the output is not what it should be: {type(error).__name__} {error}") from error


class Slot:
    """`seconds`: it ends itself within them. `only`: names of parts; others are left out. `patience`: what the parts' own
    limits are multiplied with."""

    def __init__(self, name, out, seconds, environment, only=(), patience=1):
        self.name, self.environment, self.only, self.patience = name, environment, set(only), patience
        self.begin = time.monotonic()
        self.deadline = self.begin + seconds
        self.head, self.rows, self.details = [], [], []
        self.seen, self.stopped = set(), False
        self.archive = pathlib.Path(out).resolve() / f"gpu_slot_{name}.tgz"
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"gpu_slot_{name}-"))
        self.results, self.scratch = self.folder / "results", self.folder / "scratch"
        for folder in self.results, self.scratch:
            folder.mkdir()
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGALRM:
            signal.signal(number, self.stop)
        signal.setitimer(signal.ITIMER_REAL, seconds + kGrace)

    @staticmethod
    def stop(number, _):
        for each in signal.SIGTERM, signal.SIGINT, signal.SIGALRM:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(f"ended by {signal.Signals(number).name}")

    def status(self, name):
        """Of a part that has ended, or None."""
        return next((row.status for row in self.rows if row.name == name), None)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, parts, at_once=1):
        """Runs them in their order, so many side by side. The rows come in the order of the parts, too."""
        waiting = collections.deque()
        for part in parts:
            self.seen.add(part.name)
            if not self.only or part.name in self.only:
                waiting.append(part)
        order = [part.name for part in waiting]
        running, done = [], {}
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    part = waiting.popleft()
                    if part.missing:
                        done[part.name] = Row(part.name, kNotHere, None, part.missing)
                    elif self.left() < kLeast:
                        done[part.name] = Row(part.name, kSkipped, None, "no time is left")
                    else:
                        running.append(self.start(part))
                time.sleep(0.02)
                for each in list(running):
                    row = self.look(each)
                    if row:
                        running.remove(each)
                        done[row.name] = row
                        print(self.line(row), flush=True)
                        self.save()
        finally:
            for each in running:
                kill(each.process)
                done[each.part.name] = Row(each.part.name, kTimeOut, time.monotonic() - each.begin, "the slot was ended")
            for name in order:
                self.rows.append(done.get(name) or Row(name, kSkipped, None, "the slot was ended"))

    def note(self, name, read):
        """A part that is no process: read() returns the key figure, or raises Wrong."""
        self.seen.add(name)
        if self.only and name not in self.only:
            return
        try:
            row = Row(name, kOk, None, read())
        except Wrong as error:
            row = Row(name, kWrong, None, str(error))
        self.rows.append(row)
        print(self.line(row), flush=True)

    def log(self, name):
        return self.results / f"{name}.txt"

    def start(self, part):
        words = [str(word) for word in part.command]
        begin = time.monotonic()
        with open(self.log(part.name), "wb") as log:
            settings = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in part.environment.items())
            log.write(f"$ {settings}{' ' if settings else ''}{shlex.join(words)}\n".encode())
            log.flush()
            environment = {**self.environment, **{name: str(value) for name, value in part.environment.items()}}
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       cwd=self.scratch, env=environment, start_new_session=True)
        return Running(part, process, begin, begin + min(part.seconds * self.patience, self.left()))

    def look(self, running):
        """Its row, if it has ended; ends it where its time is over."""
        part, code, now = running.part, running.process.poll(), time.monotonic()
        if code is None and now < running.end:
            return None
        kill(running.process)  # or what it has left behind
        seconds = now - running.begin
        if code is None:
            return Row(part.name, kTimeOut, seconds, f"after {seconds:.0f} s: {last_line(self.output(part.name))}")
        try:
            return Row(part.name, kOk, seconds, judge(part, code, self.output(part.name)))
        except Wrong as error:
            return Row(part.name, kWrong, seconds, str(error))
        except NotHere as error:
            return Row(part.name, kNotHere, seconds, str(error))

    def output(self, name):
        """What the part has printed, without the line of its command and without colours."""
        text = self.log(name).read_text(errors="replace").partition("\n")[2]
        return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n")

    @staticmethod
    def line(row):
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        return f"{row.name:<28}{row.status:<10}{seconds:>6}  {row.figure}".rstrip()[:kWidth]

    def code(self):
        """The exit status."""
        found = {row.status for row in self.rows}
        if kWrong in found:
            return 1
        return 3 if self.stopped or found & {kTimeOut, kSkipped} or kOk not in found else 0

    def table(self):
        """Its lines: what was run on what, the parts, details."""
        counts = collections.Counter(row.status for row in self.rows)
        summary = ", ".join(f"{counts[status]} {status}" for status in (kOk, kWrong, kTimeOut, kSkipped, kNotHere)
                            if counts[status])
        first = [*self.head, f"{'part':<28}{'result':<10}{'s':>6}  figure", *map(self.line, self.rows)]
        last = [f"{self.name}: {summary or 'nothing was run'}, {time.monotonic() - self.begin:.0f} s"]
        return first, self.details, last

    def save(self):
        """Writes the archive: after each part, so that there is one whatever happens."""
        (self.results / "table.txt").write_text("".join(line + "\n" for lines in self.table() for line in lines))
        kept = kLogBytes
        while True:
            part = self.archive.with_suffix(".part")
            with tarfile.open(part, "w:gz") as archive:
                for path in sorted(self.results.iterdir()):
                    with open(path, "rb") as file:
                        size = path.stat().st_size
                        data = file.read(2 * kept)
                        if size > 2 * kept:
                            file.seek(size - kept)
                            data = data[:kept] + b"\n[...]\n" + file.read(kept)
                    member = tarfile.TarInfo(f"{self.archive.stem}/{path.name}")
                    member.size, member.mtime = len(data), int(path.stat().st_mtime)
                    archive.addfile(member, io.BytesIO(data))
            os.replace(part, self.archive)
            if self.archive.stat().st_size <= kArchiveBytes or kept == 0:
                return
            kept //= 4

    def finish(self):
        """Prints the table and leaves the archive. Returns the exit status."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.save()
        first, details, last = self.table()
        last.append(f"results: {self.archive}, {self.archive.stat().st_size / 2**20:.2f} MiB")
        room = kLines - len(first) - len(last) - 1  # a blank line before
        if len(details) > room:
            hidden = len(details) - max(0, room - 1)
            details = [*details[: max(0, room - 1)], f"({hidden} lines more in the archive's table.txt)"]
        lines = ["", *first, *details, *last]
        print("\n".join(line[:kWidth] for line in lines), flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        unknown = self.only - self.seen
        if unknown:
            print(f"gpu_slot.sh: {self.name} has no part {', '.join(sorted(unknown))}; it has {', '.join(sorted(self.seen))}")
            return 2
        return self.code()
