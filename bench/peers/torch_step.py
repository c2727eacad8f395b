"""PyTorch's side of the speed comparison: one line of JSON for each repeat of some PGD training steps.

A step is PGD-K (batch norm with running statistics) and one pass with batch statistics on the adversarial images, then
SGD (lr 0.01, momentum 0.9). Forms:

    eager_grad           the attack takes torch.autograd.grad(loss, x): no weight gradients in the attack (also: eager)
    channels_last_grad   the same with model and images in channels_last: PyTorch's fastest form
    backward             the attack calls loss.backward(), as tutorials do: computes weight gradients, throws them away

Weights, images and labels are those of bench_step (inputs.py). With --serve it does one step for each line of stdin, so
that a driver can alternate with other programs; --results FILE first writes what compare.py compares with bench_step --check.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import inputs
import reference
from tolerance import kFloat32

kForms = ("eager", "eager_grad", "channels_last_grad", "backward")
kEps, kAlpha = 8 / 255, 2 / 255


class Trainer:
    def __init__(self, network, width, batch, steps, form):
        torch.manual_seed(0)
        self.steps, self.form = steps, form
        memory_format = torch.channels_last if form == "channels_last_grad" else torch.contiguous_format
        self.model = reference.make(network, width, 10)
        inputs.initialize(self.model)
        self.model.to(memory_format=memory_format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        x, self.labels = inputs.images_and_labels(batch)
        self.x = x.contiguous(memory_format=memory_format)

    def input_gradient(self, x):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(self.model(x), self.labels, reduction="sum")
        if self.form != "backward":
            return torch.autograd.grad(loss, x)[0]
        loss.backward()
        return x.grad

    def attack(self, eta):
        self.model.eval()
        for _ in range(self.steps):
            z = (self.x + eta + kAlpha * self.input_gradient(self.x + eta).sign()).clamp(0, 1)
            eta = (z - self.x).clamp(-kEps, kEps)
        return (self.x + eta).clamp(0, 1)

    def step(self):
        x_adv = self.attack(torch.empty_like(self.x).uniform_(-kEps, kEps))
        self.model.train()
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x_adv), self.labels).backward()
        self.optimizer.step()

    def write_results(self, path):
        """What TrainingStep::results in bench/training_step.hpp computes."""
        with torch.no_grad():
            for _ in range(3):
                self.model.train()(self.x)
        x_adv = self.attack(torch.zeros_like(self.x))
        gradient = self.input_gradient(self.x)
        with torch.no_grad():
            logits = self.model(self.x)
            clean, attacked = (float(F.cross_entropy(self.model(x), self.labels)) for x in (self.x, x_adv))
        about = {"form": self.form, "clean_loss": clean, "attacked_loss": attacked, "tolerance": kFloat32}
        inputs.write_results(path, logits, gradient, **about)

    def report(self):
        start = time.perf_counter()
        self.step()
        ms = 1000 * (time.perf_counter() - start)
        times = {"ms_per_step": round(ms, 3), "ms_per_image": round(ms / len(self.x), 6)}
        print(json.dumps({"form": self.form, **times, "torch": torch.__version__}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18", choices=("resnet18", "preact_resnet18", "small_cnn"))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="of the attack")
    parser.add_argument("--form", default="channels_last_grad", choices=kForms)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--results", metavar="FILE", help="first write logits, input gradient and losses")
    parser.add_argument("--serve", action="store_true", help="one step for each line of stdin, until it ends")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    trainer = Trainer(arguments.network, arguments.width, arguments.batch, arguments.steps, arguments.form)
    if arguments.results:
        trainer.write_results(arguments.results)
    trainer.step()  # the first step pays for allocations and kernel choice
    for _ in sys.stdin if arguments.serve else range(arguments.repeat):
        trainer.report()


if __name__ == "__main__":
    main()
