"""What bench_step computes with and on: the weights, images and labels that it starts from, bit by bit (Philox4x32-10 as
in include/dat/random.hpp), and the results that compare.py compares with its own.
"""

import json

import numpy as np
import torch

from networks import reference

kSeed = 1
kInitialWeights, kSyntheticData = 1, 7  # dat::Purpose


def random_words(purpose, ids, indices):
    """Four arrays of uint32, one number in each for each pair of id and index."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    ids, indices = np.broadcast_arrays(np.asarray(ids, np.uint64), np.asarray(indices, np.uint64))
    v = [indices, ids, np.zeros_like(ids), np.full_like(ids, purpose << 24)]
    key0, key1 = kSeed, 0
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * v[0], np.uint64(0xCD9E8D57) * v[2]
        v = [(b >> shift) ^ v[1] ^ np.uint64(key0), b & low, (a >> shift) ^ v[3] ^ np.uint64(key1), a & low]
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return [word.astype(np.uint32) for word in v]


def uniform(words):
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def images_and_labels(batch, size=32):
    elements = batch * 3 * size * size
    words = random_words(kSyntheticData, np.arange(elements), 0)
    pixels = (words[0] >> np.uint32(24)).astype(np.float32) / np.float32(255)  # uint8, as data files have them
    images = torch.from_numpy(pixels.reshape(batch, 3, size, size))
    return images, torch.from_numpy((words[1][:batch] % 10).astype(np.int64))


@torch.no_grad()
def initialize(model):
    """Convolutions and the last layer as Model::initialize(1) draws them; batch norms are 1 and 0."""
    weights, normal = None, isinstance(model, (reference.ImageNetResNet, reference.DeepMindWideResNet))
    for k, (name, parameter) in enumerate(model.named_parameters()):
        if parameter.dim() == 1 and name not in ("linear.bias", "fc.bias"):
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
            continue
        weights = parameter if parameter.dim() > 1 else weights  # a bias comes after its weights
        fan_in = weights[0].numel()
        groups = (parameter.numel() + 3) // 4
        words = np.stack(random_words(kInitialWeights, k, np.arange(groups)), axis=1).ravel()[: parameter.numel()]
        if parameter.dim() == 4 and normal:
            u = np.append(uniform(words).astype(np.float64), np.zeros(-len(words) % 2))
            radius, angle = np.sqrt(-2 * np.log(u[0::2] + 2.0**-24)), 2 * np.pi * u[1::2]
            values = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()[: len(words)]
            values = (values * np.sqrt(2 / (parameter.shape[0] * parameter[0, 0].numel()))).astype(np.float32)
        else:
            values = (np.float32(2) * uniform(words) - np.float32(1)) * np.float32(1 / np.sqrt(float(fan_in)))
        parameter.copy_(torch.from_numpy(values.reshape(parameter.shape)))


def write_results(path, logits, input_gradient, **about):
    """As bench_step --check does: raw float32 to `path`, and a line of JSON."""
    with open(path, "wb") as file:
        for values in (logits, input_gradient):
            file.write(values.detach().float().cpu().contiguous().numpy().tobytes())
    shapes = {"logits": logits.numel(), "input_gradient": input_gradient.numel()}
    print(json.dumps({**shapes, **about}), flush=True)
