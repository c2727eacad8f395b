"""The networks and attacks of dat_hpc in PyTorch: what the C++ program is compared with.

Tensors have the names, shapes and order of kuangliu/pytorch-cifar. Images are float NCHW in [0, 1], not normalised.
Run as a script it checks the sizes that the literature gives.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def conv(c_in, c_out, kernel, stride=1):
    return nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)


class PreActBlock(nn.Module):
    """The shortcut convolution has no batch norm and reads the activated input."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(c_in)
        self.conv1 = conv(c_in, c_out, 3, stride)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.conv2 = conv(c_out, c_out, 3)
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(conv(c_in, c_out, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x):
        a = self.relu(self.bn1(x))
        shortcut = self.shortcut(a) if hasattr(self, "shortcut") else x
        return self.conv2(self.relu(self.bn2(self.conv1(a)))) + shortcut


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = conv(c_in, c_out, 3, stride)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = conv(c_out, c_out, 3)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(conv(c_in, c_out, 1, stride), nn.BatchNorm2d(c_out))
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks. No batch norm after the last block; a PreAct stem is the bare convolution."""

    def __init__(self, block, width, classes):
        super().__init__()
        self.conv1 = conv(3, width, 3)
        if block is BasicBlock:
            self.bn1 = nn.BatchNorm2d(width)
        c_in = width
        for stage in range(4):
            c_out = width << stage
            blocks = nn.Sequential(block(c_in, c_out, 1 if stage == 0 else 2), block(c_out, c_out, 1))
            setattr(self, f"layer{stage + 1}", blocks)
            c_in = c_out
        self.linear = nn.Linear(c_in, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.conv1(x)
        if hasattr(self, "bn1"):
            y = self.relu(self.bn1(y))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.linear(y.mean((2, 3)))


class SmallCnn(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv1 = conv(3, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, 2 * width, 3, 2)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.conv3 = conv(2 * width, 2 * width, 3)
        self.bn3 = nn.BatchNorm2d(2 * width)
        self.linear = nn.Linear(2 * width, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.relu(self.bn3(self.conv3(y)))
        return self.linear(y.mean((2, 3)))


def make(network, width, classes):
    if network == "small_cnn":
        return SmallCnn(width, classes)
    return ResNet18({"preact_resnet18": PreActBlock, "resnet18": BasicBlock}[network], width, classes)


def fmix32(x):
    """The finaliser of MurmurHash3 on uint32 arrays."""
    x = x.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def formula_values(t, name, shape, fan_in):
    """Parameter tensor number t, float32; the formula is in make_golden.py."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    u = fmix32((index + 0x9E3779B9 * t) & 0xFFFFFFFF) / 2.0**32
    if len(shape) > 1 or name == "linear.bias":
        values = (2 * u - 1) / np.sqrt(float(fan_in))
    elif name.endswith("weight"):
        values = 0.75 + 0.5 * u
    else:
        values = (u - 0.5) * 0.4
    return values.reshape(shape).astype(np.float32)


@torch.no_grad()
def set_formula_weights(model):
    for t, (name, parameter) in enumerate(model.named_parameters()):
        shape = tuple(parameter.shape)
        fan_in = model.linear.in_features if name == "linear.bias" else int(np.prod(shape[1:]))
        parameter.copy_(torch.from_numpy(formula_values(t, name, shape, fan_in)))


def statistics(model):
    return {name: value.clone() for name, value in model.named_buffers() if "running" in name}


def random_images(rng, n, size):
    """Multiples of 1/255 with a fair share of exact zeros and ones."""
    pixels = rng.integers(-40, 296, (n, 3, size, size)).clip(0, 255)
    return torch.from_numpy(pixels.astype(np.float32) / np.float32(255))


def input_gradient(model, x, labels):
    """Of the sum of cross-entropies."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(model(x), labels, reduction="sum"), x)[0]


def pgd(model, x, labels, start, eps, alpha, steps):
    """The network's input after each iteration, and the adversarial images. Call with the model in eval mode."""
    eta, iterates = start, []
    for _ in range(steps):
        z = (x + eta + alpha * input_gradient(model, x + eta, labels).sign()).clamp(0, 1)
        eta = (z - x).clamp(-eps, eps)
        iterates.append(x + eta)
    return iterates, (x + eta).clamp(0, 1)


def fgsm(model, x, labels, start, eps):
    """DAT's fast attack. Call with the model in training mode; it updates the running statistics once."""
    delta = start.clone().requires_grad_()
    loss = F.cross_entropy(model((x + delta).clamp(0, 1)), labels, reduction="sum")
    step = 1.25 * eps * torch.autograd.grad(loss, delta)[0].sign()
    return (x + (delta.detach() + step).clamp(-eps, eps)).clamp(0, 1)


def relative_error(value, reference):
    value, reference = value.double(), reference.double()
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))


def multiply_adds(model, size):
    """Of one forward pass of one image."""
    total = []

    def count(module, _, y):
        total.append(module.weight[0].numel() * y[0].numel())

    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, size, size))
    return sum(total)


if __name__ == "__main__":
    for network, tensors, elements in (("preact_resnet18", 54, 11_171_146), ("resnet18", 62, 11_173_962)):
        model = make(network, 64, 10)
        found = len(list(model.parameters())), sum(p.numel() for p in model.parameters()), multiply_adds(model, 32)
        print(network, "tensors %d, parameters %d, multiply-adds %d" % found)
        assert found == (tensors, elements, 555_422_720), "the network differs from the literature's"
