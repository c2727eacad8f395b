#!/usr/bin/env python3
"""Tables 1 and 4 of DAT (Zhang et al., UAI 2022), ResNet-50 on ImageNet by six nodes, beside what `dat_hpc forecast` makes of
them. The bandwidth is fitted to one row, PGD with 32 bits; the other rows are predicted from it.

  python3 bench/dat_tables.py PROGRAM [FOLDER]
"""

import os
import sys
import tempfile

from launch import forecast

NODES, IMAGES, TRAINING_SET = 6, 512, 1_281_167
STEPS = TRAINING_SET // (NODES * IMAGES)  # and a short one
# bits and transport: seconds of communication an epoch (C) with PGD and with FGSM, MB an iteration, as published
ROWS = {"32": (898, 859, 2924), "16": (850, 849, 1462), "8": (592, 594, 731), "8, two sides": (1091, 1013, 244)}
EPOCH = {"PGD": 1960, "FGSM": 1109}  # seconds with 32 bits (T)
HPC_C = 15  # PGD and FGSM, 32 bits, on another network, of which nothing is said
HPC_GBIT = 100


def resnet50():
    """Elements of each tensor, in torchvision's order."""
    norm = lambda channels: [channels, channels]
    sizes = [64 * 3 * 49, *norm(64)]
    inputs = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        inside, outputs = 64 << stage, 256 << stage
        for block in range(blocks):
            sizes += [inputs * inside, *norm(inside), inside * inside * 9, *norm(inside), inside * outputs, *norm(outputs)]
            if block == 0:
                sizes += [inputs * outputs, *norm(outputs)]
            inputs = outputs
    return sizes + [1000 * 2048, 1000]


def calibration(compute):
    sizes = resnet50()
    assert sum(sizes) == 25_557_032
    layers = [{"name": f"tensor{k}", "elements": size, "backward": 0, "weight_gradient": 0} for k, size in enumerate(sizes)]
    codec = lambda name, transport, width, more: {
        "name": name, "transport": transport, "rounds": 1, "exact": False, "encode": 0, "decode": 0,
        "bytes": [width * size + more for size in sizes]}
    # As its code has it: gradients are summed; what is rounded is gathered, each tensor with its norm.
    codecs = [codec("float32", "sum", 4, 0), codec("16", "gather", 2, 4), codec("8", "gather", 1, 4),
              codec("8-two-sides", "two_sided", 1, 4)]
    return {"filetype": "dat_hpc calibration", "format_version": 2, "about": {}, "ranks": 1, "batch": IMAGES, "image_size": 224,
            "seconds": {"data": 0, "attack": compute, "forward": 0, "backward": 0, "select": 0, "update": 0},
            "attack_iterations": 4, "backward_passes": 2, "step_message_bytes": 0, "layers": layers, "codecs": codecs, "network": {}}


def exposed(program, folder, compute, bandwidth):
    """Seconds of communication a step, by codec."""
    row = forecast(program, folder, calibration(compute), "--ranks", NODES, "--bandwidth", f"{bandwidth / 1e6:.6f}MB/s", "--latency", 0)
    return {choice["name"]: choice["seconds"]["exposed"] for choice in row["choices"]}


def main():
    program = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    compute = (EPOCH["PGD"] - ROWS["32"][0]) / STEPS
    unit = 1e8
    at_unit = exposed(program, folder, compute, unit)
    bandwidth = unit * at_unit["float32"] / (ROWS["32"][0] / STEPS)
    predicted = exposed(program, folder, compute, bandwidth)
    gradients = 4 * sum(resnet50())
    print(f"{STEPS} steps of {NODES * IMAGES} images an epoch, {gradients / 1e6:.1f} MB ({gradients / 2**20:.1f} MiB) of gradients")
    print(f"fitted: {bandwidth / 1e6:.1f} MB/s ({8 * bandwidth / 1e9:.2f} Gbit/s) a node; {ROWS['32'][0] / STEPS:.2f} s a step\n")
    print(f"{'bits':14}{'messages of 1/4, 1/2 or all of the gradients':>46}{'C, PGD':>9}{'C, FGSM':>9}{'forecast':>10}")
    for (bits, (pgd, fgsm, megabytes)), name in zip(ROWS.items(), ["float32", "16", "8", "8-two-sides"]):
        part = {"float32": 1, "16": 2}.get(name, 4)
        messages = megabytes / (gradients / 2**20 / part)
        print(f"{bits:14}{f'{megabytes} MB are {messages:.1f} of {gradients / 2**20 / part:.1f} MiB':>46}{pgd:9}{fgsm:9}{STEPS * predicted[name]:10.0f}")
    fast = exposed(program, folder, compute, HPC_GBIT * 1e9 / 8)
    print(f"{'32, HPC':14}{f'at {HPC_GBIT} Gbit/s, our guess':>46}{HPC_C:9}{HPC_C:9}{STEPS * fast['float32']:10.1f}")


if __name__ == "__main__":
    main()
