"""Three steps of the program in 16 bits beside PyTorch's on the same weights and images, both against double precision.

    python3 tests/outside/sixteen_bits.py PATH/TO/dat_hpc [--width N] [--only NAME...]

Of each step the gradient is (weights before - weights after) / lr. Its error is its distance from the gradient in double
precision, relative to the length of that one. The program's may be FACTOR times PyTorch's. bf16 is torch.autocast on the
CPU. Autocast in f16 wants a GPU: here the results of convolutions, batch norms, activations and blocks, the gradients at
these places (times 1024, as with PyTorch's GradScaler), the weights of convolutions and their gradients are rounded to
f16, which is what autocast's tensors of that type are, while sums stay f32, as they do within a GPU's products. The same
is done in bf16, and must come to autocast's own error within a factor of two: so it is a fair stand-in.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "golden"), os.path.dirname(HERE)]  # its reference, not that beside this file
import reference
from mpi_environment import MPI_ENVIRONMENT

FACTOR, STEPS, BATCH, SIZE = 1.5, 4, 16, 16
LR = 0.05
NETWORKS = {"preact_resnet18": lambda width: reference.ResNet(reference.PreActBlock, [2, 2, 2, 2], width, 10),
            "resnet18": lambda width: reference.ResNet(reference.BasicBlock, [2, 2, 2, 2], width, 10)}


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(context, x, kind, scale):
        context.kind, context.scale = kind, scale
        return x.to(kind).to(x.dtype)

    @staticmethod
    def backward(context, gradient):
        return (gradient * context.scale).to(context.kind).to(gradient.dtype) / context.scale, None, None


def rounded(network, kind, scale):
    """The network with what a GPU's autocast keeps in 16 bits rounded."""
    hook = lambda module, inputs, result: Rounded.apply(result, kind, scale)
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, reference.PreActBlock, reference.BasicBlock)):
            module.register_forward_hook(hook)
        if isinstance(module, nn.Conv2d):
            module._conv_forward = lambda x, weight, bias, of=module: F.conv2d(
                x, Rounded.apply(weight, kind, scale), bias, of.stride, of.padding)
    return network


def gradients(network, weights, images, labels, kind=torch.float32, autocast=False):
    network.load_state_dict(weights, strict=False)
    network.to(kind).train()
    network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = network(images.to(kind))
    F.cross_entropy(logits.to(kind), labels).backward()
    return torch.cat([p.grad.double().flatten() for p in network.parameters()])


def state(path, names):
    with h5py.File(path, "r") as file:
        return {name: torch.from_numpy(file[f"param/{name}"][()].astype(np.float64)) for name in names}


def check(program, name, precision, width):
    out = f"{name}-{precision}"
    network = NETWORKS[name](width)
    names = [n for n, _ in network.named_parameters()]
    states = {}
    for end in STEPS - 1, STEPS:  # the last three checkpoints are kept
        ended = subprocess.run([program, *map(str, [
            "train", "--device", "cuda", "--deterministic", "--precision", precision, "--math", "f32", "--network", name,
            "--width", width, "--data", "set.h5", "--batch", BATCH, "--attack", "none", "--augment", "none", "--selector", "all",
            "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--lr", LR, "--warmup-epochs", 0, "--epochs", 9,
            "--milestones", 9, "--max-steps", end, "--checkpoint-every", 1, "--eval-every", 0, "--limit-test", 4,
            "--threads", 2, "--quiet", "--out", out])], env={**os.environ, **MPI_ENVIRONMENT}, capture_output=True, text=True)
        if ended.returncode != 0:
            sys.exit(f"{out}: code {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        for step in range(1, end + 1):
            if os.path.exists(path := f"{out}/ckpt/step-{step:09d}.h5"):
                states[step] = state(path, names)
    with h5py.File("set.h5", "r") as file:  # one batch: every step takes all images
        images = torch.from_numpy(file["train/images"][()]).permute(0, 3, 1, 2) / 255.0
        labels = torch.from_numpy(file["train/labels"][()].astype(np.int64))
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[precision]
    errors = {"program": [], "rounded": [], **({"autocast": []} if precision == "bf16" else {})}
    for step in range(1, STEPS):  # between the checkpoints after it and after the next
        before, after = states[step], states[step + 1]
        exact = gradients(NETWORKS[name](width), before, images, labels, torch.float64)
        found = {"program": torch.cat([((before[n] - after[n]) / LR).flatten() for n in names]),
                 "rounded": gradients(rounded(NETWORKS[name](width), kind, 1024.0 if precision == "f16" else 1.0),
                                      before, images, labels)}
        if precision == "bf16":
            found["autocast"] = gradients(NETWORKS[name](width), before, images, labels, autocast=True)
        for who, gradient in found.items():
            errors[who].append(float((gradient - exact).norm() / exact.norm()))
    mean = {who: float(np.mean(of)) for who, of in errors.items()}
    print(f"{name:<17} {precision:<5} width {width}: error of the gradient " +
          ", ".join(f"{who} {error:.2e}" for who, error in mean.items()), flush=True)
    wrong = []
    peer = mean.get("autocast", mean["rounded"])
    if not mean["program"] <= FACTOR * peer:
        wrong.append(f"{out}: the program's error is {mean['program'] / peer:.2f} times PyTorch's")
    if "autocast" in mean and not 0.5 <= mean["rounded"] / mean["autocast"] <= 2:
        wrong.append(f"{out}: what is rounded is {mean['rounded'] / mean['autocast']:.2f} times as far off as autocast")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--only", nargs="+", default=[f"{n}-{p}" for n in NETWORKS for p in ("f16", "bf16")])
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(1)
    program, folder, wrong = os.path.abspath(arguments.program), tempfile.mkdtemp(prefix="dat-16-"), []
    os.chdir(folder)
    try:
        random = np.random.default_rng(1)
        with h5py.File("set.h5", "w") as file:
            file.attrs["classes"] = 10
            for split, count in (("train", BATCH), ("test", 4)):
                file[f"{split}/images"] = random.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
                file[f"{split}/labels"] = np.arange(count, dtype=np.uint8) % 10
        for one in arguments.only:
            wrong += check(program, *one.rsplit("-", 1), arguments.width)
    finally:
        os.chdir("/")
        shutil.rmtree(folder)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
