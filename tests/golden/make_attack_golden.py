"""Writes attacks.h5 beside this script: AutoAttack's attacks in double precision, sample by sample.

Written from the published pseudo-code and the public code's details (fra31/auto-attack a392200; autopgd_base.py,
fab_base.py, fab_projections.py, square.py), sharing nothing with the C++: the gradients are PyTorch's, FAB's projection
sorts, and every sample runs alone. The random numbers are the program's own counted ones, from
tests/outside/random_numbers.py, so that both draw the same.

The network is z = W2 tanh(W1 x + b1) + b2, its numbers, the images and the directions V are made by formula in both
languages (fmix32 as in make_golden.py; element i of array t):

    W1 [16, 75], b1, W2 [10, 16], b2: t = 0..3, (2u - 1) * 1.5 / sqrt(75), (2u - 1) / 2, 2u - 1, (2u - 1) / 2
    x [6, 75] (3 channels of 5 x 5, CHW): t = 4, u;  V [4, 75]: t = 5, 2u - 1;  all rounded to float32

Labels are what the network says, but that of the last image, which is the class after it. File contents, for each
attack, those in the L2 ball as l2/ATTACK, which have no `first`:

    eps eps_l2 labels ids seed    (attributes, but labels and ids)
    ATTACK/where  [iterations + 1, 6, 4]  V times the iterate: apgd: x after each step, the start first; fab: what the
                                          network is asked at after each step, the clean image first
    ATTACK/first  [20, 6, 75]             float32: the iterates after the first 20 steps
    ATTACK/value  [iterations + 1, 6]     apgd: the loss there; fab: ||p - x|| where p is misclassified, else -1
    ATTACK/done   [6]                     1: broken; fab: inside the ball
    ATTACK/found  [6, 4]                  V times what the attack leaves
    square/accepted [iterations, 6]       uint8: 1, 0, or 2 after the end of a sample
    square/margin   [iterations / 10, 6]  after every tenth iteration
    l2/square/proposed [200, 6]           margins of the first proposals; 0 after the end of a sample
    l2/pgd/where, value                   as apgd, 40 steps of eps_l2 / 8
"""

import math
import os
import sys

import h5py
import numpy as np
import torch

import reference

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "outside"))  # whose reference is another one
import random_numbers  # noqa: E402

torch.set_default_dtype(torch.float64)
CHANNELS, SIZE, HIDDEN, CLASSES, SAMPLES = 3, 5, 16, 10, 6
PIXELS = CHANNELS * SIZE * SIZE
EPS, EPS_L2, SEED = 0.01, 0.07, 11  # some of the images are robust to them, the others are not
IDS = [3, 1, 4, 1 << 33, 5, 9]
EVALUATION, ATTACK_RUN = 5, 20  # purposes
NUMBER = {"apgd_ce": 1, "apgd_dlr": 2, "apgd_t": 3, "fab": 4, "fab_t": 5, "square": 6}


def formula(t, *shape):
    """u of array t."""
    i = np.arange(math.prod(shape), dtype=np.uint64)
    return reference.fmix32((i + np.uint64(0x9E3779B9 * t)) & np.uint64(0xFFFFFFFF)).reshape(shape) / 2.0**32


def rounded(values):
    return torch.from_numpy(values.astype(np.float32)).double()


W1 = rounded((2 * formula(0, HIDDEN, PIXELS) - 1) * 1.5 / math.sqrt(PIXELS))
B1 = rounded((2 * formula(1, HIDDEN) - 1) / 2)
W2 = rounded(2 * formula(2, CLASSES, HIDDEN) - 1)
B2 = rounded((2 * formula(3, CLASSES) - 1) / 2)
IMAGES = rounded(formula(4, SAMPLES, PIXELS))
V = rounded(2 * formula(5, 4, PIXELS) - 1)


def network(x):
    return W2 @ torch.tanh(W1 @ x + B1) + B2


def gradient(function, x):
    """function(logits) at x, its gradient, and the logits."""
    x = x.clone().requires_grad_()
    logits = network(x)
    value = function(logits)
    return value.item(), torch.autograd.grad(value, x)[0], logits.detach()


def key(attack, run=0):
    high, low, *_ = random_numbers.words(SEED, ATTACK_RUN, 0, NUMBER[attack], run)
    return int(high) << 32 | int(low)


def cross_entropy(y):
    return lambda z: torch.logsumexp(z, 0) - z[y]


def dlr(y):
    def loss(z):
        top = torch.sort(z, descending=True)
        other = top.values[1] if top.indices[0] == y else top.values[0]
        return -(z[y] - other) / (top.values[0] - top.values[2] + 1e-12)

    return loss


def targeted_dlr(y, t):
    def loss(z):
        top = torch.sort(z, descending=True).values
        return -(z[y] - z[t]) / (top[0] - (top[2] + top[3]) / 2 + 1e-12)

    return loss


def target_of(x, rank):
    return int(torch.argsort(-network(x), stable=True)[rank])


class Linf:
    def start(x, seed, sample):
        u = torch.from_numpy(2 * random_numbers.uniforms(seed, EVALUATION, 0, sample, PIXELS) - 1)
        return (x + EPS * u / (u.abs().max() + 1e-12)).clamp(0, 1)

    def step(x, g, eta):
        return x + eta * g.sign()

    def project(x, x_nat):
        return torch.minimum(torch.maximum(x, x_nat - EPS), x_nat + EPS).clamp(0, 1)

    def size(move):
        return move.abs().max().item()

    def dual(w):
        return w.abs().sum().item()

    def speed(w):  # of FAB's pixels towards their faces
        return (w != 0).double()

    eps = EPS


def normalized(x):
    return x / ((x**2).sum().sqrt() + 1e-12)


class L2:
    def start(x, seed, sample):
        return (x + EPS_L2 * normalized(torch.from_numpy(random_numbers.normals(seed, EVALUATION, 0, sample, PIXELS)))).clamp(0, 1)

    def step(x, g, eta):
        return x + eta * normalized(g)

    def project(x, x_nat):
        move = x - x_nat
        return (x_nat + normalized(move) * min(EPS_L2, L2.size(move))).clamp(0, 1)

    def size(move):
        return (move**2).sum().sqrt().item()

    dual = size

    def speed(w):
        return w.abs() * (w.abs() >= 1e-8)

    eps = EPS_L2


def pgd(x_nat, y, sample, alpha, iterations=40):
    """In the L2 ball, from a random start of the program's numbers for it: iterates and losses."""
    x = L2.start(x_nat, SEED, sample)
    iterates, losses = [], []
    for i in range(iterations + 1):
        value, g, _ = gradient(cross_entropy(y), x)
        iterates.append(x.clone())
        losses.append(value)
        x = L2.project(L2.step(x, g, alpha), x_nat)
    return iterates, losses


def apgd(norm, x_nat, y, sample, attack, loss, iterations=100, rho=0.75):
    """Iterates, losses, broken, what is left; and the least |gradient| of each step: sign() must not hang on rounding."""
    x = norm.start(x_nat, key(attack), sample)
    value, g, z = gradient(loss, x)
    left = x.clone() if z.argmax() != y else None
    best, value_best, g_best = x.clone(), value, g
    eta, previous = 2 * norm.eps, x.clone()
    k, n, reduced, checked = max(int(0.22 * iterations), 1), 0, True, value_best
    values = np.zeros(iterations)
    iterates, losses, margin = [x.clone()], [value], []
    for i in range(iterations):
        margin.append(g.abs().min().item())
        a = 1.0 if i == 0 else 0.75
        v, previous = x - previous, x.clone()
        s = norm.project(norm.step(x, g, eta), x_nat)
        x = norm.project(x + a * (s - x) + (1 - a) * v, x_nat)
        value, g, z = gradient(loss, x)
        if z.argmax() != y and left is None:
            left = x.clone()  # the first one: an attack that stops then leaves the same
        iterates.append(x.clone())
        losses.append(value)
        values[i] = value
        if value > value_best:
            best, value_best, g_best = x.clone(), value, g
        n += 1
        if n == k:
            rises = sum(values[i - c] > values[i - c - 1] for c in range(k))  # values[-1] is still 0 at first
            halve = rises <= rho * k or (not reduced and checked >= value_best)
            reduced, checked = halve, value_best
            if halve:
                eta /= 2
                x, g = best.clone(), g_best
            n, k = 0, max(k - max(int(0.03 * iterations), 1), max(int(0.06 * iterations), 1))
    return iterates, losses, left is not None, x_nat if left is None else left, margin


def plane_move(norm, q, w, c):
    """The least move inside the box onto <w, .> = c: sorted faces and prefix sums."""
    s = 1.0 if w @ q >= c else -1.0
    direction = -s * w.sign()
    room = torch.where(direction > 0, 1 - q, q)
    speed = norm.speed(w)
    room[speed == 0] = 0
    missing = (w @ q - c).abs()
    faces = torch.where(speed > 0, room / speed, torch.zeros(()))  # the radius at which a pixel is at its face
    order = torch.argsort(faces)
    size = (w.abs() * speed)[order]
    faces = faces[order]
    before = torch.cumsum(size * faces, 0) - size * faces  # of pixels that are at their faces already
    beyond = size.sum() - torch.cumsum(size, 0) + size  # what still moves
    reached = before + beyond * faces  # when the radius is this face
    place = int(torch.searchsorted(reached, missing))
    if place == len(faces):
        return direction * room
    return direction * torch.minimum((missing - before[place]) / beyond[place] * speed, room)


def fab(norm, x, y, target, iterations=100):
    p = x.clone()
    asked, distances = [x.clone()], [-1.0]
    r_best, left, done = math.inf, x, False
    if network(x).argmax() != y:
        done, left = True, x  # returned unchanged
    for _ in range(iterations):
        if target is None:
            options = []
            for j in range(CLASSES):
                if j != y:
                    df, w, _ = gradient(lambda z, j=j: z[j] - z[y], p)
                    options.append((abs(df) / (norm.dual(w) + 1e-12), df, w))
            _, df, w = min(options, key=lambda option: option[0])
        else:
            df, w, _ = gradient(lambda z: z[target] - z[y], p)
        c = w @ p - df
        d1, d2 = plane_move(norm, p, w, c), plane_move(norm, x, w, c)
        a1, a2 = max(norm.size(d1), 1e-8), max(norm.size(d2), 1e-8)
        al = min(a1 / (a1 + a2), 0.1)
        p = ((1 - al) * (p + 1.05 * d1) + al * (x + 1.05 * d2)).clamp(0, 1)
        asked.append(p.clone())
        distances.append(-1.0)
        if network(p).argmax() != y:
            r = norm.size(p - x)
            distances[-1] = r
            if r < r_best:
                r_best = r
                if not done:
                    left = p.clone()
                    done = r <= norm.eps
            p = x + 0.9 * (p - x)
    return asked, distances, done, left if done else x


def square_side(iteration):
    p = 0.8
    for bound in (10, 50, 200, 500, 1000, 2000, 4000):
        if iteration > bound:
            p /= 2
    return min(max(round(math.sqrt(p * SIZE * SIZE)), 1), SIZE)


class SquareLinf:
    def start(x, run, sample):
        words = random_numbers.words(run, EVALUATION, 0, sample, 0)
        signs = np.empty((CHANNELS, 1, SIZE))
        for stripe in range(CHANNELS * SIZE):
            up = int(words[stripe // 32]) >> stripe % 32 & 1
            signs[stripe // SIZE, 0, stripe % SIZE] = 1 if up else -1
        return (x + EPS * torch.from_numpy(signs)).clamp(0, 1)

    def propose(x, best, run, i, sample):
        side = square_side(i)
        top, left, signs, _ = (int(w) for w in random_numbers.words(run, EVALUATION, 1 + i, sample, 0))
        top, left = ((w >> 8) * (SIZE - side) >> 24 for w in (top, left))
        change = torch.zeros_like(best)
        for c in range(CHANNELS):
            change[c, top : top + side, left : left + side] = 2 * EPS * (1 if signs >> c & 1 else -1)
        return torch.minimum(torch.maximum(best + change, x - EPS), x + EPS).clamp(0, 1)


def pyramids(height, width):
    """eta_rectangles of the public code."""
    delta = torch.zeros(height, width)
    rows, columns = height // 2 + 1, width // 2 + 1
    top, left = rows - 1, columns - 1
    for k in range(max(rows, columns)):
        delta[max(top, 0) : min(top + 2 * k + 1, height), max(left, 0) : min(left + 2 * k + 1, width)] += 1 / (k + 1) ** 2
        top, left = top - 1, left - 1
    return delta / (delta**2).sum().sqrt()


def pattern(side, transposed):
    """eta of the public code."""
    delta = torch.zeros(side, side)
    delta[: side // 2] = pyramids(side // 2, side)
    delta[side // 2 :] = -pyramids(side - side // 2, side)
    delta = delta / (delta**2).sum().sqrt()
    return delta.T if transposed else delta


def signs_of(word):
    return torch.tensor([1.0 if word >> c & 1 else -1.0 for c in range(CHANNELS)]).reshape(CHANNELS, 1, 1)


class SquareL2:
    def start(x, run, sample):
        side = SIZE // 5
        first = (SIZE - 5 * side) // 2
        delta, tile = torch.zeros_like(x), 0
        for top in range(first, SIZE - side + 1, side):
            for left in range(first, SIZE - side + 1, side):
                signs, turned, *_ = (int(w) for w in random_numbers.words(run, EVALUATION, 0, sample, tile))
                delta[:, top : top + side, left : left + side] += pattern(side, turned & 1) * signs_of(signs)
                tile += 1
        return (x + normalized(delta) * EPS_L2).clamp(0, 1)

    def propose(x, best, run, i, sample):
        side = max(square_side(i), 3)
        side = min(side + (side % 2 == 0), SIZE)
        delta = best - x
        top, left, signs, turned = (int(w) for w in random_numbers.words(run, EVALUATION, 1 + i, sample, 0))
        top_2, left_2, *_ = (int(w) for w in random_numbers.words(run, EVALUATION, 1 + i, sample, 1))
        top, left, top_2, left_2 = ((w >> 8) * (SIZE - side) >> 24 for w in (top, left, top_2, left_2))
        here = slice(None), slice(top, top + side), slice(left, left + side)
        there = slice(None), slice(top_2, top_2 + side), slice(left_2, left_2 + side)
        mask = torch.zeros_like(x)
        mask[here] = mask[there] = 1
        of_window = (delta[here] ** 2).sum(dim=(-2, -1), keepdim=True).sqrt()
        of_windows = ((delta * mask) ** 2).sum(dim=(-2, -1), keepdim=True)  # of each channel; squared
        new = pattern(side, turned & 1) * signs_of(signs) + delta[here] / (1e-12 + of_window)
        new = new / (1e-12 + (new**2).sum(dim=(-2, -1), keepdim=True).sqrt())
        new = new * (max(EPS_L2**2 - L2.size(delta) ** 2, 0) / CHANNELS + of_windows).sqrt()
        delta[there] = 0
        delta[here] = new
        return (x + normalized(delta) * EPS_L2).clamp(0, 1)


def square(kind, x_nat, y, sample, iterations=5000):
    def margin_of(image):
        z = network(image.reshape(-1))
        others = torch.cat([z[:y], z[y + 1 :]])
        return (z[y] - others.max()).item()

    run = key("square")
    x = x_nat.reshape(CHANNELS, SIZE, SIZE)
    best = kind.start(x, run, sample)
    least = margin_of(best)
    accepted, margins, proposed = np.full(iterations, 2, dtype=np.uint8), np.zeros(iterations // 10), np.zeros(200)
    for i in range(iterations):
        if least > 0:
            proposal = kind.propose(x, best, run, i, sample)
            margin = margin_of(proposal)
            accepted[i] = margin < least or margin <= 0
            if i < len(proposed):
                proposed[i] = margin
            if accepted[i]:
                best, least = proposal, margin
        if i % 10 == 9:
            margins[i // 10] = least
    return accepted, margins, least <= 0, best.reshape(-1) if least <= 0 else x_nat, proposed


def main():
    labels = [int(network(x).argmax()) for x in IMAGES]
    labels[-1] = (labels[-1] + 1) % CLASSES
    path = os.path.join(HERE, "attacks.h5")
    with h5py.File(path, "w") as file:
        file.attrs["eps"], file.attrs["eps_l2"], file.attrs["seed"] = EPS, EPS_L2, SEED
        file["labels"], file["ids"] = np.array(labels, dtype=np.int64), np.array(IDS, dtype=np.int64)

        def write(name, runs):
            where = np.stack([torch.stack(r[0]) @ V.T for r in runs], axis=1)
            group = file.create_group(name)
            group["where"] = where
            group["value"] = np.stack([np.array(r[1]) for r in runs], axis=1)
            if name == "l2/pgd":
                return
            if not name.startswith("l2/"):
                group["first"] = np.stack([torch.stack(r[0][1:21]) for r in runs], axis=1).astype(np.float32)
            group["done"] = np.array([r[2] for r in runs], dtype=np.int64)
            group["found"] = np.stack([V @ r[3] for r in runs])
            print(name, "done", [int(r[2]) for r in runs], "least |gradient| in 20 and in all steps",
                  *(f"{min(min(r[4][:steps]) for r in runs):.1e}" for steps in (20, 100) if len(runs[0]) > 4))

        each = list(zip(IMAGES, labels, IDS))
        for norm, kind, at in (Linf, SquareLinf, ""), (L2, SquareL2, "l2/"):
            write(at + "apgd_ce", [apgd(norm, x, y, i, "apgd_ce", cross_entropy(y)) for x, y, i in each])
            write(at + "apgd_dlr", [apgd(norm, x, y, i, "apgd_dlr", dlr(y)) for x, y, i in each])
            write(at + "apgd_t", [apgd(norm, x, y, i, "apgd_t", targeted_dlr(y, target_of(x, 1))) for x, y, i in each])
            write(at + "fab", [fab(norm, x, y, None) for x, y, _ in each])
            write(at + "fab_t", [fab(norm, x, y, target_of(x, 2)) for x, y, _ in each])
            runs = [square(kind, x, y, i) for x, y, i in each]
            group = file.create_group(at + "square")
            group["accepted"] = np.stack([r[0] for r in runs], axis=1)
            group["margin"] = np.stack([r[1] for r in runs], axis=1)
            if norm is L2:
                group["proposed"] = np.stack([r[4] for r in runs], axis=1)
            group["done"] = np.array([r[2] for r in runs], dtype=np.int64)
            group["found"] = np.stack([V @ r[3] for r in runs])
            print(at + "square done", [int(r[2]) for r in runs], "accepted", [int((r[0] == 1).sum()) for r in runs])
        write("l2/pgd", [pgd(x, y, i, EPS_L2 / 8) for x, y, i in each])
    print(path, os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
