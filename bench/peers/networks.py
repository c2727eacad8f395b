"""The networks of tests/golden/reference.py with their batch norm folded into the convolutions, and the attack's iteration."""

import pathlib
import sys

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import reference

kEps, kAlpha, kFgsmAlpha = 8 / 255, 2 / 255, 10 / 255
kLossScale = 1024.0  # keeps gradients in the range of 16-bit floats; the sign is all that counts
kSmallCnn = (("conv1", 1), ("conv2", 2), ("conv3", 1))
kBlocks = [(f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1) for stage in (1, 2, 3, 4) for index in (0, 1)]
kPreActivation = reference.PreActBlock, reference.PreActBottleneck, reference.WideBlock


def scaled_loss(logits, labels):
    return kLossScale * F.cross_entropy(logits, labels, reduction="sum")


def pgd_update(x, eta, dx):
    z = (x + eta + kAlpha * dx.sign()).clamp(0, 1)
    return (z - x).clamp(-kEps, kEps)


def fgsm_update(x, eta, dx):
    return (eta + kFgsmAlpha * dx.sign()).clamp(-kEps, kEps)


def convolution(weights, name, x, stride=1):
    weight, bias = weights[name]
    return F.conv2d(x, weight, bias, stride, weight.shape[-1] // 2)


def relu(x):
    return F.relu(x, inplace=True)  # saves an allocation and its page faults


def small_cnn(weights, x):
    for name, stride in kSmallCnn:
        x = relu(convolution(weights, name, x, stride))
    return x


def post_activation(weights, x):
    y = relu(convolution(weights, "conv1", x))
    for block, stride in kBlocks:
        shortcut = block + ".shortcut.0"
        skip = convolution(weights, shortcut, y, stride) if shortcut in weights else y
        y = relu(convolution(weights, block + ".conv1", y, stride))
        y = relu(convolution(weights, block + ".conv2", y).add_(skip))
    return y


class ImageNet:
    """The body of torchvision's networks: for each block its name, whether it has a convolution in the shortcut, and the
    strides of its convolutions."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __call__(self, weights, x):
        y = F.max_pool2d(relu(convolution(weights, "conv1", x, 2)), 3, 2, 1)
        for block, shortcut, strides in self.blocks:
            skip = convolution(weights, block + ".downsample.0", y, max(strides)) if shortcut else y
            for k, stride in enumerate(strides, 1):
                y = convolution(weights, f"{block}.conv{k}", y if k == 1 else relu(y), stride)
            y = relu(y.add_(skip))
        return y


class PreActivation:
    """The body of a network of pre-activated blocks, for each of which `blocks` has the name, the names of the shortcut
    convolution (or None), and the strides of the convolutions; where `last`, a batch norm stands before the pool."""

    def __init__(self, blocks, last):
        self.blocks, self.last = blocks, last

    def __call__(self, weights, x):
        y = convolution(weights, "conv1", x)
        for block, shortcut, strides in self.blocks:
            scale, shift = weights[block + ".bn1"]
            a = relu(y * scale + shift)
            skip = convolution(weights, shortcut, a, max(strides)) if shortcut else y
            for k, stride in enumerate(strides[:-1], 1):
                a = relu(convolution(weights, f"{block}.conv{k}", a, stride))
            y = convolution(weights, f"{block}.conv{len(strides)}", a, strides[-1]).add_(skip)
        if self.last:
            scale, shift = weights["bn1"]
            y = relu(y * scale + shift)
        return y


class FoldedNetwork:
    """A network of reference.py with its running statistics folded into the convolutions, in `dtype`. Its weights require
    no gradients. Images are padded with zeros to a multiple of `channel_multiple` channels."""

    def __init__(self, model, dtype, channel_multiple=1):
        modules = dict(model.named_modules())
        self.dtype, self.multiple, self.linear = dtype, channel_multiple, reference.head(model)
        self.weights, self.sources = {}, {}
        if isinstance(model, reference.SmallCnn):
            self.body = small_cnn
            for k in (1, 2, 3):
                self.add(f"conv{k}", modules[f"conv{k}"], modules[f"bn{k}"])
        elif isinstance(model, reference.ImageNetResNet):
            self.add_imagenet(modules)
        elif any(isinstance(module, kPreActivation) for module in modules.values()):
            self.add_pre_activation(modules)
        else:
            self.add_resnet18(modules)
        self.weights["linear"] = tuple(p.detach().to(dtype, copy=True) for p in self.linear.parameters())

    def add_resnet18(self, modules):
        self.body = post_activation
        self.add("conv1", modules["conv1"], modules["bn1"])
        for block, _ in kBlocks:
            self.add(block + ".conv1", modules[block + ".conv1"], modules[block + ".bn1"])
            self.add(block + ".conv2", modules[block + ".conv2"], modules[block + ".bn2"])
            if block + ".shortcut.0" in modules:
                self.add(block + ".shortcut.0", modules[block + ".shortcut.0"], modules[block + ".shortcut.1"])

    def add_imagenet(self, modules):
        self.add("conv1", modules["conv1"], modules["bn1"])
        blocks = []
        for block in (name for name, module in modules.items() if isinstance(module, reference.ImageNetBlock)):
            numbers = range(1, modules[block].count + 1)
            for k in numbers:
                self.add(f"{block}.conv{k}", modules[f"{block}.conv{k}"], modules[f"{block}.bn{k}"])
            shortcut = block + ".downsample.0" in modules
            if shortcut:
                self.add(block + ".downsample.0", modules[block + ".downsample.0"], modules[block + ".downsample.1"])
            blocks.append((block, shortcut, [modules[f"{block}.conv{k}"].stride[0] for k in numbers]))
        self.body = ImageNet(blocks)

    def add_pre_activation(self, modules):
        self.add("conv1", modules["conv1"], None)
        blocks = []
        for block in (name for name, module in modules.items() if isinstance(module, kPreActivation)):
            count = 3 if block + ".conv3" in modules else 2
            self.add(block + ".bn1", None, modules[block + ".bn1"])
            for k in range(1, count + 1):
                self.add(f"{block}.conv{k}", modules[f"{block}.conv{k}"], modules.get(f"{block}.bn{k + 1}"))
            shortcuts = [name for name in (block + ".shortcut.0", block + ".convShortcut") if name in modules]
            for name in shortcuts:
                self.add(name, modules[name], None)
            strides = [modules[f"{block}.conv{k}"].stride[0] for k in range(1, count + 1)]
            blocks.append((block, shortcuts[0] if shortcuts else None, strides))
        if "bn1" in modules:
            self.add("bn1", None, modules["bn1"])
        self.body = PreActivation(blocks, "bn1" in modules)

    def add(self, name, convolution, norm):
        """The convolution with the norm after it; either may be missing."""
        device = self.linear.weight.device
        self.sources[name] = convolution, norm
        if convolution is None:
            scale = torch.empty(1, norm.num_features, 1, 1, dtype=self.dtype, device=device)
            self.weights[name] = scale, torch.empty_like(scale)
            return
        c_out, c_in, kernel, _ = convolution.weight.shape
        c_in = -(-c_in // self.multiple) * self.multiple
        weight = torch.zeros(c_out, c_in, kernel, kernel, dtype=self.dtype, device=device)
        bias = None if norm is None else torch.empty(c_out, dtype=self.dtype, device=device)
        self.weights[name] = weight.contiguous(memory_format=torch.channels_last), bias

    @torch.no_grad()
    def refresh(self):
        """In place: graphs keep the addresses."""
        for name, (convolution, norm) in self.sources.items():
            weight, bias = self.weights[name]
            if norm is not None:
                scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
                bias.copy_((norm.bias - norm.running_mean * scale).view(bias.shape))
            if convolution is None:
                weight.copy_(scale.view(weight.shape))
                continue
            source = convolution.weight if norm is None else convolution.weight * scale.view(-1, 1, 1, 1)
            weight[:, : source.shape[1]].copy_(source)
        for to, parameter in zip(self.weights["linear"], self.linear.parameters()):
            to.copy_(parameter)

    def logits(self, weights, x):
        x, missing = x.to(self.dtype), weights["conv1"][0].shape[1] - x.shape[1]
        if missing > 0:
            x = F.pad(x, (0, 0, 0, 0, 0, missing))
        y = self.body(weights, x.contiguous(memory_format=torch.channels_last))
        return F.linear(y.mean((2, 3)), *weights["linear"]).float()

    def input_gradient(self, weights, x, labels):
        """Of scaled_loss, as a function that torch.compile takes whole."""
        return torch.func.grad(lambda x: scaled_loss(self.logits(weights, x), labels))(x)
