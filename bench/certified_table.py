"""Certified training at equal cost: certified_table.py PROGRAM --data cifar10.h5 --out DIR [--passes 8] [-- OPTIONS]

Trains a narrow PreActResNet-18 without noise, by Gaussian training with 1, 2 and 20 copies (Cohen et al. 2019; DAT's table 2
compares N = 2 with N = 20, as we read it), by SmoothAdv (Salman et al. 2019, two steps, two copies) and by stability training
(Li et al. 2019, Carmon et al. 2019), certifies --images test images at DAT's radii, and prints certified accuracies, the
average certified radius (ACR) and abstentions, for sigma .12 and .25.

All trainings cost the same: --passes passes over 50,000 images, where a pass is one copy's way forward and back, of the
attack or of the training. So with 20 copies a network sees a twentieth of the images that one with a single copy sees.

--sequential N then compares, on N images of Gaussian training with one copy, all of 100,000 samples with sequences that
decide DAT's radii and stop: the samples that they save, what a simulation on the votes says that they save, and whether a
radius is certified that the samples' upper bound (Clopper and Pearson) excludes.

--attacked N attacks what is certified of N images of Gaussian training with one copy within its radius: 40 steps of PGD on
the smoothed network, 100 copies, and PREDICT of what that leaves. None may be broken.

The same command goes on where it was stopped: trainings from their last checkpoint, certifications from their journal; what
is finished is not made again. Options after `--` go to every training.
"""

import math
import pathlib
import random
import statistics

import study
from launch import read_json
from study import IMAGES

RADII = [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5]
BLOCK = 256  # samples between two looks of a sequence
# name: options, passes of an image and step. {sigma}: of the noise.
METHODS = {
    "clean": (["--attack", "none"], 1),
    "Gaussian, N = 1": (["--attack", "none", "--noise", "{sigma}"], 1),
    "Gaussian, N = 2": (["--attack", "none", "--noise", "{sigma}", "--noise-samples", 2], 2),
    "Gaussian, N = 20": (["--attack", "none", "--noise", "{sigma}", "--noise-samples", 20], 20),
    "SmoothAdv, T = 2, N = 2": (["--attack", "smooth-pgd", "--attack-steps", 2, "--norm", "l2", "--eps", "{eps}", "--noise", "{sigma}",
                                 "--noise-samples", 2], 6),
    "stability": (["--attack", "none", "--noise", "{sigma}", "--loss", "kl", "--beta", 6], 2),
}
EPS = {0.12: 0.25, 0.25: 0.5}  # of SmoothAdv, in L2


class Table:
    def __init__(self, arguments):
        self.arguments = arguments
        self.runs = study.Runs(arguments.out, arguments.program, arguments.launch)

    def train(self, method, sigma):
        a = self.arguments
        options, cost = METHODS[method]
        options = [str(option).format(sigma=sigma, eps=EPS[sigma]) for option in options]
        lone = [] if "--loss" in options else ["--lambda", 0]
        steps = max(1, round(a.passes * IMAGES / a.batch / cost))
        name = study.slug(method).strip("-") + ("" if method == "clean" else f"-{sigma}")
        self.runs.trained(name, [
            "--data", a.data, "--network", "preact_resnet18", "--width", a.width, "--batch", a.batch, "--optimizer", "sgd", "--lr", 0.1,
            "--weight-decay", 5e-4, "--schedule", "one_cycle", "--warmup-epochs", 0, "--epochs", math.ceil(steps * a.batch / IMAGES),
            "--max-steps", steps, "--selector", "all", "--eval", "fgsm", "--eval-every", 0, "--limit-test", 200, "--seed", 1,
            *lone, *options, *a.options], lambda folder: study.accuracies(folder, FGSM="fgsm"))
        return a.out / name

    def certify(self, folder, sigma, name, *more):
        out = folder.with_name(f"{folder.name}-{name}")
        done = out / "certify.json"
        if not done.exists():
            self.runs.say("certify", folder, "--sigma", sigma, "--out", out, "--quiet", *more)
        return read_json(done)

    def row(self, method, sigma):
        a = self.arguments
        found = self.certify(self.train(method, sigma), sigma, f"at-{sigma}", "--every", 10_000 // a.images, "--limit", a.images,
                             "--n", a.n)
        images = found["images"]
        right = [one["radius"] for one in images if one["prediction"] == one["label"]]
        return [*(100 * sum(radius >= r for radius in right) / len(images) for r in RADII), found["acr"],
                100 * found["abstained"]["accuracy"]]

    def sequential(self, sigma):
        """Samples of sequences beside 100,000 of each image."""
        a = self.arguments
        chosen = "--every", 10_000 // a.sequential, "--limit", a.sequential, "--n", 100_000
        folder = self.train("Gaussian, N = 1", sigma)
        fixed = self.certify(folder, sigma, f"fixed-{sigma}", *chosen)["images"]
        found = self.certify(folder, sigma, f"sequence-{sigma}", *chosen, "--radii", ",".join(map(str, RADII)))["images"]
        saved = sum(one["samples"] for one in fixed) / sum(one["samples"] for one in found)
        drawn = random.Random(1)
        expected = statistics.mean(statistics.mean(taken(one["votes"] / one["samples"], sigma, drawn) for _ in range(5)) for one in fixed)
        excluded = 0
        for all_of_it, one in zip(fixed, found):
            upper = 1 - lower_bound(all_of_it["samples"] - all_of_it["votes"], all_of_it["samples"], 0.001)
            most = sigma * statistics.NormalDist().inv_cdf(min(upper, 1 - 1e-16))
            same = one["prediction"] in (all_of_it["prediction"], -1)
            excluded += sum(flag > 0 and radius > most for flag, radius in zip(one["decided"], RADII)) if same else 0
        print(f"sigma {sigma}: {saved:.2f} times fewer samples on {len(fixed)} images, {100_000 / expected:.2f} by simulation; "
              f"{excluded} radii certified that all samples exclude", flush=True)

    def attacked(self, sigma):
        """Certificates beside attacks within their radii."""
        a = self.arguments
        found = self.certify(self.train("Gaussian, N = 1", sigma), sigma, f"attacked-{sigma}", "--every", 10_000 // a.attacked, "--limit",
                             a.attacked, "--n", a.n, "--attack-steps", 40, "--noise-samples", 100)["attacked"]
        print(f"sigma {sigma}: {len(found['images'])} of {a.attacked} images are certified; attacked within their radii, {found['broken']} "
              f"are broken, of {found['abstained']} nothing is predicted", flush=True)


def lower_bound(k, n, alpha):
    """Clopper and Pearson's."""
    if k == 0:
        return 0.0
    choose = [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(k, min(n, k + 5000) + 1)]
    low, high = 0.0, k / n  # above which further terms would count
    for _ in range(50):
        p = (low + high) / 2
        a, b = math.log(p), math.log1p(-p)
        tail = math.fsum(math.exp(c + (k + i) * a + (n - k - i) * b) for i, c in enumerate(choose))
        low, high = (p, high) if tail < alpha else (low, p)
    return low


def taken(p, sigma, drawn, n=100_000, alpha=0.001):
    """Samples that a sequence takes of an image whose class has probability p."""
    targets = [statistics.NormalDist().cdf(radius / sigma) for radius in RADII]
    votes = samples = 0
    while targets and samples < n:
        block = min(BLOCK, n - samples)
        votes += sum(drawn.random() < p for _ in range(block))
        samples += block
        beta = math.lgamma(votes + 1) + math.lgamma(samples - votes + 1) - math.lgamma(samples + 2)
        targets = [q for q in targets if beta - votes * math.log(q) - (samples - votes) * math.log1p(-q) < math.log(1 / alpha)]
    return samples


def main():
    arguments, _ = study.parsed(
        __doc__, data=(..., "CIFAR-10, made by 'dat_hpc data convert'"), out=pathlib.Path("runs/certified_table"), passes=8.0, width=16,
        batch=128, images=100, n=10_000, sequential=0, attacked=0, sigmas=[0.12, 0.25],
        launch=("", "in front of the program: 'mpirun -np 2'"))
    table = Table(arguments)
    print(f"{'sigma':>5}  {'method':<24}" + "".join(f"{f'r={r}':>8}" for r in RADII) + f"{'ACR':>8}{'abstain':>9}", flush=True)
    for sigma in arguments.sigmas:
        for method in METHODS:
            row = table.row(method, sigma)
            print(f"{sigma:>5}  {method:<24}" + "".join(f"{value:>8.1f}" for value in row[:-2]) + f"{row[-2]:>8.4f}{row[-1]:>9.1f}", flush=True)
    for sigma in arguments.sigmas if arguments.sequential else []:
        table.sequential(sigma)
    for sigma in arguments.sigmas if arguments.attacked else []:
        table.attacked(sigma)


if __name__ == "__main__":
    main()
