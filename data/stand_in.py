"""A stand-in for CIFAR10-Ext, made without either of its parts: a labelled set, and a pickle of extra images as Carmon et
al. publish theirs (ti_500K_pseudo_labeled.pickle), with labels of which some are wrong, as pseudo-labels are.

    python3 data/stand_in.py PROGRAM FOLDER [--labelled 50000] [--extra 500000] [--wrong 0.1] [--unlabelled] [--seed 1]

writes FOLDER/labelled.h5 and FOLDER/ti_500K_pseudo_labeled.pickle. Then

    dat_hpc data convert FOLDER/ti_500K_pseudo_labeled.pickle FOLDER/extra.h5
    dat_hpc train --data FOLDER/labelled.h5 FOLDER/extra.h5 --mix balanced:0.5 ...

The images are those of `dat_hpc data synthetic`, 32 x 32 in ten classes, the extra ones of another seed. Labels are wrong
where a generator of the same seed says so: exactly the share --wrong of them, each another class than the right one, all
others alike. --unlabelled: the pickle has -1 for every label. The same arguments write the same bytes. An image takes 3072
bytes on the disk, the extra ones twice that while it works, and as much in memory.
"""

import argparse
import os
import pickle
import subprocess

import h5py
import numpy as np

CLASSES, SIZE = 10, 32


def synthetic(program, path, train, test, seed):
    subprocess.run([program, "data", "synthetic", path, "--classes", str(CLASSES), "--size", str(SIZE), "--train",
                    str(train), "--test", str(test), "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)


def pseudo_labels(right, wrong, seed):
    """The labels, of which round(wrong * n) are others."""
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(right))[: round(wrong * len(right))]
    labels = right.copy()
    labels[chosen] = (labels[chosen] + random.integers(1, CLASSES, len(chosen))) % CLASSES
    return labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", help="dat_hpc")
    parser.add_argument("folder")
    parser.add_argument("--labelled", type=int, default=50000)
    parser.add_argument("--test", type=int, default=10000, help="test images, of the labelled file")
    parser.add_argument("--extra", type=int, default=500000)
    parser.add_argument("--wrong", type=float, default=0.1, help="share of the extra images with a wrong label")
    parser.add_argument("--unlabelled", action="store_true", help="no extra image has a label")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    synthetic(arguments.program, f"{arguments.folder}/labelled.h5", arguments.labelled, arguments.test, arguments.seed)
    images = f"{arguments.folder}/extra_images.h5"
    # Seeds of the program have 64 bits.
    synthetic(arguments.program, images, arguments.extra, 1, (arguments.seed + (1 << 32)) % (1 << 63))
    with h5py.File(images, "r") as file:
        data, right = file["train/images"][()], file["train/labels"][()].astype(np.int64)
    os.remove(images)
    labels = np.full_like(right, -1) if arguments.unlabelled else pseudo_labels(right, arguments.wrong, arguments.seed)
    with open(f"{arguments.folder}/ti_500K_pseudo_labeled.pickle", "wb") as file:
        pickle.dump({"data": data, "extrapolated_targets": labels}, file, 4)
    print(f"{len(labels)} extra images, {np.count_nonzero(labels != right)} of them without the right label")


if __name__ == "__main__":
    main()
