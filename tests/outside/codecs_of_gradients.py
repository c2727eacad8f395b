"""What codecs make of the gradients of all ranks, from the papers' formulas and docs/design.md, section 11."""

import numpy as np
import torch

from random_numbers import uniform, words

GRADIENT_CODEC = 9
FIRST_FACTOR = 0xFFFFFFFF  # in place of a sender: drawn by all ranks alike


def to_memory(tensor):
    """Convolution weights lie as [out][kh][kw][in]."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1).numpy()


def from_memory(values, shape):
    values = torch.from_numpy(np.ascontiguousarray(values))
    if len(shape) != 4:
        return values.reshape(shape)
    return values.reshape([shape[k] for k in (0, 2, 3, 1)]).permute(0, 3, 1, 2)


def draws(seed, step, begin, count, sender):
    """A number in [0, 1) for each element: four of a group of four have one counter, the group's first element."""
    groups = begin + 4 * np.arange((count + 3) // 4)
    return uniform(words(seed, GRADIENT_CODEC, step, groups, sender)).T.ravel()[:count]


def qsgd(g, u, config, rounding):
    """127 levels of the norm (Alistarh et al., 2017, section 3.1)."""
    norm = np.linalg.norm(g)
    if norm == 0:
        return g
    exact = 127 * np.abs(g) / norm
    low = np.floor(exact)
    level = rounding.decide(torch.from_numpy(low + (u < exact - low))).numpy()
    return np.sign(g) * norm * level / 127


def terngrad(g, u, config, rounding):
    """A sign with the probability |g| / s (Wen et al., 2017, equations 2 to 5), s after clipping (section 3.2)."""
    scale, limit = np.abs(g).max(), config["codec-clip"] * g.std()
    scale = min(scale, limit) if limit > 0 else scale
    if scale == 0:
        return g
    return np.sign(g) * scale * rounding.decide(torch.from_numpy(u * scale < np.abs(g))).numpy()


QUANTISERS = {"int8": (qsgd, "gather"), "terngrad": (terngrad, "gather")}


def bytes_of(codec, count):
    return 0 if count == 0 else 4 + -(-count // 4) * 4 if codec == "int8" else 4 + -(-count // 16) * 4


def quantised(config, of_rank, begin, step, rounding):
    """The mean of what the ranks have for one tensor, flat, and the bytes that each sends."""
    quantiser, transport = QUANTISERS[config["codec"]]
    if config["codec-transport"] != "auto":
        transport = config["codec-transport"]
    ranks, count, seed = len(of_rank), len(of_rank[0]), config["seed"]
    # Two-sided: each rank makes the mean of its share, a run of groups of four, and quantises it once more.
    shares = ranks if transport == "two_sided" else 1
    edges = [min(count, -(-count // 4) * k // shares * 4) for k in range(shares + 1)]
    result, sent = np.zeros(count), 0
    for owner, (first, end) in enumerate(zip(edges, edges[1:])):
        if first == end:
            continue
        sent += bytes_of(config["codec"], end - first)
        u = lambda rank, number: draws(seed, step, begin + first, end - first, 2 * rank + number)
        mean = sum(quantiser(g[first:end], u(rank, 0), config, rounding) for rank, g in enumerate(of_rank)) / ranks
        result[first:end] = quantiser(mean, u(owner, 1), config, rounding) if transport == "two_sided" else mean
    return result, sent


def factor_shape(shape, rank):
    """rows, columns and rank of a tensor's factors; None where it goes as it is."""
    if len(shape) < 2:
        return None
    rows, cols = shape[0], int(np.prod(shape[1:]))
    rank = min(rank, rows, cols)
    return (rows, cols, rank) if rank * (rows + cols) < rows * cols else None


def power_rank(config):
    return 2 if config["codec-rank"] == "auto" else config["codec-rank"]


def first_state(config, shapes, ranks):
    if config["codec"] != "powersgd":
        return None
    found = [factor_shape(shape, power_rank(config)) for shape in shapes.values()]
    count = sum(f[1] * f[2] for f in found if f)
    a, b = (uniform(word) for word in words(config["seed"], GRADIENT_CODEC, 0, np.arange(count), FIRST_FACTOR)[:2])
    return {"powersgd_error": np.zeros((ranks, sum(int(np.prod(shape)) for shape in shapes.values()))),
            "powersgd_q": np.sqrt(-2 * np.log(1 - a)) * np.cos(2 * np.pi * b)}


def orthonormal(p):
    """Gram and Schmidt on the columns."""
    p = p.copy()
    for k in range(p.shape[1]):
        for _ in range(2):
            p[:, k] -= p[:, :k] @ (p[:, :k].T @ p[:, k])
        p[:, k] /= np.linalg.norm(p[:, k])
    return p


def mean_of_ranks(config, shapes, gradients, names, state, step, rounding):
    """The gradient {name: tensor} for `names`, the codec's next state, and the bytes that a rank sends.

    gradients: of each rank; a name that a rank does not have counts as zero."""
    ranks, result, sent, begin, right = len(gradients), {}, 0, 0, 0
    after = {name: array.copy() for name, array in state.items()} if state else None
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        factors = factor_shape(shape, power_rank(config)) if config["codec"] == "powersgd" else None
        if name in names:
            of_rank = [to_memory(of[name]) if name in of else np.zeros(count) for of in gradients]
            if config["codec"] in QUANTISERS:
                mean, bytes_ = quantised(config, of_rank, begin, step, rounding)
            elif factors is None:
                mean, bytes_ = sum(of_rank) / ranks, 4 * count
            else:  # Vogels et al., 2019, algorithms 1 and 2
                rows, cols, rank = factors
                matrices = [(g + state["powersgd_error"][r, begin:begin + count]).reshape(rows, cols)
                            for r, g in enumerate(of_rank)]
                q = state["powersgd_q"][right:right + cols * rank].reshape(rank, cols).T
                p = orthonormal(sum(m @ q for m in matrices) / ranks)
                q = sum(m.T @ p for m in matrices) / ranks
                mean, bytes_ = (p @ q.T).ravel(), 4 * rank * (rows + cols)
                after["powersgd_q"][right:right + cols * rank] = q.T.ravel()
                for r, m in enumerate(matrices):
                    after["powersgd_error"][r, begin:begin + count] = m.ravel() - mean
            result[name], sent = rounding.number(from_memory(mean, shape)), sent + bytes_
        begin += count
        right += factors[1] * factors[2] if factors else 0
    return result, after, sent
