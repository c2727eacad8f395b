"""The network small_cnn in NumPy, for tests of what the program makes of images."""

import numpy as np

import common


def logits_of(images, checkpoint):
    """Of small_cnn, running statistics in the batch norms, in double precision: images [n, h, w, c] in [0, 1]."""
    array = {name: values.astype(float) for name, values in common.datasets(checkpoint).items() if name.startswith(("param/", "bn/"))}
    x = images.astype(float).transpose(0, 3, 1, 2)
    for number, stride in (1, 1), (2, 2), (3, 1):
        weight = array[f"param/conv{number}.weight"]
        n, _, h, w = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        y = sum(np.einsum("nchw,oc->nohw", padded[:, :, i : i + h : stride, j : j + w : stride], weight[:, :, i, j])
                for i in range(3) for j in range(3))
        norm = f"bn{number}"
        scale = array[f"param/{norm}.weight"] / np.sqrt(array[f"bn/{norm}.running_var"] + 1e-5)
        shift = array[f"param/{norm}.bias"] - array[f"bn/{norm}.running_mean"] * scale
        x = np.maximum(y * scale[:, None, None] + shift[:, None, None], 0)
    return x.mean((2, 3)) @ array["param/linear.weight"].T + array["param/linear.bias"]


def sure_classes(logits):
    """The largest logit's class, and where rounding cannot change it: the program computes them to some 1e-6."""
    order = np.sort(logits, 1)
    return logits.argmax(1), order[:, -1] - order[:, -2] > 1e-4
