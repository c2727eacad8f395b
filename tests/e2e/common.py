"""What the end-to-end tests share: running the program, watching it, reading what it leaves behind.

Each test file is a program of its own: `python3 tests/e2e/FILE.py PATH/TO/dat_hpc [--part K/N] [unittest arguments]`. By day a part
of some tables is drawn (tests/drawn.py); DAT_ALL_CASES takes the whole (tests/nightly.sh).
"""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import h5py
import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [TESTS, f"{TESTS}/golden"]
from drawn import ALL_CASES, SEED, drawn
from mpi_environment import MPI_ENVIRONMENT, own_session

PROGRAM = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 300  # no run takes a tenth of it, on a machine that is not very busy: one that does hangs

at_night = unittest.skipUnless(ALL_CASES, "at night")

for name, value in MPI_ENVIRONMENT.items():
    os.environ.setdefault(name, value)


def beside(program):
    """A program of the tests of the same build, in whose folder this one is or has that of the tests."""
    folder = os.path.dirname(PROGRAM)
    return os.path.join(folder, program) if os.path.basename(folder) == "tests" else os.path.join(folder, "tests", program)


class Ended:
    """A run that has ended: its exit code, its lines, and those of them that are the program's errors, warnings, and last
    word ("Final: ..."; its place among the errors and warnings says nothing: mpirun reads two pipes in any order).
    """

    def __init__(self, code, text):
        self.code, self.text = code, text
        self.errors = [line for line in text.splitlines() if line.startswith("dat_hpc: error: ")]
        # A machine on which other tests run, too, is a busy one: that is not the program's.
        self.warnings = [line for line in text.splitlines() if line.startswith("dat_hpc: warning: ")
                         and not re.search(r"wait for a core \d+ % of", line)]
        self.final = "\n".join(line for line in text.splitlines() if line.startswith("Final: "))


def exit_code(code, text):
    """What mpirun ended with. Open MPI 4.1's own may crash after its last word, in the last call of its library PMIx: then
    the code is the one that it has told."""
    told = re.search(r"Exit code: +(\d+)", text)
    return int(told[1]) if code < 0 and told and "PMIx_server_finalize" in text else code


class Running:
    """The program under way, alone or, from two ranks on, under mpirun."""

    def __init__(self, arguments, ranks, environment=None):
        self.output = tempfile.NamedTemporaryFile(prefix="output-", dir=".", delete=False)
        launcher = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
        settings = [str(a) for a in arguments if str(a).startswith("DAT_")]  # those of developers stand in the environment
        arguments = [a for a in arguments if str(a) not in settings]
        self.process = subprocess.Popen(launcher + [PROGRAM] + [str(a) for a in arguments], stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True,
                                        env=os.environ | (own_session() if launcher else {}) | (environment or {}) |
                                        dict(setting.split("=", 1) for setting in settings))
        self.output.close()
        self.launched, self.count = ranks > 1, max(ranks, 1)
        self.seen = set()

    def ranks(self):
        """Process ids by rank, of those alive and past exec."""
        if not self.launched:
            return {0: self.process.pid}
        found = {}
        try:
            children = [int(word) for word in text_of(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()]
        except OSError:
            return found
        for pid in children:
            try:
                if os.readlink(f"/proc/{pid}/exe") != os.path.realpath(PROGRAM):
                    continue
                for entry in bytes_of(f"/proc/{pid}/environ").split(b"\0"):
                    if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(entry.split(b"=")[1])] = pid
            except OSError:
                pass
        self.seen.update(found.values())
        return found

    def wait_for(self, condition):
        """Until condition() is true. False where the run ended before."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if self.process.poll() is not None:
                return condition()
            if time.monotonic() > deadline:
                self.end()
                raise AssertionError("waited in vain:\n" + self.text())
            time.sleep(0.002)  # a look at the ranks reads files of each
        return True

    def wait_until_stopped(self):
        """Until all ranks run, and rank 0 stands where faults() has stopped it: their process ids."""
        found = {}

        def stands():
            found.update(self.ranks())
            return len(found) == self.count and stopped(found[0])

        assert self.wait_for(stands), self.text()
        return found

    def text(self):
        return text_of(self.output.name)

    def end(self):
        """Kills what is left of it, ranks without a launcher included, and waits until it is gone."""
        for pid in {self.process.pid, *self.seen, *self.ranks().values()}:
            kill(pid, signal.SIGKILL)
        self.wait()

    def wait(self, limit=LIMIT_S):
        """Its end, or an AssertionError. Ranks that outlive their launcher are waited for."""
        deadline = time.monotonic() + limit
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"hangs: still running after {limit} s:\n" + self.text()) from None
        while any(alive(pid) for pid in self.seen):
            if time.monotonic() > deadline:
                raise AssertionError("ranks live on without their launcher")
            time.sleep(0.01)
        return Ended(exit_code(self.process.returncode, self.text()), self.text())


def stopped(pid):
    try:
        return text_of(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def faults(kind, number, first=1, count=10**6):
    """An environment in which calls fail (tests/support/faults.c): "PART:CALL", errno (0: a kill; -1: a stop), the first and
    how many."""
    library = os.path.abspath("faults.so")
    if not os.path.exists(library):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, f"{TESTS}/support/faults.c", "-ldl"], check=True)
    return {"LD_PRELOAD": library, "DAT_FAULTS": f"{kind}:{number}:{first}:{count}"}


def waits_for(pid, number):
    """Whether the signal has been sent to a process that stands, and has not been taken yet."""
    try:
        pending = re.search(r"^ShdPnd:\s*([0-9a-f]+)$", text_of(f"/proc/{pid}/status"), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return pending is not None and bool(int(pending[1], 16) >> (number - 1) & 1)


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def alive(pid):
    """Whether the process runs: one that has ended may stay in the table until it is waited for."""
    try:
        return text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def run(*arguments, ranks=0, limit=LIMIT_S, environment=None):
    return Running(arguments, ranks, environment=environment).wait(limit)


def validate(*arguments, ranks):
    """What so many ranks would do, by one process, which no launcher has started."""
    return run("validate", *arguments, environment={"OMPI_COMM_WORLD_SIZE": str(ranks)})


# mpirun waits a second or two for ranks that end by themselves when it has asked them to. Where one has refused to start, the
# others have nothing to do.
AT_ONCE = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}


def rows(folder, kind=None):
    """The complete lines of metrics.jsonl, as far as it is written; all kinds: but stragglers, which are the machine's."""
    try:
        text = text_of(f"{folder}/metrics.jsonl")
    except OSError:
        return []
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    return [row for row in found if row["kind"] == kind or kind is None and row["kind"] != "straggler"]


def count_in(path, what=b"\n"):
    """How often that stands in a file; 0: there is none."""
    try:
        return bytes_of(path).count(what)
    except OSError:
        return 0


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content, mode="wb"):
    """A file of this text, or of these bytes."""
    with open(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_arrays(path, arrays):
    """An HDF5 file without a seal."""
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


def write_data(path, train=None, test=None, names=(), **how):
    """A data file without a seal, of images and labels by split, with these names of classes; how: its images are stored."""
    with h5py.File(path, "w") as file:
        for split, found in ("train", train), ("test", test):
            if found is not None:
                file.create_dataset(f"{split}/images", data=found[0], **how)
                file[f"{split}/labels"] = found[1]
        if len(names):
            file.attrs["class_names"] = names


def write_records(path, pixels, labels, label_bytes=1):
    """The official binary format: label bytes, of which the last counts, then the planes of the image."""
    write(path, b"".join(bytes([7] * (label_bytes - 1) + [int(label)]) + image.transpose(2, 0, 1).tobytes()
                         for image, label in zip(pixels, labels)))


def read_data(path, *splits):
    """Images and labels of a data file, by split."""
    arrays = datasets(path)
    return {split: (arrays[f"{split}/images"], arrays[f"{split}/labels"]) for split in splits or ("train", "test")}


def load(path):
    """What a JSON file holds."""
    return json.loads(text_of(path))


def steps_written(folder):
    return count_in(f"{folder}/metrics.jsonl", b'{"kind":"step"')


def entries(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def checkpoints(folder):
    """Paths of the checkpoints of a run, oldest first."""
    return sorted(f"{folder}/ckpt/{name}" for name in entries(f"{folder}/ckpt") if name.startswith("step-"))


def datasets(path):
    names = []
    with h5py.File(path, "r") as file:
        file.visit(names.append)
        return {name: file[name][()] for name in names if isinstance(file[name], h5py.Dataset)}


def attribute(path, name, of="/"):
    with h5py.File(path) as file:
        return file[of].attrs[name]


def state(folder, path=None):
    """All arrays of a run's newest checkpoint, or of another one, but the times."""
    arrays = datasets(path or checkpoints(folder)[-1])
    del arrays["state/seconds"]
    return arrays


def history(folder):
    """results.h5 without times and without the tables by rank, whose rows depend on where a run was interrupted."""
    return {name: values for name, values in datasets(f"{folder}/results.h5").items()
            if not name.startswith("ranks/") and not name.split("/")[-1].startswith(("t_", "wall_time"))}


def attributes(folder):
    """Numbers and texts of the newest checkpoint, but those about where it was made."""
    with h5py.File(checkpoints(folder)[-1], "r") as file:
        found = {name: file["state"].attrs[name] for name in file["state"].attrs}
    for name in "ranks", "threads", "metrics_bytes", "best_bytes":
        found.pop(name, None)
    return {name: np.asarray(value) for name, value in found.items() if not isinstance(value, (str, bytes))}


def figures(folder):
    """All that the record tells of steps, evaluations, setbacks and bans, but times, bytes and what is simulated."""
    return [{name: value for name, value in row.items() if not name.startswith(("t_", "bytes_", "wall_time", "seconds", "distance"))}
            for row in rows(folder) if row["kind"] in ("step", "evaluation", "setback", "ban")]


def weights(folder, part="param/"):
    """All arrays of a part of a run's newest checkpoint, end to end."""
    arrays = state(folder)
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays) if name.startswith(part)]).astype(float)


def bits(values):
    """What can be compared: shape and bytes of an array, texts as they are."""
    return list(values) if values.dtype == object else (values.shape, values.dtype, values.tobytes())


class TestCase(unittest.TestCase):
    """A test with a folder of its own, in which it runs; with a set.h5 of these images, as synthetic() takes them."""

    set_h5 = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="dat-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        # What killed ranks leave behind goes with the folder.
        os.environ["OMPI_MCA_btl_vader_backing_directory"] = self.folder
        os.environ["XDG_CACHE_HOME"] = os.path.join(self.folder, "cache")
        os.environ.update(own_session())
        if self.set_h5:
            synthetic("set.h5", **self.set_h5)

    def expect(self, code, ended):
        """The run, which must have ended with this code."""
        self.assertEqual(ended.code, code, ended.text)
        return ended

    def run_well(self, *arguments, **how):
        """run(), which must succeed."""
        return self.expect(0, run(*arguments, **how))

    def train(self, folder, *arguments, ranks=0):
        """A whole run, that must succeed."""
        return self.run_well("train", "--out", folder, *arguments, ranks=ranks)

    def start_run(self, arguments, ranks, folder="run", steps=10):
        """A run under way that has made more than so many steps, with all its ranks."""
        running = Running(arguments, ranks)
        self.addCleanup(running.end)
        self.assertTrue(running.wait_for(lambda: steps_written(folder) > steps and len(running.ranks()) == ranks), running.text())
        return running

    def expect_error(self, code, pattern, ended):
        """The run, which must have ended with this code and one message."""
        self.assertEqual((ended.code, len(ended.errors)), (code, 1), ended.text)
        self.assertRegex(ended.errors[0], pattern)
        return ended

    def refuse(self, code, pattern, *arguments, ranks=0):
        """A run that must fail with one message."""
        return self.expect_error(code, pattern, run(*arguments, ranks=ranks, environment=AT_ONCE))

    def assert_equal_runs(self, folder, reference):
        """What may depend neither on the ranks of a run nor on where it was interrupted; figures of generators, the reference has none."""
        self.assert_same(state(folder), state(reference))
        self.assert_same(attributes(folder), attributes(reference))
        found, wanted = history(folder), history(reference)
        wanted = {name: values for name, values in wanted.items() if not name.split("/")[-1].startswith("bytes_")}
        self.assert_same({name: found[name] for name in wanted}, wanted)
        known = {name for row in rows(reference, "step") for name in row}
        self.assertEqual([{name: value for name, value in row.items() if name in known or row["kind"] != "step"}
                          for row in figures(folder)], figures(reference))

    def assert_same(self, one, other):
        """Two dictionaries of arrays, bit for bit. NaN equals NaN."""
        self.assertEqual(sorted(one), sorted(other))
        self.assertEqual([name for name in one if bits(one[name]) != bits(other[name])], [])


def tar(path, *members, mode="w", **how):
    """An archive. Members: a name and bytes, or a TarInfo."""
    with tarfile.open(path, mode, **how) as file:
        for name, data in members:
            member = tarfile.TarInfo(name) if isinstance(name, str) else name
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def seal(path):
    """The first 512 bytes of a file that has been changed: docs/manual/files.md."""
    with open(path, "r+b") as file:
        file.seek(512)
        digest = hashlib.sha256(file.read()).hexdigest()
        file.seek(0)
        file.write(bytes(512))
        file.seek(0)
        file.write(f"dat_hpc sealed file 1\nbytes {os.path.getsize(path)}\nsha256 {digest}\n".encode())


def read_safetensors(path):
    """(tensors, metadata), by the format's description."""
    data = bytes_of(path)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    types = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(data[end:], types[t["dtype"]], int(np.prod(t["shape"])), t["data_offsets"][0])
            .reshape(t["shape"]) for name, t in header.items()}, metadata


def write_safetensors(path, tensors, metadata=None):
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.float64): "F64", np.dtype(np.int64): "I64"}
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": kinds[array.dtype], "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    write(path, len(text).to_bytes(8, "little") + text + data)


def option_words(**options):
    """Options by name; one that is None is left off."""
    return [word for name, value in options.items() if value is not None for word in ("--" + name.replace("_", "-"), value)]


def merged(*words):
    """Options and their values, of which the last ones of a name count."""
    found = {}
    for word in words:
        if str(word).startswith("--"):
            found[name := word] = []
        else:
            found[name].append(word)
    return [word for name, values in found.items() for word in (name, *values)]


def synthetic(path, **options):
    ended = run("data", "synthetic", path, *[f"--{name}={value}" for name, value in options.items()])
    assert ended.code == 0, ended.text
    return path


class Part(unittest.TestLoader):
    """Every N-th test from the K-th one on: N programs side by side, K = 1..N, run each test once."""

    def __init__(self, part):
        super().__init__()
        self.number, self.of = (int(number) for number in part.split("/"))

    def loadTestsFromModule(self, module, **options):
        def tests(suite):
            for item in suite:
                yield from tests(item) if isinstance(item, unittest.TestSuite) else [item]

        return self.suiteClass([*tests(super().loadTestsFromModule(module, **options))][self.number - 1 :: self.of])


class Timed(unittest.TextTestResult):
    """Says what each test takes, too: time, and the processor's time of this and of all that it has waited for."""

    def startTest(self, test):
        self.begin = time.monotonic(), sum(os.times()[:4])
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"  {time.monotonic() - self.begin[0]:.1f} s, {sum(os.times()[:4]) - self.begin[1]:.1f} s of processor time")


def main():
    part = "1/1"
    if "--part" in sys.argv:
        at = sys.argv.index("--part")
        part = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    if "--list" in sys.argv:
        print("\n".join(test.id().removeprefix("__main__.") for test in Part(part).loadTestsFromModule(sys.modules["__main__"])))
        return
    print(f"DAT_SEED={SEED}", file=sys.stderr)
    unittest.main(testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Timed), testLoader=Part(part))
