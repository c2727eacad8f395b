"""Writes the golden files that the tests compare the program with: make_golden.py [FOLDER] [--search TRIES]

Weights are made by formula in both languages, bit for bit (root attribute weights = "fmix32"). For element i of
parameter tensor t (PyTorch's order of elements and of named_parameters, both counted from 0):

    u      = fmix32((i + 0x9E3779B9 * t) mod 2^32) / 2^32      (fmix32: MurmurHash3's finaliser; the rest in float64)
    value  = (2u - 1) / sqrt(fan_in)                           convolutions, the last layer (linear or fc)
             0.75 + 0.5u                                       batch norm, weight
             (u - 0.5) * 0.4                                   batch norm, bias
    fan_in = elements of one output's weights; for the last layer's bias, that of its weights

and is then rounded to float32. File contents, images NCHW in [0, 1], losses are cross-entropies:

    /                 network width classes size batch eps alpha steps lambda torch_version weights seed relu_margin
    bn/*              running_mean, running_var before everything else
    input/            x, labels, start (the attacks' random start, uniform in +-eps)
    expected/         logits_eval, loss_eval_sum, input_gradient_eval      running statistics, sum of the losses
                      logits_train, loss_train_mean, input_gradient_train, grad/*, bn_after/*
                                                                           batch statistics, mean loss, x, one forward
    expected/pgd/     x_adv_k (the input x + eta after iteration k = 1..steps, running statistics), x_adv,
                      loss (sum at x_adv)
    expected/fgsm/    x_adv                                                batch statistics, same start, step 1.25 eps
    expected/step/    grad_total/* = gradient of mean loss(pgd/x_adv) + lambda * mean loss(x), two forwards with batch
                      statistics in this order; bn_after_step/* = running statistics after both

Everything expected is computed in float64. Its attributes float32_max_error (absolute) and float32_error (relative
L2) are those of PyTorch's own float32 result: the yardstick for tolerances. pgd/x_adv_k has instead
float32_pixels_off, the fraction of elements off by more than 1e-5 in a float32 run of its own, and
float32_sign_mismatch, the fraction of gradient signs that differ at the same point. grad/* and grad_total/* hold
every stride-th element from the first one, at most kSamples for large tensors (attribute stride), with attributes
norm (L2) and sum of the whole tensor.

The result's one discontinuity is ReLU: a rounding error that moves an input across 0 changes gradients visibly. So
each case's seed is one for which no ReLU input of the passes on x (both modes) and x_adv (batch statistics) comes
nearer to 0 than relu_margin, which is above rounding error. --search finds such seeds.
"""

import argparse
import pathlib

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import reference

kLarge, kSamples = 20_000, 2048
kCases = {
    "preact_resnet18": dict(network="preact_resnet18", width=16, size=16, batch=6, classes=10, seed=2220),
    "resnet18": dict(network="resnet18", width=16, size=16, batch=6, classes=10, seed=100),
    "small_cnn": dict(network="small_cnn", width=16, size=12, batch=5, classes=7, seed=366),
    "small_cnn_odd": dict(network="small_cnn", width=16, size=10, batch=3, classes=3, seed=153),
}
kAttack = {"eps": 8 / 255, "alpha": 2 / 255, "steps": 4, "lambda": 0.75}


class Case:
    """A network with its running statistics, and a batch. The statistics are those of `passes` random batches, averaged
    with the `momentum` of nn.BatchNorm2d."""

    def __init__(self, network, width, size, batch, classes, seed, attack, passes=40, momentum=0.1):
        self.attributes = dict(network=network, width=width, size=size, batch=batch, classes=classes, **attack)
        self.attributes.update(weights="fmix32", torch_version=str(torch.__version__))
        self.model = reference.make(network, width, classes)
        reference.set_formula_weights(self.model)
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = momentum
        rng = np.random.default_rng(0)
        with torch.no_grad():
            for _ in range(passes):
                self.model.train()(reference.random_images(rng, batch, size))
        self.bn = reference.statistics(self.model)
        self.draw(seed)

    def draw(self, seed):
        a = self.attributes
        a["seed"] = seed
        rng = np.random.default_rng([1, seed])
        shape = (a["batch"], 3, a["size"], a["size"])
        self.x = reference.random_images(rng, a["batch"], a["size"])
        self.labels = torch.from_numpy(rng.integers(0, a["classes"], a["batch"]))
        self.start = torch.from_numpy(rng.uniform(-a["eps"], a["eps"], shape).astype(np.float32))

    def network(self, dtype, train):
        """A fresh copy in the starting state."""
        a = self.attributes
        model = reference.make(a["network"], a["width"], a["classes"])
        model.load_state_dict(self.model.state_dict())
        model.load_state_dict(self.bn, strict=False)
        return model.to(dtype).train(train)

    def attack(self, dtype):
        a = self.attributes
        tensors = self.x.to(dtype), self.labels, self.start.to(dtype)
        return reference.pgd(self.network(dtype, False), *tensors, a["eps"], a["alpha"], a["steps"])

    def write(self, file):
        for name, value in self.attributes.items():
            file.attrs[name] = value
        for name, value in self.bn.items():
            file["bn/" + name] = value.numpy()
        file["input/x"], file["input/labels"], file["input/start"] = self.x, self.labels, self.start


def relu_margin(case, enough=0.0):
    """The smallest |input| of a ReLU in the passes that are compared, in float64; not exact below `enough`."""
    margin = float("inf")

    def look(_, inputs):
        nonlocal margin
        margin = min(margin, float(inputs[0].abs().min()))

    passes = (False, lambda: case.x), (True, lambda: case.x), (True, lambda: case.attack(torch.float64)[1])
    for train, images in passes:
        x = images().float().double()
        model = case.network(torch.float64, train)
        for module in model.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_pre_hook(look)
        with torch.no_grad():
            model(x)
        if margin < enough:
            break
    return margin


def search(case, tries):
    best = 0.0
    for seed in range(tries):
        case.draw(seed)
        margin = relu_margin(case, best)
        if margin > best:
            best = margin
            print(f"seed {seed}: margin {margin:.2e}", flush=True)


def clean_passes(case, dtype):
    """What is expected of x alone, by its path, as tensors of `dtype`."""
    x, labels = case.x.to(dtype, copy=True), case.labels
    result = {}
    model = case.network(dtype, train=False)
    result["logits_eval"] = model(x).detach()
    result["loss_eval_sum"] = F.cross_entropy(result["logits_eval"], labels, reduction="sum")
    result["input_gradient_eval"] = reference.input_gradient(model, x, labels)

    model = case.network(dtype, train=True)
    x.requires_grad_()
    logits = model(x)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    result["logits_train"], result["loss_train_mean"] = logits.detach(), loss.detach()
    result["input_gradient_train"] = x.grad
    result.update({"grad/" + name: p.grad for name, p in model.named_parameters()})
    result.update({"bn_after/" + name: value for name, value in reference.statistics(model).items()})
    return result


def attacked_passes(case, dtype, given=None):
    """The rest of what is expected. The step takes its x_adv, and the signs of the trajectory their points, from
    `given`, a result of this function."""
    a = case.attributes
    x, labels, start = case.x.to(dtype), case.labels, case.start.to(dtype)
    result = {}
    iterates, result["pgd/x_adv"] = case.attack(dtype)
    result.update({f"pgd/x_adv_{k}": iterate for k, iterate in enumerate(iterates, 1)})
    given = given or result
    x_adv = given["pgd/x_adv"].float().to(dtype)
    model = case.network(dtype, train=False)
    result["pgd/loss"] = F.cross_entropy(model(x_adv), labels, reduction="sum").detach()
    for k in range(1, a["steps"] + 1):
        point = x + start if k == 1 else given[f"pgd/x_adv_{k - 1}"].to(dtype)
        result[f"sign_{k}"] = reference.input_gradient(model, point, labels).sign()

    result["fgsm/x_adv"] = reference.fgsm(case.network(dtype, train=True), x, labels, start, a["eps"])

    model = case.network(dtype, train=True)
    F.cross_entropy(model(x_adv), labels).backward()
    (a["lambda"] * F.cross_entropy(model(x), labels)).backward()
    result.update({"step/grad_total/" + name: p.grad for name, p in model.named_parameters()})
    result.update({"step/bn_after_step/" + name: value for name, value in reference.statistics(model).items()})
    return result


def write_expected(group, case):
    attacked = attacked_passes(case, torch.float64)
    exact = clean_passes(case, torch.float64) | attacked
    single = clean_passes(case, torch.float32) | attacked_passes(case, torch.float32, attacked)
    for path, value in exact.items():
        if path.startswith("sign_"):
            continue
        difference = (single[path].double() - value).abs()
        stored, attributes = value.numpy(), {}
        if "grad/" in path or "grad_total/" in path:
            # An odd stride that 3 does not divide visits every tap of the 3x3 kernels.
            stride = 1 if value.numel() <= kLarge else value.numel() // kSamples
            while stride > 1 and np.gcd(stride, 6) > 1:
                stride -= 1
            stored = stored if stride == 1 else stored.reshape(-1)[::stride][:kSamples]
            attributes.update(stride=stride, norm=float(value.norm()), sum=float(value.sum()))
        if path.startswith("pgd/x_adv_"):
            sign = "sign_" + path.split("_")[-1]
            attributes["float32_pixels_off"] = float((difference > 1e-5).double().mean())
            attributes["float32_sign_mismatch"] = float((single[sign] != exact[sign]).double().mean())
        else:
            attributes["float32_max_error"] = float(difference.max())
            attributes["float32_error"] = reference.relative_error(single[path], value)
        dataset = group.create_dataset(path, data=stored if stored.ndim == 0 else stored.astype(np.float32))
        for name, attribute in attributes.items():
            dataset.attrs[name] = attribute


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--search", type=int, metavar="TRIES", help="print the seeds with ever larger margins instead")
    arguments = parser.parse_args()
    for name, settings in kCases.items():
        case = Case(**settings, attack=kAttack)
        if arguments.search:
            print(name)
            search(case, arguments.search)
            continue
        case.attributes["relu_margin"] = relu_margin(case)
        path = arguments.folder / f"{name}.h5"
        with h5py.File(path, "w") as file:
            case.write(file)
            write_expected(file.create_group("expected"), case)
        print(path, path.stat().st_size, "bytes, margin %.1e" % case.attributes["relu_margin"])


if __name__ == "__main__":
    main()
