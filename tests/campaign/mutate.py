"""Faults in the program, and which test sees each: a measure of the suite.

Draws faults at random over all functions of src, include and kernels (another operator, another constant, a dropped
statement, a decided condition, another result), adds those of by_hand.txt, and compiles all of them into one copy of the
program in build/mutations: DAT_MUTANT=17,204 in the environment turns two of them on. Entries of ctest are taken apart
into their test cases. One run of each says which faults it reaches (DAT_MUTANT_SEEN=FILE); then each fault runs these
tests, cheapest first, until one is red. Faults that nothing has seen so far run together, and a red test is run again
with half of them.

The same command goes on where it was stopped. Other sources of the program begin anew; with other tests, what survived
is tried again. Exit code 0: all is judged, and SEEN of it was seen; 1: less; 2: something is wrong with the run itself;
3: --minutes are over, run it again.
"""

import argparse
import collections
import concurrent.futures
import copy
import hashlib
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from mpi_environment import MPI_ENVIRONMENT, own_session  # noqa: E402
import mutants  # noqa: E402

WORK = f"{ROOT}/build/mutations"
TREE, BUILD, DRAWN, RESULTS = f"{WORK}/tree", f"{WORK}/build", f"{WORK}/mutants.json", f"{WORK}/results.jsonl"
PROGRAM = ("src", "include", "kernels", "jobs", "CMakeLists.txt")
OWN = ("tests/campaign/mutants.py", "tests/campaign/by_hand.txt")
RESERVE = 200  # mutants for those that do not compile
LARGEST_FILE = 8 << 30
SEEN = 0.95
# Entries that read the text of the sources, or build them: instrumented sources are another text.
OF_TEXT = re.compile(r"tests/house/(?!recipes)")


def say(text):
    print(text, flush=True)


def give_up(text, code=2):
    say(f"mutate.py: {text}")
    sys.exit(code)


def write_if_other(path, content):
    """Leaves the time of a file alone that has this content already."""
    if not os.path.exists(path) or open(path, "rb").read() != content:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def sources():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], check=True, text=True, stdout=subprocess.PIPE)
    return {name: open(f"{ROOT}/{name}", "rb").read() for name in sorted(listed.stdout.splitlines()) if os.path.isfile(f"{ROOT}/{name}")}


def digest(files, wanted):
    total = hashlib.sha256()
    for name, content in files.items():
        if wanted(name):
            total.update(name.encode() + b"\0" + content)
    return total.hexdigest()[:16]


def write_tree(files, drawn):
    """The working tree with the mutants that are drawn in it."""
    by_file = collections.defaultdict(list)
    for number, mutant in enumerate(drawn, 1):
        by_file[mutant["file"]].append((number, mutant))
    changed = {name: mutants.instrumented(files[name], there, f"{TREE}/dat_mutant.hpp") for name, there in by_file.items()}
    changed["dat_mutant.hpp"] = mutants.HEADER.encode()
    changed["kernels/cpu.cpp"] = changed.get("kernels/cpu.cpp", files["kernels/cpu.cpp"]) + mutants.TABLE.encode()
    everything = files | changed
    for name, content in everything.items():
        write_if_other(f"{TREE}/{name}", content)
        if name in files:
            os.chmod(f"{TREE}/{name}", os.stat(f"{ROOT}/{name}").st_mode)
    for folder, _, names in os.walk(TREE):
        for name in names:
            if os.path.relpath(f"{folder}/{name}", TREE) not in everything:
                os.remove(f"{folder}/{name}")


def configure():
    if not os.path.exists(f"{BUILD}/CMakeCache.txt"):
        ended = subprocess.run(["cmake", "-G", "Ninja", "-S", TREE, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release", "-DDAT_BENCH=OFF", "-DDAT_WERROR=OFF",
                                "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON",
                                "-DCMAKE_CXX_FLAGS=-w", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG", "-DCMAKE_UNITY_BUILD=ON",
                                "-DCMAKE_UNITY_BUILD_BATCH_SIZE=25"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode != 0:
            give_up("cmake failed:\n" + ended.stdout)


def build(drawn, clock, jobs):
    """Builds all until the clock says that no seconds are left; returns the numbers of mutants that do not compile."""
    making = subprocess.Popen(["ninja", "-C", BUILD, "-k", "0", "-j", str(jobs)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", start_new_session=True)
    try:
        text, _ = making.communicate(timeout=max(1, clock()))
    except subprocess.TimeoutExpired:
        os.killpg(making.pid, signal.SIGINT)
        making.communicate()
        give_up("--minutes are over in the build; run it again", 3)
    if making.returncode == 0:
        return set()
    bad = set()
    for file, line in set(re.findall(r"tree/((?:src|include|kernels)/\S+?):(\d+):\d+: (?:fatal )?error", text)):
        above = "\n".join(open(f"{TREE}/{file}").read().split("\n")[:int(line)][-12:])
        bad |= {int(n) for n in re.findall(r"dat_mutant\((\d+)\)", above.split(";\n")[-1])}
    if not bad:
        give_up("the instrumented program does not build:\n" + "\n".join(
            [line for line in text.splitlines() if "error" in line or "FAILED" in line][:30]))
    for number in sorted(bad):
        say(f"  does not compile: {drawn[number - 1]['name']}")
    return bad


def kill_marked(mark):
    """Ends what a test has left: every process with this mark in its environment."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in open(f"/proc/{pid}/environ", "rb").read():
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def printed(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=BUILD,
                          env=os.environ | {"DAT_SEED": "1"}).stdout


class Entry:
    """One entry of ctest, or one of its test cases."""

    def __init__(self, test):
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        self.name, self.command = test["name"], test.get("command", [])
        self.folder = properties.get("WORKING_DIRECTORY", BUILD)
        self.environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        self.timeout = float(properties.get("TIMEOUT", 1500))
        self.says = properties.get("PASS_REGULAR_EXPRESSION")
        self.skipped = properties.get("SKIP_RETURN_CODE", 0)
        text = " ".join(self.command)
        self.usable = bool(self.command) and not properties.get("WILL_FAIL") and not OF_TEXT.search(text) and "gpu" not in properties.get("LABELS", [])
        # What begins first where nothing is known: tests in one process, then laws on ranks, then whole runs.
        self.rank = 0 if "/dat_tests " in text else 1 if "_tests" in text else 2

    def cases(self):
        """The test cases of a program of Catch2's or unittest's, each as an entry; the entry itself for any other."""
        of_catch = [k for k, word in enumerate(self.command) if re.search(r"/dat_\w*tests\w*$", word)]
        if of_catch:
            at = of_catch[0] + 1
            found = printed([self.command[at - 1], *(self.command[at:] or ["~[.]"]), "--list-test-names-only"]).splitlines()
            words = ['"' + re.sub(r'([\\,\[\]*"~])', r"\\\1", name) + '"' for name in found]
        elif "--part" in self.command:
            at = self.command.index("--part")
            words = found = printed([*self.command, "--list"]).split()
        else:
            return [self]
        made = []
        for name, word in zip(found, words):
            made.append(copy.copy(self))
            made[-1].name, made[-1].command = f"{self.name}: {name}", [*self.command[:at], word]
        return made

    def run(self, variables, limit):
        """What the entry says where it fails, None where it passes."""
        token = f"DAT_MUTANT_RUN={time.monotonic_ns()}-{threading.get_ident()}"
        environment = os.environ | MPI_ENVIRONMENT | self.environment | own_session() | {"DAT_SEED": "1"} | variables | dict([token.split("=")])
        with tempfile.TemporaryFile() as output:
            running = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=output, env=environment, start_new_session=True, cwd=self.folder)
            try:
                running.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                return f"still running after {limit:.0f} s"
            finally:
                kill_marked(token.encode())
                running.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
        good = re.search("|".join(self.says), text) if self.says else running.returncode in (0, self.skipped)
        if good:
            return None
        lines = [line.strip() for line in text.splitlines() if re.search("FAILED|AssertionError|rror:|Wrong|, step ", line)]
        return (lines or text.splitlines() or [""])[0][:160] or f"exit code {running.returncode}"


class Judgement:
    """What is known of each mutant, and how it is found out."""

    def __init__(self, drawn, tests, clock, jobs):
        self.drawn, self.tests, self.clock, self.jobs = drawn, tests, clock, jobs
        self.measured, self.seen, self.passed, self.cpu = {}, {}, collections.defaultdict(set), 0.0
        self.lock, self.running, self.size = threading.Lock(), set(), 1
        if os.path.exists(RESULTS):
            for line in open(RESULTS):
                if line.endswith("\n"):
                    self.take(json.loads(line))
        shown = json.loads(subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True, text=True,
                                          stdout=subprocess.PIPE).stdout)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            taken_apart = pool.map(Entry.cases, [e for e in map(Entry, shown["tests"]) if e.usable])
            self.entries = sorted(itertools.chain.from_iterable(taken_apart), key=lambda e: e.rank)

    def take(self, line):
        self.cpu += line.get("cpu", 0)
        if line["kind"] == "entry" and line["tests"] == self.tests:
            self.measured[line["entry"]] = line
        elif line["kind"] == "run" and line["said"]:
            self.seen[line["mutants"][0]] = (line["entry"], line["said"])
        elif line["kind"] == "run" and line["tests"] == self.tests:
            for number in line["mutants"]:
                self.passed[number].add(line["entry"])

    def keep(self, line):
        with self.lock:
            now = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
            line |= {"tests": self.tests, "cpu": round(now - getattr(self, "counted", 0.0), 2)}
            self.counted = now
            with open(RESULTS, "a") as file:
                file.write(json.dumps(line) + "\n")
            self.take(line)

    def measure(self, entry):
        """The entry without a mutant: its seconds, and the mutants that it reaches."""
        if entry.name in self.measured or self.clock() < 0:
            return
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(len(self.drawn) + 1))
            file.flush()
            begin = time.monotonic()
            said = entry.run({"DAT_MUTANT_SEEN": file.name}, entry.timeout)
            seconds = time.monotonic() - begin
            file.seek(0)
            reached = [n for n, byte in enumerate(file.read()) if byte]
        self.keep({"kind": "entry", "entry": entry.name, "seconds": round(seconds, 1), "said": said, "reached": reached})
        if said is not None or seconds > 5:
            say(f"  {seconds:6.1f} s, {len(reached):>4} mutants: {entry.name}{'' if said is None else ', RED without a mutant: ' + said}")

    def open_in(self, entry):
        """The mutants that an entry reaches, that nothing has seen, and that it has not let pass."""
        return [n for n in self.measured[entry.name]["reached"] if n not in self.seen and entry.name not in self.passed[n]]

    def next_group(self):
        """The cheapest test that has open mutants which are not running, and as many of them as it takes at a time; None: wait, or
        nothing is left."""
        with self.lock:
            self.waiting = [entry for entry in self.waiting if self.open_in(entry)]
            for entry in self.waiting:
                group = [n for n in self.open_in(entry) if n not in self.running][:self.size]
                if group and self.clock() > self.measured[entry.name]["seconds"]:
                    self.running.update(group)
                    return entry, group
            return None

    def judge(self, _):
        """Runs tests with mutants until none is left: twice as many at a time after a green run, half of them after a red one. A lone
        mutant that runs out of time gets three times as much once more: the machine may have been busy."""
        while (chosen := self.next_group()) or self.running:
            if not chosen:
                time.sleep(0.1)
                continue
            entry, group = chosen
            limit = max(5.0, 4 * self.measured[entry.name]["seconds"])
            try:
                said = entry.run({"DAT_MUTANT": ",".join(map(str, group))}, limit)
                if said is not None and len(group) == 1 and said.startswith("still running"):
                    said = entry.run({"DAT_MUTANT": str(group[0])}, 3 * limit)
                if said is None or len(group) == 1:
                    self.keep({"kind": "run", "entry": entry.name, "mutants": group, "said": said})
            finally:
                self.running.difference_update(group)
            with self.lock:
                self.size = max(self.size, 2 * len(group)) if said is None else max(1, len(group) // 2)
            if said is not None and len(group) == 1:
                say(f"  {len(self.seen):>4} {self.drawn[group[0] - 1]['name']}: {entry.name}: {said[:60]}")

    def work(self, wanted):
        """True where every mutant is judged by every entry that is wanted."""
        entries = [e for e in self.entries if re.search(wanted, e.name)]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self.measure, entries))
            green = [e for e in entries if e.name in self.measured and self.measured[e.name]["said"] is None]
            self.waiting = sorted(green, key=lambda e: self.measured[e.name]["seconds"])
            list(pool.map(self.judge, range(self.jobs)))
        return all(e.name in self.measured for e in entries) and not any(map(self.open_in, green))

    def table(self, rejected):
        """The result as text, and the fraction that is seen."""
        reached = {n for line in self.measured.values() for n in line["reached"]}
        lines, rooms = [], collections.defaultdict(lambda: [0, 0])
        for n, mutant in enumerate(self.drawn, 1):
            room = rooms["by hand" if mutant.get("by_hand") else "/".join(mutant["file"].split("/")[:2])]
            room[0] += n in self.seen
            room[1] += 1
            if n not in self.seen:
                lines.append(f"SURVIVED {n}{'' if n in reached else ' (no test reaches it)'}: {mutant['name']}\n    {mutant['text']}")
        lines += [f"{room:<24} {good:>4} of {all_:>4} seen" for room, (good, all_) in sorted(rooms.items())]
        by = collections.Counter(entry.split(":")[0] for entry, _ in self.seen.values())
        lines.append("seen by: " + ", ".join(f"{entry} {count}" for entry, count in by.most_common()))
        red = [name for name, line in self.measured.items() if line["said"]]
        lines.append(f"entries that were red without a mutant, and left out: {', '.join(red) or 'none'}")
        parts = [[n in self.seen for n, m in enumerate(self.drawn, 1) if bool(m.get("by_hand")) is hand] for hand in (False, True)]
        lines.append(f"seen: {sum(parts[0])} of {len(parts[0])} drawn, {sum(parts[1])} of {len(parts[1])} by hand; {rejected} did not compile "
                     f"and were drawn anew; {self.cpu / max(1, len(self.drawn)):.1f} s of user and system time each")
        return "\n".join(lines) + "\n", sum(parts[0]) / max(1, len(parts[0]))


def begin(files, arguments, clock):
    """The mutants of this run, built: those of the run before where its program is the same."""
    key = [digest(files, lambda name: name.startswith(PROGRAM) or name in OWN), arguments.draw, arguments.seed,
           arguments.only]
    known = json.load(open(DRAWN)) if os.path.exists(DRAWN) else {}
    if known.get("key") != key:
        for path in (DRAWN, RESULTS):
            if os.path.exists(path):
                os.replace(path, path + ".before")
        write_tree(files, [])
        configure()
        candidates = mutants.candidates(f"{BUILD}/compile_commands.json", TREE, files, arguments.only)
        say(f"{sum(map(len, candidates.values()))} candidates in {len(candidates)} files")
        chosen = list(itertools.islice(mutants.lottery(candidates, files, arguments.seed), arguments.draw + RESERVE))
        known = {"key": key, "drawn": ([] if arguments.only else mutants.by_hand(files)) + chosen[:arguments.draw],
                 "reserve": chosen[arguments.draw:], "rejected": 0}
        json.dump(known, open(DRAWN, "w"))
    while True:
        write_tree(files, known["drawn"])
        configure()
        bad = build(known["drawn"], clock, os.cpu_count())
        if not bad:
            return known
        for number in sorted(bad):
            if known["drawn"][number - 1].get("by_hand"):
                give_up(f"by_hand.txt: does not compile: {known['drawn'][number - 1]['name']}")
            known["drawn"][number - 1] = known["reserve"].pop(0)
        known["rejected"] += len(bad)
        json.dump(known, open(DRAWN, "w"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--draw", type=int, default=400, metavar="N", help="mutants to draw (400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="REGEX", help="draw among mutants of this name")
    parser.add_argument("--entries", metavar="REGEX", default="", help="entries of ctest to run (all)")
    parser.add_argument("--minutes", type=float, help="stop after these, to be run again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="entries that run side by side")
    parser.add_argument("--check", action="store_true", help="only see whether by_hand.txt fits the sources")
    parser.add_argument("--table", action="store_true", help="only print what is known")
    arguments = parser.parse_args()
    files = sources()
    if arguments.check:
        say(f"{len(mutants.by_hand(files))} mutants by hand fit")
        return 0
    end = time.monotonic() + 60 * (arguments.minutes or 1e4)

    def clock():
        return end - time.monotonic()

    known = json.load(open(DRAWN)) if arguments.table else begin(files, arguments, clock)
    tests = digest(files, lambda name: name.startswith("tests/") and name not in (*OWN, "tests/campaign/mutate.py"))
    # A fault may ask for all memory, for files as for windows (memfd) that ranks share: it alone fails, not the machine.
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    judgement = Judgement(known["drawn"], tests, clock, arguments.jobs)
    done = arguments.table or judgement.work(arguments.entries)
    text, part = judgement.table(known["rejected"])
    with open(f"{WORK}/table.txt", "w") as file:
        file.write(text)
    say(text + f"written to {WORK}/table.txt")
    return 3 if not done else 0 if part >= SEEN else 1


if __name__ == "__main__":
    sys.exit(main())
