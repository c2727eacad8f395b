"""What robust aggregators make of the gradients of all ranks, from the papers' formulas and docs/design.md, section 11."""

import numpy as np
import torch


def faults_of(config, ranks):
    if config["faults"] != "auto":
        return config["faults"]
    return max(0, (ranks - (3 if "krum" in config["aggregator"] else 1)) // 2)


def distances(x):
    return np.linalg.norm(x[:, None] - x[None], axis=2)


def mixed(x, f):
    """Each by the mean of its n - f nearest ones (Allouah et al., 2023, algorithm 2)."""
    d = distances(x)
    np.fill_diagonal(d, -1)
    return np.stack([x[np.argsort(row, kind="stable")[:len(x) - f]].mean(0) for row in d])


def ordered(x, first, last):
    return np.sort(x, axis=0)[first:last + 1].mean(0)


def lower_median(x):
    return ordered(x, (len(x) - 1) // 2, (len(x) - 1) // 2)


def geometric_median(x, iterations):
    v = lower_median(x)
    for _ in range(iterations):
        d = np.linalg.norm(x - v, axis=1)
        away = d > 1e-6 * np.sort(d)[len(d) // 2]
        here, pull = (~away).sum(), ((x[away] - v) / d[away, None]).sum(0)
        r = np.linalg.norm(pull)
        if not away.any() or r <= max(here, 1e-6 * len(x)):
            break
        v = v + (1 - here / r) * pull / (1 / d[away]).sum()
    return v


def krum(x, f, count):
    """The mean of the `count` gradients that are nearest to their neighbours (Blanchard et al., 2017)."""
    near = np.sort(distances(x) ** 2, axis=1)[:, 1:1 + max(1, len(x) - f - 2)]
    return x[np.argsort(near.sum(1), kind="stable")[:count]].mean(0)


def centered_clip(x, tau, iterations):
    """Karimireddy et al., 2021, equation CC, from the median on; auto: tau is the (upper) median of the distances."""
    v = lower_median(x)
    for _ in range(iterations):
        d = np.linalg.norm(x - v, axis=1)
        cut = np.sort(d)[len(d) // 2] if tau == "auto" else float(tau)
        step = ((x - v) * np.minimum(1, cut / np.maximum(d, 1e-300))[:, None]).mean(0)
        v = v + step
        if np.linalg.norm(step) <= 1e-6:
            break
    return v


def whole(config, x):
    """One gradient of those of all ranks, a row each."""
    n, f = len(x), faults_of(config, len(x))
    if config["aggregator-mixing"]:
        x = mixed(x, f)
    return {"median": lambda: lower_median(x),
            "trimmed_mean": lambda: ordered(x, f, n - 1 - f),
            "geometric_median": lambda: geometric_median(x, config["aggregator-iterations"]),
            "krum": lambda: krum(x, f, 1),
            "multi_krum": lambda: krum(x, f, n - f),
            "centered_clip": lambda: centered_clip(x, config["aggregator-tau"], config["aggregator-iterations"]),
            }[config["aggregator"]]()


def runs(count, ranks):
    """Where the equal runs of so many elements begin and end."""
    ends = [count * rank // ranks for rank in range(ranks + 1)]
    return list(zip(ends, ends[1:]))


def aggregate(config, gradients, names):
    """The gradient {name: tensor} for `names` of those of each rank."""
    butterfly = config["codec-transport"] == "butterfly"
    names = names[::-1] if butterfly else names  # the message has the last tensor first
    inside = lambda g: g.permute(0, 2, 3, 1) if g.dim() == 4 else g  # as the program's memory has it
    x = np.stack([np.concatenate([inside(of[name]).numpy().ravel() for name in names]) for of in gradients])
    parts = runs(x.shape[1], len(x)) if butterfly else [(0, x.shape[1])]
    result = np.concatenate([whole(config, x[:, begin:end]) for begin, end in parts])
    ends = np.cumsum([gradients[0][name].numel() for name in names])[:-1]
    found = {}
    for name, part in zip(names, np.split(result, ends)):
        like = gradients[0][name]
        shaped = torch.from_numpy(part).reshape(inside(like).shape)
        found[name] = shaped.permute(0, 3, 1, 2).contiguous() if like.dim() == 4 else shaped
    return found


def bytes_of_rank_0(config, elements, ranks):
    """What it sends of so many elements: to all at once, or each part to whom it belongs and its own part to all."""
    if config["codec-transport"] != "butterfly":
        return 4 * elements
    begin, end = runs(elements, ranks)[0]
    return 4 * (elements - (end - begin) + (ranks - 1) * (end - begin))
