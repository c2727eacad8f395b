"""Writes optimizer.h5 beside this script: five steps of LAMB, LARS and SGD in double precision.

The inputs are float32 numbers, so that both sides start from the same values. LAMB and LARS are plain tensor formulas,
SGD is torch.optim.SGD, with 1/p on the gradient (inside) or on the learning rate of each tensor (outside). An inactive segment (scale 0) is left out of the step altogether.
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


def inputs():
    generator = torch.Generator().manual_seed(20220601)
    theta = [torch.randn(n, generator=generator) for n in SIZES]
    theta[1].zero_()  # no norm yet: trust ratio 1
    theta[4] *= 5  # the norm is above the upper clamp
    gradients = [[torch.randn(n, generator=generator) * 0.1 for n in SIZES] for _ in range(STEPS)]
    return theta, gradients


def trust_ratio(theta, u, low=0.0, high=10.0):
    tau, norm = theta.norm().clamp(low, high), u.norm()
    return (tau / norm).item() if tau > 0 and norm > 0 else 1.0


def lamb(theta, g, state, importance, scale, lr):
    m, v = state.setdefault("m", torch.zeros_like(theta)), state.setdefault("v", torch.zeros_like(theta))
    g = g * scale if importance == "inside" else g
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    u = m / (v.sqrt() + 1e-6) + 1e-4 * theta
    theta -= lr * trust_ratio(theta, u) * (scale if importance == "outside" else 1.0) * u


def lars(theta, g, state, importance, scale, lr):
    m = state.setdefault("m", torch.zeros_like(theta))
    g = g * scale if importance == "inside" else g
    m.mul_(0.9).add_(g + 1e-4 * theta)
    theta -= lr * trust_ratio(theta, m) * (scale if importance == "outside" else 1.0) * m


def run_layerwise(formula, importance):
    theta, gradients = inputs()
    theta = [t.double() for t in theta]
    states = [{} for _ in SIZES]
    trace = []
    for k in range(STEPS):
        for d, scale in enumerate(SCALE[k]):
            if scale:
                formula(theta[d], gradients[k][d].double(), states[d], importance, scale, LR[k])
        trace.append(torch.cat(theta).numpy().copy())
    return np.stack(trace)


def run_sgd(nesterov, importance):
    theta, gradients = inputs()
    theta = [t.double().requires_grad_() for t in theta]
    sgd = torch.optim.SGD([{"params": [t]} for t in theta], lr=1.0, momentum=0.9, weight_decay=5e-4, nesterov=nesterov)
    trace = []
    for k in range(STEPS):
        for d, scale in enumerate(SCALE[k]):
            inside, outside = (scale, 1.0) if importance == "inside" else (1.0, scale)
            sgd.param_groups[d]["lr"] = LR[k] * outside
            theta[d].grad = gradients[k][d].double() * inside if scale else None
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
            file["lars_" + importance] = run_layerwise(lars, importance)
        for importance, end in ("inside", ""), ("outside", "_outside"):
            file["sgd" + end] = run_sgd(False, importance)
            file["sgd_nesterov" + end] = run_sgd(True, importance)


if __name__ == "__main__":
    main()
