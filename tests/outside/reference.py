"""A whole training step of dat_hpc, and an evaluation, in double precision: written from the papers' formulas and
docs/design.md, and sharing nothing with the C++ program.

`step` takes the state of a checkpoint and gives that of the next one. Rounding decides a few things in it that are not
continuous: the sign of a gradient, on which side of zero a ReLU's input lies, whether an image is misclassified. So
each of these decisions goes through a `Rounding`, which writes them down and can repeat those of another computation.
"""

import copy
import dataclasses
import fractions
import itertools
import json

import h5py
import numpy as np
import torch
from torch.nn import functional as F

import aggregators_of_gradients
import codecs_of_gradients
from random_numbers import normals, uniform, uniforms, words

torch.set_default_dtype(torch.float64)

UNIT = 2.0**-24  # half the distance of neighbouring f32 numbers, relative to them


class Rounding:
    """How the reference computes. noise 0: exactly. Otherwise the result of each layer, forward and back, gets a
    normally distributed error of that size relative to the sample's root mean square, and what f32 arithmetic does to a
    single number one of UNIT. decisions: those to repeat; None: the numbers decide."""

    def __init__(self, noise=0.0, seed=0, decisions=None):
        self.noise, self.repeated, self.decisions = noise, decisions, []
        self.generator = torch.Generator().manual_seed(seed)

    def decide(self, decision):
        if self.repeated is not None:
            decision = self.repeated[len(self.decisions)]
        self.decisions.append(decision)
        return decision

    def random(self, like):
        return torch.randn(like.shape, generator=self.generator)

    def layer(self, x):
        """The result of a layer, [samples, ...]; on the way back the gradient at this place."""
        if self.noise == 0:
            return x
        y = x + self.error(x.detach())
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient + self.error(gradient))
        return y

    def error(self, x):
        size = x.square().mean(tuple(range(1, x.dim())), keepdim=True).sqrt()
        return self.noise * size * self.random(x)

    def number(self, x):
        return x if self.noise == 0 else x * (1 + UNIT * self.random(x))

    def relu(self, x):
        return x * self.decide(x.detach() > 0)

    def max_pool(self, x, kernel, stride):
        """Around the image there is nothing to choose. Of equal values the first in the window is taken."""
        pad, (samples, channels, height, width) = kernel // 2, x.shape
        lines, columns = ((length + 2 * pad - kernel) // stride + 1 for length in (height, width))
        around = F.pad(x, (pad,) * 4, value=-float("inf"))
        windows = torch.stack([around[:, :, i:i + stride * lines:stride, j:j + stride * columns:stride][:, :, :lines, :columns]
                               for i in range(kernel) for j in range(kernel)])
        first = (windows.detach() == windows.detach().max(0).values).long().argmax(0, keepdim=True)
        return windows.gather(0, self.decide(first))[0]


# Random numbers: what they are for.

INITIAL_WEIGHTS, SHUFFLE, AUGMENTATION, ATTACK_START, EVALUATION_START, LAYER_DRAW = range(1, 7)
HELD_OUT, GAUSSIAN = 8, 12
EVALUATION = 0xFFFFFFFF  # the noise of evaluations has no epoch


# Networks: docs/design.md, section 3, and He et al.


class Net:
    """Parameters and running statistics under PyTorch's names. training: batch statistics, which are kept in
    `statistics`; else the running ones, as always those of the batch norms `still`."""

    def __init__(self, rounding, parameters, running, training, still=()):
        self.rounding, self.parameters, self.running, self.training = rounding, parameters, running, training
        self.statistics, self.silu, self.still = {}, False, still

    def parameter(self, name, *shape):
        found = self.parameters[name]
        assert tuple(found.shape) == shape, (name, found.shape, shape)
        return found

    def conv(self, name, x, channels, kernel=3, stride=1, same=False):
        """same: TensorFlow's padding."""
        weight = self.parameter(name + ".weight", channels, x.shape[1], kernel, kernel)
        if same:
            more = max((-(-x.shape[2] // stride) - 1) * stride + kernel - x.shape[2], 0)
            x = F.pad(x, (more // 2, more - more // 2) * 2)
        return self.rounding.layer(F.conv2d(x, weight, stride=stride, padding=0 if same else kernel // 2))

    def norm(self, name, x):
        channels = x.shape[1]
        weight, bias = self.parameter(name + ".weight", channels), self.parameter(name + ".bias", channels)
        if self.training and name not in self.still:
            count = x.numel() // channels
            mean = x.mean((0, 2, 3))
            variance = (x - mean[:, None, None]).square().mean((0, 2, 3))
            self.statistics[name] = mean.detach(), variance.detach() * count / (count - 1)
        else:
            mean, variance = self.running[name]
        y = (x - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None]
        return self.rounding.layer(y * weight[:, None, None] + bias[:, None, None])

    def activate(self, x):
        return x * torch.sigmoid(x) if self.silu else self.rounding.relu(x)

    def linear(self, name, x, classes):
        weight, bias = self.parameter(name + ".weight", classes, x.shape[1]), self.parameter(name + ".bias", classes)
        return self.rounding.layer(x @ weight.T + bias)


class Shapes(Net):
    """Writes down the parameters in the order in which a network has them."""

    def __init__(self):
        super().__init__(Rounding(), {}, {}, True)

    def parameter(self, name, *shape):
        return self.parameters.setdefault(name, torch.zeros(shape))


def small_cnn(net, x, width, classes):
    for k, (channels, stride) in enumerate([(width, 1), (2 * width, 2), (2 * width, 1)], 1):
        x = net.activate(net.norm(f"bn{k}", net.conv(f"conv{k}", x, channels, stride=stride)))
    return net.linear("linear", x.mean((2, 3)), classes)


def blocks(width, counts=(2, 2, 2, 2)):
    """Name, channels and stride of the residual blocks of four stages."""
    for stage, count in enumerate(counts):
        for index in range(count):
            yield f"layer{stage + 1}.{index}", width << stage, 2 if stage > 0 and index == 0 else 1


def preact_resnet(counts, bottleneck=False, last_norm=False):
    """kuangliu/pytorch-cifar; last_norm: fast_adversarial, CIFAR10/preact_resnet.py."""
    def network(net, x, width, classes):
        x = net.conv("conv1", x, width)
        for name, inside, stride in blocks(width, counts):
            channels = 4 * inside if bottleneck else inside
            shapes = [(inside, 1, 1), (inside, 3, stride), (channels, 1, 1)] if bottleneck else [(inside, 3, stride), (inside, 3, 1)]
            y = a = net.activate(net.norm(f"{name}.bn1", x))
            for k, shape in enumerate(shapes, 1):
                y = net.conv(f"{name}.conv{k}", y if k == 1 else net.activate(net.norm(f"{name}.bn{k}", y)), *shape)
            if stride != 1 or x.shape[1] != channels:
                x = net.conv(f"{name}.shortcut.0", a, channels, kernel=1, stride=stride)
            x = y + x
        if last_norm:
            x = net.activate(net.norm("bn", x))
        return net.linear("linear", x.mean((2, 3)), classes)
    return network


def wide_resnet(depth, deepmind=False):
    """Zagoruyko and Komodakis, in TRADES' form: the shortcut's convolution reads the activated input; or in DeepMind's."""
    stem, bn1, conv1, bn2, conv2, shortcut, last, head = (
        ("init_conv", "batchnorm_0", "conv_0", "batchnorm_1", "conv_1", "shortcut", "batchnorm", "logits") if deepmind else
        ("conv1", "bn1", "conv1", "bn2", "conv2", "convShortcut", "bn1", "fc"))

    def network(net, x, width, classes):
        x = net.conv(stem, x, 16)
        for stage, index in itertools.product(range(3), range((depth - 4) // 6)):
            name = f"layer.{stage}.block.{index}" if deepmind else f"block{stage + 1}.layer.{index}"
            channels, stride = width << stage, 2 if stage > 0 and index == 0 else 1
            a = net.activate(net.norm(f"{name}.{bn1}", x))
            y = net.conv(f"{name}.{conv1}", a, channels, stride=stride, same=deepmind)
            y = net.conv(f"{name}.{conv2}", net.activate(net.norm(f"{name}.{bn2}", y)), channels)
            equal = x.shape[1] == channels
            x = y + (x if equal else net.conv(f"{name}.{shortcut}", a, channels, kernel=1, stride=stride))
        return net.linear(head, net.activate(net.norm(last, x)).mean((2, 3)), classes)
    return network


def resnet18(net, x, width, classes):
    x = net.activate(net.norm("bn1", net.conv("conv1", x, width)))
    for name, channels, stride in blocks(width):
        y = net.activate(net.norm(f"{name}.bn1", net.conv(f"{name}.conv1", x, channels, stride=stride)))
        y = net.norm(f"{name}.bn2", net.conv(f"{name}.conv2", y, channels))
        if stride != 1 or x.shape[1] != channels:
            x = net.norm(f"{name}.shortcut.1", net.conv(f"{name}.shortcut.0", x, channels, kernel=1, stride=stride))
        x = net.activate(y + x)
    return net.linear("linear", x.mean((2, 3)), classes)


def imagenet_resnet(counts, bottleneck, wider=1):
    """torchvision's."""
    def network(net, x, width, classes):
        x = net.activate(net.norm("bn1", net.conv("conv1", x, width, kernel=7, stride=2)))
        x = net.rounding.max_pool(x, 3, 2)
        for name, inside, stride in blocks(width, counts):
            channels, inside = 4 * inside if bottleneck else inside, wider * inside
            shapes = [(inside, 1, 1), (inside, 3, stride), (channels, 1, 1)] if bottleneck else [(inside, 3, stride), (inside, 3, 1)]
            y = x
            for k, shape in enumerate(shapes, 1):
                y = net.norm(f"{name}.bn{k}", net.conv(f"{name}.conv{k}", y if k == 1 else net.activate(y), *shape))
            if stride != 1 or x.shape[1] != channels:
                x = net.norm(f"{name}.downsample.1", net.conv(f"{name}.downsample.0", x, channels, kernel=1, stride=stride))
            x = net.activate(y + x)
        return net.linear("fc", x.mean((2, 3)), classes)
    return network


NETWORKS = {"small_cnn": small_cnn, "resnet18": resnet18, "preact_resnet18": preact_resnet((2, 2, 2, 2)),
            "preact_resnet18_bn": preact_resnet((2, 2, 2, 2), last_norm=True),
            "preact_resnet50": preact_resnet((3, 4, 6, 3), bottleneck=True),
            "wrn_16_4": wide_resnet(16), "wrn_28_10": wide_resnet(28), "wrn_34_10": wide_resnet(34), "wrn_10_1": wide_resnet(10),
            "dm_wrn_10_2": wide_resnet(10, True), "dm_wrn_16_1": wide_resnet(16, True), "dm_wrn_28_10": wide_resnet(28, True),
            "imagenet_resnet18": imagenet_resnet((2, 2, 2, 2), False), "imagenet_resnet50": imagenet_resnet((3, 4, 6, 3), True),
            "imagenet_wrn50_2": imagenet_resnet((3, 4, 6, 3), True, 2)}


def layer_of(name, granularity, network):
    """The layer that a parameter belongs to: the tensor itself, its module (a convolution or linear layer with its
    batch norm), or its residual block."""
    if granularity == "tensor":
        return name
    module = name.rsplit(".", 1)[0]
    if network.startswith("wrn") and module == "bn1":  # in front of the linear layer
        module = "fc"
    if module == "batchnorm":
        module = "logits"
    module = module.replace("batchnorm_", "conv_").replace("bn", "conv")
    for shortcut in "shortcut", "downsample":
        module = module.replace(shortcut + ".0", shortcut).replace(shortcut + ".1", shortcut)
    if granularity == "module" or network == "small_cnn" or module in ("linear", "fc", "logits"):
        return module
    return "stem" if module in ("conv1", "init_conv") else module.rsplit(".", 1)[0]


# Files.


def fraction(value):
    """A number, or one written as "8/255"; words stay words."""
    if isinstance(value, str) and "/" in value:
        try:
            above, below = value.split("/")
            return float(above) / float(below)
        except ValueError:
            pass
    return value


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


# Options whose members have settings: what each is called here, and what it is where the word does not say.
SETTINGS = {
    "average": {"decay": ("average-decay", .995), "bn": ("average-bn", "auto")},
    "selector": {"loss": ("bandit-loss", "selfnorm"), "rate": ("bandit-rate", "auto"), "p_min": ("p-min", .1), "t0": ("freeze-t0", .8),
                 "schedule": ("freeze-schedule", "cubic"), "lr": ("freeze-lr", "scaled"), "percentile": ("freeze-percentile", 50)},
    "codec": {"rank": ("codec-rank", "auto"), "clip": ("codec-clip", 2.5)},
    "aggregator": {"tau": ("aggregator-tau", "auto"), "iterations": ("aggregator-iterations", 2000), "mixing": ("aggregator-mixing", False)},
    "attack-start": {"radius": ("start-radius", 1), "box": ("start-box", "auto")},
    "schedule": {"decay": ("lr-decay", .1)},
    "mask": {"transport": ("mask-transport", "union")},
    "loss": {"detach": ("detach-reference", False)},
    "optimizer": {"beta1": ("beta1", .9), "beta2": ("beta2", .999), "epsilon": ("epsilon", 1e-6), "bias_correction": ("bias-correction", False),
                  "clamp": ("clamp-high", 10), "trust": ("trust-coefficient", 1e-3), "nesterov": ("nesterov", False),
                  "peak_momentum": ("peak-momentum", "off")},
}


class Config:
    """The options of config.resolved.toml by name, and the settings of their members as options of their own."""

    def __init__(self, toml):
        lines = [line.split(" = ", 1) for line in toml.splitlines() if " = " in line and line[0] != "#"]
        self.options = {key: fraction(json.loads(value)) for key, value in lines}
        for option, settings in SETTINGS.items():
            self.take_settings(option, settings)
        for whole in "codec-rank", "aggregator-iterations":
            if self[whole] != "auto":
                self.options[whole] = int(self[whole])
        self.options["average-from"] = 0
        if "@" in self["average"]:
            self.options["average"], start = self["average"].split(",")[-1].split("@")
            self.options["average-from"] = float(start)
        self.options["freeze"], _, end = str(self["freeze"]).replace("none", "").partition(",@")
        self.options["freeze-epochs"] = int(end or 0)
        # What follows from the others.
        if self["average-bn"] == "auto":
            self.options["average-bn"] = "rebuild" if self["average"] != "none" and self["aggregator"] == "mean" else "raw"
        if self["bandit-rate"] == "auto":
            self.options["bandit-rate"] = {"paper": 1e-5, "selfnorm": .1}[self["bandit-loss"]]
        if self["start-box"] == "auto":
            self.options["start-box"] = "on" if self["start-radius"] != 1 or self["project"] == "off" else "off"
        outside = self["selector"] == "freezeout" and self["freeze-lr"] != "constant"
        self.options["importance"] = "outside" if outside else "inside"

    def take_settings(self, option, settings):
        """Those in the word of a member, "ema:decay=0.9:bn=raw@1", as options of their own."""
        word, at, epochs = str(self[option]).rpartition(",")[2].partition("@")
        name, *given = word.split(":")
        self.options[option] = str(self[option]).rpartition(",")[0] + "," * ("," in str(self[option])) + name + at + epochs
        self.options |= {key: default for key, default in settings.values()}
        for setting in given:
            key, _, value = setting.partition("=")
            if key not in settings:  # the first one's value alone
                key, value = next(iter(settings)), key
            self.options[settings[key][0]] = fraction(number(value)) if value else True

    def __getitem__(self, key):
        return self.options[key]


def cyclic(step, up, steps, end, peak):
    """One triangle of PyTorch's CyclicLR, for a rate or a momentum; `up` of the `steps` lead to the peak."""
    u, ratio = step / steps, up / steps
    return end + (peak - end) * (u / ratio if u <= ratio and ratio > 0 else (1 - u) / (1 - ratio))


def one_cycle(step, up, steps, first, peak, last):
    """PyTorch's OneCycleLR, anneal_strategy cos, with pct_start up / steps, for a rate or a momentum."""
    top = up - 1
    between = lambda a, b, part: b + (a - b) / 2 * (np.cos(np.pi * part) + 1)
    if top > 0 and step <= top:
        return between(first, peak, step / top)
    return between(peak, last, (step - top) / (steps - 1 - top))


LAST = 10**9
BY_EPOCH = ["attack", "attack-steps", "eps", "alpha"]


def in_epoch(value, epoch):
    """An option that may change by epoch: "1,2@12" is 2 from epoch 12 on, "4/255..8/255@0-10" grows by the epoch."""
    number = lambda text: float(fraction(text)) if text[0].isdigit() or text[0] == "." else text
    if not isinstance(value, str) or not ("@" in value or ".." in value):
        return value
    now = None
    for part in value.split(","):
        values, _, epochs = part.partition("@")
        low, _, high = values.partition("..")
        first, _, last = (epochs or "0").partition("-")
        if now is None or epoch >= int(first):
            now = number(low)
            if high:
                way = min(1.0, max(0.0, (epoch - int(first)) / (int(last) - int(first))))
                now += (number(high) - now) * way
    return now


def own_alpha(attack, eps, steps, norm):
    """An attack's own step size."""
    return (1.25 * eps if attack == "fgsm" else 2 * eps / steps if attack == "smooth-pgd" else
            2.5 * eps / steps if norm == "l2" else 2 / 255)


def automatic(config, layers):
    """What the help says of options that are not given."""
    optimizer, changes = config["optimizer"], any("@" in str(config[option]) for option in BY_EPOCH)
    attack, steps, eps = (in_epoch(config[option], LAST) for option in BY_EPOCH[:3])
    one_step = "auto" if changes else own_alpha(attack, eps, steps, config["norm"])
    fast = {part.split("@")[0] for part in config["attack"].split(",")} == {"fgsm"}
    kinds = {name.partition("x")[0].rstrip("0123456789") for name in config["eval"]}
    radius = config["eval-eps"]
    names = [name.partition("x")[0] for name in config["eval"]]
    of_evaluations = {2.5 * radius / int(name[3:]) if config["norm"] == "l2" else radius / 4
                      for name in names if name.startswith("pgd")}
    of_evaluations |= {2 * radius / int(name[10:]) for name in names if name.startswith("smooth-pgd")}
    loss, noise = config["loss"], config["noise"] > 0
    return {"loss": "cross_entropy", "lambda": 1 if attack == "pgd" and loss == "cross_entropy" and not noise else 0,
            "noise": 0, "noise-samples": 1,
            "beta": {"cross_entropy": 0, "trades": 6, "kl": 1, "mart": 5, "pgi": 10, "gat": 10, "nuat": 4}[loss],
            "label-smoothing": 0,
            "attack-start": "gaussian" if loss in ("trades", "kl", "mart") else "uniform",
            "project": "on", "awp-gamma": 0, "awp": "global",
            "attack-bn": "train" if fast and loss not in ("trades", "kl") and not noise else "eval",
            "alpha": one_step if attack != "none" else config["alpha"], "eval": ["pgd10"], "norm": "linf", "eval-eps": eps,
            "eval-alpha": "auto" if "fgsm" in kinds or len(of_evaluations) > 1 else max(of_evaluations, default=eps / 4),
            "weight-decay": 5e-4 if optimizer == "sgd" else 1e-4, "momentum": .9, "no-decay": "none", "clip-norm": 0,
            "budget": layers * 40 / 54 if config["selector"] in ("exp3", "oracle", "uniform") else "auto",
            "budget-unit": "layers",
            "micro-batch": config["batch"], "lr": .01, "schedule": "step", "selector": "exp3",
            "optimizer": "lamb", "attack": "pgd", "eps": 8 / 255, "bn-statistics": "average", "resample": "step",
            "granularity": "tensor", "mask": "shared", "aggregator": "mean",
            "faults": "auto", "augment": "crop", "train-size": "auto", "warm-start": 0, "attack-stop": "off",
            "stale-attack": 0, "staleness": 0, "activation": "silu" if config["network"].startswith("dm_wrn") else "relu", "normalize": "none", "average": "none",
            "new-head": "none", "freeze": "", "head-lr": "auto"}


class Data:
    """The images of one split: uint8 [n, s, s, c]."""

    def __init__(self, config, split):
        parts = []
        balanced = config["mix"] != "pool"  # the first file alone has test images, and is limited
        for path in config["data"][:1] if balanced and split == "test" else config["data"]:
            with h5py.File(path, "r") as file:
                parts.append((file[f"{split}/images"][()], file[f"{split}/labels"][()]))
        limit = config[f"limit-{split}"] or None
        if balanced:
            parts[0] = parts[0][0][:limit], parts[0][1][:limit]
            limit = None
        self.first_file = len(parts[0][0])
        self.images = np.concatenate([images for images, _ in parts])[:limit]
        self.labels = np.concatenate([labels for _, labels in parts])[:limit].astype(np.int64)

    def __len__(self):
        return len(self.labels)

    def part(self, chosen):
        part = copy.copy(self)
        part.images, part.labels = self.images[chosen], self.labels[chosen]
        part.first_file = int(np.sum(chosen[:self.first_file]))
        return part


@dataclasses.dataclass
class State:
    """What a checkpoint holds. Tensors are f64; `running` has one entry per rank, {name: (mean, variance)}. What belongs
    to masks and selectors has a row for each of them: one for all ranks, or one a rank."""

    step: int
    parameters: dict
    optimizer: dict
    running: list
    p: np.ndarray  # of the selector
    largest_norm: np.ndarray
    squares: np.ndarray  # of the oracle: averages of squared norms, -1 where a layer has not been drawn yet
    freezing: np.ndarray  # of autofreeze: sums of norms, means of the interval before; interval, learned, first
    counts: np.ndarray  # of LAMB with bias correction: steps of each layer
    drawn_p: np.ndarray  # the probabilities from which the draw in force was made
    scale: np.ndarray  # 1/p of the active layers, else 0
    batches_tracked: int
    perturbations: np.ndarray = None
    begun: list = None  # of each rank: the perturbation of the next step's first images after --stale-attack iterations
    before: list = dataclasses.field(default_factory=list)  # --staleness: (parameters, statistics) of 1, 2, ... steps before
    codec: dict = None  # arrays of the gradients' codec
    average: dict = None  # of the parameters
    averaged: int = 0  # how many weights it is made of
    average_running: dict = None  # {name: (mean, variance)}; None: the weights' own

    def of_average(self):
        """The state of a network with the averaged weights."""
        running = [self.average_running] * len(self.running) if self.average_running else self.running
        return dataclasses.replace(self, parameters=self.average, running=running)


@dataclasses.dataclass
class Attack:
    name: str
    eps: float
    alpha: float
    steps: int = 1
    stop: int = None  # of PGD: an image takes at most so many steps while it is misclassified
    norm: str = "linf"
    start: float = 1  # the uniform start, in parts of eps
    boxed: bool = False  # that start is cut to the box
    ball: float = None  # steps end in it; None: eps


ARRAYS = {"sgd": ["momentum"], "lars": ["momentum"], "lars_sgd": ["momentum"], "lamb": ["m", "v"]}


class Reference:
    """The run of one configuration on a number of ranks."""

    def __init__(self, config, ranks):
        self.config, self.ranks = config, ranks
        self.train, self.seed = Data(config, "train"), config["seed"]
        self.splits = {"test": Data(config, "test")}
        self.classes = 1 + max(self.train.labels.max(), self.splits["test"].labels.max())
        if config["holdout"] > 0:
            order = self.shuffled(HELD_OUT, 0, 0, self.labelled())
            aside = np.isin(np.arange(len(self.train)), order[: config["holdout"]])
            self.splits["holdout"], self.train = self.train.part(aside), self.train.part(~aside)
        self.network = NETWORKS[config["network"]]
        shapes = Shapes()
        self.logits(shapes, torch.zeros(2, self.train.images.shape[3], *self.train.images.shape[1:3]))
        self.shapes, self.norms = {n: tuple(v.shape) for n, v in shapes.parameters.items()}, list(shapes.statistics)
        # Counted with the channels that fill up sixteens: those of images and classes are as they are.
        sixteens = lambda channels: -(-channels // 16) * 16
        first, head = next(iter(n for n, s in self.shapes.items() if len(s) == 4)), ("linear.", "fc.", "logits.")
        self.elements = {name: (shape[0] if name.startswith(head) else sixteens(shape[0]))
                         * (sixteens(shape[1]) if len(shape) > 1 and name != first else int(np.prod(shape[1:2])))
                         * int(np.prod(shape[2:])) for name, shape in self.shapes.items()}
        layer = {name: layer_of(name, config["granularity"], config["network"]) for name in self.shapes}
        self.layers = list(dict.fromkeys(layer.values()))
        self.one_dimensional = {f"{norm}.{name}" for norm in self.norms for name in ("weight", "bias")} | {
            name for name in self.shapes if name.endswith(".bias")}
        self.layer = {name: self.layers.index(of) for name, of in layer.items()}
        self.lam = config["lambda"]
        self.loss, self.beta, self.smoothing = config["loss"], config["beta"], config["label-smoothing"]
        self.detached = config["detach-reference"]
        # The kinds of images that the loss looks at, in the order of their turns where it differs by rounding alone.
        self.kinds = (["adv", "clean"] if self.lam > 0 or self.loss not in ("cross_entropy", "pgi") else
                      ["start", "adv"] if self.loss == "pgi" and not self.detached else ["adv"])
        self.sigma, self.copies, self.shown = config["noise"], int(config["noise-samples"]), None
        self.unlabelled = bool((self.train.labels < 0).any())
        self.importance, self.selector = config["importance"], config["selector"]
        self.still = []
        self.masks = ranks if config["mask"] == "per_worker" else 1

        # Section 10: the permutation is padded to a multiple of all micro-batches of a step; a batch above a rank's
        # share is cut to it, and has smaller micro-batches; fewer only where there are more of them than images.
        # All this in groups of images, of one in a pool.
        self.group = self.labelled_of_group = 1
        if config["mix"] != "pool":
            share = fractions.Fraction(config["mix"].split(":")[1])
            self.group, self.labelled_of_group = share.denominator, share.numerator
        groups = -(-self.labelled() // self.labelled_of_group)
        self.micro_batches = min(config["batch"] // config["micro-batch"], -(-groups // ranks))
        multiple = ranks * self.micro_batches
        self.per_rank = -(-groups // multiple) * self.micro_batches * self.group
        self.batch = min(config["batch"], self.per_rank)
        self.micro_batch = self.batch // self.micro_batches
        self.steps_per_epoch = -(-self.per_rank // self.batch)
        self.warmup_steps = config["warmup-epochs"] * self.steps_per_epoch  # a real number
        self.steps = round(config["warmup-epochs"] + config["epochs"]) * self.steps_per_epoch
        if config["max-steps"] > 0:
            self.steps = min(self.steps, config["max-steps"])

        self.batch_statistics = config["attack-bn"] == "train"
        self.take_attack(0)
        self.budget = config["budget"]
        sizes = np.zeros(len(self.layers))
        for name, shape in self.shapes.items():
            sizes[self.layer[name]] += int(np.prod(shape))
        # What layers count in the budget. Seconds are measured by the program: whoever compares sets them.
        self.costs = {"layers": np.ones(len(sizes)), "bytes": sizes / sizes.mean(), "seconds": None}[
            config["budget-unit"]]
        if config["freeze"]:  # the selector knows the others
            still = [self.layer[name] for name in self.frozen_in(0)]
            sizes[still] = 0
            self.costs = {"layers": (sizes > 0).astype(float), "bytes": sizes / sizes[sizes > 0].mean()}[config["budget-unit"]]

    def frozen_in(self, step):
        """The parameters that stand still in a step: all up to the last one of what --freeze names."""
        upto, names = self.config["freeze"], list(self.shapes)
        if upto == "" or 0 < self.config["freeze-epochs"] * self.steps_per_epoch <= step:
            return []
        if upto == "all-but-head":
            return [name for name in names if not name.startswith(("linear.", "fc."))]
        inside = [f"{layer_of(name, 'module', self.config['network'])}.|{name}" for name in names]
        last = max(k for k, name in enumerate(inside) if any(part.startswith(upto + ".") for part in name.split("|")))
        return names[: last + 1]

    def chosen(self):
        """The first layer among which a selector chooses."""
        return 1 + max((self.layer[name] for name in self.frozen_in(0)), default=-1)

    def logits(self, net, x):
        net.silu = self.config["activation"] == "silu"
        if self.config["normalize"] != "none":
            known = {"cifar10": "0.4914,0.4822,0.4465,0.2471,0.2435,0.2616", "imagenet": "0.485,0.456,0.406,0.229,0.224,0.225"}
            said = self.config["normalize"]
            numbers = [float(number) for number in known.get(said, said).split(",")]
            mean, deviation = torch.tensor(numbers).reshape(2, -1, 1, 1)
            x = (x - mean) / deviation
        return self.network(net, x, self.config["width"], int(self.classes))

    # Randomized smoothing: Cohen et al.; Salman et al.

    def noisy(self, x, samples, time):
        """Copies of each image with noise of their own, side by side; without noise the images."""
        if self.sigma == 0:
            return x
        pixels = x[0].numel()
        fours = -(-pixels // 4) * 4  # of a copy
        z = [normals(self.seed, GAUSSIAN, time, int(sample), self.copies * fours).reshape(self.copies, fours)[:, :pixels]
             for sample in samples]
        z = torch.from_numpy(np.concatenate(z)).reshape(-1, *x.shape[1:])
        return x.repeat_interleave(self.copies, 0) + self.sigma * z

    def predictions(self, net, x):
        """The logits; of a network under noise, the logarithms of the mean of its copies' softmaxes. self.shown: samples
        and time of the noise."""
        if self.sigma == 0:
            return self.logits(net, x)
        of_copies = F.log_softmax(self.logits(net, self.noisy(x, *self.shown)), 1).reshape(len(x), self.copies, -1)
        return of_copies.logsumexp(1) - np.log(self.copies)

    def initial_state(self, rounding):
        """Weights as PyTorch draws them: U(+-1/sqrt(fan-in)), the linear bias too; gamma 1, beta 0. torchvision's and
        DeepMind's networks begin with normal convolutions of variance 2/fan-out, the latter with a linear bias of 0."""
        parameters, fan_in, normal = {}, 1, self.config["network"].startswith(("imagenet", "dm_wrn"))
        for number, (name, shape) in enumerate(self.shapes.items()):
            count = int(np.prod(shape))
            if len(shape) > 1:
                fan_in = int(np.prod(shape[1:]))
            if len(shape) == 4 and normal:
                z = normals(self.seed, INITIAL_WEIGHTS, 0, number, count)
                values = rounding.number(torch.from_numpy(z * np.sqrt(2 / (count // shape[1]))))
            elif len(shape) > 1 or name in ("linear.bias", "fc.bias"):
                u = uniforms(self.seed, INITIAL_WEIGHTS, 0, number, count)
                values = rounding.number(torch.from_numpy((2 * u - 1) / np.sqrt(fan_in)))
            else:
                values = torch.full((count,), 1.0 if name.endswith("weight") else 0.0)
            parameters[name] = values.reshape(shape)
        running = {name: (torch.zeros(self.shapes[name + ".bias"]), torch.ones(self.shapes[name + ".bias"]))
                   for name in self.norms}
        layers = len(self.layers)
        averages = self.config["average"] != "none"
        return State(step=0, parameters=parameters, average=dict(parameters) if averages else None,
                     average_running=running if averages and self.config["average-bn"] == "ema" else None,
                     optimizer={array: {name: torch.zeros(shape) for name, shape in self.shapes.items()}
                                for array in ARRAYS[self.config["optimizer"]]},
                     running=[running] * self.ranks,
                     p=np.full((self.masks, 0 if self.selector == "all" else layers), self.first_p()),
                     largest_norm=np.zeros(self.masks),
                     squares=np.full((self.masks, layers if self.selector == "oracle" else 0), -1.0),
                     freezing=np.concatenate([np.zeros(layers), -np.ones(layers), np.zeros(3)]
                                             if self.selector == "autofreeze" else [np.zeros(0)]),
                     counts=np.zeros(layers if self.config["bias-correction"] else 0),
                     drawn_p=np.ones((self.masks, layers)), scale=np.ones((self.masks, layers)), batches_tracked=0,
                     perturbations=np.zeros_like(self.train.images) if self.config["warm-start"] else None,
                     codec=codecs_of_gradients.first_state(self.config, self.shapes, self.ranks))

    def read_state(self, path):
        """A checkpoint: docs/manual/files.md."""
        with h5py.File(path, "r") as file:
            tensor = lambda of: torch.from_numpy(of[()].astype(np.float64))
            state = file["state"]
            found = {name: (tensor(file[f"bn/{name}.running_mean"]), tensor(file[f"bn/{name}.running_var"]))
                     for name in self.norms}
            running = [found] * self.ranks
            if "bn_local" in state:
                sizes = [self.shapes[name + ".bias"][0] for name in self.norms]
                halves = tensor(state["bn_local"]).reshape(self.ranks, 2, sum(sizes))
                running = [dict(zip(self.norms, zip(means.split(sizes), variances.split(sizes))))
                           for means, variances in halves]
                assert all(torch.equal(a, b) for name in self.norms for a, b in zip(running[0][name], found[name]))
            assert state.attrs.get("masks", 1) == self.masks
            rows = lambda of: of[()].reshape(self.masks, -1)
            selector = rows(state["selector"])
            p, squares, largest = selector[:, :-1], selector[:, :0], np.zeros(self.masks)
            freezing = np.zeros(0)
            if self.selector == "exp3":
                largest = selector[:, -1]
            elif self.selector == "oracle":
                p, squares = np.array([self.best_p(of) for of in selector]), selector
            elif self.selector != "all":  # whatever else, p follows from the step, the budget, or what autofreeze knows
                p = np.full((self.masks, len(self.layers)), self.first_p())
                if self.selector == "autofreeze":
                    freezing = selector[0]
                    p[:, : int(freezing[-1])] = 0
            if self.config["budget-unit"] == "seconds":
                assert np.array_equal(state["layer_costs"][()], self.costs)
            counts = state["optimizer"][()] if "optimizer" in state else np.zeros(0)
            average, averaged, average_running = None, 0, None
            if self.config["average"] != "none":
                of = file["optim/average"]
                average = {name: tensor(of[name]) for name in self.shapes}
                counts, averaged = counts[:-1], int(counts[-1])
                if self.config["average-bn"] != "raw":
                    average_running = {name: (tensor(of[f"{name}.running_mean"]), tensor(of[f"{name}.running_var"]))
                                       for name in self.norms}
            return State(step=int(state.attrs["step"]),
                         parameters={name: tensor(file[f"param/{name}"]) for name in self.shapes},
                         optimizer={array: {name: tensor(of[name]) for name in self.shapes}
                                    for array, of in file["optim"].items() if array != "average"},
                         average=average, averaged=averaged, average_running=average_running,
                         running=running, p=p, squares=squares, freezing=freezing,
                         largest_norm=largest,
                         counts=counts,
                         drawn_p=rows(state["p"]), scale=rows(state["active_scale"]),
                         batches_tracked=int(state.attrs["batches_tracked"]),
                         perturbations=state["perturbations"][()] if "perturbations" in state else None,
                         begun=list(tensor(file["attack/begun"])) if "attack/begun" in file else None,
                         before=[self.read_weights(file[f"attack/before{age}"])
                                 for age in range(1, self.config["staleness"] + 1) if f"attack/before{age}" in file],
                         codec={name: of[()].astype(np.float64) for name, of in file["codec"].items()}
                         if "codec" in file else None)

    def read_weights(self, group):
        """Parameters and running statistics of a step before."""
        tensor = lambda name: torch.from_numpy(group[name][()].astype(np.float64))
        return ({name: tensor(name) for name in self.shapes},
                {name: (tensor(f"{name}.running_mean"), tensor(f"{name}.running_var")) for name in self.norms})

    def take_attack(self, epoch):
        """The attack of an epoch. With a radius of zero it is none, but where its passes count in batch statistics."""
        config = self.config
        name, steps, self.eps, alpha = (in_epoch(config[option], epoch) for option in BY_EPOCH)
        if self.eps == 0 and not self.batch_statistics:
            name = "none"
        if alpha == "auto":
            alpha = own_alpha(name, self.eps, steps, config["norm"])
        self.attack = Attack(name, self.eps, alpha, int(steps),
                             None if config["attack-stop"] == "off" else config["attack-stop"], config["norm"],
                             config["start-radius"], config["start-box"] == "on",
                             None if config["project"] == "on" else float("inf"))

    # Samples.

    def labelled(self):
        """How many samples, the first ones, are the labelled set; of a pool all."""
        return len(self.train) if self.config["mix"] == "pool" else self.train.first_file

    def shuffled(self, purpose, time, first, end):
        keys = words(self.seed, purpose, time, np.arange(first, end), 0)
        return first + np.argsort(keys[0] << np.uint64(32) | keys[1], kind="stable")

    def samples(self, step):
        """The samples of a step, [ranks][micro-batches][size]."""
        epoch = step // self.steps_per_epoch
        anew = self.config["schedule"] in ("cyclic", "one_cycle")
        shuffle = epoch if anew else max(0, epoch - int(self.config["warmup-epochs"]))
        groups, labelled = self.per_rank * self.ranks // self.group, self.labelled()
        order = np.resize(self.shuffled(SHUFFLE, shuffle, 0, labelled), groups * self.labelled_of_group)  # wraps around
        order = order.reshape(groups, -1)
        if self.group > 1:
            extra, wanted = len(self.train) - labelled, groups * (self.group - self.labelled_of_group)
            epochs = max(1, extra // wanted)  # of one permutation
            others = self.shuffled(SHUFFLE, shuffle // epochs, labelled, len(self.train))
            others = np.resize(others[shuffle % epochs * wanted:], wanted) if epochs > 1 else np.resize(others, wanted)
            order = np.concatenate([order, others.reshape(groups, -1)], axis=1)
        first, batch = step % self.steps_per_epoch * self.batch * self.ranks // self.group, self.batch // self.group
        cards = order[first:first + batch * self.ranks]
        return [[cards[rank::self.ranks][m::self.micro_batches].ravel() for m in range(self.micro_batches)]
                for rank in range(self.ranks)]

    def size_in(self, epoch):
        """Height = width of the images that are trained on in an epoch."""
        size = self.train.images.shape[1]
        cut = in_epoch(self.config["train-size"], epoch)
        return size if cut == "auto" else int(cut)

    def crops(self, samples, epoch, cut):
        """Of each sample, cut to `cut` x `cut` pixels: where each pixel comes from, y and x [n, s, s], and whether it is
        inside. A cut lies anywhere in the image with 4 pixels around it, or without augmentation in its middle."""
        size = self.train.images.shape[1]
        w = words(self.seed, AUGMENTATION, epoch, samples, 0).astype(np.int64)
        if self.config["augment"] == "crop":
            top, left = (w[axis] % (size + 8 - cut + 1) - 4 for axis in range(2))
        else:
            w = np.zeros_like(w)
            top = left = w[0] + (size - cut) // 2
        y, x = np.arange(cut), np.arange(cut)
        from_y = y[None, :] + top[:, None]
        from_x = np.where((w[2] & 1)[:, None] == 1, cut - 1 - x, x) + left[:, None]
        from_y, from_x = np.broadcast_arrays(from_y[:, :, None], from_x[:, None, :])
        inside = (from_y >= 0) & (from_y < size) & (from_x >= 0) & (from_x < size)
        return from_y.clip(0, size - 1), from_x.clip(0, size - 1), inside

    def cut_out(self, samples, crops):
        """The training images, cut so."""
        y, x, inside = crops
        pixels = self.train.images[samples[:, None, None], y, x] * inside[..., None]
        return torch.from_numpy(pixels.transpose(0, 3, 1, 2) / 255.0)

    # Attacks.

    def numbers(self, of, purpose, time, samples, shape):
        """Random ones, uniform or normal, of each sample's own counters."""
        count = int(np.prod(shape[1:]))
        return torch.from_numpy(np.stack([of(self.seed, purpose, time, int(sample), count)
                                          for sample in samples]).reshape(shape))

    def random_start(self, purpose, time, samples, x, attack):
        """In the ball: each pixel in [-eps, eps], or at the distance eps in L2, inside the box."""
        if attack.norm == "l2":
            z = self.numbers(normals, purpose, time, samples, x.shape)
            return (x + attack.eps * self.normalized(z)).clamp(0, 1) - x
        eta = (2 * self.numbers(uniforms, purpose, time, samples, x.shape) - 1) * attack.start * attack.eps
        return (x + eta).clamp(0, 1) - x if attack.boxed else eta

    def training_start(self, time, samples, x):
        """Where the attack of the training starts: in the ball, or normal beside the image."""
        if self.config["attack-start"] == "uniform":
            return self.random_start(ATTACK_START, time, samples, x, self.attack)
        return .001 * self.numbers(normals, ATTACK_START, time, samples, x.shape)

    @staticmethod
    def norms(of):
        return of.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)

    @staticmethod
    def normalized(of):
        return of / (Reference.norms(of) + 1e-12)

    @staticmethod
    def divergence(clean, attacked):
        """KL(p||q) of each sample: the softmaxes of its clean and its attacked logits."""
        p, q = F.log_softmax(clean, 1), F.log_softmax(attacked, 1)
        return (p.exp() * (p - q)).sum(1)

    @staticmethod
    def cross_entropies(logits, labels, smoothing=0.0):
        """Of each sample; 0 where there is no label."""
        known = (labels >= 0).double()
        return known * F.cross_entropy(logits, labels.clamp(min=0), reduction="none", label_smoothing=smoothing)

    def climbed(self, logits, labels, reference):
        """What the attack climbs, of each sample. reference: the logits of the clean images, or None."""
        if self.attack_of_now == "smooth-pgd":
            most = -np.log(1e-20) if self.copies > 1 else np.inf
            return self.cross_entropies(logits, labels).clamp(max=most)
        if reference is None:
            return self.cross_entropies(logits, labels)
        if self.loss == "cross_entropy":
            return torch.where(labels < 0, self.divergence(reference, logits), self.cross_entropies(logits, labels))
        return self.divergence(reference, logits)

    def losses(self, logits, labels, began):
        """Of each sample of a micro-batch: {pass: its loss}, as they are reported, and their total. logits: {pass: of
        its images}; began: the attack's own, where it began."""
        attacked, clean = logits["adv"], logits.get("clean")
        if self.loss == "pgi":
            of_attacked = self.cross_entropies(attacked, labels, self.smoothing)
            of_start = (attacked - (began if self.detached else logits["start"])).square().mean(1)
            return {"adv": of_attacked, "start": of_start}, of_attacked + self.beta * of_start
        if self.loss in ("gat", "nuat"):
            of_clean = self.cross_entropies(clean, labels, self.smoothing)
            fixed = clean.detach() if self.detached else clean
            if self.loss == "gat":
                term = (F.softmax(fixed, 1) - F.softmax(attacked, 1)).square().sum(1)
            else:  # the norm's value and gradient, and the part that each row has in its value
                apart = fixed - attacked
                u, _, v = torch.linalg.svd(apart.detach(), full_matrices=False)
                norm = torch.linalg.matrix_norm(apart, "nuc")
                term = (apart.detach() * (u @ v)).sum(1) + (norm - norm.detach()) / len(apart)
            return {"adv": term, "clean": of_clean}, of_clean + self.beta * term
        if self.loss == "mart":
            p, q = F.softmax(clean, 1), F.softmax(attacked, 1)
            others = q.scatter(1, labels[:, None], 0.0)
            wrong = others.gather(1, others.argmax(1, keepdim=True))[:, 0]
            of_attacked = F.cross_entropy(attacked, labels, reduction="none") - (1.0001 - wrong + 1e-12).log()
            of_clean = ((1.0000001 - p.gather(1, labels[:, None])[:, 0]) * (p * (p.log() - (q + 1e-12).log())).sum(1))
            return {"adv": of_attacked, "clean": of_clean}, of_attacked + self.beta * of_clean
        if self.loss == "cross_entropy":
            of_attacked = self.cross_entropies(attacked, labels, self.smoothing)
            if self.unlabelled:
                of_attacked = torch.where(labels < 0, self.divergence(clean, attacked), of_attacked)
            if clean is None:
                return {"adv": of_attacked}, of_attacked
            of_clean = self.cross_entropies(clean, labels, self.smoothing)
            return {"adv": of_attacked, "clean": of_clean}, of_attacked + self.lam * of_clean
        soft = clean.detach() if self.loss == "kl" else clean
        of_attacked, of_clean = self.divergence(soft, attacked), self.cross_entropies(clean, labels, self.smoothing)
        return {"adv": of_attacked, "clean": of_clean}, self.beta * of_attacked + of_clean

    def gradient(self, net, x, labels, rounding, reference=None):
        """Of the sum of what is climbed by the images, and the logits."""
        x = x.detach().requires_grad_()
        logits = self.predictions(net, x)
        gradient, = torch.autograd.grad(self.climbed(logits, labels, reference).sum(), x)
        if rounding.noise:
            gradient = gradient + rounding.error(gradient)
        return gradient, logits

    @staticmethod
    def pgd_step(of, x, eta, gradient, rounding):
        if of.name == "smooth-pgd":  # the box first, then the ball
            eta = (x + eta + of.alpha * gradient / Reference.norms(gradient)).clamp(0, 1) - x
            return rounding.number(eta * (of.eps / Reference.norms(eta)).clamp(max=1))
        if of.norm == "l2":  # the ball first, then the box
            eta = eta + of.alpha * Reference.normalized(gradient)
            eta = Reference.normalized(eta) * Reference.norms(eta).clamp(max=of.eps)
            return rounding.number((x + eta).clamp(0, 1) - x)
        z = (x + eta + of.alpha * rounding.decide(gradient.sign())).clamp(0, 1)
        ball = of.eps if of.ball is None else of.ball
        return rounding.number((z - x).clamp(-ball, ball))

    def old_nets(self, state, attack, rounding):
        """The networks that the iterations of an attack see: --staleness."""
        versions, oldest = [(state.parameters, state.running[0]), *state.before], self.config["staleness"]
        newer = attack.name == "pgd" and self.config["attack-stop"] == "off"
        ages = [oldest - (number * oldest // attack.steps if newer else 0)
                for number in range(attack.steps)]
        return [Net(rounding, *versions[min(age, len(state.before))], False) for age in ages]

    def reference_logits(self, net, x):
        """Of the clean images, where the attack is against them."""
        if self.loss not in ("trades", "kl") and not self.unlabelled:
            return None
        with torch.no_grad():
            return self.predictions(net, x)

    def perturb(self, of, net, x, labels, eta, rounding, reference=None):
        """x_adv, eta, the passes that were paid for, and the batch statistics of each gradient in training mode."""
        statistics, passes, self.began, self.attack_of_now = [], 0, None, of.name

        nets = net if isinstance(net, list) else [net] * of.steps

        def gradient(images, of_labels, number=0):
            net = nets[number]
            net.statistics = {}
            found = self.gradient(net, images, of_labels, rounding, reference)
            if self.began is None:
                self.began = images.detach(), found[1].detach()
            if net.training:
                statistics.append(net.statistics)
            return found

        whole = len(x) if self.batch_statistics else self.micro_batch  # running statistics: a part of it may be empty
        whole *= self.copies
        if of.name == "smooth-pgd":
            eta = torch.zeros_like(x)
        if of.name == "none":
            return x, torch.zeros_like(x), 0, []
        if of.name == "fgsm":
            g, _ = gradient((x + eta).clamp(0, 1), labels)
            if of.norm == "l2":
                eta = self.pgd_step(of, x, eta, g, rounding)
            else:
                moved = rounding.decide(((x + eta >= 0) & (x + eta <= 1)) * g.sign())
                ball = of.eps if of.ball is None else of.ball
                eta = (eta + of.alpha * moved).clamp(-ball, ball)
            passes = whole
        elif of.stop is None:
            for number in range(of.steps):
                g, _ = gradient(x + eta, labels, number)
                eta = self.pgd_step(of, x, eta, g, rounding)
                passes += whole
        else:
            left = torch.full((len(x),), of.stop)
            for _ in range(of.steps):
                live = torch.nonzero(left >= 0).ravel()
                if len(live) == 0:
                    break
                passes += self.stopped_passes(len(live))
                g, logits = gradient((x + eta)[live], labels[live])
                left[live] -= rounding.decide(logits.argmax(1) != labels[live]).long()
                stays = left[live] >= 0
                moved = self.pgd_step(of, x[live], eta[live], g, rounding)
                eta = eta.index_put((live[stays],), moved[stays])
        return (x + eta).clamp(0, 1), eta, passes, statistics

    def stopped_passes(self, live):
        """Early stop runs programs of n, n/2, n/4 and n/8 images: the smallest that holds all, but where more than an
        eighth of it would be empty, first a smaller one that is full."""
        sizes = [self.micro_batch]
        while len(sizes) < 4 and sizes[-1] > 1:
            sizes.append((sizes[-1] + 1) // 2)
        total = 0
        while live > 0:
            fits = max((k for k in range(len(sizes)) if sizes[k] >= live), default=0)
            if 8 * (sizes[fits] - live) > sizes[fits] and fits + 1 < len(sizes):
                fits += 1
            total += sizes[fits]
            live -= min(live, sizes[fits])
        return total

    # Warm starts: a byte per pixel in the coordinates of the original image.

    def recall(self, eta, x, kept, crops):
        y, column, inside = crops
        byte = np.stack([kept[n][y[n], column[n]] for n in range(len(kept))]).transpose(0, 3, 1, 2)
        known = torch.from_numpy((byte != 0) & inside[:, None])
        value = torch.from_numpy((byte.astype(np.float64) - 128) / 127 * self.eps)
        return torch.where(known, torch.minimum(torch.maximum(value, -x), 1 - x), eta)

    def remember(self, kept, x, x_adv, crops):
        """What is kept of each image, as real numbers: rounding gives the bytes."""
        value = ((x_adv - x) / self.eps * 127).clamp(-127, 127) + 128
        for n, (y, column, inside) in enumerate(zip(*crops)):
            kept[n][y[inside], column[inside]] = value[n].numpy().transpose(1, 2, 0)[inside]
        return kept

    # The step.

    def draw_due(self, step):
        period = {"step": 1, "epoch": self.steps_per_epoch}.get(self.config["resample"])
        period = int(self.config["resample"]) if period is None else period
        first = int(np.ceil(self.warmup_steps))  # the first step that begins when the warm-up is over
        return step >= first and (step - first) % period == 0

    def lr(self, step):
        lr, up = self.config["lr"], self.warmup_steps
        if self.config["schedule"] == "cyclic":
            return cyclic(step, up, self.steps, 0.0, lr)
        if self.config["schedule"] == "one_cycle":
            return one_cycle(step, up, self.steps, lr / 25, lr, lr / 25 / 1e4)
        return lr * self.after_warm_up(step)

    def after_warm_up(self, step):
        """The part of lr, with schedules that begin with the linear warm-up."""
        up, spe = self.warmup_steps, self.steps_per_epoch
        if step < up:
            return min(1.0, (step + 1) / up)
        after = step - up
        if self.config["schedule"] == "step":
            return self.config["lr-decay"] ** sum(m * spe <= after for m in self.config["milestones"])
        if self.config["schedule"] == "ramps":
            corners = [0, *self.config["milestones"]]
            return np.interp(after / spe, corners, [self.config["lr-decay"] ** k for k in range(len(corners))])
        steps = (self.config["warmup-epochs"] + self.config["epochs"]) * spe - up
        if self.config["max-steps"]:
            steps = min(steps, self.config["max-steps"] - up)
        done = min(1.0, after / steps)
        return 1 - done if self.config["schedule"] == "linear" else (1 + np.cos(np.pi * done)) / 2

    def momentum(self, step):
        """Goes against the rate, where that is asked for."""
        low, peak = self.config["momentum"], self.config["peak-momentum"]
        if peak == "off":
            return low
        if self.config["schedule"] == "cyclic":
            return cyclic(step, self.warmup_steps, self.steps, low, peak)
        if self.config["schedule"] == "one_cycle":
            return one_cycle(step, self.warmup_steps, self.steps, low, peak, low)
        return low + (peak - low) * self.after_warm_up(step)

    def inclusion(self, p):
        """Probabilities under the condition that any layer is drawn at all."""
        return p / (1 - np.prod(1 - p))

    def draw(self, step, p, rank):
        for attempt in itertools.count():
            u = uniform(words(self.seed, LAYER_DRAW, step, np.arange(len(p)) + (rank << 32), attempt)[0])
            if (u < p).any():
                scale = np.zeros(len(p))
                scale[u < p] = 1 / self.inclusion(p)[u < p]
                return scale

    def learn(self, p, scale, norms, largest):
        """EXP3 on the norms of the drawn layers, projected. Returns p and the largest norm so far."""
        loss, p_min = self.config["bandit-loss"], self.config["p-min"]
        rate = self.config["bandit-rate"]
        pi = self.inclusion(p)
        used = (scale > 0) & (norms > 0)
        squares = (norms / pi) ** 2
        log_w = np.log(p)
        if used.any():
            largest = max(largest, norms[used].max())
            if loss == "selfnorm":
                cost = -(squares / pi) / (squares / pi)[used].max()
            else:
                cost = ((largest / p_min) ** 2 - squares) / pi
            log_w[used] -= rate * cost[used]
        return self.meet_budget(log_w, self.costs), largest

    def meet_budget(self, log_w, slopes):
        """clip(w exp(c slope), p_min, 1) with the c that meets sum cost q = budget, by bisection. With slope = cost it is
        the argmin of the KL divergence from w under that constraint."""
        p_min = self.config["p-min"]
        clipped = lambda c: np.exp(np.clip(log_w + c * slopes, np.log(p_min), 0))
        low, high = ((np.log(p_min) - log_w) / slopes).min() - 1, (-log_w / slopes).max() + 1
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if (self.costs * clipped(middle)).sum() < self.budget else (low, middle)
        return clipped(high)

    def equal_p(self):
        return max(self.budget / len(self.layers), self.config["p-min"])

    def first_p(self):
        return self.equal_p() if self.selector in ("exp3", "oracle", "uniform") else 1.0

    def freezeout(self, step):
        """FreezeOut's p and factors of the learning rate in a step: section 8 of the design."""
        config, last = self.config, len(self.layers) - 1
        t = np.array([config["freeze-t0"] + (1 - config["freeze-t0"]) * i / last for i in range(last)] + [1.0])
        phi = t ** {"linear": 1, "squared": 2, "cubic": 3}[config["freeze-schedule"]]
        p = (step < phi * self.steps).astype(float)
        p[-1] = 1
        if config["freeze-lr"] == "constant":
            return p, np.ones(last + 1)
        annealed = (1 + np.cos(np.pi * np.minimum(step / (phi * self.steps), 1))) / 2
        return p, p * annealed / (phi if config["freeze-lr"] == "scaled" else 1)

    def autofreeze(self, freezing, step):
        """Its knowledge when a step begins: at the end of an interval, what rests from here on."""
        layers = len(self.layers)
        sums, before, (interval, learned, first) = freezing[:layers].copy(), freezing[layers:-3].copy(), freezing[-3:]
        first = int(first)
        now = step * 10 // self.steps
        if now != interval and learned > 0:
            mean, known = sums / learned, before[-1] >= 0
            change = np.array([0 if a == b else np.inf if a == 0 else abs(a - b) / a
                               for a, b in zip(before[first:], mean[first:])])
            if known:
                first += int(np.argmax(change >= np.percentile(change, self.config["freeze-percentile"])))
            start = int(freezing[-1])
            before[start:] = mean[start:]
            sums, learned = np.zeros(layers), 0
        return np.concatenate([sums, before, [now, learned, first]])

    def best_p(self, squares):
        """The oracle's probabilities: clip(c norm, p_min, 1). Layers without a norm count with the largest one."""
        if squares.max() < 0:
            return np.full(len(squares), self.equal_p())
        norms = np.sqrt(np.where(squares < 0, squares.max(), squares))
        return self.meet_budget(np.log(norms / np.sqrt(self.costs)), np.ones(len(squares)))

    def optimize(self, state, gradients, scale, lr, rounding):
        config, kind = self.config, self.config["optimizer"]
        mu = self.momentum(state.step)
        parameters, optimizer = dict(state.parameters), {array: dict(of) for array, of in state.optimizer.items()}
        counts = state.counts + (scale > 0) if len(state.counts) else state.counts
        inside = self.importance == "inside"
        taken = {name: g * (scale[self.layer[name]] if inside else 1.0) for name, g in gradients.items()}
        if config["clip-norm"] > 0:  # as torch.nn.utils.clip_grad_norm_
            norm = float(sum(g.square().sum() for g in taken.values())) ** .5
            taken = {name: g * min(1.0, config["clip-norm"] / (norm + 1e-6)) for name, g in taken.items()}
        for name, g in taken.items():
            theta, outside = state.parameters[name], 1.0 if inside else scale[self.layer[name]]
            if config["head-lr"] != "auto" and name.startswith(("linear.", "fc.")):
                outside = outside * config["head-lr"] / config["lr"]
            decay = config["weight-decay"] if config["no-decay"] == "none" or name not in self.one_dimensional else 0.0
            if kind == "lars_sgd":  # You, Gitman and Ginsburg, algorithm 1
                matrix, local = theta.dim() > 1, 1.0
                below = float(g.norm() + decay * theta.norm())
                if matrix and theta.norm() > 0 and below > 0:
                    local = config["trust-coefficient"] * float(theta.norm()) / below
                step = lr * local * (g + (decay if matrix else 0.0) * theta)
                optimizer["momentum"][name] = rounding.number(mu * optimizer["momentum"][name] + step)
                parameters[name] = rounding.number(theta - outside * optimizer["momentum"][name])
                continue
            if kind == "lamb":
                beta1, beta2 = config["beta1"], config["beta2"]
                m = rounding.number(beta1 * optimizer["m"][name] + (1 - beta1) * g)
                v = rounding.number(beta2 * optimizer["v"][name] + (1 - beta2) * g.square())
                optimizer["m"][name], optimizer["v"][name] = m, v
                if config["bias-correction"]:
                    t = counts[self.layer[name]]
                    m, v = m / (1 - beta1**t), v / (1 - beta2**t)
                u = rounding.number(m / (v.sqrt() + config["epsilon"]) + decay * theta)
            else:
                u = rounding.number(mu * optimizer["momentum"][name] + g + decay * theta)
                optimizer["momentum"][name] = u
                if config["nesterov"]:
                    u = rounding.number(g + decay * theta + mu * u)
            ratio = 1.0
            if kind != "sgd":
                tau = float(theta.norm().clamp(0, config["clamp-high"]))
                ratio = tau / float(u.norm()) if tau != 0 and u.norm() != 0 else 1.0
            parameters[name] = rounding.number(theta - lr * ratio * outside * u)
        return parameters, optimizer, counts

    # Averages: Gowal et al. 2020, and Izmailov et al. 2018.

    def take_average(self, state, parameters, running, rounding):
        """The average of the parameters after a step, the number of those in it, and its running statistics."""
        config, step = self.config, state.step + 1
        if config["average"] == "none":
            return None, 0, None
        delta = step - config["average-from"] * self.steps_per_epoch
        keep, averaged = 1.0 if state.averaged else 0.0, state.averaged
        if config["average"] == "ema" and delta >= 0:
            keep, averaged = min(config["average-decay"], (1 + delta) / (10 + delta)), averaged + 1
        if config["average"] == "swa" and delta > 0 and step % self.steps_per_epoch == 0:
            keep, averaged = averaged / (averaged + 1), averaged + 1
        mix = lambda old, new: old if keep == 1 or torch.equal(old, new) else rounding.number(keep * old + (1 - keep) * new)
        average = {name: mix(state.average[name], value) for name, value in parameters.items()}
        if config["average-bn"] == "raw":
            return average, averaged, None
        if config["average-bn"] == "rebuild":  # until averaging begins, the average is the network as it is
            return average, averaged, self.statistics_of(average, rounding, running) if averaged else running
        return average, averaged, {name: tuple(mix(old, new) for old, new in zip(state.average_running[name], values))
                                   for name, values in running.items()}

    def statistics_of(self, parameters, rounding, fixed):
        """Running statistics of one pass over the training images, as the first epoch has them: a cumulative mean.
        fixed: those of batch norms that stand still."""
        running, seen = {name: (0.0, 0.0) for name in self.norms}, 0
        for step in range(self.steps_per_epoch):
            parts = [ids for of_rank in self.samples(step) for ids in of_rank]
            images = sum(map(len, parts))
            seen += images
            found = {name: [0.0, 0.0] for name in self.norms}
            for ids in parts:
                net = Net(rounding, parameters, fixed, True, self.still)
                with torch.no_grad():
                    self.logits(net, self.noisy(self.cut_out(ids, self.crops(ids, 0, self.train.images.shape[1])), ids, 0))
                for name, values in net.statistics.items():
                    found[name] = [total + len(ids) / images * value for total, value in zip(found[name], values)]
            part = images / seen
            running = {name: tuple(rounding.number((1 - part) * old + part * new)
                                   for old, new in zip(running[name], found[name]))
                       for name in self.norms if name not in self.still}
        return running | {name: fixed[name] for name in self.still}

    def step(self, state, rounding):
        """The state after one step, and its record."""
        t, epoch = state.step, state.step // self.steps_per_epoch
        self.take_attack(epoch)
        record = {"step": t + 1, "epoch": epoch, "lr": self.lr(t), "eps": self.eps if self.attack.name != "none" else 0.0}
        frozen = self.frozen_in(t)
        self.still = [name for name in self.norms if name + ".weight" in frozen]
        drawn_p, scale, rates, freezing = state.drawn_p, state.scale, np.ones(len(self.layers)), state.freezing
        p = state.p.copy()
        if self.selector == "freezeout":
            p[0], rates = self.freezeout(t)
        elif self.selector == "autofreeze":
            freezing = self.autofreeze(freezing, t)
            p[0] = np.arange(len(self.layers)) >= freezing[-1]
        if self.draw_due(t):
            drawn_p = np.ones((1, len(self.layers))) if self.selector == "all" else p.copy()
            scale = drawn_p if self.selector == "all" else np.array(
                [self.draw(t, p, rank) for rank, p in enumerate(drawn_p)])
        if self.config["freeze"]:  # with --selector all
            still = {self.layer[name] for name in frozen}
            drawn_p = scale = np.array([[float(layer not in still) for layer in range(len(self.layers))]])
        kept = state.perturbations
        if kept is not None:
            kept = kept.astype(np.float64)
            if t % (self.config["warm-start"] * self.steps_per_epoch) == 0:
                kept[:] = 0

        samples = self.samples(t)
        count = sum(map(len, samples[0]))
        scale_of = lambda rank: scale[rank if self.masks > 1 else 0]
        names_of = lambda of: [name for name in self.shapes if of[self.layer[name]] != 0]
        # Raw, of each rank's batch and its own layers.
        local = [{name: torch.zeros(self.shapes[name]) for name in names_of(scale_of(rank))}
                 for rank in range(self.ranks)]
        passes = [{} for _ in range(self.ranks)]  # per rank: {pass: {norm: [mean, variance]}}
        totals = [{"loss_adv": 0.0, "acc_adv": 0.0, "loss_clean": 0.0, "acc_clean": 0.0} for _ in range(self.ranks)]
        attack_passes, stale, examples, labelled = 0, self.config["stale-attack"], [], 0
        perturbs = in_epoch(self.config["awp-gamma"], epoch) > 0

        def add_statistics(rank, number, statistics, part):
            of = passes[rank].setdefault(number, {name: [0.0, 0.0] for name in self.norms})
            for name, values in statistics.items():
                of[name] = [total + part * value for total, value in zip(of[name], values)]

        def gradients_of(weights, into, images, labels, began=None):
            """Adds the gradient of a micro-batch by the weights of the layers in `into`. images: {pass: of it}."""
            parameters = {name: value.clone().requires_grad_(name in into) for name, value in weights.items()}
            images = {which: x.detach() for which, x in images.items()}
            logits, statistics = {}, {}
            for which, x in images.items():
                net = Net(rounding, parameters, state.running[0], True, self.still)
                logits[which], statistics[which] = self.logits(net, x), net.statistics
            of_copies = {which: of if which == "adv" else of.repeat_interleave(self.copies, 0)
                         for which, of in logits.items()}
            losses, total = self.losses(of_copies, labels.repeat_interleave(self.copies), began)
            by_logits = torch.autograd.grad(total.sum() / (count * self.copies), list(logits.values()), retain_graph=True)
            for of, gradient in zip(logits.values(), by_logits):  # a pass after the other, as they are rounded
                for name, part in zip(into, torch.autograd.grad(of, [parameters[name] for name in into], gradient)):
                    into[name] += rounding.layer(part[None])[0]
            return losses, of_copies, statistics

        def train(rank, weights, images, labels, first, part, began=None):
            losses, logits, statistics = gradients_of(weights, local[rank], images, labels, began)
            for which in [kind for kind in images if kind != "start"]:  # of which nothing is reported
                totals[rank]["loss_" + which] += float(losses[which].detach().sum()) / self.copies
                of_copies = labels.repeat_interleave(self.copies)
                right = rounding.decide(logits[which].argmax(1) == of_copies)
                totals[rank]["acc_" + which] += float((right & (of_copies >= 0)).sum()) / self.copies
            # What the published codes call the network on, in their order.
            around = ["clean", "adv", "clean"]
            calls = {"trades": around, "mart": ["clean", "adv"], "gat": around, "nuat": around}.get(self.loss, list(images))
            if first > 0:  # the attack's first call in training mode is the call where it began
                calls = [which for which in calls if which != "start"]
            for number, which in enumerate(calls, first):
                add_statistics(rank, number, statistics[which], part)

        for m in range(self.micro_batches):
            stored = []
            for rank in range(self.ranks):
                ids = samples[rank][m]
                part = len(ids) / count
                labels = torch.from_numpy(self.train.labels[ids])
                crops = self.crops(ids, epoch, self.size_in(epoch))
                x = self.cut_out(ids, crops)
                eta, attack = self.training_start(epoch, ids, x), self.attack
                if m == 0 and state.begun is not None:
                    eta, attack = state.begun[rank], dataclasses.replace(attack, steps=attack.steps - stale)
                    attack_passes += stale * self.micro_batch
                if kept is not None:
                    eta = self.recall(eta, x, np.floor(kept[ids] + .5), crops)
                net = Net(rounding, state.parameters, state.running[rank], self.batch_statistics, self.still)
                if self.config["staleness"]:
                    net = self.old_nets(state, attack, rounding)
                self.shown = ids, epoch
                reference = self.reference_logits(net[0] if isinstance(net, list) else net, x) if attack.name not in ("none", "smooth-pgd") else None
                x_adv, eta, paid, found = self.perturb(attack, net, x, labels, eta, rounding, reference)
                attack_passes += paid
                labelled += int((labels >= 0).sum())
                for number, statistics in enumerate(found):
                    add_statistics(rank, number, statistics, part)
                of_kinds = {"adv": self.noisy(x_adv, ids, epoch), "clean": x}
                if self.began is not None:
                    of_kinds["start"] = self.began[0]
                images, began = {kind: of_kinds[kind] for kind in self.kinds}, self.began and self.began[1]
                if perturbs:  # when all are attacked
                    examples.append((rank, images, labels, len(found), part))
                else:
                    train(rank, state.parameters, images, labels, len(found), part, began)
                if kept is not None:
                    stored.append((ids, x, x_adv, crops))
            # All ranks have started by now. Of a sample that comes twice, the last one is kept.
            for ids, *rest in stored:
                kept[ids] = self.remember(np.floor(kept[ids] + .5), *rest)

        weights_of = [state.parameters] * self.ranks
        if perturbs:
            weights_of = self.perturbed_weights(state, names_of(scale[0]), examples, gradients_of)
        for rank, images, labels, first, part in examples:
            train(rank, weights_of[rank], images, labels, first, part)

        # What the next step's first micro-batch has of its attack by now: of a run that goes on, with these weights.
        begun = None
        if stale > 0 and t + 1 < self.steps:
            begun, epoch = [], (t + 1) // self.steps_per_epoch
            self.take_attack(epoch)
            for rank, (ids, *_) in enumerate(self.samples(t + 1)):
                x = self.cut_out(ids, self.crops(ids, epoch, self.size_in(epoch)))
                eta = self.training_start(epoch, ids, x)
                net = Net(rounding, state.parameters, state.running[rank], False)
                begun.append(self.perturb(dataclasses.replace(self.attack, steps=stale), net, x,
                                          torch.from_numpy(self.train.labels[ids]), eta, rounding,
                                          self.reference_logits(net, x))[1])

        running = []
        for rank in range(self.ranks):
            now = state.running[rank]
            for number in sorted(passes[0]):
                ranks = range(self.ranks) if self.config["bn-statistics"] == "average" else [rank]
                of_ranks = lambda name, k: [passes[r][number][name][k] for r in ranks]
                if self.config["aggregator"] == "mean":
                    mean_of = lambda name, k: sum(of_ranks(name, k)) / len(ranks)
                else:
                    mean_of = lambda name, k: torch.stack(of_ranks(name, k)).sort(0)[0][(len(ranks) - 1) // 2]
                now = {name: tuple(rounding.number(.9 * old + .1 * mean_of(name, k)) for k, old in enumerate(now[name]))
                       if name not in self.still else now[name] for name in self.norms}
            running.append(now)

        images = count * self.ranks
        for key in totals[0]:
            over = labelled if key.startswith("acc") else images
            of_ranks = sorted(of[key] for of in totals)
            if self.config["aggregator"] != "mean":  # without the highest and the lowest ones
                f = aggregators_of_gradients.faults_of(self.config, self.ranks)
                of_ranks = [np.mean(of_ranks[f:self.ranks - f]) * self.ranks]
            record[key] = sum(of_ranks) / over if key.split("_")[1] in self.kinds else None
        elements = lambda names: sum(self.elements[name] for name in names)
        record |= {"images": images, "attack_passes": attack_passes, "n_active": int((scale[0] > 0).sum()),
                   "active": "".join("1" if s else "0" for s in scale[0]), "active_elements": elements(local[0])}
        record["weight_gradients"] = self.micro_batches * len(self.kinds) * (2 if perturbs else 1) * sum(
            len(self.shapes[name]) == 4 for name in local[0])  # of convolutions, on rank 0
        # The mean over all ranks of what each brings; masks per worker: of g/pi with its own pi, or zero.
        updated = scale[0] * rates
        drawn = scale[0]
        if self.config["mask"] == "per_worker":
            drawn = updated = (scale > 0).any(0).astype(float)
            weighed = [{name: rounding.number(g * scale_of(rank)[self.layer[name]]) for name, g in local[rank].items()}
                       for rank in range(self.ranks)]
            sent = {"dense": self.shapes, "union": names_of(updated), "allgather": local[0]}[self.config["mask-transport"]]
        else:
            weighed, sent = local, local[0]
        codec = state.codec
        if self.config["aggregator"] != "mean":
            gradients = aggregators_of_gradients.aggregate(self.config, weighed, list(names_of(drawn)))
            bytes_sent = aggregators_of_gradients.bytes_of_rank_0(self.config, elements(sent), self.ranks)
        elif self.config["codec"] == "float32":
            gradients = {name: sum(of[name] for of in weighed if name in of) / self.ranks
                         for name in names_of(drawn)}
            bytes_sent = 4 * elements(sent)
        else:
            gradients, codec, bytes_sent = codecs_of_gradients.mean_of_ranks(
                self.config, self.shapes, weighed, names_of(drawn), codec, t, rounding)
        record["bytes_sent"] = bytes_sent if self.ranks > 1 else 0
        largest, squares_of, norms = state.largest_norm.copy(), state.squares.copy(), None
        for mask in range(self.masks if self.draw_due(t + 1) and t >= self.warmup_steps else 0):
            squares = np.zeros(len(self.layers))
            for name, g in (local[mask] if self.config["mask"] == "per_worker" else gradients).items():
                squares[self.layer[name]] += float(g.square().sum())
            if mask == 0:
                norms = np.sqrt(squares)
            if self.selector == "exp3":
                p[mask], largest[mask] = self.learn(p[mask], scale[mask], np.sqrt(squares), largest[mask])
            elif self.selector == "oracle":  # the newest square weighs a tenth, the first one is taken as it is
                before = squares_of[mask]
                average = np.where(before < 0, squares, .9 * before + .1 * squares)
                squares_of[mask] = np.where(scale[mask] > 0, average, before)
                p[mask] = self.best_p(squares_of[mask])
            elif self.selector == "autofreeze":
                freezing = freezing.copy()
                freezing[: len(self.layers)] += np.sqrt(squares)
                freezing[-2] += 1
        if self.selector in ("freezeout", "autofreeze"):  # as a checkpoint has it: what the next step makes of it
            p = np.full_like(p, 1.0)
            if self.selector == "autofreeze":
                p[:, : int(freezing[-1])] = 0
        moved = {name: g for name, g in gradients.items() if updated[self.layer[name]] != 0}
        # The optimizer finds the perturbed weights where all ranks have the same; what it changes is done to the others.
        at = weights_of[0] if perturbs and self.config["awp"] == "global" else state.parameters
        parameters, optimizer, counts = self.optimize(dataclasses.replace(state, parameters=at), moved, updated,
                                                      record["lr"], rounding)
        if at is not state.parameters:
            parameters = {name: value if torch.equal(at[name], state.parameters[name]) else
                          rounding.number(state.parameters[name] + (value - at[name]))
                          for name, value in parameters.items()}
        average, averaged, average_running = self.take_average(state, parameters, running[0], rounding)
        after = State(step=t + 1, parameters=parameters, optimizer=optimizer, running=running, p=p,
                      average=average, averaged=averaged, average_running=average_running,
                      largest_norm=largest, squares=squares_of, freezing=freezing, counts=counts, drawn_p=drawn_p, scale=scale,
                      batches_tracked=state.batches_tracked + len(passes[0]), perturbations=kept, begun=begun, codec=codec,
                      before=[(state.parameters, state.running[0]), *state.before][:self.config["staleness"]])
        return after, record, norms

    def perturbed_weights(self, state, names, examples, gradients_of):
        """Of each rank, w + gamma ||w|| g/||g|| in each tensor of `names` with more than one dimension, g being the
        gradient of the mean over all ranks, or over its own images."""
        own = [{name: torch.zeros(self.shapes[name]) for name in names} for _ in range(self.ranks)]
        for rank, images, labels, _, _ in examples:
            gradients_of(state.parameters, own[rank], images, labels)
        if self.config["awp"] == "global":
            own = [{name: sum(of[name] for of in own) for name in names}] * self.ranks
        found = []
        for gradients in own:
            weights = dict(state.parameters)
            for name, g in gradients.items():
                if g.dim() > 1 and g.norm() > 0:
                    weights[name] = weights[name] + in_epoch(self.config["awp-gamma"], LAST) * weights[name].norm() * g / g.norm()
            found.append(weights)
        return found

    # Evaluation.

    def evaluation_attack(self, name):
        """An entry of --eval, such as pgd10x2 or fgsm, and its random starts."""
        name, _, restarts = name.partition("x") if name.startswith("pgd") else (name, "", "")
        eps, alpha = self.config["eval-eps"], self.config["eval-alpha"]
        kind = name.rstrip("0123456789")
        steps = int(name[len(kind):] or 10)
        norm = self.config["norm"]
        if alpha == "auto":  # each attack its own
            alpha = 1.25 * eps if kind == "fgsm" else 2 * eps / steps if kind == "smooth-pgd" else 2.5 * eps / steps if norm == "l2" else eps / 4
        return Attack(kind, eps, alpha, steps, norm=norm), int(restarts or 1)

    def evaluate(self, state, split, attack, restarts, rounding):
        """Mean loss and accuracy of the images of a split, clean and after PGD from random starts: rank 0's running
        statistics. An image counts with its worst start."""
        x = torch.from_numpy(self.splits[split].images.transpose(0, 3, 1, 2) / 255.0)
        labels = torch.from_numpy(self.splits[split].labels)
        net = Net(rounding, state.parameters, state.running[0], False)
        self.shown = range(len(x)), EVALUATION
        found = {"clean": [x], "adv": []}
        for restart in range(restarts):
            eta = self.random_start(EVALUATION_START, restart, range(len(x)), x, attack)
            found["adv"].append(self.perturb(attack, net, x, labels, eta, rounding)[0])
        record = {"norm": attack.norm, "eps": attack.eps, "alpha": attack.alpha, "images": len(x), "restarts": restarts,
                  "attack_steps": 1 if attack.name == "fgsm" else attack.steps}
        for which, starts in found.items():
            with torch.no_grad():
                logits = [self.predictions(net, start) for start in starts]
            losses = torch.stack([F.cross_entropy(of, labels, reduction="none") for of in logits])
            right = torch.stack([rounding.decide(of.argmax(1) == labels) for of in logits])
            record[which + "_loss"] = float(losses.amax(0).mean())
            record[which + "_acc"] = float(right.all(0).double().mean())
        return record
