"""Writes optimizer.h5 beside this script: five steps of each optimizer in double precision.

The inputs are float32 numbers, so that both sides start from the same values. LAMB and LARS are plain tensor formulas,
SGD is torch.optim.SGD, with 1/p on the gradient (inside) or on the learning rate of each tensor (outside). Gradients
are clipped by torch.nn.utils.clip_grad_norm_, as the optimizer takes them. An inactive segment (scale 0) is left out of
the step altogether. Tensors of fewer than 10 elements stand for those of one dimension.
"""
import os

import h5py
import numpy as np
import torch

SIZES = [60, 7, 33, 1, 120]
STEPS = 5
LR = [0.02, 0.02, 0.01, 0.01, 0.005]
# Rows: steps, columns: segments. 1/p of active segments, 0 of inactive ones.
SCALE = [
    [1.0, 1.25, 0.0, 2.0, 1.0],
    [1.5, 0.0, 1.25, 2.0, 1.0],
    [0.0, 1.25, 1.25, 0.0, 3.0],
    [1.5, 4.0, 0.0, 2.0, 1.0],
    [1.0, 1.25, 10.0, 2.0, 0.0],
]
CLIP = {"inside": 1.6, "outside": 1.3}  # longer than the gradient of some steps, shorter than that of others
ETA = 0.5  # LARS's trust coefficient


def inputs():
    generator = torch.Generator().manual_seed(20220601)
    theta = [torch.randn(n, generator=generator) for n in SIZES]
    theta[1].zero_()  # no norm yet: trust ratio 1
    theta[4] *= 5  # the norm is above the upper clamp
    gradients = [[torch.randn(n, generator=generator) * 0.1 for n in SIZES] for _ in range(STEPS)]
    return theta, gradients


def active_gradients(gradients, step, importance, clip):
    """{segment: gradient} as the optimizer takes it."""
    found = {}
    for d, scale in enumerate(SCALE[step]):
        if scale:
            found[d] = gradients[step][d].double() * (scale if importance == "inside" else 1.0)
    if clip:
        holders = [torch.zeros_like(g).requires_grad_() for g in found.values()]
        for holder, g in zip(holders, found.values()):
            holder.grad = g
        torch.nn.utils.clip_grad_norm_(holders, CLIP[importance])
    return found


def trust_ratio(theta, u, low=0.0, high=10.0):
    tau, norm = theta.norm().clamp(low, high), u.norm()
    return (tau / norm).item() if tau > 0 and norm > 0 else 1.0


def lamb(theta, g, state, outside, lr, beta1=0.9, beta2=0.999, epsilon=1e-6, corrected=False):
    """As in DAT; corrected: algorithm 2 of You et al., ICLR 2020, with the steps of this tensor as t."""
    m, v = state.setdefault("m", torch.zeros_like(theta)), state.setdefault("v", torch.zeros_like(theta))
    t = state["t"] = state.get("t", 0) + 1
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    m_hat, v_hat = (m / (1 - beta1**t), v / (1 - beta2**t)) if corrected else (m, v)
    u = m_hat / (v_hat.sqrt() + epsilon) + 1e-4 * theta
    theta -= lr * trust_ratio(theta, u) * outside * u


def lars(theta, g, state, outside, lr):
    """As in DAT."""
    m = state.setdefault("m", torch.zeros_like(theta))
    m.mul_(0.9).add_(g + 1e-4 * theta)
    theta -= lr * trust_ratio(theta, m) * outside * m


def lars_sgd(theta, g, state, outside, lr):
    """Algorithm 1 of You, Gitman and Ginsburg, 2017; tensors of one dimension have neither decay nor a local rate."""
    v = state.setdefault("v", torch.zeros_like(theta))
    matrix = theta.numel() >= 10
    decay = 1e-4 if matrix else 0.0
    local = ETA * theta.norm() / (g.norm() + decay * theta.norm()) if matrix and theta.norm() > 0 else 1.0
    v.mul_(0.9).add_(lr * local * (g + decay * theta))
    theta -= outside * v


def run_layerwise(formula, importance, clip=False, **options):
    theta, gradients = inputs()
    theta = [t.double() for t in theta]
    states = [{} for _ in SIZES]
    trace = []
    for k in range(STEPS):
        for d, g in active_gradients(gradients, k, importance, clip).items():
            formula(theta[d], g, states[d], SCALE[k][d] if importance == "outside" else 1.0, LR[k], **options)
        trace.append(torch.cat(theta).numpy().copy())
    return np.stack(trace)


def run_sgd(nesterov, importance, clip=False):
    theta, gradients = inputs()
    theta = [t.double().requires_grad_() for t in theta]
    sgd = torch.optim.SGD([{"params": [t]} for t in theta], lr=1.0, momentum=0.9, weight_decay=5e-4, nesterov=nesterov)
    trace = []
    for k in range(STEPS):
        taken = active_gradients(gradients, k, importance, clip)
        for d, scale in enumerate(SCALE[k]):
            sgd.param_groups[d]["lr"] = LR[k] * (scale if importance == "outside" else 1.0)
            theta[d].grad = taken.get(d)
        sgd.step()
        trace.append(torch.cat([t.detach() for t in theta]).numpy().copy())
    return np.stack(trace)


def main():
    theta, gradients = inputs()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizer.h5")
    with h5py.File(path, "w") as file:
        file["sizes"] = np.array(SIZES, dtype=np.int64)
        file["lr"] = np.array(LR)
        file["scale"] = np.array(SCALE, dtype=np.float32)
        file["theta"] = torch.cat(theta).numpy()
        file["gradients"] = np.stack([torch.cat(g).numpy() for g in gradients])
        for importance in ("inside", "outside"):
            file["lamb_" + importance] = run_layerwise(lamb, importance)
            file["lamb_corrected_" + importance] = run_layerwise(lamb, importance, beta1=0.8, beta2=0.95, epsilon=1e-3,
                                                                 corrected=True)
            file["lamb_clipped_" + importance] = run_layerwise(lamb, importance, clip=True)
            file["lars_" + importance] = run_layerwise(lars, importance)
            file["lars_clipped_" + importance] = run_layerwise(lars, importance, clip=True)
            file["lars_sgd_" + importance] = run_layerwise(lars_sgd, importance)
            file["lars_sgd_clipped_" + importance] = run_layerwise(lars_sgd, importance, clip=True)
        for importance, end in ("inside", ""), ("outside", "_outside"):
            file["sgd" + end] = run_sgd(False, importance)
            file["sgd_nesterov" + end] = run_sgd(True, importance)
            file["sgd_clipped" + end] = run_sgd(False, importance, clip=True)


if __name__ == "__main__":
    main()
