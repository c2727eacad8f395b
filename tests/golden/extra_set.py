"""Sets of extra images as users have them: the pickle of Carmon et al., .npz of generated images, .npy.

usage: extra_set.py FOLDER COUNT   writes ti_500K_pseudo_labeled.pickle with COUNT images of 32 x 32 pixels into FOLDER
       extra_set.py                writes the golden files tests/golden/extra_set/ anew: six images of 4 x 4 pixels

The pickle is what a dictionary of two arrays, uint8 [n, 32, 32, 3] and int64 [n], and some other entries becomes: every
program that loads the published file reads just `data` and `extrapolated_targets` from it.
"""

import os
import pickle
import sys
import zipfile
from unittest import mock

import numpy as np


def images(count, size):
    """Images [count, size, size, 3] whose bytes depend on everything, and labels 0 ... 9."""
    sample, y, x, channel = np.ogrid[:count, :size, :size, :3]
    pixels = sample * 89 + channel * 61 + y * 17 + x * 3
    return np.ascontiguousarray(pixels.astype(np.uint8)), (3 * np.arange(count) + 1) % 10


def carmon(pixels, labels):
    return {"data": pixels, "extrapolated_targets": labels, "ti_index": 7 * np.arange(len(labels)),
            "prediction_model": "model.pt", "prediction_model_epoch": 100, "accuracy": 0.5, "nothing": None}


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2 does."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_text(self, text):
        data = text.encode("latin1") if isinstance(text, str) else text
        short = len(data) < 256
        self.write((pickle.SHORT_BINSTRING if short else pickle.BINSTRING) +
                   len(data).to_bytes(1 if short else 4, "little") + data)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_text


def write_python2(path, value):
    with open(path, "wb") as file:
        Python2Pickler(file, 2).dump(value)


def write_pickle(path, value, protocol):
    with open(path, "wb") as file:
        pickle.dump(value, file, protocol)


def main():
    if len(sys.argv) == 3:
        folder, count = sys.argv[1], int(sys.argv[2])
        write_pickle(f"{folder}/ti_500K_pseudo_labeled.pickle", carmon(*images(count, 32)), 4)
        return
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extra_set")
    os.makedirs(folder, exist_ok=True)
    pixels, labels = images(6, 4)
    for protocol in range(2, 6):
        write_pickle(f"{folder}/p{protocol}.pickle", carmon(pixels, labels), protocol)
    write_python2(f"{folder}/python2.pickle", carmon(pixels, labels))
    with open(f"{folder}/p3.pickle", "rb") as file:  # NumPy 2 has renamed the modules
        text = file.read()
    with open(f"{folder}/numpy2.pickle", "wb") as file:
        file.write(text.replace(b"numpy.core.", b"numpy._core."))
    write_pickle(f"{folder}/list.pickle", {"data": pixels, "extrapolated_targets": labels.tolist()}, 4)
    write_pickle(f"{folder}/scalars.pickle", {"data": pixels, "labels": list(labels.astype(np.int32))}, 2)
    np.savez(f"{folder}/stored.npz", image=pixels, label=labels.astype(np.int32))
    np.savez_compressed(f"{folder}/deflated.npz", image=pixels.transpose(0, 3, 1, 2), label=labels.astype(">i8"))
    with mock.patch.object(zipfile, "ZIP64_LIMIT", 10):  # as archives above 4 GiB are written
        np.savez(f"{folder}/zip64.npz", image=pixels, label=labels)
    np.save(f"{folder}/images.npy", pixels)
    np.save(f"{folder}/labels.npy", labels.astype(np.uint8).reshape(-1, 1))


if __name__ == "__main__":
    main()
