#!/usr/bin/env python3
"""A model, not a measurement: what the convolutions of an attack's iteration cost on a GPU, plan by plan.

One forward pass and one input gradient of resnet18 (width 64, 32x32 pixels) in 16-bit storage, per image. Every kernel
takes the longer of two times: its multiply-adds at a part of what a large matrix product reaches, and the bytes that it
reads and writes at what the memory copies. Weights, caches, launches and the loss count nothing.

Usage: python3 bench/roofline.py [--product TFLOP/s] [--memory TB/s] [--layers]
       python3 bench/roofline.py --calibration IN OUT [--batch 2048] [--slower 1]

The second form takes a calibration.json of `dat_hpc forecast` and writes it anew with the times of PGD-10 on such a GPU,
all of them `--slower` times as long: for `bench_scaling --delay` on links that are as many times slower.
"""

import argparse
import json

from launch import read_json

PRODUCT, MEMORY = 788.0, 4.3  # of an H200: a bf16 product of 8192 x 8192 matrices; a copy, bytes read and written


def network():
    """(name, c_in, side_in, c_out, stride, kernel, what follows) in the order in which they run."""
    layers = [("stem", 8, 32, 64, 1, 3, "relu")]  # 3 channels, with zeros up to 16 bytes
    channels, side = 64, 32
    for stage in range(4):
        for block in range(2):
            out, stride = 64 << stage, 2 if stage > 0 and block == 0 else 1
            name = f"layer{stage + 1}.{block}."
            layers.append((name + "conv1", channels, side, out, stride, 3, "relu"))
            if stride == 2:
                layers.append((name + "shortcut", channels, side, out, stride, 1, "nothing"))
            layers.append((name + "conv2", out, side // stride, out, 1, 3, "add relu"))
            channels, side = out, side // stride
    return layers


# What can be inside the convolutions' kernels. A mask read from activations costs 2 bytes an element, from bits 1/8.
PLANS = {
    "legacy calls": dict(mask=None),
    "graph API, masks from activations, gradients of stride 2 by legacy calls": dict(mask=2.0, strided=False),
    "graph API, masks from activations, all gradients": dict(mask=2.0, strided=True),
    "bit masks inside all convolutions (cuDNN documents no such input)": dict(mask=1 / 8, strided=True),
}


def kernels(plan):
    """(name, GFLOP, MB) of every kernel of an iteration."""
    inside, bits, two = plan["mask"], 1 / 8, 2.0
    work = []
    for name, c_in, side, c_out, stride, k, end in network():
        x, y = c_in * side * side, c_out * (side // stride) ** 2
        # Of the stem the three channels count, as in the network's own number of operations.
        flop = 2.0 * y * k * k * (3 if name == "stem" else c_in)
        residual = y if "add" in end else 0
        # The gradient of a value goes through its ReLU in the gradient of the first convolution that reads it: conv1 of
        # a block for the block's input, conv2 for what is between. A shortcut's gradient comes before that of conv1.
        first_reader = name != "stem" and "shortcut" not in name
        through = inside is not None and (plan["strided"] or stride == 1)
        work.append((name, flop, two * (x + residual + y) + (bits * y if inside == bits and "relu" in end else 0)))
        if first_reader and not through:  # the mask of x, stored by a pass after the kernel that made x, and applied
            work.append((name + " mask stored", 0, (two + bits) * x))
            work.append((name + " mask applied", 0, (two + two + bits) * x))
        if name == "stem":
            work.append((name + " gradient", flop, two * y + 4.0 * 3 * side * side * 5))  # with PGD's step, all in f32
            continue
        # A block's input has another part of its gradient: that of the residual, or of the shortcut.
        other = x if "conv1" in name else 0
        work.append((name + " gradient", flop, two * (y + other + x) + (inside * x if first_reader and through else 0)))
    work.append(("pool mask stored", 0, (two + bits) * y))  # of the last ReLU, which no convolution reads
    work.append(("pool mask applied", 0, (two + two + bits) * y))
    return [(name, flop / 1e9, count / 1e6) for name, flop, count in work]


def calibration(options, plan="legacy calls", part=0.6, iterations=10):
    """The training pass is a forward pass and two products of each layer backward: an iteration and a half. Layers have
    their parts of the backward pass that was calibrated; whatever is not a convolution counts nothing."""
    found = read_json(options.calibration[0])
    us = sum(max(1e3 * g / (part * options.product), mb / options.memory) for _, g, mb in kernels(PLANS[plan]))
    iteration = options.slower * options.batch * us * 1e-6
    scale = iteration / found["seconds"]["backward"] * found["backward_passes"]
    found["seconds"] = {"data": 0, "attack": iterations * iteration, "forward": iteration / 2, "backward": iteration,
                        "select": 0, "update": 0}
    found |= {"attack_iterations": iterations, "backward_passes": 1, "batch": options.batch}
    for layer in found["layers"]:
        layer["backward"] *= scale
        layer["weight_gradient"] *= scale
    found["about"] |= {"device": f"a model: {options.product:g} TFLOP/s, {options.memory:g} TB/s, {plan} at {part:.0%}, "
                                 f"{options.slower:g} times slower", "attack": "pgd", "steps": iterations}
    with open(options.calibration[1], "w") as file:
        json.dump(found, file, indent=1)
    print(f"{options.calibration[1]}: attack {iterations} x {iteration:.4f} s, forward {iteration / 2:.4f} s, backward "
          f"{iteration:.4f} s: a model")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--product", type=float, default=PRODUCT, metavar="TFLOP/s")
    parser.add_argument("--memory", type=float, default=MEMORY, metavar="TB/s")
    parser.add_argument("--layers", action="store_true", help="every kernel, too")
    parser.add_argument("--calibration", nargs=2, metavar=("IN", "OUT"))
    parser.add_argument("--batch", type=int, default=2048, help="images of a rank, of --calibration")
    parser.add_argument("--slower", type=float, default=1, help="factor of all times of --calibration")
    options = parser.parse_args()
    if options.calibration:
        return calibration(options)
    parts = (1.0, 0.75, 0.6, 0.5)
    print(f"A model: {options.product:g} TFLOP/s at best, {options.memory:g} TB/s. Parts of the matrix product's rate, and "
          "image iterations/s,\nwhere a convolution that waits for nothing reaches this part of it:")
    print(f"{'':74}{'MB':>6}" + "".join(f"{part:>17.0%}" for part in parts))
    for name, plan in PLANS.items():
        all_kernels = kernels(plan)
        flop = sum(k[1] for k in all_kernels)
        row = f"{name:74}{sum(k[2] for k in all_kernels):6.1f}"
        for part in parts:
            # GFLOP / (TFLOP/s) is ms; MB / (TB/s) is us.
            us = sum(max(1e3 * g / (part * options.product), mb / options.memory) for _, g, mb in all_kernels)
            row += f"{1e3 * flop / us / options.product:8.2f}{1e6 / us:9,.0f}"
        print(row)
        if options.layers:
            for kernel, g, mb in all_kernels:
                compute, memory = 1e3 * g / options.product, mb / options.memory
                print(f"    {kernel:34}{g:8.4f} GFLOP{mb:8.3f} MB{compute:8.4f} us{memory:8.4f} us")


if __name__ == "__main__":
    main()
