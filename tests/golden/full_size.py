"""Compares the full-size networks with PyTorch in float64: full_size.py PROBE [network] [--device cpu|cuda]

Width 64, 32x32 images, batch 4, 10 classes, PGD-10, f32 without TF32. PROBE IN.h5 OUT.h5 DEVICE is a program that reads
the inputs (those of a golden file, see make_golden.py, without expected/) and writes logits_eval, input_gradient_eval (sum of
the losses, running statistics), logits_train, grad/NAME (mean loss, batch statistics), x_adv (PGD, running statistics as
given).
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import h5py
import torch
from torch.nn import functional as F

import make_golden
import reference

# Relative L2 errors may be kFactor times those of PyTorch's own float32, or the floor where that is more. A gradient is
# not continuous: a float32 run flips a few of the 2e6 ReLUs, and one flip among the 3e4 of the last stage, half of them
# active, changes the gradient by 1 / sqrt(1.5e4) = 8e-3. A dozen such flips make 3e-2.
kFactor = 20
kLogitsFloor = 1e-5
kGradientFloor = 3e-2
# Ten signed steps amplify each flip, so that any two float32 runs end in other pixels, but equally many of them (two
# kernels of PyTorch: 0.21 and 0.26) and at the same loss. A wrong step size or start gives 0.55 and more.
kPixelsFactor = 1.5
kAttackLoss = 5e-3


def single_precision_runs(case):
    """Float32 results of two sets of PyTorch's kernels: each flips other ReLUs."""
    for enabled in (True, False):
        with torch.backends.mkldnn.flags(enabled=enabled):
            yield make_golden.clean_passes(case, torch.float32), case.attack(torch.float32)[1]


def pixels_off(x_adv, reference_x_adv):
    return float(((x_adv.double() - reference_x_adv).abs() > 1e-4).double().mean())


def check(probe, device, network, folder):
    attack = {"eps": 8 / 255, "alpha": 2 / 255, "steps": 10, "lambda": 1.0}
    case = make_golden.Case(network, 64, 32, 4, 10, seed=0, attack=attack)
    inputs, outputs = folder / "in.h5", folder / "out.h5"
    with h5py.File(inputs, "w") as file:
        case.write(file)
    subprocess.run([probe, inputs, outputs, device], check=True)

    exact, exact_x_adv = make_golden.clean_passes(case, torch.float64), case.attack(torch.float64)[1]
    runs = list(single_precision_runs(case))
    rows = []
    with h5py.File(outputs) as file:
        gradients = [name for name in exact if name.startswith("grad/")]
        for name in ["logits_eval", "input_gradient_eval", "logits_train", *gradients]:
            found = torch.from_numpy(file[name][()])
            if found.shape != exact[name].shape:
                sys.exit(f"{name} has the shape {tuple(found.shape)}, expected {tuple(exact[name].shape)}")
            yardstick = max(reference.relative_error(single[name], exact[name]) for single, _ in runs)
            floor = kLogitsFloor if name.startswith("logits") else kGradientFloor
            error = reference.relative_error(found, exact[name])
            rows.append((name, error, yardstick, max(kFactor * yardstick, floor)))
        x_adv = torch.from_numpy(file["x_adv"][()]).double()

    yardstick = max(pixels_off(single, exact_x_adv) for _, single in runs)
    rows.append(("x_adv, pixels off", pixels_off(x_adv, exact_x_adv), yardstick, kPixelsFactor * yardstick))
    outside = torch.maximum((x_adv - case.x).abs() - attack["eps"], (x_adv - 0.5).abs() - 0.5).clamp_min(0)
    rows.append(("x_adv, outside", float(outside.max()), 0.0, 1e-7))
    model = case.network(torch.float64, train=False)
    losses = [float(F.cross_entropy(model(x), case.labels)) for x in (x_adv, exact_x_adv, runs[0][1].double())]
    error = [abs(loss / losses[1] - 1) for loss in losses]
    rows.append(("attack loss", error[0], error[2], kAttackLoss))

    print(f"{network}, {device}\n{'':36}{'error':>10}{'PyTorch':>10}{'allowed':>10}")
    for name, error, yardstick, allowed in rows:
        print(f"{name:36}{error:10.1e}{yardstick:10.1e}{allowed:10.1e}{'' if error <= allowed else '  FAILED'}")
    return all(error <= allowed for _, error, _, allowed in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("probe", type=pathlib.Path)
    parser.add_argument("network", nargs="?", choices=("preact_resnet18", "resnet18"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="that the probe computes on")
    arguments = parser.parse_args()
    networks = [arguments.network] if arguments.network else ["preact_resnet18", "resnet18"]
    with tempfile.TemporaryDirectory() as folder:
        probe = arguments.probe.resolve()
        passed = [check(probe, arguments.device, network, pathlib.Path(folder)) for network in networks]
    print("PASSED" if all(passed) else "FAILED")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
