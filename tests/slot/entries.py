"""The one list of what needs a GPU, for ctest and for slots: commands, seconds on an H100, what is read off them. On the
double of CUDA's libraries they run at the smallest sizes, with PyTorch on the CPU: figures mean nothing there."""

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
from runner import Entry

kRoot = pathlib.Path(__file__).resolve().parents[2]  # of the project, or of an unpacked archive
kPrograms = {"dat_hpc": "dat_hpc"}  # where the build leaves them
kPrograms |= {f"dat_{name}": f"tests/dat_{name}" for name in ("tests", "mpi_tests", "planted_tests", "probe")}
kPrograms |= {f"bench_{name}": f"bench/bench_{name}" for name in ("step", "layers")}
kDoubles = {**{name: f"{path}_double" for name, path in kPrograms.items()}, "dat_hpc": "tests/dat_hpc_double"}
# One node needs shared memory and loopback, no ssh, and no daemon for a program without mpiexec.
kNode = {"OMPI_MCA_plm": "isolated", "OMPI_MCA_ess_singleton_isolated": "1", "PMIX_MCA_pcompress_base_silence_warning": "1",
         "OMPI_MCA_btl": "self,vader,tcp"}
# Of ranks that are timed: Open MPI chooses how they copy, each has cores of its own, who waits does not yield.
kCores = max(1, min(4, len(os.sched_getaffinity(0)) // 4))
kTimed = {"OMPI_MCA_btl_vader_single_copy_mechanism": None, "OMPI_MCA_hwloc_base_binding_policy": None,
          "OMPI_MCA_mpi_yield_when_idle": "0", "OMP_NUM_THREADS": kCores}
kBound = f"mpiexec -n {{ranks}} --map-by slot:PE={kCores} --bind-to core"


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
            **os.environ, **({} if build else own), **kNode, **MPI_ENVIRONMENT, "OMP_NUM_THREADS": "2",
            "DAT_TEST_DEVICE": "cuda", "OMP_WAIT_POLICY": "passive", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
            "PATH": f"{kRoot / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/cuda/bin"}

    def program(self, name, folder="bin"):
        return self.build / (kDoubles if self.double else kPrograms)[name] if self.build else kRoot / folder / name

    def missing(self, entry):
        """What this machine lacks for the entry; empty: nothing."""
        words = map(pathlib.Path, map(str, [*entry.command, *entry.environment.values()]))
        unbuilt = {path.stem for path in words if self.build and self.build in path.parents and not path.exists()}
        if unbuilt:
            return f"not built: cmake --build {self.build} --target {' '.join(sorted(unbuilt))}"
        there = {"data": self.data, **{name: importlib.util.find_spec(name) for name in ("torch", "h5py")}}
        lacking = [name for name in entry.needs
                   if not (there[name] if name in there else shutil.which(name, path=self.environment["PATH"]))]
        return f"there is no {' and no '.join(lacking)}".replace("no data", "no --data FILE") if lacking else ""


def says(pattern):
    return lambda text, _: re.search(pattern, text, re.MULTILINE)[1]


def catch(ranks=1, names=None):
    """Catch2's summaries, one for each rank: something must have been run; of the names in a file all."""

    def read(text, folder):
        passed = re.findall(r"^All tests passed \((\d+) assertions? in (\d+) test cases?\)", text, re.MULTILINE)
        if len(passed) != ranks or names and int(passed[0][1]) != len((folder / names).read_text().splitlines()):
            raise ValueError(f"{len(passed)} of {ranks} summaries say that all laws passed: " + " ".join(text.split()[-12:]))
        return f"{passed[0][1]} laws, {sum(int(assertions) for assertions, _ in passed)} checks"

    return read


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def lines(pattern):
    """All that match, as one line."""

    def read(text, _):
        first, *others = re.findall(pattern, text, re.MULTILINE)
        return "; ".join([" ".join(first.split()), *(" ".join(other.split()) for other in others)])

    return read


def medians(keys, *fields):
    """Of lines of JSON, by their `keys`."""

    def read(text, _):
        rows = collections.defaultdict(list)
        for line in json_lines(text):
            for field in fields:
                rows[f"{' '.join(str(line[key]) for key in keys.split())}: {field}"] += [line[field]] if field in line else []
        first, *others = (f"{name} {statistics.median(values):.4g}" for name, values in rows.items() if values)
        return "; ".join([first, *others])

    return read


def steps(folder, run):
    return [line for line in json_lines((folder / run / "metrics.jsonl").read_text()) if line["kind"] == "step"]


def step_ms(_, folder):
    walls, exposed = zip(*((1000 * step["wall_time"], 1000 * step["t_exposed"]) for step in steps(folder, "run")[20:]))
    times = [after - before for before, after in zip(walls, walls[1:])]
    return f"{statistics.median(times):.3f}, least {min(times):.3f}, exposed {statistics.median(exposed):.3f} ms"


def equal_losses(_, folder):
    f16, tf32 = (statistics.fmean(step["loss_adv"] for step in steps(folder, run)[-20:]) for run in ("f16", "f32"))
    figure = f"mean loss of the last 20 of 50 steps: f16 {f16:.4f}, TF32 {tf32:.4f}"
    if not abs(f16 - tf32) <= 0.03 * max(1, tf32):  # on the double 2e-3; another seed makes 5e-2
        raise ValueError(f"{figure}: too far apart")
    return figure


def names_of_half(program, half):
    """Shell: the names of every second law of the kernels into a file, where a comma would end a name."""
    option = f"$({program} --help | grep -o -e --list-test-names-only || echo --list-tests --verbosity quiet)"
    return (f"DAT_TEST_DEVICE=cpu {program} '[kernels]~[cpu]' {option} | awk 'NR % 2 == {half % 2}' | sed 's/,/\\\\,/g' "
            ">names.txt; ")


def make_entries(here):
    """The groups of the list: laws, times, recipes, what is known without a GPU; and what everything else needs."""
    size = (lambda gpu, double: double) if here.double else (lambda gpu, double: gpu)

    def entry(name, seconds, read, *texts, **more):
        """A program's name becomes its path, a script's path a command."""
        words = []
        for word in shlex.split(" ".join(texts)):
            words += [sys.executable, "-B", kRoot / word] if word.endswith(".py") else [programs.get(word, word)]
        return Entry(name, words, seconds, says(read) if isinstance(read, str) else read, **more)

    def train(*texts, runs=("--out run",), launch=""):
        script = " && ".join(f'"$@" {run}' for run in runs)
        return (f"bash -c '{script}' bash {launch.format(ranks=2)} dat_hpc train --device cuda --resume never --quiet "
                f"--eval-every 0 --limit-test 16 {' '.join(texts)}")

    def sanitizer(name, seconds, tool, read, program, text, before=""):
        command = f"{before}compute-sanitizer --tool {tool} --error-exitcode 9 {here.program(program, 'libexec')} {text}"
        none = says("((?:ERROR|RACECHECK) SUMMARY: 0 .*)")
        return entry(name, seconds, lambda *output: f"{none(*output)}; {read(*output)}", "bash -c", shlex.quote(command),
                     environment=here.loader, needs=("compute-sanitizer",))

    def step(name, seconds, batch, text, **more):
        sizes = size(f"--batch {batch} --repeat 20", "--batch 4 --width 16 --steps 1 --repeat 1")
        twice = 'for k in 1 2; do TIMEFORMAT="{\\"batch\\": \\"start $k\\", \\"s\\": %R}"; time "$@" || exit; done'
        more = more or {"read": medians("batch", "ms_per_step", "gpu_ms_per_step", "ms_per_attack_iteration", "s")}
        return entry(name, seconds, more.pop("read"), "bash -c", shlex.quote(twice), "bash bench_step --device cuda",
                     "--math tf32", text, sizes, alone=True, **more)

    def fgsm(precision):
        """Steps of fast_adversarial at several batches and widths."""
        sizes = size(("128 --width 64", "512 --width 64", "2048 --width 64", "128 --width 16"), ("4 --width 8",))
        more = size("--repeat 20 --flow 20", "--repeat 1")
        figures = medians("batch width", "ms_per_step", "ms_per_step_flow", "gpu_ms_per_step")
        return entry(f"fgsm_{precision}", 30, figures, "bash -c",
                     shlex.quote(" && ".join(f'"$@" {more} --batch {each}' for each in sizes)), "bash bench_step --device cuda",
                     "--network preact_resnet18 --attack fgsm --attack-bn train --planning-seconds 4 --math tf32 --precision",
                     precision.replace("tf32", "f32"), alone=True)

    programs = {name: here.program(name) for name in kPrograms}
    small = "--network small_cnn --width 16 --limit-train 24 --batch 8"
    short = (size("--network preact_resnet18 --limit-train 192 --batch 64", small)
             + " --deterministic --attack-steps 5 --warmup-epochs 0 --epochs 1 --attack-precision")
    timed = "--checkpoint-every 1000 " + size("--epochs 20", "--max-steps 24 --width 4 --batch 8")
    planning = {"DAT_PLANNING_SECONDS": 8}
    everything = {} if here.double else {"DAT_ALL_CASES": 1}  # a GPU is rarely there: not what a day draws
    cudnn, cpu = {"CUDNN_LOGLEVEL_DBG": 1, "CUDNN_LOGDEST_DBG": "cudnn.txt"}, {"DAT_TEST_DEVICE": "cpu"}
    ranks, torch = {"needs": ("mpiexec",), "environment": {"OMP_NUM_THREADS": 1}}, {"needs": ("torch",), "alone": True}
    injection = (here.build / "bench" if here.build else kRoot / "lib") / "kernel_names.so"
    longest = {} if here.double else {"read": "^kernel\t(.*)$", "environment": {"CUDA_INJECTION64_PATH": injection}}
    laws = [
        *(entry(f"laws_{name}", seconds, catch(), f"dat_tests {size('', tiny)}[{name}]~[cpu] -d yes",
                environment=cudnn | (everything if name == "backend" else {}))
          for name, seconds, tiny in (  # all of them on the double: nightly.sh
            ("kernels", 10, ""), ("backend", 25, ""), ("golden", 20, ""), ("network", 60, "s*"), ("attack", 60, "a*"),
            ("trainer", 120, "p*"), ("optimizer", 10, ""), ("parameters", 10, ""), ("reducer", 30, ""), ("codec", 20, ""))),
        entry("nan", 20, catch(), "dat_tests [nan]"),
        entry("nan_planted", 60, catch(2), "mpiexec -n 2 dat_planted_tests", size("", "'More*,Bad steps*'"), **ranks),
        entry("two_ranks", 100, catch(2), "mpiexec -n 2 dat_mpi_tests", size("", "[reducer],[codec],[trainer]"), **ranks),
        entry("f16_against_tf32", 30, equal_losses, train(
            size("--network resnet18 --batch 128", small.replace("24", "240")), "--selector all --optimizer sgd --lr 0.02",
            "--epochs 4 --max-steps 50",
            runs=[f"--attack-precision {name} --out {name}" for name in ("f16", "f32")]), environment=planning),
        *(entry(f"full_size_{name}", 25, "^PASSED: (.*)$", f"tests/golden/full_size.py dat_probe {name} --device cuda",
                size("", "--width 16"), needs=("torch", "h5py")) for name in ("resnet18", "preact_resnet18", "imagenet_resnet50", "dm_wrn_28_10")),
        # In three steps, against double precision and what PyTorch's autocast makes of the same weights.
        entry("sixteen_bits", 45, lines(r"^(.* error of the gradient .*)$"), "tests/outside/sixteen_bits.py dat_hpc",
              size("--width 64", "--width 8 --only resnet18-f16"), needs=("torch", "h5py")),
        *(entry(f"same_weights_{name}", 15, r"(?s)^weights +(\w{32})$.*^weights +\1$",
                train(short, name, runs=("--out a", "--out b"))) for name in ("f32", "f16", "bf16")),
        sanitizer("memcheck_kernels", 110, "memcheck", catch(), "dat_tests", "[kernels]~[cpu]"),
        *(sanitizer(f"racecheck_{half}", 100, "racecheck", catch(1, "names.txt"), "dat_tests", "--input-file names.txt",
                    names_of_half(here.program("dat_tests", "libexec"), half)) for half in (1, 2)),
        sanitizer("memcheck_run_f16", 60, "memcheck", says("^(Final: .*)$"), "dat_hpc", f"train --device cuda {small} "
                  "--limit-test 8 --out run --attack-steps 2 --epochs 1 --warmup-epochs 0 --precision f16 --attack-precision "
                  "f16"),
        *(entry(f"whole_runs_{part}", 120, r"(?s)^Ran ([1-9]\d* tests?) in .*^OK\b",
                f"tests/e2e/cuda.py dat_hpc --part {part}/2", needs=("h5py",)) for part in (1, 2)),
    ]
    times = [
        entry("ceilings", 20, medians("ceiling", "median"), "bench/peers/ceilings.py --repeat 3",
              size("", "--device cpu --size 256 --megabytes 8"), **torch),
        entry("fgsm_steps", 20, step_ms, train("--recipe fast_adversarial", timed, size("--max-steps 250", "")), environment=planning, alone=True),
        entry("two_ranks_step", 20, step_ms, train("--recipe dat_fgsm_15", timed, size("--max-steps 60", ""), launch=kBound),
              environment=kTimed | planning, needs=("mpiexec",), alone=True),
        *(step(f"kernels_{width}", 18, 128, "--network preact_resnet18 --attack fgsm --attack-bn train --planning-seconds "
               + size(f"8 --width {width}", "8"), **longest) for width in (64, 16)),
        step("kernels_64_f16", 18, 128, "--network preact_resnet18 --attack fgsm --attack-bn train --planning-seconds 8 "
             f"--precision f16 {size('--width 64', '')}", **longest),
        *(step(f"step_{name}{batch}", seconds, batch, f"--attack-precision f16 --precision {precision}")
          for name, precision in (("", "f32"), ("f16_", "f16")) for batch, seconds in ((512, 45), (2048, 60), (128, 45))),
        *map(fgsm, ("tf32", "f16", "bf16")),
        entry("sums", 20, lines(r"^all gradients, (.*)$"), "mpiexec -n 2 dat_hpc bench --network resnet18 --attack-steps 1",
              size("--device cuda --batch 64 --seconds 8", "--device cpu --width 4 --batch 4 --seconds 1"),
              environment=kTimed | planning, needs=("mpiexec",), alone=True),
        *(entry(name, seconds, medians("form", "ms_per_step", "ms_per_step_flow"), "bench/peers/torch_gpu.py --network",
                "preact_resnet18 --attack-bn train --form", forms, "--batch",
                size("128 --repeat 40", "4 --width 16 --repeat 1 --device cpu"), **torch) for name, seconds, forms in (
                    ("peers_fgsm", 40, "eager_tf32_channels_last graph_tf32 graph_bf16 graph_f16"),
                    ("peers_fgsm_compiled", 50, "compiled_graph_f16"))),
        # PyTorch's own convolutions would be tried for longer than a slot: cuDNN's are what is left.
        *(entry(f"pairs_{batch}_{form}", seconds, "^fastest PyTorch of any precision: (.*)$", "bench/compare.py bench_step",
                f"--device cuda --form {form} --peer-python {sys.executable} --json pairs.jsonl", size(
                    f"--batch {batch} --pairs 3", "--batch 4 --pairs 1 --width 16 --steps 1 --peer-device cpu"),
                environment={"TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS": "ATEN"}, **torch) for batch, seconds, form in (
            (512, 100, "compiled_graph"), (512, 60, "eager_tf32_channels_last"), (2048, 90, "folded_f16_channels_last"))),
        *(entry(f"pairs_fgsm_{name}", seconds, "^fastest PyTorch of any precision: (.*)$", "bench/compare.py bench_step",
                "--device cuda --attack-bn train --network preact_resnet18 --peer-python", sys.executable,
                size(f"{text} --pairs 20", "--form eager_tf32_channels_last --precision f16 --batch 4 --width 8 --pairs 1 "
                     "--peer-device cpu"),
                **torch) for name, seconds, text in (
            ("128", 60, "--batch 128 --form graph_tf32 graph_bf16 graph_f16"), ("512", 25, "--batch 512 --form graph_f16"),
            ("2048", 30, "--batch 2048 --form graph_f16"), ("narrow", 20, "--batch 128 --width 16 --form graph_f16"),
            ("compiled", 60, "--batch 128 --form compiled_graph_f16"))),
        entry("layers_512_f16", 120, "^iteration of the attack +(.*)$", "bench_layers --device cuda --precision f16 --json",
              "layers.jsonl", size("--batch 512", "--width 16 --batch 2 --steps 1 --repeat 1"), alone=True),
    ]
    tiny = small.replace("24", "32") + " --limit-test 16 --epochs 1 --warmup-epochs 0 --selector exp3 --budget 8"
    data = shlex.join(map(str, here.data or []))
    recipes = [  # at full size; what is wanted most comes first
        entry(f"recipe_{name}", seconds, r"^\d{4}-\d\d-\d\d .*?: (clean .*?); \d+ epochs", f"bench/full_size.py {recipe}",
              f"--program dat_hpc --data {data} --out out --seeds {seed}-{seed} --ranks {count} --launch '{kBound}'",
              f"'--evaluation=--math tf32 --batch {size(1024, 8)}' {size('', '--images 1')}",
              f"-- --device cuda {'' if name == 'pgd10_ema' else '--deterministic'}", size(options, tiny), environment=kTimed,
              needs=("data", "mpiexec"), alone=True) for name, seed, count, seconds, recipe, options in (
            ("fast_adversarial_3", 3, 1, 85, "fast_adversarial", ""), ("pgd2", 1, 1, 120, "pgd2", ""),
            ("n_fgsm_15_2", 2, 1, 85, "n_fgsm", "--warmup-epochs 7.5 --epochs 7.5"), ("ladder", 1, 1, 90, "ladder", ""),
            ("n_fgsm", 1, 1, 140, "n_fgsm", ""), ("dat_fgsm", 1, 2, 240, "dat_fgsm_15", ""),
            ("fast_adversarial_f16", 1, 1, 60, "fast_adversarial", "--precision f16"),
            ("pgd10_ema", 1, 1, 370, "pgd2", "--attack-steps 10 --alpha 2/255 --attack-bn eval --attack-precision f16 "
             "--precision f16 --average ema --batch 512 --lr 0.4 --warmup-epochs 12 --epochs 48"))]
    without = [entry("doctor_cpu", 15, "^cuDNN +(.*)$", "dat_hpc doctor"),
               entry("laws_cpu", 60, catch(), "dat_tests [golden]", environment=cpu),
               entry("two_ranks_cpu", 150, catch(2), "mpiexec -n 2 dat_mpi_tests", environment=cpu)]
    return laws, times, recipes, without, [entry("doctor", 15, "^GPU 0 +(.*): usable$", "dat_hpc doctor")]


def make_slots(groups):
    """By name: the names of the entries, how many of them at once, and the seconds of the slot."""
    laws, times, recipes, without, _ = ([entry.name for entry in group] for group in groups)
    a1 = "two_ranks nan nan_planted f16_against_tf32 ceilings fgsm_steps kernels_64 step_512 step_2048 kernels_16"
    b1 = ("sixteen_bits fgsm_f16 pairs_fgsm_128 fgsm_tf32 step_f16_2048 sums two_ranks_step step_f16_128 step_f16_512 "
          "pairs_fgsm_512 pairs_fgsm_2048 pairs_fgsm_narrow fgsm_bf16 kernels_64_f16 pairs_fgsm_compiled")
    return {"laws": (laws, max(2, min(6, (os.cpu_count() or 2) // 2)), 520), "speed": (times, 1, 520),
            "full": (recipes, 1, 580), "check": (without, 1, 520), "all": (laws + times + recipes, 2, 520),
            "a1": (a1.split(), 4, 265), "a2": ("racecheck_1 laws_reducer laws_codec laws_attack".split(), 3, 225),
            "a3": ("recipe_fast_adversarial_3 recipe_n_fgsm_15_2".split(), 1, 175), "b1": (b1.split(), 1, 325),
            "b2": ("memcheck_run_f16 racecheck_2".split(), 2, 100), "b3": (["recipe_pgd10_ema"], 1, 390)}
