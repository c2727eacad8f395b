#!/usr/bin/env python3
"""Certificates of `dat_hpc certify --noise-kind float` against Cohen's algorithm in PyTorch, with noise of its own.

usage: cohen.py PROGRAM RUN --data cifar10.h5 [--sigma S] [--images 200] [--n 1000] [--threads T]

RUN is a training of preact_resnet18. Given the program's counts, bounds and radii must be PyTorch's side's to 1e-9. In law:
both count the votes of n samples for the class that the program has chosen; for each image the two counts are compared as
those of two binomial experiments, and the sum of the squares of the deviations must be one that chi-square has. The times of
both are told, with the same number of threads: of the program all of it from start to end, with the 100 samples that choose.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
import reference

N0 = 100  # samples that choose the class, in the program alone


def network_of(run):
    checkpoint = sorted(pathlib.Path(run, "ckpt").glob("step-*.h5"))[-1]
    with h5py.File(checkpoint) as file:
        width, classes = file["param/conv1.weight"].shape[0], file["param/linear.bias"].shape[0]
        net = reference.make("preact_resnet18", width, classes).float()
        values = net.state_dict()
        for name in values:
            group = "bn" if "running" in name else "param"
            if not name.endswith("num_batches_tracked"):
                values[name].copy_(torch.from_numpy(file[f"{group}/{name}"][()]))
    net.load_state_dict(values)
    return net.eval()


def votes_for(net, image, label, sigma, n, batch=64):
    """How many of n noisy copies are classified as `label`."""
    count = 0
    with torch.no_grad():
        for first in range(0, n, batch):
            copies = image.repeat(min(batch, n - first), 1, 1, 1)
            count += int((net(copies + sigma * torch.randn_like(copies)).argmax(1) == label).sum())
    return count


def lower_bound(k, n, alpha):
    """Clopper and Pearson's, by bisection of the binomial tail, whose terms are summed in the order of their size."""
    if k == 0:
        return 0.0
    choose = [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(k, n + 1)]
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        a, b = math.log(p), math.log1p(-p)
        tail = math.fsum(math.exp(c + (k + i) * a + (n - k - i) * b) for i, c in enumerate(choose))
        low, high = (p, high) if tail < alpha else (low, p)
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("run")
    parser.add_argument("--data", required=True)
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        subprocess.run([a.program, "certify", a.run, "--data", a.data, "--sigma", str(a.sigma), "--noise-kind", "float", "--n", str(a.n),
                        "--n0", str(N0), "--alpha", str(a.alpha), "--every", "20", "--limit", str(a.images), "--threads", str(a.threads),
                        "--out", folder, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        ours = time.monotonic() - begin
        found = json.loads(pathlib.Path(folder, "certify.json").read_text())
    with h5py.File(a.data) as file:
        images = torch.from_numpy(file["test/images"][()]).permute(0, 3, 1, 2).float() / 255
    net, wrong, square, freedom, theirs = network_of(a.run), 0, 0.0, 0, 0.0
    counted, chosen = a.images * a.n, a.images * N0
    for one in found["images"]:
        bound = lower_bound(one["votes"], one["samples"], a.alpha)
        radius = a.sigma * statistics.NormalDist().inv_cdf(bound) if bound > 0.5 else 0.0
        if abs(bound - one["lower"]) > 1e-9 or abs(radius - one["radius"]) > 1e-9 or (one["prediction"] < 0) != (bound <= 0.5):
            print(f"image {one['index']}: lower {one['lower']}, radius {one['radius']}; expected {bound}, {radius}")
            wrong += 1
        if one["prediction"] < 0:
            continue
        begin = time.monotonic()
        votes = votes_for(net, images[one["index"]][None], one["prediction"], a.sigma, a.n)
        theirs += (time.monotonic() - begin) * len(found["images"]) / sum(image["prediction"] >= 0 for image in found["images"])
        mean = (votes + one["votes"]) / (2 * a.n)
        variance = 2 * a.n * mean * (1 - mean)
        if variance < 5:  # too few for a normal law
            wrong += abs(votes - one["votes"]) > 15
            continue
        square += (votes - one["votes"]) ** 2 / variance
        freedom += 1
    print(f"chi-square {square:.1f} of {freedom} images; {(counted + chosen) / ours:.0f} samples a second here, "
          f"{counted / theirs:.0f} in PyTorch: {(counted + chosen) * theirs / (ours * counted):.2f} times as fast")
    if freedom > 0 and abs(square - freedom) > 4 * (2 * freedom) ** 0.5:
        print("the counts are not of one law")
        wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
