"""Paired comparison with PyTorch: compare.py BENCH_STEP [--pairs N] [--form FORM ...] [--device ...] [--network ...] ...

Starts bench_step and a script of peers/ with --serve, torch_step.py on a CPU and torch_gpu.py on a GPU, and lets them take
turns, one training step each: A B A B. Only one computes at a time. Threads that wait for work must not spin, or the idle
program would slow down the busy one: OMP_WAIT_POLICY=passive for both, unless it is already set in the environment.

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

kFolder = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(kFolder / "peers"))
import tolerance

# A form, and the --math and --attack-precision with which we meet it.
kForms = {
    "cpu": {form: ("f32", "f32") for form in ("channels_last_grad", "eager", "backward")},
    "cuda": {
        "eager_f32": ("f32", "f32"),
        "eager_tf32": ("tf32", "f32"),
        "eager_tf32_channels_last": ("tf32", "f32"),
        "bf16_autocast_channels_last": ("tf32", "bf16"),
        "folded_f16_channels_last": ("tf32", "f16"),
        "compiled": ("tf32", "f16"),
        "compiled_graph": ("tf32", "f16"),
    },
}
kPeers = {"cpu": "torch_step.py", "cuda": "torch_gpu.py"}

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


def compare(form, ours_command, peer_command, pairs, folder):
    """Ours' last line and (ours, peer) milliseconds per step, or a reason why there are none, and whether it is a failure."""
    ours_path, peer_path = folder / "ours", folder / "peer"
    ours = Server(ours_command + ["--check", ours_path])
    peer = Server(peer_command + ["--form", form, "--results", peer_path])
    try:
        peer_line = peer.read()
        if "skipped" in peer_line:
            return None, "not run: " + peer_line["skipped"], False
        ours_line = ours.read()
        print(f"\n{form}: {ours_line['math']}, attack in {ours_line['attack_precision']}, against {peer_line['form']}")
        rows = differences(ours_line, ours_path, peer_line, peer_path)
        for name, error, allowed in rows:
            print(f"    {name:20}{error:10.1e}, allowed {allowed:7.1e}{'' if error <= allowed else '  FAILED'}", flush=True)
        if not all(error <= allowed for _, error, allowed in rows):
            return ours_line, "FAILED the check", True
        times = []
        for k in range(pairs + 1):
            pair = ours.step(), peer.step()
            if k > 0:  # the first pair warms up
                times.append(pair)
        return ours_line, times, False
    except (Stopped, json.JSONDecodeError) as error:
        return None, f"FAILED: {error}", True
    finally:
        ours.close()
        peer.close()


def print_table(results):
    print(f"\n{'':44}{'ms/step, median':>18}{'PyTorch / ours, pair by pair':>32}")
    print(f"{'PyTorch form, our precision':44}{'ours':>9}{'PyTorch':>9}{'min':>12}{'median':>10}{'max':>10}")
    for name, times in results:
        if isinstance(times, str):
            print(f"{name:44}  {times}")
            continue
        ours, peer = ([line["ms_per_step"] for line in side] for side in zip(*times))
        ratios = [b / a for a, b in zip(ours, peer)]
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        medians = f"{statistics.median(ours):9.2f}{statistics.median(peer):9.2f}"
        print(f"{name:44}{medians}{low:12.2f}{middle:10.2f}{high:10.2f}")


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def find_python():
    for python in (sys.executable, "/usr/bin/python3"):
        if python and pathlib.Path(python).exists() and has_torch(python):
            return python
    sys.exit("compare.py: no Python with PyTorch is found; name one with --python")


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
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--form", nargs="+", help="of peers/torch_step.py or, on a GPU, peers/torch_gpu.py; default: all")
    parser.add_argument("--python", help="one that has torch; default: this one, or else /usr/bin/python3")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--steps", type=int, default=10, help="of the attack")
    parser.add_argument("--math", choices=("f32", "tf32"), help="ours; default: that of the form")
    parser.add_argument("--attack-precision", choices=("f32", "f16", "bf16"), help="ours; default: that of the form")
    parser.add_argument("--json", type=pathlib.Path, help="every pair as one line into this file")
    arguments = parser.parse_args()

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    python = arguments.python or find_python()
    about = device_of(arguments.bench_step, arguments.device)
    device = about.split(":")[0]
    unknown = [form for form in arguments.form or [] if form not in kForms[device]]
    if unknown:
        parser.error(f"unknown form {unknown[0]}; known on this device: {', '.join(kForms[device])}")
    options = []
    for name in ("network", "width", "batch", "threads", "steps"):
        options += [f"--{name}", getattr(arguments, name)]
    print(
        f"PGD-{arguments.steps} step of {arguments.network}, width {arguments.width}, batch {arguments.batch}, "
        f"{arguments.pairs} pairs, {datetime.date.today()}, load {os.getloadavg()[0]:.1f}, "
        f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}\n{about}",
        flush=True,
    )
    results, failed, last = [], False, None
    for form in arguments.form or kForms[device]:
        math_, precision = kForms[device][form]
        math_, precision = arguments.math or math_, arguments.attack_precision or precision
        ours = [arguments.bench_step, *options, "--device", device, "--math", math_, "--attack-precision", precision]
        peer = [python, kFolder / "peers" / kPeers[device], *options]
        with tempfile.TemporaryDirectory() as folder:
            line, times, bad = compare(form, ours, peer, arguments.pairs, pathlib.Path(folder))
        results.append((f"{form}, {math_}/{precision}", times))
        failed, last = failed or bad, line or last
        if arguments.json and not isinstance(times, str):
            with arguments.json.open("a") as file:
                for pair in times:
                    file.write(json.dumps({"ours": pair[0], "peer": pair[1]}) + "\n")
    print_table(results)
    if last:
        print(f"dat_hpc: {last['device_bytes'] / 2**20:.0f} MiB on the device, commit {last['commit']}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
