"""The one list of what needs a GPU, for ctest and for slots: commands, the seconds they take on an H100, what is read off
them. On the double of CUDA's libraries the same run at the smallest sizes, PyTorch on the CPU: figures mean nothing there.
"""

import collections
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from mpi_environment import MPI_ENVIRONMENT
from runner import Entry, Wrong

kFolder = pathlib.Path(__file__).resolve().parent
kRoot = kFolder.parents[1]  # of the project, or of an unpacked archive
kPrograms = {"dat_hpc": "dat_hpc", **{name: f"{folder}/{name}" for folder, names in (  # where the build leaves them
    ("tests", "dat_tests dat_mpi_tests dat_planted_tests dat_probe"), ("bench", "bench_step bench_layers")) for name in names.split()}}
kDoubles = {**{name: f"{path}_double" for name, path in kPrograms.items()}, "dat_hpc": "tests/dat_hpc_double"}
# One node needs shared memory and loopback, no ssh, and no daemon for a program without mpiexec.
kNode = {"OMPI_MCA_plm": "isolated", "OMPI_MCA_ess_singleton_isolated": "1", "PMIX_MCA_pcompress_base_silence_warning": "1",
         "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp"}
# Of ranks that are timed: Open MPI chooses how they copy, each has cores of its own, who waits does not yield.
kCores = max(1, min(4, (os.cpu_count() or 1) // 2))
kTimed = {"OMPI_MCA_btl_vader_single_copy_mechanism": None, "OMPI_MCA_hwloc_base_binding_policy": None,
          "OMPI_MCA_mpi_yield_when_idle": "0", "OMP_NUM_THREADS": kCores}
kLaunch = f"mpiexec -n {{ranks}} --map-by slot:PE={kCores} --bind-to core"
kRecipes = {  # trained at full size: seed, ranks, seconds, recipe and options; what is wanted most comes first
    "fast_adversarial_3": (3, 1, 85, "fast_adversarial"), "ladder": (1, 1, 90, "ladder"), "pgd2": (1, 1, 120, "pgd2"),
    "n_fgsm_15_2": (2, 1, 85, "n_fgsm --warmup-epochs 7.5 --epochs 7.5"), "n_fgsm": (1, 1, 140, "n_fgsm"),
    "dat_fgsm": (1, 2, 240, "dat_fgsm_15"), "jointspar": (1, 2, 240, "jointspar_15")}
# How far apart relatively losses may be in f16 and in TF32: on the double 1e-4 of f32's; another seed makes 5e-2, an attack of
# a single step 1.2e-1.
kLossBound = 0.03


class Here:
    """This machine, and the programs: an archive's, or those of a build folder. data: CIFAR-10 as data files."""

    def __init__(self, build=None, double=False, data=None):
        self.build, self.data = build and pathlib.Path(build).resolve(), data
        self.about = {"double": double, "commit": "as built"} if build else json.loads((kRoot / "about.json").read_text())
        self.double = self.about["double"]
        spec = importlib.util.find_spec("nvidia")  # CUDA's and cuDNN's libraries, where wheels of this Python have them
        wheels = [str(path) for root in (spec.submodule_search_locations if spec else ())
                  for path in sorted(pathlib.Path(root).glob("*/lib"))]
        # Of an archive: what the scripts in bin need, and what the programs in libexec, which these start.
        own = {"DAT_REQUIRE_CUDA": "1", "DAT_CUDA_LIBRARIES": ":".join(wheels), "DAT_TEST_DATA": str(kRoot / "tests")}
        paths = [str(kRoot / "lib"), *wheels, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.loader = {} if build else {"LD_LIBRARY_PATH": ":".join(paths), "OPAL_PREFIX": str(kRoot / "mpi")}
        self.environment = {
            **os.environ, **({} if build else own), **kNode, **MPI_ENVIRONMENT, "DAT_TEST_DEVICE": "cuda", "OMP_NUM_THREADS": "2",
            "OMP_WAIT_POLICY": "passive", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
            "PATH": f"{kRoot / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/cuda/bin"}

    def program(self, name, folder="bin"):
        return self.build / (kDoubles if self.double else kPrograms)[name] if self.build else kRoot / folder / name

    def script(self, path, *arguments):
        return [sys.executable, "-B", kRoot / path, *arguments]

    def missing(self, entry):
        """What this machine lacks for the entry; empty: nothing."""
        words = map(pathlib.Path, map(str, [*entry.command, *entry.environment.values()]))
        unbuilt = {path.stem for path in words if self.build and self.build in path.parents and not path.exists()}
        if unbuilt:
            return f"not built: cmake --build {self.build} --target {' '.join(sorted(unbuilt))}"
        there = {"data": self.data, **{name: importlib.util.find_spec(name) for name in ("torch", "h5py")}}
        lacking = [name for name in entry.needs
                   if not (there[name] if name in there else shutil.which(name, path=self.environment["PATH"]))]
        return f"there is no {' and no '.join(lacking)}".replace("no data", "--data: CIFAR-10") if lacking else ""


def catch(ranks=1, names=None):
    """Catch2's summaries, one for each rank: something must have been run; of the names in a file all."""

    def read(text, folder):
        passed = re.findall(r"^All tests passed \((\d+) assertions? in (\d+) test cases?\)", text, re.MULTILINE)
        if len(passed) != ranks or names and int(passed[0][1]) != len((folder / names).read_text().splitlines()):
            raise Wrong(f"{len(passed)} of {ranks} summaries say that all laws passed: " + " ".join(text.split()[-12:]))
        return f"{passed[0][1]} laws, {sum(int(assertions) for assertions, _ in passed)} checks"

    return read


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def medians(key, *fields):
    """Of lines of JSON, by their `key`."""

    def read(text, _):
        rows = collections.defaultdict(list)
        for line in json_lines(text):
            rows[line[key]] += [line] if fields[0] in line else []
        return "; ".join(f"{name}: " + ", ".join(f"{field} {statistics.median(line[field] for line in lines):.4g}"
                                                 for field in fields if field in lines[0]) for name, lines in rows.items() if lines)

    return read


def steps(folder, run):
    return [line for line in json_lines((folder / run / "metrics.jsonl").read_text()) if line["kind"] == "step"]


def step_times(_, folder):
    walls, exposed = zip(*((1000 * step["wall_time"], 1000 * step["t_exposed"]) for step in steps(folder, "run")[20:]))
    times = [after - before for before, after in zip(walls, walls[1:])]
    return (f"step {statistics.median(times):.3f} ms by the wall, least {min(times):.3f}, of it exposed "
            f"{statistics.median(exposed):.3f}; {len(times)} steps")


def equal_losses(_, folder):
    f16, tf32 = (statistics.fmean(step["loss_adv"] for step in steps(folder, run)[-20:]) for run in ("f16", "f32"))
    figure = f"mean loss of the last 20 of 50 steps: f16 {f16:.4f}, TF32 {tf32:.4f}"
    if not abs(f16 / tf32 - 1) <= kLossBound:
        raise Wrong(f"{figure}: more than {kLossBound} of it apart")
    return figure


def names_of_half(program, half):
    """Shell: the names of every second law of the kernels into a file, where a comma would end a name."""
    option = f"$({program} --help | grep -o -e --list-test-names-only || echo --list-tests --verbosity quiet)"
    return (f"DAT_TEST_DEVICE=cpu {program} '[kernels]~[cpu]' {option} | awk 'NR % 2 == {half % 2}' | sed 's/,/\\\\,/g' "
            ">names.txt; ")


def make_entries(here):
    """The groups of the list: laws, times, recipes, what is known without a GPU; and what everything else needs."""

    def size(gpu, double):
        return (double if here.double else gpu).split()

    def tests(name, seconds, tags, **more):
        return Entry(name, [here.program("dat_tests"), tags, "--durations", "yes"], seconds, catch(), **more)

    def ranks(name, seconds, program, *arguments, **more):
        return Entry(name, ["mpiexec", "-n", "2", here.program(program), *arguments], seconds, catch(2),
                     {"OMP_NUM_THREADS": 1, **more.pop("environment", {})}, ("mpiexec",), **more)

    def sanitizer(name, seconds, tool, read, program, *arguments, before=""):
        words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, here.program(program, "libexec"), *arguments]

        def both(text, folder):
            return f"{re.search('(ERROR|RACECHECK) SUMMARY: 0 .*', text)[0]}; {read(text, folder)}"

        return Entry(name, ["bash", "-c", before + shlex.join(map(str, words))], seconds, both, here.loader, ("compute-sanitizer",))

    def train(name, seconds, read, *words, runs=("--out run",), launch="", **more):
        """So many runs, which differ by options."""
        always = "train --device cuda --resume never --quiet --eval-every 0 --limit-test 16".split()
        command = [*launch.format(ranks=2).split(), here.program("dat_hpc"), *always, *words]
        return Entry(name, ["bash", "-c", " && ".join(f'"$@" {run}' for run in runs), "bash", *command], seconds, read, **more)

    def step(name, seconds, batch, *arguments, read=None, **more):
        sizes = size(f"--batch {batch} --repeat 20", "--batch 4 --width 16 --steps 1 --repeat 1")
        command = [here.program("bench_step"), "--device", "cuda", "--math", "tf32", *arguments, *sizes]
        read = read or medians("batch", "ms_per_step", "gpu_ms_per_step", "ms_per_attack_iteration")
        return Entry(name, command, seconds, read, alone=True, **more)

    def torch(name, seconds, read, path, *arguments, **more):
        return Entry(name, here.script(path, *arguments), seconds, read, needs=("torch",), alone=True, **more)

    def pairs(name, seconds, batch, count, form):
        sizes = size(f"--batch {batch} --pairs {count}", "--batch 4 --pairs 1 --width 16 --steps 1 --peer-device cpu")
        read = "^fastest PyTorch of any precision: (.*)$"
        return torch(name, seconds, read, "bench/compare.py", here.program("bench_step"), "--device", "cuda", "--form", form,
                     "--peer-python", sys.executable, "--json", "pairs.jsonl", *sizes,
                     # PyTorch's own convolutions would be tried for longer than a slot: cuDNN's are what is left.
                     environment={"TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS": "ATEN"})

    def fgsm(name, seconds, *forms):
        sizes = size("--batch 128 --repeat 40", "--batch 4 --width 16 --repeat 1 --device cpu")
        return torch(name, seconds, medians("form", "ms_per_step", "ms_per_step_flow"), "bench/peers/torch_gpu.py", "--network",
                     "preact_resnet18", "--attack-bn", "train", "--form", *forms, *sizes)

    def recipe(name, seed, count, seconds, words):
        first, *options = words.split()
        tiny = "--limit-train 256 --limit-test 16 --epochs 1 --warmup-epochs 0".split()
        command = here.script("bench/full_size.py", first, "--program", here.program("dat_hpc"), "--data", *(here.data or []),
                              "--out", "out", "--seeds", f"{seed}-{seed}", "--ranks", count, "--launch", kLaunch,
                              "--evaluation=--math tf32 --batch 1024", *size("", "--width 4 --images 8"), "--", "--device", "cuda",
                              "--deterministic", "--checkpoint-async", *(tiny if here.double else options))
        read = r"^\d{4}-\d\d-\d\d .*?: (clean .*?); \d+ epochs"
        return Entry(f"recipe_{name}", command, seconds, read, kTimed, ("data", "mpiexec"), True)

    small = "--network small_cnn --width 16 --limit-train 24 --batch 8"
    short = [*size("--network preact_resnet18 --limit-train 192 --batch 64", small),
             *"--deterministic --attack-steps 5 --warmup-epochs 0 --epochs 1".split()]
    longest = "^kernel\t(.*)$"  # all of them are in the log
    timed = ["--checkpoint-every", 1000, *size("--epochs 20", "--max-steps 24 --width 4 --batch 8")]
    laws = [
        *(tests(f"laws_{name}", seconds, f"[{name}]~[cpu]", environment={"CUDNN_LOGLEVEL_DBG": 1, "CUDNN_LOGDEST_DBG": "cudnn.txt"})
          for name, seconds in {"kernels": 10, "backend": 25, "golden": 20, "network": 60, "attack": 60, "trainer": 90,
                                "optimizer": 10, "parameters": 10, "reducer": 30, "codec": 20}.items()),
        tests("nan", 20, "[nan]"),
        ranks("nan_planted", 30, "dat_planted_tests"),
        ranks("two_ranks", 100, "dat_mpi_tests", *size("", "~[corruption]~[evaluation]~[sequence]~[stale]~[.]")),
        train("f16_against_tf32", 30, equal_losses, *size("--network resnet18 --batch 128", small.replace("24", "240")),
              *"--selector all --optimizer sgd --lr 0.02 --attack-steps 10 --epochs 4 --max-steps 50".split(),
              runs=[f"--attack-precision {name} --out {name}" for name in ("f16", "f32")]),
        *(Entry(f"full_size_{name}", here.script("tests/golden/full_size.py", here.program("dat_probe"), name, "--device",
                                                 "cuda", *size("", "--width 16")), 25,
                "^PASSED: (.*)$", {}, ("torch", "h5py")) for name in ("resnet18", "preact_resnet18")),
        *(train(f"same_weights_{name}", 15, r"(?s)^weights +(\w{32})$.*^weights +\1$",
                *short, "--attack-precision", name, runs=("--out a", "--out b")) for name in ("f32", "f16", "bf16")),
        sanitizer("memcheck_kernels", 110, "memcheck", catch(), "dat_tests", "[kernels]~[cpu]"),
        *(sanitizer(f"racecheck_{half}", 100, "racecheck", catch(1, "names.txt"), "dat_tests", "--input-file", "names.txt",
                    before=names_of_half(here.program("dat_tests", "libexec"), half)) for half in (1, 2)),
        sanitizer("memcheck_run_f16", 60, "memcheck", lambda text, _: re.search("Final: .*", text)[0], "dat_hpc", *f"train --device cuda {small} --limit-test 8 --out run "
                  "--attack-steps 2 --epochs 1 --warmup-epochs 0 --attack-precision f16".split()),
        *(Entry(f"whole_runs_{part}", here.script("tests/e2e/cuda.py", here.program("dat_hpc"), "--part", f"{part}/2"), 120,
                r"(?s)^Ran ([1-9]\d* tests?) in .*^OK$", {}, ("h5py",)) for part in (1, 2)),
    ]
    times = [
        torch("ceilings", 20, medians("ceiling", "median"), "bench/peers/ceilings.py", "--repeat", 3,
              *size("", "--device cpu --size 256 --megabytes 8")),
        train("fgsm_steps", 15, step_times, "--recipe", "fast_adversarial", *timed, *size("--max-steps 250", ""), alone=True),
        train("two_ranks_step", 20, step_times, "--recipe", "dat_fgsm_15", *timed, *size("--max-steps 60", ""), launch=kLaunch,
              environment=kTimed, needs=("mpiexec",), alone=True),
        *(step(f"kernels_{width}", 15, 128, *"--network preact_resnet18 --attack fgsm --attack-bn train".split(),
               *size(f"--width {width}", ""), **({} if here.double else {"read": longest, "environment": {
                   "CUDA_INJECTION64_PATH": (here.build / "bench" if here.build else kRoot / "lib") / "kernel_names.so"}}))
          for width in (64, 16)),
        *(step(f"step_{batch}", seconds, batch, "--attack-precision", "f16")
          for batch, seconds in ((512, 35), (2048, 65), (128, 30))),
        step("step_2048_by_256", 50, 2048, "--attack-precision", "f16", *size("--attack-batch 256", "--attack-batch 2")),
        fgsm("peers_fgsm", 40, "eager_tf32_channels_last", "graph_tf32", "graph_bf16", "graph_f16"),
        fgsm("peers_fgsm_compiled", 50, "compiled_graph_f16"),
        pairs("pairs_512_compiled_graph", 120, 512, 5, "compiled_graph"),
        pairs("pairs_2048_folded_f16", 90, 2048, 3, "folded_f16_channels_last"),
        pairs("pairs_512_eager_tf32", 60, 512, 3, "eager_tf32_channels_last"),
        Entry("layers_512_f16", [here.program("bench_layers"), "--device", "cuda", "--precision", "f16", "--json", "layers.jsonl",
                                 *size("--batch 512", "--width 16 --batch 2 --steps 1 --repeat 1")], 120,
              "^iteration of the attack +(.*)$", alone=True),
    ]
    cpu, doctor = {"environment": {"DAT_TEST_DEVICE": "cpu"}}, [here.program("dat_hpc"), "doctor"]
    without = [Entry("doctor_cpu", doctor, 15, "^cuDNN +(.*)$", **cpu),
               tests("laws_cpu", 60, "[golden]", **cpu), ranks("two_ranks_cpu", 150, "dat_mpi_tests", **cpu)]
    first = [Entry("doctor", doctor, 15, "^GPU 0 +(.*): usable$")]
    return laws, times, [recipe(name, *rest) for name, rest in kRecipes.items()], without, first


def make_slots(groups):
    """By name: the names of the entries, how many of them at once, and the seconds of the slot."""
    laws, times, recipes, without, _ = ([entry.name for entry in group] for group in groups)
    a1 = "ceilings fgsm_steps kernels_64 kernels_16 step_512 step_2048 two_ranks nan nan_planted f16_against_tf32".split()
    a2, a3 = "racecheck_1 laws_reducer laws_codec laws_attack".split(), "recipe_fast_adversarial_3 recipe_n_fgsm_15_2".split()
    return {"laws": (laws, max(2, min(6, (os.cpu_count() or 2) // 2)), 520), "speed": (times, 1, 520), "full": (recipes, 1, 580),
            "check": (without, 1, 520), "a1": (a1, 4, 290), "a2": (a2, 3, 240), "a3": (a3, 1, 190),
            "all": (laws + times + recipes, 2, 520)}
