"""The learning rates of the program, and the momenta of the reference, against PyTorch's own schedulers, step by step.

    python3 tests/outside/schedules.py PATH/TO/dat_hpc

The program's rates are those of its metrics.jsonl. Its momenta are seen in whole steps (step.py), which the reference
recomputes: here the reference's own formula is held against PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile

import torch

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT
from reference import cyclic, one_cycle

LR, STEPS_PER_EPOCH = 0.3, 5
# schedule, epochs of the warm-up, epochs after it, momentum where the rate is low, where it peaks
CASES = [("cyclic", 7.5, 7.5, 0.9, 0.8), ("cyclic", 2, 3, 0.9, 0.8), ("one_cycle", 1.8, 4.2, 0.95, 0.85),
         ("one_cycle", 0.6, 1.4, 0.95, 0.85), ("one_cycle", 3, 1, 0.9, 0.5)]


def of_program(program, schedule, up, down):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "train", "--network", "small_cnn", "--width", "16", "--threads", "1", "--attack", "none",
                        "--limit-train", "20", "--limit-test", "4", "--batch", "4", "--eval", "fgsm", "--eval-every", "0",
                        "--optimizer", "sgd", "--lr", str(LR), "--schedule", schedule, "--warmup-epochs", str(up),
                        "--epochs", str(down), "--quiet", "--out", f"{folder}/run"], check=True,
                       env=MPI_ENVIRONMENT | os.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        with open(f"{folder}/run/metrics.jsonl") as file:
            return [row["lr"] for row in map(json.loads, file) if row["kind"] == "step"]


def of_pytorch(schedule, up, down, low, peak):
    """(rate, momentum) of each step: the optimizer's step comes before the scheduler's, as in training loops."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR, momentum=low)
    steps = round((up + down) * STEPS_PER_EPOCH)
    if schedule == "cyclic":
        scheduler = torch.optim.lr_scheduler.CyclicLR(
            optimizer, base_lr=0, max_lr=LR, step_size_up=up * STEPS_PER_EPOCH, step_size_down=down * STEPS_PER_EPOCH,
            base_momentum=peak, max_momentum=low)
    else:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LR, total_steps=steps, pct_start=up / (up + down),
                                                        base_momentum=peak, max_momentum=low)
    found = []
    for _ in range(steps):
        found.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
        optimizer.step()
        if len(found) < steps:
            scheduler.step()
    return found


def close(a, b):
    return abs(a - b) <= 1e-12


def main(program):
    for schedule, up, down, low, peak in CASES:
        rise, steps = up * STEPS_PER_EPOCH, round((up + down) * STEPS_PER_EPOCH)
        torchs, rates = of_pytorch(schedule, up, down, low, peak), of_program(program, schedule, up, down)
        assert len(rates) == steps == len(torchs), (len(rates), steps)
        for step, (rate, momentum) in enumerate(torchs):
            own = cyclic(step, rise, steps, low, peak) if schedule == "cyclic" else one_cycle(step, rise, steps, low, peak,
                                                                                             low)
            assert close(rates[step], rate), (schedule, up, down, step, rates[step], rate)
            assert close(own, momentum), (schedule, up, down, step, own, momentum)
        print(f"{schedule}, {up:g} + {down:g} epochs: {steps} rates and momenta are PyTorch's")


if __name__ == "__main__":
    main(sys.argv[1])
