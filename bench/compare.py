"""Paired comparison with PyTorch: compare.py BENCH_STEP [--pairs N] [--forms FORM ...] [--peer-python PATH ...] [--device ...]

Starts bench_step and a script of peers/ with --serve, torch_step.py on a CPU and torch_gpu.py on a GPU, and lets them take
turns, one training step each: A B A B. With --attack-bn train it is the step of FGSM on batch statistics, which torch_gpu.py
makes on both. Only one computes at a time. Threads that wait must not spin, or the idle program
would slow down the busy one: both get the environment kIdle, unless OMP_WAIT_POLICY is set. With --spin they wait as their
runtime does by default, spinning for some milliseconds: both are faster then, where nothing else runs.

Both start from the same weights and images, bit by bit. Before a form is timed, its logits, input gradient and losses before
and after an attack are compared with ours. They may differ by what each side may be off (peers/tolerance.py), added up. The
exit status is 1 if a form fails this check; it is not timed then.
"""

import argparse
import array
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import typing

kFolder = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(kFolder / "peers"))
import tolerance

kIdle = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}

# By --attack-bn and device: a form, and the --math, --attack-precision and --precision with which we meet it.
kCpuForms = ("eager", "channels_last_grad", "backward", "folded_channels_last", "folded_bf16", "compile", "compile_bf16")
kForms = {
    "eval": {
        "cpu": {form: ("f32", "f32", "f32") for form in kCpuForms},
        "cuda": {
            "eager_f32": ("f32", "f32", "f32"),
            "eager_tf32": ("tf32", "f32", "f32"),
            "eager_tf32_channels_last": ("tf32", "f32", "f32"),
            "bf16_autocast_channels_last": ("tf32", "bf16", "f32"),
            "folded_f16_channels_last": ("tf32", "f16", "f32"),
            "compiled": ("tf32", "f16", "f32"),
            "compiled_graph": ("tf32", "f16", "f32"),
        },
    },
    "train": {
        "cpu": {form: ("f32", "f32", "f32") for form in ("eager_f32", "eager_tf32_channels_last")},
        "cuda": {
            "eager_f32": ("f32", "f32", "f32"),
            "eager_tf32_channels_last": ("tf32", "f32", "f32"),
            "graph_tf32": ("tf32", "f32", "f32"),
            "graph_bf16": ("tf32", "f32", "bf16"),
            "graph_f16": ("tf32", "f32", "f16"),
            "compiled_graph_f16": ("tf32", "f32", "f16"),
        },
    },
}
kDefaultCpuForms = ("channels_last_grad", "backward", "folded_channels_last", "compile")

# What the attack adds to the loss, relative: ten signed steps amplify every flipped ReLU, but any two runs end at about
# the same loss. Relative to the larger of the two; for each side in f32, and with fewer digits.
kLossFloat32, kLossFewerDigits = 5e-3, 2e-2


class Stopped(Exception):
    """A program ended before it answered."""


class Server:
    """One program that does a step for each line it gets."""

    def __init__(self, command):
        words = [str(word) for word in command] + ["--serve"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise Stopped(f"{' '.join(self.process.args)} stopped with code {self.process.wait()}")
        return json.loads(line)

    def step(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.read()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


def read_results(path, line):
    values = array.array("f")
    with open(path, "rb") as file:
        values.fromfile(file, line["logits"] + line["input_gradient"])
    return values[: line["logits"]], values[line["logits"] :]


def relative_error(found, wanted):
    difference = math.fsum((a - b) ** 2 for a, b in zip(found, wanted))
    size = math.fsum(b * b for b in wanted)
    return math.sqrt(difference / size) if size > 0 else math.inf


def our_tolerance(line):
    if line["attack_bn"] == "train":  # passes of the network that is trained, in its precision
        if line["precision"] == "bf16":
            return tolerance.kBfloat16InBatch
        return tolerance.kTenBitsInBatch if line["precision"] == "f16" or line["math"] == "tf32" else tolerance.kFloat32
    if line["attack_precision"] == "bf16":
        return tolerance.kBfloat16
    return tolerance.kTenBits if line["attack_precision"] == "f16" or line["math"] == "tf32" else tolerance.kFloat32


def differences(ours, ours_path, peer, peer_path):
    """Name, error and what is allowed."""
    (logits, dx), (peer_logits, peer_dx) = read_results(ours_path, ours), read_results(peer_path, peer)
    if len(logits) != len(peer_logits) or len(dx) != len(peer_dx):
        return [("shapes", math.inf, 0.0)]
    sides = our_tolerance(ours), tuple(peer["tolerance"])
    other = sum((a > 0) - (a < 0) != (b > 0) - (b < 0) for a, b in zip(dx, peer_dx)) / len(dx)
    errors = relative_error(logits, peer_logits), relative_error(dx, peer_dx), other
    rows = [
        (name, error, a + b)
        for name, error, a, b in zip(("logits", "input gradient", "other signs"), errors, *sides)
    ]
    clean = abs(ours["clean_loss"] / peer["clean_loss"] - 1)
    rows.append(("clean loss", clean, sides[0][0] + sides[1][0]))
    rises = [line["attacked_loss"] - line["clean_loss"] for line in (ours, peer)]
    allowed = sum(kLossFloat32 if side == tolerance.kFloat32 else kLossFewerDigits for side in sides)
    error = abs(rises[0] - rises[1]) / max(rises) if min(rises) > 0 else math.inf
    rows.append(("rise of the loss", error, allowed))
    return rows


class Row(typing.NamedTuple):
    """Of the table: one form of one PyTorch."""

    name: str
    times: list = []  # (ours, peer), lines of JSON
    reason: str = ""  # why there are no times
    failed: bool = False
    float32: bool = False

    def column(self, side):
        return [pair[side]["ms_per_image"] for pair in self.times]

    def ratios(self):
        return [peer / ours for ours, peer in zip(self.column(0), self.column(1))]


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def compare(name, form, ours_command, peer_command, pairs, left, folder):
    """A row, and ours' first line. `left` counts the forms still to do, this one included."""
    begin = time.monotonic()
    ours_path, peer_path = folder / "ours", folder / "peer"
    ours, peer = Server(ours_command + ["--check", ours_path]), None
    try:
        ours_line = ours.read()  # alone: it chooses its algorithms by time
        peer = Server(peer_command + ["--form", form, "--results", peer_path])
        peer_line = peer.read()
        if "skipped" in peer_line:
            print(f"\n{name}: not run: {peer_line['skipped']}", flush=True)
            return Row(name, reason="not run: " + peer_line["skipped"]), None
        print(f"\n{name}: {ours_line['math']}, attack in {ours_line['attack_precision']}, training in {ours_line['precision']}, "
              f"against {peer_line['form']}")
        rows = differences(ours_line, ours_path, peer_line, peer_path)
        for what, error, allowed in rows:
            print(f"    {what:20}{error:10.1e}, allowed {allowed:7.1e}{'' if error <= allowed else '  FAILED'}", flush=True)
        if not all(error <= allowed for _, error, allowed in rows):
            return Row(name, reason="FAILED the check", failed=True), ours_line
        warm = peer.step(), ours.step()  # the peer first: it may still be at its own first step
        pair = sum(line["ms_per_step"] for line in warm) / 1000
        total = left * pairs * pair + (left - 1) * (time.monotonic() - begin)
        print(f"    a pair takes {pair:.1f} s; about {minutes(total)} left for {left} form{'s'[: left > 1]}", flush=True)
        times = [(ours.step(), peer.step()) for _ in range(pairs)]
        return Row(name, times, float32=tuple(peer_line["tolerance"]) == tolerance.kFloat32), ours_line
    except (Stopped, json.JSONDecodeError) as error:
        return Row(name, reason=f"FAILED: {error}", failed=True), None
    finally:
        ours.close()
        if peer:
            peer.close()


def spread(values):
    return " / ".join(f"{value:#.4g}" for value in (min(values), statistics.median(values), max(values)))


def print_table(rows):
    print(f"\n{'':50}{'ms/image, min / median / max':^56}{'PyTorch / ours, pair by pair':^28}")
    print(f"{'PyTorch, form, our precision':50}{'ours':^28}{'PyTorch':^28}{'min / median / max':^28}")
    for row in rows:
        if not row.times:
            print(f"{row.name:50}  {row.reason}")
            continue
        columns = row.column(0), row.column(1), row.ratios()
        print(f"{row.name:50}{''.join(f'{spread(values):^28}' for values in columns)}".rstrip())


def print_fastest(what, rows):
    if rows:
        best = min(rows, key=lambda row: statistics.median(row.column(1)))
        ms = statistics.median(best.column(1))
        print(f"fastest PyTorch {what}: {best.name}: {ms:#.4g} ms/image; PyTorch / ours {spread(best.ratios())}")


def torch_version(python):
    """None where there is no PyTorch."""
    try:
        done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_pythons(named):
    """(path, PyTorch's version) of those that are named, or else of the first that has PyTorch."""
    if named:
        found = [(python, torch_version(python)) for python in named]
        for python, version in found:
            if not version:
                sys.exit(f"compare.py: {python} has no PyTorch")
        return found
    for python in (sys.executable, "/usr/bin/python3"):
        version = torch_version(python) if python else None
        if version:
            return [(python, version)]
    sys.exit("compare.py: no Python with PyTorch is found; name one with --peer-python (bench/peers/README.md: how to make one)")


def device_of(bench_step, device):
    """The device that bench_step takes: cpu or cuda."""
    tiny = ["--network", "small_cnn", "--width", "16", "--batch", "16", "--steps", "1", "--repeat", "1"]
    done = subprocess.run([bench_step, "--device", device, *tiny], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compare.py: {bench_step} --device {device} stopped with code {done.returncode}")
    return json.loads(done.stdout)["device"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench_step", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument(
        "--forms",
        "--form",
        nargs="+",
        help="of peers/torch_step.py or, on a GPU, peers/torch_gpu.py, or all; default: all on a GPU, on a CPU "
        + " ".join(kDefaultCpuForms),
    )
    parser.add_argument(
        "--peer-python",
        "--python",
        nargs="+",
        action="extend",
        help="some that have PyTorch, each a witness; default: this one, or else /usr/bin/python3",
    )
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--attack-bn", default="eval", choices=list(kForms), help="eval: PGD; train: FGSM on batch statistics")
    parser.add_argument("--steps", type=int, default=10, help="of PGD")
    parser.add_argument("--spin", action="store_true", help="threads wait as their runtime does by default")
    parser.add_argument("--math", choices=("f32", "tf32"), help="ours; default: that of the form")
    parser.add_argument("--attack-precision", choices=("f32", "f16", "bf16"), help="ours; default: that of the form")
    parser.add_argument("--precision", choices=("f32", "f16", "bf16"), help="ours; default: that of the form")
    parser.add_argument("--peer-device", choices=("cpu", "cuda"), help="PyTorch's, to try this script without a GPU")
    parser.add_argument("--json", type=pathlib.Path, help="every pair as one line into this file")
    arguments = parser.parse_args()

    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    if not arguments.spin and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.update(kIdle)
    pythons = find_pythons(arguments.peer_python)
    about = device_of(arguments.bench_step, arguments.device)
    device = about.split(":")[0]
    batch_statistics = arguments.attack_bn == "train"
    known = kForms[arguments.attack_bn][device]
    forms = arguments.forms or (kDefaultCpuForms if device == "cpu" and not batch_statistics else ["all"])
    forms = list(known) if list(forms) == ["all"] else forms
    unknown = [form for form in forms if form not in known]
    if unknown:
        parser.error(f"unknown form {unknown[0]}; known on this device: {', '.join(known)}")
    options = []
    for name in ("network", "width", "size", "batch", "threads", *(() if batch_statistics else ("steps",))):
        options += [f"--{name}", getattr(arguments, name)]
    script, own, peer_device = "torch_gpu.py", [], arguments.peer_device
    if batch_statistics:
        options += ["--attack-bn", "train"]
        own, peer_device = ["--attack", "fgsm"], peer_device or device
    elif device == "cpu":
        script = "torch_step.py"
    print(
        f"{'FGSM' if batch_statistics else f'PGD-{arguments.steps}'} step of {arguments.network}, width {arguments.width}, images of {arguments.size}, batch {arguments.batch}, "
        f"{arguments.pairs} pairs, {datetime.date.today()}, load {os.getloadavg()[0]:.1f}, "
        f"OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', 'default')}\n{about}"
    )
    for python, version in pythons:
        print(f"PyTorch {version}: {python}", flush=True)
    rows, last, left = [], None, len(pythons) * len(forms)
    for python, version in pythons:
        for form in forms:
            given = arguments.math, arguments.attack_precision, arguments.precision
            math_, attacked, trained = (mine or default for mine, default in zip(given, known[form]))
            ours = [arguments.bench_step, *options, *own, "--device", device, "--math", math_, "--attack-precision", attacked,
                    "--precision", trained]
            peer = [python, kFolder / "peers" / script, *options]
            if peer_device:
                peer += ["--device", peer_device]
            name = f"{version} {form}, {math_}/{attacked}/{trained}"
            with tempfile.TemporaryDirectory() as folder:
                row, line = compare(name, form, ours, peer, arguments.pairs, left, pathlib.Path(folder))
            rows.append(row)
            last, left = line or last, left - 1
            if arguments.json:
                with arguments.json.open("a") as file:
                    for pair in row.times:
                        file.write(json.dumps({"ours": pair[0], "peer": pair[1]}) + "\n")
    print_table(rows)
    if last:
        print(f"dat_hpc: {last['device_bytes'] / 2**20:.0f} MiB on the device, commit {last['commit']}")
    timed = [row for row in rows if row.times]
    print_fastest("in f32", [row for row in timed if row.float32])
    print_fastest("of any precision", timed)
    sys.exit(1 if any(row.failed for row in rows) else 0)


if __name__ == "__main__":
    main()
