"""Compares the full-size networks with PyTorch in float64: full_size.py PROBE [network] [--device cpu|cuda] [--width N]

Widths as published by default, 32x32 images, or 64x64 of ImageNet's networks, batch 4, 10 classes, PGD-4, f32 without TF32. PROBE IN.h5 OUT.h5 DEVICE is a program
that reads the inputs (those of a golden file, see make_golden.py, without expected/) and writes logits_eval,
input_gradient_eval (sum of the losses, running statistics), logits_train, grad/NAME (mean loss, batch statistics), pgd/x_K
and pgd/dx_K (the point of iteration K = 0, 1, ... and the gradient found there, running statistics as given) and x_adv.

What is compared holds for every correct float32 program, whatever the order of its sums. Only ReLU is not continuous
(and of a max pool's gradient the place of the largest value, which is treated alike):
an input nearer to 0 than its rounding error may fall on either side, and each that does changes the gradient by a part
of 1e-4 to 1e-2. So the attack's path is not compared with another path, since signed steps amplify such differences, but
each of its iterations with the exact one from the same point.

Rounding  What float32 makes of a pass is found by PyTorch's own, which sums directly: the relative L2 error of its logits,
          and the root mean square of the error at the input of each ReLU. Of PreActResNet-18: 6e-7, and 2e-6 of the root
          mean square of the inputs; of WRN-28-10 5e-7 and 3e-6; of PreActResNet-50, whose additions of small residuals to
          large sums the last norm divides by a small deviation, 4e-6 and 2e-5. Winograd's F(4x4, 3x3) has several times
          the error of a direct sum: kRounding of both is allowed.
Forward   The relative L2 error of the logits: kRounding times PyTorch's.
Gradients The ReLU inputs within kRounding times the error there are those that rounding may move across 0. The reference computes its gradient twice: as it
          is, and with each of those ReLUs on the other side. The float32 program takes some of them otherwise, so its
          gradient is off by a part of the difference of the two: no more than all of it if their contributions are
          orthogonal, as those of random directions nearly are; twice that is allowed. On top comes the rounding of
          sums forward and backward with what the batch norm's differences make of it: five times what is allowed forward.
Signs     Where a sign is wrong, the gradient is no larger than its error: where |g| is above the L2 error allowed, none
          is wrong.
          An error that does not know the gradient is, over all pixels, like a normal variable: it turns the sign of g
          with probability Phi(-|g| / sigma), where sigma is its root mean square, and fewer signs where it is uneven.
          Twice the mean of that is allowed: some 1e-2; 1e-3 found.
Steps     The next point follows from the last one and the program's own gradient by a formula with three roundings of
          numbers below 1: 3 * 2^-24.
Loss      After the attack, against PyTorch's own attack in float32, both computed in float64. The paths part and end at
          other pixels (up to a tenth), but at the same loss: eight of PyTorch's from starts 1e-6 apart have a standard
          deviation of 3e-4 and 6e-4. Eight of those are allowed; a step size that is a tenth too small makes 1.2e-2. Not
          of ImageNet's networks with bottlenecks, where PyTorch's own are a fourth apart.
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

kRounding = 10
kFlips = 2
kSmooth = 5
kStep = 3 * 2.0**-24
kAttackLoss = 5e-3


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(context, u, relu):
        context.relu, context.open = relu, u > 0
        context.near = u.abs() <= relu.radius[len(relu.inputs)] if relu.radius else torch.zeros_like(u, dtype=torch.bool)
        relu.near += int(context.near.sum())
        relu.inputs.append(u.detach())
        return u.clamp_min(0)

    @staticmethod
    def backward(context, dy):
        return dy * (context.open ^ context.near if context.relu.flipped else context.open), None


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(context, windows, relu):
        best, place = windows.topk(2, dim=0)
        near = best[0] - best[1] <= 2 * relu.radius[len(relu.inputs) - 1] if relu.radius else torch.zeros_like(place[0]) > 0
        context.relu, context.place, context.near, context.count = relu, place, near & (best[0] > 0), len(windows)
        relu.near += int(context.near.sum())
        return best[0]

    @staticmethod
    def backward(context, dy):
        place = context.place[0]
        if context.relu.flipped:
            place = torch.where(context.near, context.place[1], place)
        return dy.new_zeros((context.count, *dy.shape)).scatter_(0, place[None], dy[None]), None


class MaxPool(torch.nn.Module):
    """3x3 with stride 2, of what a ReLU leaves, and the gradient of its near-ties as `relu` takes that of its own."""

    def __init__(self, relu):
        super().__init__()
        self.relu = relu

    def forward(self, x):
        around, lines = F.pad(x, (1,) * 4, value=-float("inf")), (x.shape[2] - 1) // 2 + 1
        return Largest.apply(torch.stack([around[:, :, i:i + 2 * lines:2, j:j + 2 * lines:2] for i in range(3)
                                          for j in range(3)]), self.relu)


class Relu(torch.nn.Module):
    """All ReLUs of a pass, which call it one after the other. With `flipped`, the gradient takes the inputs within `radius`
    of 0, one for each ReLU, for the other side's."""

    def __init__(self, radius=()):
        super().__init__()
        self.radius, self.inputs, self.flipped, self.near = radius, [], False, 0

    def forward(self, u):
        return Gate.apply(u, self)


def forward(case, train, images, relu):
    """The logits, and the model, in the images' type."""
    model = case.network(images.dtype, train)
    for module in model.modules():
        if isinstance(getattr(module, "relu", None), torch.nn.Module):
            module.relu = relu
        if hasattr(module, "maxpool"):
            module.maxpool = MaxPool(relu)
    return model(images), model


class Exact:
    """A pass of the network in float64: logits, gradients of the loss by name, and how far off either may be."""

    def __init__(self, case, train, images):
        passes = [(Relu(), images.to(dtype)) for dtype in (torch.float64, torch.float32)]
        with torch.no_grad():
            exact, rounded = (forward(case, train, x, relu)[0] for relu, x in passes)
        self.rounding = kRounding * reference.relative_error(rounded.double(), exact)
        relu = Relu([kRounding * float((u - v).square().mean().sqrt())
                     for u, v in zip(passes[0][0].inputs, passes[1][0].inputs, strict=True)])

        x = images.double().requires_grad_(not train)
        logits, model = forward(case, train, x, relu)
        loss = F.cross_entropy(logits, case.labels, reduction="mean" if train else "sum")
        names, inputs = zip(*model.named_parameters()) if train else (("x",), (x,))
        gradients = torch.autograd.grad(loss, inputs, retain_graph=True)
        relu.flipped = True
        flipped = torch.autograd.grad(loss, inputs)
        self.logits, self.near = logits.detach(), relu.near
        self.gradient = dict(zip(names, gradients))
        self.allowed = {name: kFlips * reference.relative_error(f, g) + kSmooth * self.rounding
                        for name, g, f in zip(names, gradients, flipped)}


class Table:
    def __init__(self):
        self.passed, self.rows, self.worst = True, 0, 0.0

    def row(self, name, found, allowed, note=""):
        good = found <= allowed
        self.passed &= good
        self.rows, self.worst = self.rows + 1, max(self.worst, found / allowed if allowed > 0 else 0)
        print(f"{name:36}{found:10.1e}{allowed:10.1e}{note}{'' if good else '  FAILED'}")


def check_pass(table, label, names, exact, logits, gradients):
    table.row(f"logits{label}", reference.relative_error(logits, exact.logits), exact.rounding,
              f"  {exact.near} ReLUs near 0")
    for name in names:
        if gradients[name].shape != exact.gradient[name].shape:
            sys.exit(f"{name} has the shape {tuple(gradients[name].shape)}, not {tuple(exact.gradient[name].shape)}")
        table.row(f"gradient{label} {name}", reference.relative_error(gradients[name], exact.gradient[name]),
                  exact.allowed[name])


def check_signs(table, label, dx, exact):
    g, allowed = exact.gradient["x"], exact.allowed["x"] * float(exact.gradient["x"].norm())
    wrong = dx.sign() != g.sign()
    table.row(f"signs{label}, share wrong", float(wrong.double().mean()),
              2 * float(torch.special.ndtr(-g.abs() / (allowed / g.numel() ** 0.5)).mean()))
    table.row(f"signs{label}, largest wrong |g|", float((g.abs() * wrong).max()), allowed)


def check(probe, device, network, width, size, folder):
    attack = {"eps": 8 / 255, "alpha": 2 / 255, "steps": 4, "lambda": 1.0}
    eps, alpha = attack["eps"], attack["alpha"]
    # Two batches: enough for statistics near those of others.
    case = make_golden.Case(network, width, size, 4, 10, seed=0, attack=attack, passes=2, momentum=None)
    inputs, outputs = folder / "in.h5", folder / "out.h5"
    with h5py.File(inputs, "w") as file:
        case.write(file)
    subprocess.run([probe, inputs, outputs, device], check=True)
    table = Table()
    print(f"{network}, {device}\n{'':36}{'found':>10}{'allowed':>10}")
    with h5py.File(outputs) as file:

        def result(name):
            return torch.from_numpy(file[name][()]).double()

        exact = Exact(case, True, case.x)
        check_pass(table, " (training)", exact.gradient, exact, result("logits_train"),
                   {name: result("grad/" + name) for name in exact.gradient})
        exact = Exact(case, False, case.x)
        check_pass(table, "", ["x"], exact, result("logits_eval"), {"x": result("input_gradient_eval")})

        x, point = case.x.double(), result("pgd/x_0")
        table.row("start", float((point - x - case.start.double()).abs().max()), kStep)
        for k in range(attack["steps"]):
            dx, exact = result(f"pgd/dx_{k}"), Exact(case, False, point)
            table.row(f"gradient of iteration {k + 1}", reference.relative_error(dx, exact.gradient["x"]),
                      exact.allowed["x"], f"  {exact.near} ReLUs near 0")
            check_signs(table, f" of iteration {k + 1}", dx, exact)
            expected = x + ((point + alpha * dx.sign()).clamp(0, 1) - x).clamp(-eps, eps)
            last = k + 1 == attack["steps"]
            point = result("x_adv" if last else f"pgd/x_{k + 1}")
            table.row(f"point after iteration {k + 1}", float((point - expected).abs().max()), kStep)
    outside = torch.maximum((point - x).abs() - eps, (point - 0.5).abs() - 0.5).clamp_min(0)
    table.row("x_adv, outside", float(outside.max()), 2.0**-24)

    if network in ("imagenet_resnet50", "imagenet_wrn50_2"):
        return table
    model, other = case.network(torch.float64, train=False), case.attack(torch.float32)[1].double()
    with torch.no_grad():
        found, expected = (float(F.cross_entropy(model(images), case.labels)) for images in (point, other))
    table.row("loss after the attack", abs(found / expected - 1), kAttackLoss,
              f"  pixels off: {float(((point - other).abs() > 1e-4).double().mean()):.2f}")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("probe", type=pathlib.Path)
    parser.add_argument("network", nargs="?", choices=sorted(set(reference.NETWORKS) - {"small_cnn"}))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="that the probe computes on")
    parser.add_argument("--width", type=int, help="channels of the first stage; none: as published")
    parser.add_argument("--size", type=int, help="height and width of the images; none: 32, or 64 of ImageNet's networks")
    arguments = parser.parse_args()
    networks = [arguments.network] if arguments.network else ["preact_resnet18", "resnet18"]
    with tempfile.TemporaryDirectory() as folder:
        probe = arguments.probe.resolve()
        tables = [check(probe, arguments.device, network, arguments.width or (16 * int(network[-2:]) if network.endswith("_10") else 64),
                        arguments.size or (64 if network.startswith("imagenet") else 32), pathlib.Path(folder)) for network in networks]
    passed = all(table.passed for table in tables)
    print(f"{'PASSED' if passed else 'FAILED'}: {sum(table.rows for table in tables)} comparisons, the worst at "
          f"{max(table.worst for table in tables):.2f} of what is allowed")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
