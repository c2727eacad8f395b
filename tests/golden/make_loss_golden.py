"""Makes tests/golden/losses.h5: losses of random logits and their gradients, by automatic differentiation in double
precision, from the formulas as the published codes write them. Run it where PyTorch, NumPy and h5py are; commit both.

Layout: input/clean, input/attacked: f32 [n, classes]; input/labels: [n]; input/unlabelled: the same, some of them -1.
CASE/ for each configuration: attributes loss, lambda, beta, smoothing, unlabelled (0, 1), detach (0, 1); datasets
    attacked_loss, clean_loss          [n] of each sample and pass, without lambda and beta, 0 where there is none
    attacked_gradient, clean_gradient  [n, classes] of the mean over the samples
Of pgi, the clean images are those where the attack began. Of nuat, the losses of the samples are parts of a norm.
"""

import os

import h5py
import numpy as np
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)

SAMPLES, CLASSES = 24, 10
# name: loss, lambda, beta, smoothing, some labels unknown; a name that ends so: detached
CASES = {
    "cross_entropy": ("cross_entropy", 0.7, 0, 0, False),
    "cross_entropy_smoothed": ("cross_entropy", 0.7, 0, 0.1, False),
    "cross_entropy_unlabelled": ("cross_entropy", 0.7, 0, 0.1, True),
    "trades": ("trades", 0, 6, 0, False),
    "trades_smoothed": ("trades", 0, 2.5, 0.1, False),
    "trades_unlabelled": ("trades", 0, 6, 0.1, True),
    "kl": ("kl", 0, 2, 0, False),
    "kl_unlabelled": ("kl", 0, 2, 0.1, True),
    "mart": ("mart", 0, 5, 0, False),
    "pgi": ("pgi", 0, 10, 0.1, False),
    "pgi_detached": ("pgi", 0, 3, 0, False),
    "gat": ("gat", 0, 10, 0, False),
    "gat_detached": ("gat", 0, 4, 0.1, False),
    "nuat": ("nuat", 0, 4, 0.1, False),
    "nuat_detached": ("nuat", 0, 2, 0, False),
}


def inputs():
    random = np.random.default_rng(15)
    clean = random.normal(0, 2, (SAMPLES, CLASSES))
    attacked = clean + random.normal(0, 2, (SAMPLES, CLASSES))
    clean[0], attacked[0] = 0, np.arange(CLASSES)
    attacked[1] = clean[1]  # nothing but the clean prediction
    clean[2, 4] += 12  # sure of itself
    attacked[3, 7] += 12
    labels = random.integers(0, CLASSES, SAMPLES)
    labels[2], labels[3] = 4, 7
    unlabelled = np.where(np.arange(SAMPLES) % 3 == 0, -1, labels)
    return clean.astype(np.float32), attacked.astype(np.float32), labels, unlabelled


def cross_entropy(logits, labels, smoothing):
    """Of each sample; 0 where the label is unknown."""
    known = labels >= 0
    found = F.cross_entropy(logits, labels.clamp(min=0), reduction="none", label_smoothing=smoothing)
    return torch.where(known, found, torch.zeros(()))


def divergence(clean, attacked):
    """As trades.py of yaodongyu/TRADES has it."""
    return F.kl_div(F.log_softmax(attacked, dim=1), F.softmax(clean, dim=1), reduction="none").sum(1)


def mart(clean, attacked, labels):
    """As mart.py of YisenWang/MART has it."""
    adv_probs, nat_probs = F.softmax(attacked, dim=1), F.softmax(clean, dim=1)
    largest = torch.argsort(adv_probs, dim=1)[:, -2:]
    wrong = torch.where(largest[:, -1] == labels, largest[:, -2], largest[:, -1])
    boosted = F.cross_entropy(attacked, labels, reduction="none") + F.nll_loss(
        torch.log(1.0001 - adv_probs + 1e-12), wrong, reduction="none")
    true_probs = torch.gather(nat_probs, 1, labels[:, None])[:, 0]
    apart = F.kl_div(torch.log(adv_probs + 1e-12), nat_probs, reduction="none").sum(1)
    return boosted, apart * (1.0000001 - true_probs)


def nuclear(apart):
    """The nuclear norm as NuAT_cifar10.py has it, without its divisor, in parts: what each row gives of its value, and
    the gradient of the whole."""
    u, _, v = torch.linalg.svd(apart.detach(), full_matrices=False)
    norm = torch.norm(apart, "nuc")
    return (apart.detach() * (u @ v)).sum(1) + (norm - norm.detach()) / len(apart)


def terms(loss, lam, beta, smoothing, clean, attacked, labels, detach):
    """Losses of the samples in the two passes, and what each counts."""
    fixed = clean.detach() if detach else clean
    if loss == "pgi":  # as FGSM_MEP.py has it: the mean over all logits
        return cross_entropy(attacked, labels, smoothing), ((attacked - fixed) ** 2).mean(1), 1, beta
    if loss == "gat":  # as GAT_cifar10.py has it
        apart = ((F.softmax(fixed, dim=1) - F.softmax(attacked, dim=1)) ** 2.0).sum(1)
        return apart, cross_entropy(clean, labels, smoothing), beta, 1
    if loss == "nuat":
        return nuclear(fixed - attacked), cross_entropy(clean, labels, smoothing), beta, 1
    if loss == "mart":
        return *mart(clean, attacked, labels), 1, beta
    if loss == "cross_entropy":
        of_attacked = torch.where(labels >= 0, cross_entropy(attacked, labels, smoothing), divergence(clean, attacked))
        return of_attacked, cross_entropy(clean, labels, smoothing), 1, lam
    if loss == "kl":  # the clean predictions are constants in it
        return divergence(clean.detach(), attacked), cross_entropy(clean, labels, smoothing), beta, 1
    return divergence(clean, attacked), cross_entropy(clean, labels, smoothing), beta, 1


def main():
    clean, attacked, labels, unlabelled = inputs()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.h5")
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs["torch_version"] = str(torch.__version__)
        file["input/clean"], file["input/attacked"] = clean, attacked
        file["input/labels"], file["input/unlabelled"] = labels, unlabelled
        for name, (loss, lam, beta, smoothing, some) in CASES.items():
            z = torch.tensor(clean, dtype=torch.float64, requires_grad=True)
            z_adv = torch.tensor(attacked, dtype=torch.float64, requires_grad=True)
            y = torch.from_numpy(unlabelled if some else labels)
            detach = name.endswith("_detached")
            of_attacked, of_clean, weight, clean_weight = terms(loss, lam, beta, smoothing, z, z_adv, y, detach)
            (weight * of_attacked + clean_weight * of_clean).mean().backward()
            group = file.create_group(name)
            group.attrs.update({"loss": loss, "lambda": float(lam), "beta": float(beta), "smoothing": float(smoothing),
                                "unlabelled": int(some), "detach": int(detach)})
            group["attacked_loss"], group["clean_loss"] = of_attacked.detach().numpy(), of_clean.detach().numpy()
            group["attacked_gradient"], group["clean_gradient"] = z_adv.grad.numpy(), (
                torch.zeros_like(z) if z.grad is None else z.grad).numpy()


if __name__ == "__main__":
    main()
