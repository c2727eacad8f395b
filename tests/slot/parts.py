"""What each slot runs, in which order, and what is read off it.

On the double of CUDA's libraries (about.json: double) the same programs and scripts run at the smallest sizes, and PyTorch on
the CPU: the figures mean nothing there.
"""

import collections
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from mpi_environment import MPI_ENVIRONMENT
from runner import NotHere, Part, Wrong, kOk

kFolder = pathlib.Path(__file__).resolve().parent
kRoot = kFolder.parents[1]  # of an unpacked archive
kPasses = (("F", "frozen_forward"), ("D", "frozen_input_gradient"))
kAverage = ("--average", "ema", "--average-decay", "0.998", "--average-bn", "ema")
# Of slot full: a name, the recipe, its ranks, other options. What its table has first is what is wanted most.
kRecipes = (("ladder_22", "ladder", 1, *kAverage, "--warmup-epochs", "8", "--epochs", "14"),
            ("ladder_silu", "ladder", 1, *kAverage, "--activation", "silu"),
            ("ladder_smooth", "ladder", 1, *kAverage, "--label-smoothing", "0.2"), ("pgd2", "pgd2", 1),
            ("ladder_50", "ladder", 1, *kAverage, "--warmup-epochs", "17", "--epochs", "33"),
            ("jointspar", "jointspar_15", 2), ("dat_fgsm", "dat_fgsm_15", 2), ("n_fgsm", "n_fgsm", 1),
            ("n_fgsm_15", "n_fgsm", 1, "--warmup-epochs", "7.5", "--epochs", "7.5"), ("fast_adversarial", "fast_adversarial", 1))
kGraphPlan = re.compile(r"graph ")  # how the names of what cuDNN's graph API offers begin


def multiply_adds(width):
    """Of the convolutions of resnet18, for one image of 32x32 and one pass; as bench_layers sums them up."""
    total, c_in, size = 3 * width * 9 * 32**2, width, 32
    for stage in range(4):
        c_out = width << stage
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            size //= stride
            total += size**2 * c_out * 9 * (c_in + c_out)
            total += size**2 * c_out * c_in if stride > 1 else 0
            c_in = c_out
    return total


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def require(condition, what):
    if not condition:
        raise Wrong(what)


def found(pattern, text, what):
    """The first group of the pattern; Wrong if the output has none."""
    match = re.search(pattern, text, re.MULTILINE)
    require(match, what)
    return match[1]


def cuda_folders():
    """Where the CUDA wheels of this Python keep their libraries: the toolkit's, cuDNN's, others'."""
    spec = importlib.util.find_spec("nvidia")
    roots = [pathlib.Path(path) for path in (spec.submodule_search_locations if spec else [])]
    folders = [folder for pattern in ("cu*/lib", "cudnn/lib", "*/lib") for root in roots
               for folder in sorted(root.glob(pattern))]
    return list(dict.fromkeys(folders))


class Here:
    """This machine, and what was packed for it."""

    def __init__(self, data=None):
        """data: CIFAR-10 as a data file, which the archive has not."""
        self.data = data
        self.about = json.loads((kRoot / "about.json").read_text())
        self.double = self.about["double"]
        self.python = [sys.executable, "-B"]
        self.environment = {
            **os.environ,
            "PATH": f"{kRoot / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/cuda/bin",
            "DAT_CUDA_LIBRARIES": ":".join(str(folder) for folder in cuda_folders()),
            "DAT_TEST_DATA": str(kRoot / "tests"),
            "DAT_TEST_DEVICE": "cuda",
            "DAT_REQUIRE_CUDA": "1",
            "OMP_NUM_THREADS": "2",
            "OMP_WAIT_POLICY": "passive",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            # One node needs shared memory and loopback, no ssh, and no daemon for a program without mpiexec; waiting
            # ranks leave the cores to others.
            "OMPI_MCA_plm": "isolated",
            "OMPI_MCA_ess_singleton_isolated": "1",
            "PMIX_MCA_pcompress_base_silence_warning": "1",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "self,vader,tcp",
            **MPI_ENVIRONMENT,
        }

    def sizes(self, *all):
        """Sizes of the same thing. On the double, where each takes a minute, one stands for all."""
        return all[:1] if self.double else all

    def program(self, name):
        return kRoot / "bin" / name

    def script(self, path, *arguments):
        return [*self.python, kRoot / path, *arguments]

    def missing(self, *names):
        """Which of these programs and Python modules are not on this machine; empty: none."""
        modules = ("torch", "h5py")
        lacking = [name for name in names
                   if not (importlib.util.find_spec(name) if name in modules
                           else shutil.which(name, path=self.environment["PATH"]))]
        return f"there is no {' and no '.join(lacking)}" if lacking else ""

    def loader(self):
        """What the programs in libexec need in their environment; those in bin are scripts that set it."""
        libraries = [str(kRoot / "lib"), self.environment["DAT_CUDA_LIBRARIES"], os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(filter(None, libraries)), "OPAL_PREFIX": str(kRoot / "mpi")}

    def without_libraries(self):
        """What the loader does not find for the programs and the MPI library's plugins: lines of ldd."""
        environment = {**self.environment, **self.loader()}
        files = sorted([*(kRoot / "libexec").iterdir(), *(kRoot / "mpi").rglob("*.so")])
        done = subprocess.run(["ldd", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        wanting, file = set(), ""
        for line in done.stdout.splitlines():
            if line.endswith(":"):
                file = pathlib.Path(line[:-1]).name
            elif "not found" in line:  # a library, or a version of the C library
                wanting.add(f"{file}: {line.strip()}")
        if done.returncode != 0 and not wanting:
            wanting.add(f"ldd ends with {done.returncode}: {done.stdout.strip().splitlines()[-1]}")
        return sorted(wanting)


# --- What is read off the outputs ------------------------------------------------------------------------------------


def read_catch(ranks=1):
    """Of Catch2, once for each rank: it is not enough that nothing failed, something must have been run."""

    def read(text):
        passed = re.findall(r"^All tests passed \((\d+) assertions? in (\d+) test cases?\)", text, re.MULTILINE)
        require(len(passed) == ranks, f"{len(passed)} of {ranks} Catch2 summaries say that all tests passed")
        return f"{passed[0][1]} laws, {sum(int(assertions) for assertions, _ in passed)} checks"

    return read


def read_doctor(text):
    gpu = re.search(r"^GPU 0 +(.*): usable$", text, re.MULTILINE)
    require(gpu, "no usable GPU: " + (re.findall(r"^GPU +[0-9n].*", text, re.MULTILINE) or ["doctor names none"])[0])
    return gpu[1]


def read_ceilings(rates):
    """Fills `rates`: TFLOP/s of matrix products by precision."""

    def read(text):
        rows = {line["ceiling"]: line for line in json_lines(text)}
        for name, line in rows.items():
            if name.startswith("gemm_") and "median" in line:
                rates[name.split("_")[1]] = line["median"]
        require("f32" in rates and "copy" in rows, "matrix product or copy was not measured")
        products = ", ".join(f"{name} {rate:.4g}" for name, rate in rates.items())
        return f"TFLOP/s: {products}; copy {rows['copy']['median']:.4g} GB/s"

    return read


def read_layers(path):
    """Of bench_layers' JSON: what the convolutions of an attack iteration take together."""

    def read(_):
        lines = json_lines(path.read_text())
        total = next(line for line in lines if line["row"] == "sum")
        require(round(1e9 * total["gmac"] / total["batch"]) == multiply_adds(total["width"]), "the shapes are not resnet18's")
        figures = []
        for letter, name in kPasses:
            share = total[name].get("share_of_gemm")
            figures.append(f"{letter} {total[name]['ms']:.3f} ms, {total[name]['tflops']:.1f} TFLOP/s"
                           + (f" ({100 * share:.0f} %)" if share else ""))
        trials = [line for line in lines if line["row"] == "trial"]
        refused = sum("refused" in line for line in trials)
        return f"sum {'; '.join(figures)}; {len(trials)} trials, {refused} refused"

    return read


def generation(name):
    """Of the GPUs that a library's kernel was written for, by its name: sm80, sm90; empty: the name says nothing."""
    match = re.search(r"(?:\bsm_?|cutlass_)(\d{2,3})_", name)
    return f"sm{match[1]}" if match else ""


def read_peer_convolutions(slot, ours):
    """Beside bench_layers' rows in the file `ours`; a line of details for each shape."""

    def read(text):
        peers = json_lines(text)
        require(peers, "nothing was measured")
        lines = json_lines(ours.read_text()) if ours.exists() else []
        mine = {line["row"]: line for line in lines if line["row"] not in ("trial", "step")}
        sums = collections.Counter()
        slot.details.append("")
        slot.details.append(f"{'convolution, ms alone':<20}" + "".join(
            f"{letter + ': ours':>10}{'PyTorch':>10}{'ratio':>7}  {'its kernel':<10}" for letter, _ in kPasses))
        for peer in peers:
            cells = []
            for letter, name in kPasses:
                ms, kernels = peer[name]["ms"], peer[name].get("kernels", [])
                own = mine.get(peer["row"], {}).get(name, {}).get("ms")
                sums[letter] += peer["count"] * ms
                sums[letter + " ours"] += peer["count"] * own if own else float("nan")
                kind = next(filter(None, map(generation, kernels)), "?" if kernels else "-")
                cells.append(f"{own:>10.4f}{ms:>10.4f}{ms / own:>7.2f}  {kind:<10}" if own else
                             f"{'-':>10}{ms:>10.4f}{'-':>7}  {kind:<10}")
            slot.details.append(f"{peer['row']:<20}" + "".join(cells))
        return "sum " + "; ".join(f"{letter} {sums[letter]:.3f} ms, PyTorch / ours {sums[letter] / sums[letter + ' ours']:.2f}"
                                  for letter, _ in kPasses)

    return read


def read_kernel_names(slot):
    def read(text):
        rows = [line.split("\t") for line in text.splitlines() if line.startswith("kernel\t")]
        if not rows:
            raise NotHere("the driver reported no kernels: " + (re.findall("CUPTI refuses.*", text) or ["no reason given"])[0])
        times = collections.Counter()
        for _, _, ms, name in rows:
            times[generation(name) or "others"] += float(ms)
        whole = sum(times.values())
        slot.details += ["", "kernels of a step: count, ms of the last 200, name"]
        slot.details += [f"{count:>6} {float(ms):>9.3f}  {name}" for _, count, ms, name in rows[:10]]
        return "of the time " + ", ".join(f"{name} {100 * ms / whole:.0f} %" for name, ms in times.most_common())

    return read


def read_step(rates, width):
    """Of bench_step: the median; the attack's convolutions against a large matrix product."""

    def read(text):
        lines = json_lines(text)
        require(lines, "no step was timed")
        step = statistics.median(line["ms_per_step"] for line in lines)
        iteration = statistics.median(line["ms_per_attack_iteration"] for line in lines)
        batch, precision = lines[0]["batch"], lines[0]["attack_precision"]
        gpu = statistics.median(line["gpu_ms_per_step"] for line in lines)
        figure = (f"step {step:.3f} ms by the wall, {gpu:.3f} by GPU events, iteration {iteration:.3f} ms, "
                  f"{1000 * batch / iteration:.0f} image iterations/s")
        rate = rates.get(precision)
        if rate and lines[0]["network"] == "resnet18":  # forward and input gradient, two operations each
            share = 4 * multiply_adds(width) * batch / (1e-3 * iteration) / (1e12 * rate)
            figure += f", {share:.2f} of the product's rate"
        return figure

    return read


def read_pairs(text):
    """Of compare.py."""
    ratio = re.search(r"^fastest PyTorch of any precision: .*: (\S+) ms/image; PyTorch / ours (.*)$", text, re.MULTILINE)
    if not ratio:
        reason = re.search(r"not run: (.*)", text)
        raise NotHere(reason[1]) if reason else Wrong("no pair was timed")
    return f"PyTorch / ours {ratio[2]} (least / median / most); PyTorch {ratio[1]} ms/image"


def read_full_size(text):
    rows = re.findall(r"^\S.*? +(\d\S*e\S+) +(\d\S*e\S+)", text, re.MULTILINE)
    require("PASSED" in text.splitlines() and len(rows) > 10, "it does not say PASSED")
    shares = [float(error) / float(allowed) for error, allowed in rows if float(allowed) > 0]
    return f"{len(rows)} comparisons, the worst at {max(shares):.2f} of what is allowed"


def read_unittest(text):
    count = int(found(r"^Ran (\d+) tests? in", text, "no test was run"))
    require(count > 0 and re.search(r"^OK$", text, re.MULTILINE), "not all tests passed")
    return f"{count} tests"


def read_training(text):
    return found(r"^Final: (.* (?:VALID|PARTIAL))$", text, "the run's figures are not valid")


def read_same_weights(text):
    hashes = re.findall(r"^weights +([0-9a-f]{32})$", text, re.MULTILINE)
    require(len(hashes) == 4, f"{len(hashes)} of 4 lines name the weights")  # twice each: printed, and from SUMMARY.txt
    require(len(set(hashes)) == 1, f"two equal runs have different weights: {' '.join(sorted(set(hashes)))}")
    return f"two runs, the same weights {hashes[0]}"


def read_sanitizer(text):
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", text)
    require(summary, "no summary")
    require(re.search(r"SUMMARY: 0 (errors|hazards)", summary[-1]), summary[-1])
    return summary[-1]


def read_recipe(text):
    """Of bench/full_size.py: accuracies with their intervals."""
    return found(r"^\d{4}-\d\d-\d\d .*?: (clean .*?); \d+ epochs", text, "the recipe was not finished")


def read_table(text):
    """Of bench/robust_table.py."""
    rows = re.findall(r"^\S.*? +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$", text, re.MULTILINE)
    require(len(rows) > 1, "the table was not finished; what is finished is among the results")
    return f"{len(rows)} methods"


# --- Parts that several slots have -----------------------------------------------------------------------------------


def begin(slot, here):
    """What everything else needs. False: it makes no sense to go on."""
    slot.head.append(f"tests/gpu_slot.sh {slot.name}, commit {here.about['commit']}"
                     + (", ON THE DOUBLE of CUDA's libraries: no figure means anything" if here.double else ""))
    lacking = here.without_libraries()
    slot.details += lacking

    def libraries():
        require(not lacking, f"{len(lacking)} are not found, see below")
        return f"all found; glibc {os.confstr('CS_GNU_LIBC_VERSION').split()[-1]}, {here.about['glibc']} needed"

    slot.note("libraries", libraries)
    if lacking:
        return False
    slot.run([
        Part("nvidia_smi", ["nvidia-smi"], 30, lambda text: "driver " + found(r"Driver Version: (\S+)", text, "no driver"),
             missing=here.missing("nvidia-smi")),
        Part("versions", [*here.python, kFolder, "versions"], 60, lambda text: "; ".join(text.splitlines())),
    ])
    return True


def gpu(slot, here):
    """begin(), and a GPU that can be used."""
    if not begin(slot, here):
        return False
    slot.run([Part("doctor", [here.program("dat_hpc"), "doctor"], 60, read_doctor)])
    return slot.status("doctor") in (None, kOk)


def laws_of(here, name, tags, seconds, environment=None):
    return Part(name, [here.program("dat_tests"), tags, "--durations", "yes"], seconds, read_catch(),
                environment=environment or {})


def ceilings(slot, here, rates):
    tiny = ("--device", "cpu", "--size", "256", "--megabytes", "8") if here.double else ()
    slot.run([Part("ceilings", here.script("bench/peers/ceilings.py", "--repeat", "3", *tiny), 60, read_ceilings(rates),
                   missing=here.missing("torch"))])


def layers(slot, here, name, batch, precision, rates, seconds):
    """bench_layers with its trials; the path of its JSON."""
    path = slot.results / f"{name}.jsonl"
    size = ["--width", "16", "--batch", "2", "--steps", "1", "--repeat", "1"] if here.double else ["--batch", batch]
    rate = ["--gemm-tflops", rates[precision]] if precision in rates else []
    command = [here.program("bench_layers"), "--device", "cuda", "--precision", precision, "--json", path, *size, *rate]
    slot.run([Part(name, command, seconds, read_layers(path))])
    return path


def step(here, name, rates, batch, *options, seconds=60, read=None, environment=None):
    width, size = 64, ["--batch", batch, "--repeat", "10", *options]
    if here.double:
        width, size = 16, ["--batch", "4", "--width", "16", "--steps", "1", "--repeat", "1"]
        size += ["--attack-batch", "2"] if "--attack-batch" in options else []
    command = [here.program("bench_step"), "--device", "cuda", "--math", "tf32", "--attack-precision", "f16", *size]
    return Part(name, command, seconds, read or read_step(rates, width), environment=environment or {})


def pairs(slot, here, name, form, batch, count, seconds, environment=None):
    size = ["--batch", batch, "--pairs", count]
    if here.double:
        size = ["--batch", "4", "--pairs", "1", "--width", "16", "--steps", "1", "--peer-device", "cpu"]
    command = here.script("bench/compare.py", here.program("bench_step"), "--device", "cuda", "--form", form, *size,
                          "--peer-python", sys.executable, "--json", slot.results / f"{name}.jsonl")
    return Part(name, command, seconds, read_pairs, missing=here.missing("torch"),
                environment={"TORCHINDUCTOR_CACHE_DIR": slot.scratch / "inductor", **(environment or {})})


# --- The slots -------------------------------------------------------------------------------------------------------


def smoke(slot, here):
    if not gpu(slot, here):
        return
    rates = {}
    slot.run([laws_of(here, "laws_kernels", "[kernels]~[cpu]", 150), laws_of(here, "laws_backend", "[backend]~[cpu]", 150)],
             at_once=2)
    ceilings(slot, here, rates)
    path = layers(slot, here, "layers_f16", 512, "f16", rates, 150)
    tiny = ["--width", "16", "--batch", "2", "--repeat", "1", "--precision", "f32", "--device", "cpu"]
    slot.run([
        Part("torch_convolutions", here.script("bench/peers/convolutions.py", "--names", *(tiny if here.double else ())), 90,
             read_peer_convolutions(slot, path), missing=here.missing("torch")),
        dataclasses.replace(step(here, "kernel_names", rates, 512, seconds=90, read=read_kernel_names(slot),
                                 environment={"CUDA_INJECTION64_PATH": kRoot / "lib" / "kernel_names.so"}),
                            missing="the double runs no kernels" if here.double else ""),
    ])


def laws(slot, here):
    if not gpu(slot, here):
        return
    train = [here.program("dat_hpc"), "train", "--device", "cuda", "--math", "f32", "--deterministic", "--attack-steps", "5",
             "--eval-attack-steps", "5", "--warmup-epochs", "0", "--epochs", "1", "--resume", "never"]
    train += (["--network", "small_cnn", "--width", "16", "--limit-train", "24", "--limit-test", "8", "--batch", "8"]
              if here.double else
              ["--network", "preact_resnet18", "--limit-train", "192", "--limit-test", "64", "--batch", "64"])
    twice = 'for run in 1 2; do "$@" --out same$run && grep "^weights" same$run/SUMMARY.txt || exit; done'
    small = ["train", "--device", "cuda", "--network", "small_cnn", "--width", "16", "--limit-train",
             "32", "--limit-test", "8", "--batch", "16", "--attack-steps", "2", "--eval-attack-steps", "2", "--epochs", "1",
             "--warmup-epochs", "0", "--resume", "never"]

    def sanitizer(name, tool, program, *arguments):  # of the program itself, not of the script that starts it
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", kRoot / "libexec" / program, *arguments]
        return Part(name, command, 240, read_sanitizer, environment=here.loader(),
                    missing=here.missing("compute-sanitizer"), excuse="Device not supported")

    def log(name):
        return {"CUDNN_LOGLEVEL_DBG": "1", "CUDNN_LOGDEST_DBG": slot.results / f"cudnn_{name}.txt"}

    tests = {"golden": "[golden]", "network": "[network]", "attack": "[attack]", "trainer": "[trainer]",
             "optimizer": "[optimizer]~[cpu],[parameters]", "reducer": "[reducer]~[cpu],[codec]"}
    slot.run([
        *(laws_of(here, f"laws_{name}", tags + "~[cpu]", 200, log(name)) for name, tags in tests.items()),
        Part("mpi_2_ranks", [here.program("mpiexec"), "-n", "2", here.program("dat_mpi_tests")], 200, read_catch(2),
             environment={"OMP_NUM_THREADS": "1"}),
        *(Part(f"full_size_{network}",
               here.script("tests/golden/full_size.py", here.program("dat_probe"), network, "--device", "cuda",
                           "--width", "16" if here.double else "64"), 200, read_full_size,
               missing=here.missing("torch", "h5py")) for network in here.sizes("resnet18", "preact_resnet18")),
        *(Part(f"train_{precision}", [*train, "--attack-precision", precision, "--out", f"train_{precision}"], 120,
               read_training) for precision in ("f32", "f16", "bf16")),
        Part("same_weights_twice", ["bash", "-c", twice, "bash", *train, "--attack-precision", "f16"], 200,
             read_same_weights),
        sanitizer("memcheck_kernels", "memcheck", "dat_tests", "[kernels]~[cpu]"),
        sanitizer("racecheck_kernels", "racecheck", "dat_tests", "[kernels]~[cpu]"),
        sanitizer("memcheck_run_f16", "memcheck", "dat_hpc", *small, "--attack-precision", "f16", "--out", "memcheck"),
        *(Part(f"whole_runs_{part}", here.script("tests/e2e/cuda.py", here.program("dat_hpc"), "--part", f"{part}/2"), 300,
               read_unittest, missing=here.missing("h5py")) for part in (1, 2)),
    ], at_once=max(2, min(6, (os.cpu_count() or 2) // 2)))


def speed(slot, here):
    if not gpu(slot, here):
        return
    rates = {}
    ceilings(slot, here, rates)
    slot.run([step(here, f"step_{batch}", rates, batch) for batch in here.sizes(512, 128, 2048)])
    slot.run([step(here, f"step_2048_by_{piece}", rates, 2048, "--attack-batch", piece)
              for piece in here.sizes(256, 128, 512)])
    slot.run([
        # PyTorch's compiler tries convolutions of its own, too, unless it is told not to: a cold compilation would then
        # take longer than the slot. cuDNN's are what is left.
        pairs(slot, here, "pairs_512_compiled_graph", "compiled_graph", 512, 5, 170,
              {"TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS": "ATEN"}),
        pairs(slot, here, "pairs_2048_folded_f16", "folded_f16_channels_last", 2048, 3, 90),
        pairs(slot, here, "pairs_512_eager_tf32", "eager_tf32_channels_last", 512, 3, 90),
        pairs(slot, here, "pairs_512_compiled_all", "compiled", 512, 3, 200),
    ])


def read_plans(slot, path, precision):
    """Of bench_layers' trials: each pass of a frozen convolution by the fastest plan of each kind, a line of details."""
    best, reasons = {}, collections.Counter()
    for line in json_lines(path.read_text()):
        convolution, frozen, more = line.get("convolution", "").partition(", frozen")
        if line["row"] != "trial" or not frozen or not more.endswith(", " + precision):  # f32: the evaluation's
            continue
        kinds = best.setdefault((convolution + more, line["pass"]), {})
        kind = "graph" if kGraphPlan.match(line["algorithm"]) else "legacy"
        if "refused" in line:
            reasons[line["refused"]] += kind == "graph"
        elif 0 < line["ms"] < kinds.get(kind, (math.inf,))[0]:  # 0: it was not timed
            kinds[kind] = line["ms"], line["algorithm"]
    require(any(best.values()), "no trials of frozen convolutions")
    both = {key: kinds for key, kinds in best.items() if len(kinds) == 2}
    slot.details += ["", f"{path.stem}: legacy ms, graph ms, legacy / graph, convolution, pass: fastest graph plan"]
    for (convolution, name), kinds in best.items():
        cells = [f"{kinds[kind][0]:>9.4f}" if kind in kinds else f"{'-':>9}" for kind in ("legacy", "graph")]
        ratio = f"{kinds['legacy'][0] / kinds['graph'][0]:>6.2f}" if len(kinds) == 2 else f"{'-':>6}"
        fastest = kinds.get("graph", (0, "none"))[1]
        slot.details.append(f"{''.join(cells)}{ratio}  {convolution}, {name}: {fastest}")
    slot.details += [f"graph plans refused, {count} times: {reason}" for reason, count in reasons.most_common(5) if count]
    if not both:
        return f"{len(best)} passes, no graph plan for any"
    faster = sum(kinds["graph"][0] < kinds["legacy"][0] for kinds in both.values())
    sums = [sum(kinds[kind][0] for kinds in both.values()) for kind in ("legacy", "graph")]
    return f"{len(best)} passes, {len(both)} with both plans: graph faster in {faster}; sum {sums[0]:.4f}, {sums[1]:.4f} ms"


def graph(slot, here):
    if not gpu(slot, here):
        return
    rates = {}
    ceilings(slot, here, rates)
    for batch, precision, seconds in (*here.sizes((512, "f16", 120), (2048, "f16", 120), (128, "f16", 90)),
                                      (512, "bf16", 90)):
        name = f"layers_{batch}_{precision}"
        path = layers(slot, here, name, batch, precision, rates, seconds)
        if path.exists():
            slot.note(f"plans_{batch}_{precision}", lambda: read_plans(slot, path, precision))
    slot.run([step(here, f"step_{batch}", rates, batch) for batch in here.sizes(512, 2048)])


def cifar10(slot, here):
    """The data file; on the double, a small one of its own."""
    if not here.double:
        return here.data
    data = slot.scratch / "data.h5"
    slot.run([Part("data", [here.program("dat_hpc"), "data", "synthetic", data, "--train", "256", "--test", "16"], 60)])
    return data


kNoData = "no --data FILE: CIFAR-10 as a data file"


def full(slot, here):
    """One after the other: processes that share a GPU take turns, and each takes ten times as long then."""
    if not gpu(slot, here):
        return
    data, tiny, size = cifar10(slot, here), [], []
    if here.double:
        size = ["--width", "16", "--images", "8"]
        tiny = ["--limit-train", "256", "--limit-test", "16", "--epochs", "1", "--warmup-epochs", "0"]
    for name, recipe, ranks, *options in here.sizes(*kRecipes):
        out = slot.scratch / f"full_{name}"
        slot.run([Part(f"full_{name}", here.script(
            "bench/full_size.py", recipe, "--program", here.program("dat_hpc"), "--data", data, "--out", out, "--ranks", ranks,
            "--launch", "mpiexec -n {ranks}", *size, "--", "--device", "cuda", "--deterministic", "--checkpoint-async", *options, *tiny), 300,
            read_recipe, missing="" if data else kNoData)])
        for path in out.rglob("*"):
            if path.name in ("SUMMARY.txt", "row.json", "eval.json"):
                shutil.copy(path, slot.results / f"full_{name}_{path.parent.name}_{path.name}")


def table(slot, here):
    """Narrow networks leave a GPU idle most of the time: two processes share the rows out."""
    if not gpu(slot, here):
        return
    data, out = cifar10(slot, here), slot.scratch / "table"
    size = ["--seeds", "3", "--test-images", "0", "--aa", "aa-quick", "--aa-images", "1000"]
    if here.double:
        size = ["--methods", "N-FGSM", "--seeds", "1", "--width", "4", "--passes", "0.01", "--test-images", "4", "--aa", "pgd2",
                "--aa-images", "4"]
    command = here.script("bench/robust_table.py", here.program("dat_hpc"), "--data", data, "--table", "fast", "--ranks", "1", "--batch", "128",
                          "--launch", "", "--out", out, *size, "--", "--device", "cuda", "--threads", "2")
    slot.run([Part(f"table_{k}", command, 520, read_table, missing="" if data else kNoData) for k in (1, 2)], at_once=2)
    for path in out.glob("*-seed?.json"):
        shutil.copy(path, slot.results / f"table_{path.name}")


def check(slot, here):
    """Without a GPU: what can be known of a packed archive where it was packed."""
    if not begin(slot, here):
        return
    cpu = {"DAT_TEST_DEVICE": "cpu"}
    slot.run([
        Part("doctor", [here.program("dat_hpc"), "doctor"], 60, lambda text: found(r"^cuDNN +(.*)$", text, "no cuDNN")),
        laws_of(here, "laws_on_the_cpu", "[golden],[optimizer]", 120, cpu),
        Part("mpi_2_ranks", [here.program("mpiexec"), "-n", "2", here.program("dat_mpi_tests")], 200, read_catch(2),
             environment={"OMP_NUM_THREADS": "1", **cpu}),
    ])


kSlots = {"smoke": smoke, "laws": laws, "speed": speed, "graph": graph, "full": full, "table": table, "check": check}


def print_versions():
    """Of what else is on this machine."""
    try:
        import torch

        print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    except ImportError:
        print("no PyTorch")
    uname = os.uname()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {uname.sysname} {uname.release}")
