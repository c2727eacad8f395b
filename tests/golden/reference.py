"""The networks and attacks of dat_hpc in PyTorch: what the C++ program is compared with.

Tensors have the names, shapes and order of kuangliu/pytorch-cifar, of TRADES, of DeepMind, or of torchvision. Images are float NCHW in [0, 1], not normalised.
"""

import collections

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def conv(c_in, c_out, kernel, stride=1):
    return nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)


def stages_of(block, counts, c_in, width, expansion=1):
    """The blocks of each stage, the first of which halves the image but in the first stage; and the channels behind them."""
    stages = []
    for stage, count in enumerate(counts):
        blocks = []
        for index in range(count):
            blocks.append(block(c_in, width << stage, 2 if stage > 0 and index == 0 else 1))
            c_in = expansion * (width << stage)
        stages.append(nn.Sequential(*blocks))
    return stages, c_in


def named(name, module):
    return nn.Sequential(collections.OrderedDict({name: module}))


class PreActBlock(nn.Module):
    """The shortcut convolution has no batch norm and reads the activated input."""

    expansion, shortcut_name = 1, "shortcut"

    def __init__(self, c_in, inside, stride):
        super().__init__()
        c_out = self.expansion * inside
        shapes = (c_in, inside, 3, stride), (inside, c_out, 3, 1)
        if self.expansion > 1:
            shapes = (c_in, inside, 1, 1), (inside, inside, 3, stride), (inside, c_out, 1, 1)
        for number, shape in enumerate(shapes, 1):
            setattr(self, f"bn{number}", nn.BatchNorm2d(shape[0]))
            setattr(self, f"conv{number}", conv(*shape))
        self.count = len(shapes)
        if stride != 1 or c_in != c_out:
            setattr(self, self.shortcut_name, self.make_shortcut(c_in, c_out, stride))
        self.relu = nn.ReLU()

    @staticmethod
    def make_shortcut(c_in, c_out, stride):
        return nn.Sequential(conv(c_in, c_out, 1, stride))

    def forward(self, x):
        a = self.relu(self.bn1(x))
        y = self.conv1(a)
        for number in range(2, self.count + 1):
            y = getattr(self, f"conv{number}")(self.relu(getattr(self, f"bn{number}")(y)))
        return y + (getattr(self, self.shortcut_name)(a) if hasattr(self, self.shortcut_name) else x)


class PreActBottleneck(PreActBlock):
    """Three convolutions; the number of channels between blocks is `expansion` times that inside."""

    expansion = 4


class WideBlock(PreActBlock):
    """TRADES' name of the shortcut convolution."""

    shortcut_name = "convShortcut"

    @staticmethod
    def make_shortcut(c_in, c_out, stride):
        return conv(c_in, c_out, 1, stride)


class WideResNet(nn.Module):
    """TRADES' models/wideresnet.py, without the second first stage, which that does not use."""

    def __init__(self, depth, width, classes):
        super().__init__()
        self.conv1 = conv(3, 16, 3)
        stages, c_in = stages_of(WideBlock, 3 * [(depth - 4) // 6], 16, width)
        for number, stage in enumerate(stages, 1):
            setattr(self, f"block{number}", named("layer", stage))
        self.bn1 = nn.BatchNorm2d(c_in)
        self.fc = nn.Linear(c_in, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(self.relu(self.bn1(y)).mean((2, 3)))


class DeepMindBlock(nn.Module):
    """As WideBlock, with DeepMind's names, and TensorFlow's padding of images of even sizes."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.batchnorm_0 = nn.BatchNorm2d(c_in)
        self.conv_0 = nn.Conv2d(c_in, c_out, 3, stride, padding=2 - stride, bias=False)
        self.batchnorm_1 = nn.BatchNorm2d(c_out)
        self.conv_1 = conv(c_out, c_out, 3)
        self.shortcut = None if c_in == c_out else conv(c_in, c_out, 1, stride)
        self.relu, self.more = nn.ReLU(), stride - 1

    def forward(self, x):
        a = self.relu(self.batchnorm_0(x))
        y = self.conv_1(self.relu(self.batchnorm_1(self.conv_0(F.pad(a, (0, self.more, 0, self.more))))))
        return y + (x if self.shortcut is None else self.shortcut(a))


class DeepMindWideResNet(nn.Module):
    def __init__(self, depth, width, classes):
        super().__init__()
        self.init_conv = conv(3, 16, 3)
        stages, c_in = stages_of(DeepMindBlock, 3 * [(depth - 4) // 6], 16, width)
        self.layer = nn.Sequential(*(named("block", stage) for stage in stages))
        self.batchnorm = nn.BatchNorm2d(c_in)
        self.logits = nn.Linear(c_in, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.logits(self.relu(self.batchnorm(self.layer(self.init_conv(x)))).mean((2, 3)))


class ImageNetBlock(nn.Module):
    """A block of torchvision's ResNet: a bottleneck where it has channels `inside`."""

    def __init__(self, c_in, c_out, stride, inside=None):
        super().__init__()
        if inside is None:
            shapes = (c_in, c_out, 3, stride), (c_out, c_out, 3, 1)
        else:
            shapes = (c_in, inside, 1, 1), (inside, inside, 3, stride), (inside, c_out, 1, 1)
        for number, shape in enumerate(shapes, 1):
            setattr(self, f"conv{number}", conv(*shape))
            setattr(self, f"bn{number}", nn.BatchNorm2d(shape[1]))
        self.count = len(shapes)
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(conv(c_in, c_out, 1, stride), nn.BatchNorm2d(c_out))
        self.relu = nn.ReLU()

    def forward(self, x):
        y = x
        for number in range(1, self.count + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y if number == 1 else self.relu(y)))
        return self.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ImageNetResNet(nn.Module):
    """torchvision's models/resnet.py, of any width. wider: 0 for basic blocks."""

    def __init__(self, counts, wider, width, classes):
        super().__init__()
        self.conv1 = conv(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        expansion = 4 if wider else 1
        stages, c_in = stages_of(
            lambda before, inside, stride: ImageNetBlock(before, expansion * inside, stride, wider * inside or None),
            counts, width, width, expansion)
        for number, stage in enumerate(stages, 1):
            setattr(self, f"layer{number}", stage)
        self.fc = nn.Linear(c_in, classes)

    def forward(self, x):
        y = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(y)))).mean((2, 3)))


class BasicBlock(nn.Module):
    expansion = 1

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


class ResNet(nn.Module):
    """Four stages. No batch norm after the last block but with `last_norm`; a PreAct stem is the bare convolution."""

    def __init__(self, block, counts, width, classes, last_norm=False):
        super().__init__()
        self.conv1 = conv(3, width, 3)
        if block is BasicBlock:
            self.bn1 = nn.BatchNorm2d(width)
        stages, c_in = stages_of(block, counts, width, width, block.expansion)
        for number, stage in enumerate(stages, 1):
            setattr(self, f"layer{number}", stage)
        if last_norm:
            self.bn = nn.BatchNorm2d(c_in)
        self.linear = nn.Linear(c_in, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.conv1(x)
        if hasattr(self, "bn1"):
            y = self.relu(self.bn1(y))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        if hasattr(self, "bn"):
            y = self.relu(self.bn(y))
        return self.linear(y.mean((2, 3)))


class SmallCnn(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        for k, (c_in, c_out, stride) in enumerate(((3, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)), 1):
            setattr(self, f"conv{k}", conv(c_in, c_out, 3, stride))
            setattr(self, f"bn{k}", nn.BatchNorm2d(c_out))
        self.linear = nn.Linear(2 * width, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        for k in (1, 2, 3):
            x = self.relu(getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(x)))
        return self.linear(x.mean((2, 3)))


NETWORKS = {
    "preact_resnet18": lambda width, classes: ResNet(PreActBlock, (2, 2, 2, 2), width, classes),
    "preact_resnet18_bn": lambda width, classes: ResNet(PreActBlock, (2, 2, 2, 2), width, classes, last_norm=True),
    "preact_resnet50": lambda width, classes: ResNet(PreActBottleneck, (3, 4, 6, 3), width, classes),
    "resnet18": lambda width, classes: ResNet(BasicBlock, (2, 2, 2, 2), width, classes),
    "small_cnn": SmallCnn,
    "wrn_16_4": lambda width, classes: WideResNet(16, width, classes),
    "wrn_28_10": lambda width, classes: WideResNet(28, width, classes),
    "wrn_34_10": lambda width, classes: WideResNet(34, width, classes),
    "dm_wrn_28_10": lambda width, classes: DeepMindWideResNet(28, width, classes),
    "imagenet_resnet18": lambda width, classes: ImageNetResNet((2, 2, 2, 2), 0, width, classes),
    "imagenet_resnet50": lambda width, classes: ImageNetResNet((3, 4, 6, 3), 1, width, classes),
    "imagenet_wrn50_2": lambda width, classes: ImageNetResNet((3, 4, 6, 3), 2, width, classes),
}


def make(network, width, classes):
    return NETWORKS[network](width, classes)


def head(model):
    """The last layer."""
    return next(getattr(model, name) for name in ("fc", "logits", "linear") if hasattr(model, name))


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
    if len(shape) > 1 or name in ("linear.bias", "fc.bias"):
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
        fan_in = head(model).in_features if len(shape) == 1 else int(np.prod(shape[1:]))
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
