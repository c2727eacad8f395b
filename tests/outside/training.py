#!/usr/bin/env python3
"""The course of fast adversarial training beside PyTorch's: training.py PROGRAM --data cifar10.h5 [--seeds 5] [--steps 300]

Trains preact_resnet18 with FGSM from a random start (Wong et al. 2020), with N-FGSM (de Jorge et al. 2022), and with FGSM
and the distance of the logits before and after the step (Jia et al. 2022, whose start of the last epoch is not taken), with
the steps and the schedule of their authors' code, here and in PyTorch, whose images, crops, starts and first weights are
its own. Images stay in [0, 1], where their code normalises them and has another batch norm before the pool. So the two sides
are not equal but of one law: the accuracy on attacked training images, in the mean over windows of 100 steps, differs by
no more than seeds do (Welch's t, at most 5). Whole steps are compared by step.py; this sees what comes of hundreds of
them. Two or three seeds say little: by chance, and on either side, the network learns to mask its gradient, and its
accuracy on the attack of one step grows (catastrophic overfitting begins).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
import reference

EPS, PEAK, BATCH, EPOCHS, WINDOW = 8 / 255, 0.2, 128, 5, 100
# k: the start is U(+-k eps); step; whether what leaves the ball is cut; weight of the distance of the logits.
METHODS = {"FGSM-RS": (1, 1.25 * EPS, True, 0, ["--lambda", "0", "--alpha", "10/255", "--attack-start", "uniform:box=on"]),
           "N-FGSM": (2, EPS, False, 0, ["--lambda", "0", "--alpha", "8/255", "--attack-start", "uniform:2", "--project", "off"]),
           "PGI": (1, 1.25 * EPS, True, 10, ["--loss", "pgi", "--beta", "10", "--alpha", "10/255", "--attack-start", "uniform:box=on"])}


def ours(a, method, seed, folder):
    subprocess.run([a.program, "train", "--data", a.data, "--network", "preact_resnet18", "--width", str(a.width), "--batch", str(BATCH),
                    "--optimizer", "sgd:peak_momentum=0.8", "--lr", str(PEAK), "--weight-decay", "5e-4", "--schedule", "cyclic",
                    "--warmup-epochs", str(EPOCHS / 2), "--epochs", str(EPOCHS / 2), "--selector", "all", "--attack", "fgsm",
                    "--attack-bn", "train", *METHODS[method][4], "--device", a.device, "--eval-every", "0", "--limit-test", "16", "--max-steps", str(a.steps),
                    "--threads", str(a.threads), "--seed", str(seed), "--out", folder, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    with open(pathlib.Path(folder, "metrics.jsonl")) as file:
        return [row["acc_adv"] for row in map(json.loads, file) if row["kind"] == "step"]


def cropped(x):
    """Each image moved by up to four pixels, zeros from outside, and mirrored half of the time."""
    padded, found = F.pad(x, (4, 4, 4, 4)), torch.empty_like(x)
    for i, (top, left, mirrored) in enumerate(zip(*torch.randint(0, 9, (2, len(x))).tolist(), (torch.rand(len(x)) < 0.5).tolist())):
        crop = padded[i, :, top:top + 32, left:left + 32]
        found[i] = crop.flip(2) if mirrored else crop
    return found


def theirs(a, method, seed, images, labels):
    k, step, cut, beta, _ = METHODS[method]
    torch.manual_seed(seed)
    net = reference.make("preact_resnet18", a.width, 10).float().train().to(a.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=PEAK, momentum=0.9, weight_decay=5e-4)
    a_epoch = -(-len(images) // BATCH)
    half, accuracies = EPOCHS / 2 * a_epoch, []
    in_box = lambda x, eta: torch.max(torch.min(eta, 1 - x), -x)
    for t in range(a.steps):
        rise = 1 - abs(t - half) / half
        optimizer.param_groups[0].update(lr=PEAK * rise, momentum=0.9 - 0.1 * rise)
        if t % a_epoch == 0:
            order = torch.randperm(len(images))
        ids = order[t % a_epoch * BATCH:][:BATCH]
        x, y = cropped(images[ids].permute(0, 3, 1, 2).float() / 255).to(a.device), labels[ids].long().to(a.device)
        eta = in_box(x, (2 * torch.rand_like(x) - 1) * k * EPS).requires_grad_()
        before = net(x + eta)
        gradient, = torch.autograd.grad(F.cross_entropy(before, y), eta, retain_graph=beta > 0)
        eta = eta.detach() + step * gradient.sign()
        logits = net(x + in_box(x, eta.clamp(-EPS, EPS) if cut else eta))
        optimizer.zero_grad()
        loss = F.cross_entropy(logits, y)
        if beta > 0:
            loss = loss + beta * F.mse_loss(logits, before)
        loss.backward()
        optimizer.step()
        accuracies.append(float((logits.argmax(1) == y).float().mean()))
    return accuracies


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of both sides")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    with h5py.File(a.data) as file:
        images, labels = (torch.from_numpy(file[f"train/{name}"][()]) for name in ("images", "labels"))
    wrong = 0
    for method in a.methods:
        found = {"here": [], "PyTorch": []}
        for seed in range(1, a.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                found["here"].append(ours(a, method, seed, f"{folder}/run"))
            found["PyTorch"].append(theirs(a, method, seed, images, labels))
        for first in range(0, a.steps, WINDOW):
            means = {side: [statistics.fmean(of[first:first + WINDOW]) for of in courses] for side, courses in found.items()}
            off = statistics.fmean(means["here"]) - statistics.fmean(means["PyTorch"])
            t = off / (sum(statistics.variance(of) for of in means.values()) / a.seeds) ** 0.5
            wrong += abs(t) > 5
            print(f"{method}, steps {first + 1} to {first + WINDOW}: " + "; ".join(
                f"{side} {', '.join(f'{100 * mean:.1f}' for mean in of)} %" for side, of in means.items()) +
                f"; difference of the means {100 * off:+.1f}, t {t:+.1f}{' TOO FAR' if abs(t) > 5 else ''}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
