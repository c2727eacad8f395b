"""PyTorch's side of the speed comparison on a CPU: one line of JSON for each PGD training step.

A step is PGD-K (batch norm with running statistics) and one pass with batch statistics on the adversarial images, then
SGD (lr 0.01, momentum 0.9). Forms:

    eager                 default layout; the attack takes torch.autograd.grad(loss, x): no weight gradients in it
    channels_last_grad    the same with model and images in channels_last
    backward              as eager, but the attack calls loss.backward(), as torchattacks and DAT do: computes weight
                          gradients and throws them away
    folded_channels_last  as channels_last_grad, batch norm folded once per step into weights that require no gradients
    folded_bf16           the same with folded weights in bf16; the training pass under bf16 autocast
    compile               folded_channels_last with torch.compile: forward and input gradient one function, training another
    compile_bf16          folded_bf16 with torch.compile

Weights, images and labels are those of bench_step (inputs.py). With --serve it does one step for each line of stdin, so
that a driver can alternate with other programs; --results FILE first writes what compare.py compares with bench_step --check.
A form that this PyTorch cannot do gives a line with "skipped" and why, and exit status 77.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import sysconfig
import time
import typing

import torch
from torch.nn import functional as F

import inputs
from networks import FoldedNetwork, kEps, kLossScale, pgd_update, reference, scaled_loss
from tolerance import kBfloat16, kFloat32

kSkipped = 77


class Form(typing.NamedTuple):
    channels_last: bool = True
    backward: bool = False
    folded: bool = False
    bf16: bool = False
    compiled: bool = False


kForms = {
    "eager": Form(channels_last=False),
    "channels_last_grad": Form(),
    "backward": Form(channels_last=False, backward=True),
    "folded_channels_last": Form(folded=True),
    "folded_bf16": Form(folded=True, bf16=True),
    "compile": Form(folded=True, compiled=True),
    "compile_bf16": Form(folded=True, bf16=True, compiled=True),
}


def reason_to_skip(form):
    if form.compiled and not hasattr(torch, "compile"):
        return f"needs torch.compile (PyTorch 2); this is PyTorch {torch.__version__}"
    if form.compiled and not shutil.which(os.environ.get("CXX", "g++")):
        return "torch.compile needs a C++ compiler (g++, or CXX)"
    if form.compiled and not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "torch.compile needs Python.h (package python3-dev)"
    return None


class Trainer:
    def __init__(self, network, width, size, batch, steps, name):
        torch.manual_seed(0)
        self.steps, self.name, self.form = steps, name, kForms[name]
        memory_format = torch.channels_last if self.form.channels_last else torch.contiguous_format
        self.model = reference.make(network, width, 10)
        inputs.initialize(self.model)
        self.model.to(memory_format=memory_format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        x, self.labels = inputs.images_and_labels(batch, size)
        self.x = x.contiguous(memory_format=memory_format)
        self.training_model = self.model
        if self.form.folded:
            self.folded = FoldedNetwork(self.model, torch.bfloat16 if self.form.bf16 else torch.float32)
        if self.form.compiled:
            self.compiled_gradient = torch.compile(self.folded.input_gradient, dynamic=False)
            self.training_model = torch.compile(self.model, dynamic=False)

    def prepare_attack(self):
        self.model.eval()
        if self.form.folded:
            self.folded.refresh()

    def attacked_logits(self, x):
        return self.folded.logits(self.folded.weights, x) if self.form.folded else self.model(x)

    def input_gradient(self, x):
        """Times kLossScale."""
        if self.form.compiled:
            return self.compiled_gradient(self.folded.weights, x, self.labels)
        x = x.detach().requires_grad_()
        loss = scaled_loss(self.attacked_logits(x), self.labels)
        if not self.form.backward:
            return torch.autograd.grad(loss, x)[0]
        loss.backward()
        return x.grad

    def attack(self, eta):
        self.prepare_attack()
        for _ in range(self.steps):
            eta = pgd_update(self.x, eta, self.input_gradient(self.x + eta))
        return (self.x + eta).clamp(0, 1)

    def training_logits(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.form.bf16):
            return self.training_model(x).float()

    def step(self):
        x_adv = self.attack(torch.empty_like(self.x).uniform_(-kEps, kEps))
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.training_logits(x_adv), self.labels).backward()
        self.optimizer.step()

    @torch.no_grad()
    def loss(self, x):
        return float(F.cross_entropy(self.model(x), self.labels))

    def write_results(self, path):
        """What TrainingStep::results in src/measure/training_step.hpp computes."""
        self.model.train()
        for _ in range(3):  # with gradients: a compiled training pass is the one that is timed
            self.training_logits(self.x)
        x_adv = self.attack(torch.zeros_like(self.x))
        gradient = self.input_gradient(self.x) / kLossScale
        with torch.no_grad():
            logits = self.attacked_logits(self.x)
        losses = {"clean_loss": self.loss(self.x), "attacked_loss": self.loss(x_adv)}
        tolerance = kBfloat16 if self.form.bf16 else kFloat32
        about = {"form": self.name, "torch": torch.__version__, "tolerance": tolerance}
        inputs.write_results(path, logits, gradient, **about, **losses)

    def report(self):
        start = time.perf_counter()
        self.step()
        ms = 1000 * (time.perf_counter() - start)
        times = {"ms_per_step": round(ms, 3), "ms_per_image": round(ms / len(self.x), 6)}
        print(json.dumps({"form": self.name, **times, "torch": torch.__version__}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18", choices=list(reference.NETWORKS))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="of the attack")
    parser.add_argument("--form", default="channels_last_grad", choices=list(kForms))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--results", metavar="FILE", help="first write logits, input gradient and losses")
    parser.add_argument("--serve", action="store_true", help="one step for each line of stdin, until it ends")
    arguments = parser.parse_args()

    reason = reason_to_skip(kForms[arguments.form])
    if reason:
        print(json.dumps({"form": arguments.form, "skipped": reason}), flush=True)
        sys.exit(kSkipped)
    torch.set_num_threads(arguments.threads)
    trainer = Trainer(arguments.network, arguments.width, arguments.size, arguments.batch, arguments.steps, arguments.form)
    if arguments.results:
        trainer.write_results(arguments.results)
    trainer.step()  # the first step pays for allocations, kernel choice and compiling
    for _ in sys.stdin if arguments.serve else range(arguments.repeat):
        trainer.report()


if __name__ == "__main__":
    main()
