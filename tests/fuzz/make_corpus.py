"""Makes tests/fuzz/corpus: small files of every form that the readers know. Usage: make_corpus.py PATH/TO/dat_hpc"""

import gzip
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import zlib

import h5py
import numpy as np
from PIL import Image

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
RANDOM = np.random.default_rng(1)
PIXELS = RANDOM.integers(0, 256, (5, 4, 4, 3), np.uint8)
LABELS = np.arange(5) % 3
# The file that image_index.cpp has, too: 2 x 3 pixels.
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000002000000030802000000368849d600000020494441547801011500eaff0000"
                    "010203040500060708090a0b000c0d0e0f1011042f009a15f571290000000049454e44ae426082")


def keep(target, name, content):
    os.makedirs(f"{ROOT}/{target}", exist_ok=True)
    pathlib.Path(ROOT, target, name).write_bytes(content if isinstance(content, bytes) else content.encode())


def numpy_file(array, fortran=False):
    out = io.BytesIO()
    np.save(out, np.asfortranarray(array) if fortran else array)
    return out.getvalue()


def hdf5(fill, **how):
    with h5py.File("file.h5", "w", **how) as file:
        fill(file)
    return pathlib.Path("file.h5").read_bytes()


def data(file):
    file.attrs["class_names"] = ["a", "b", "c"]
    for split in "train", "test":
        file[f"{split}/images"] = PIXELS
        file[f"{split}/labels"] = LABELS


def unnamed_data(file):
    file["train/images"] = PIXELS[..., :1]
    file["train/labels"] = LABELS.astype(">i2")
    file.attrs["source"] = np.bytes_("elsewhere")


def checkpoint(members):
    def fill(file):
        file.attrs["filetype"] = "checkpoint"
        file.attrs["format_version"] = 2
        file.attrs["config_toml"] = 'network = "small_cnn"\nlr = 0.1\n'
        for i in range(members):
            file[f"param/layer{i}.weight"] = np.arange(6, dtype=np.float32).reshape(2, 3)
        file["bn/bn.running_mean"] = np.zeros(2, np.float32)
        file["state/p"] = np.ones(3)
        file["state/perturbations"] = PIXELS[:1]
        file["state"].attrs["step"] = 7

    return fill


def state_dict(file):
    for name in "module.conv.weight", "module.bn.running_var", "fc.bias":
        file[name] = np.ones((2, 2), np.float16 if "fc" in name else np.float64)


def safetensors(tensors, **metadata):
    """tensors: (name, type as the format calls it, array)"""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, kind, array in tensors:
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def small_cnn():
    """All tensors of small_cnn with 2 channels in the first layer, 2 classes and images of one channel."""
    shapes = {"conv1.weight": (2, 1, 3, 3), "conv2.weight": (4, 2, 3, 3), "conv3.weight": (4, 4, 3, 3),
              "linear.weight": (2, 4), "linear.bias": (2,)}
    for k, channels in enumerate((2, 4, 4), 1):
        shapes |= {f"bn{k}.{name}": (channels,) for name in ("weight", "bias", "running_mean", "running_var")}
    tensors = [("module." + name, "F32", np.ones(shape, np.float32)) for name, shape in shapes.items()]
    return [("module.bn1.num_batches_tracked", "I64", np.array(7)), *tensors]


def tar(files):
    """files: (name, bytes)"""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    end = sum(512 + -(-len(content) // 512) * 512 for _, content in files) + 1024
    return out.getvalue()[:end]


def image_file(mode, form, size=(21, 13), **how):
    """A picture with edges and slopes."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    y, x = np.mgrid[: size[1], : size[0]]
    pixels = np.stack([(x * (7 + c) + y * 5 + 90 * (x > y)) % 256 for c in range(channels)], -1).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels.squeeze() if channels == 1 else pixels, mode).save(out, form, **how)
    return out.getvalue()


def index(source):
    """An index without its seal."""
    subprocess.run([PROGRAM, "data", "index", source, "index.h5"], check=True, stdout=subprocess.DEVNULL)
    content = pathlib.Path("index.h5").read_bytes()
    os.remove("index.h5")
    return bytes(512) + content[512:]


def images():
    keep("image", "rgb.jpg", image_file("RGB", "JPEG"))
    keep("image", "progressive.jpg", image_file("RGB", "JPEG", progressive=True, subsampling=0))
    keep("image", "grey.jpg", image_file("L", "JPEG", quality=90))
    keep("image", "cmyk.jpg", image_file("CMYK", "JPEG"))
    keep("image", "rgba.png", image_file("RGBA", "PNG"))
    keep("image", "grey.png", image_file("L", "PNG", size=(9, 8)))
    one, other = image_file("RGB", "JPEG", size=(9, 8)), image_file("L", "PNG", size=(9, 8))
    folders = tar([("train/a/1.jpg", one), ("train/b/2.png", other), ("val/b/3.JPEG", other), ("readme", b"text")])
    keep("tar", "folders", folders)
    keep("tar", "shards", tar([("x/1.jpg", one), ("x/1.cls", b"1"), ("2.json", b'{"cls": 0}'), ("2.png", other)]))
    keep("tar", "of_tars", tar([("a.tar", tar([("1.jpg", one)])), ("b.tar", tar([("2.png", other)]))]))
    os.makedirs("images")
    os.chdir("images")
    for name in "train/a/1.png", "train/b/2.png", "test/a/3.png":
        os.makedirs(os.path.dirname(name), exist_ok=True)
        pathlib.Path(name).write_bytes(PNG)
    indexes = {"folder": index(".")}
    for name in "x.tar", "y.tar":
        pathlib.Path(name).write_bytes(tar([("train/a/1.png", PNG), ("train/b/2.png", PNG)]))
    indexes |= {"tar": index("x.tar"), "tars": index(".")}
    os.chdir("..")
    shutil.rmtree("images")
    for name, content in indexes.items():
        keep("image_index", name, content)


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    os.chdir(ROOT)
    config = subprocess.run([PROGRAM, "train", "--print-config"], check=True, capture_output=True).stdout
    keep("toml", "all", b"".join(re.findall(rb"^[a-z].*\n", config, re.MULTILINE)))  # without its comments
    keep("toml", "short", "lr = 0.1\neps = '8/255' # grey levels\nmilestones = [1, 2,\n 3]\noptimizer = \"sgd:nesterov\"\naverage = \"none,ema:0.9@3\"\ncodec = \"powersgd:rank=4\"\n")
    keep("toml", "strings", 'out = "a \\"b\\" \\\\ \\n"\ndata = ["x.h5", \'y.h5\']\noptimizer = "sgd"\n')
    keep("options", "train", "train\n--lr\n0.1\n--eps=8/255\n--milestones\n1\n2\n--optimizer\nsgd:nesterov:peak_momentum=0.8\n--cheat\ndelayed:5@2/3,leave@7\n-q\n")
    keep("options", "eval", "eval\n--checkpoint\nrun\n--eval\npgd10,pgd20x5\n--help\n")
    keep("options", "others", "data\nconvert\na\nb\n--size\n8\n--label-bytes=2\n")
    keep("options", "slurm", "slurm\n--nodes\n2\n--time\n4:00:00\n--gpus-per-node\n4\n--out\nrun\n")
    records = b"".join(bytes([label]) + image.transpose(2, 0, 1).tobytes() for label, image in zip(LABELS, PIXELS))
    keep("records", "four_pixels", bytes([3, 0]) + records)
    keep("records", "two_label_bytes", bytes([3, 1]) + b"".join(b"\x07" + bytes([1]) + bytes(48) for _ in range(3)))
    keep("records", "empty", bytes([0, 0]))
    for name, how in ("stored", np.savez), ("deflated", np.savez_compressed):
        out = io.BytesIO()
        how(out, image=PIXELS, label=LABELS)
        keep("npz", name, out.getvalue())
    out = io.BytesIO()
    np.savez(out, images=PIXELS.transpose(0, 3, 1, 2), targets=LABELS.astype(">u2"), more=np.array(["a"], object))
    keep("npz", "other_names", out.getvalue())
    keep("npy", "bytes", numpy_file(PIXELS))
    keep("npy", "column_major", numpy_file(RANDOM.random((3, 4)), fortran=True))
    keep("npy", "big_endian", numpy_file(LABELS.astype(">i4")))
    for protocol in range(2, 6):
        keep("pickle", f"protocol{protocol}",
             pickle.dumps({"data": PIXELS, "extrapolated_targets": LABELS, "ti_index": [1, 2]}, protocol))
    keep("pickle", "lists", pickle.dumps({"data": PIXELS, "labels": [int(label) for label in LABELS]}, 4))
    keep("pickle", "refused", pickle.dumps({"data": print, "labels": b"x" * 300, "more": (1, 2.5, None, -2**70)}, 2))
    keep("pickle", "bytes_keys", pickle.dumps({b"data": PIXELS, b"labels": [0, 1, 2, 0, 1], b"names": [b"a", "b", b""]}, 2))
    pixels = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (5, 4, 4)) + PIXELS[..., 0].tobytes()
    keep("idx", "images", pixels)
    keep("idx", "packed", gzip.compress(pixels, mtime=0))
    keep("idx", "labels", b"\0\0\x08\x01" + (5).to_bytes(4, "big") + LABELS.astype("u1").tobytes())
    keep("idx", "wide", b"\0\0\x0c\x02" + b"".join(n.to_bytes(4, "big") for n in (2, 3)) + bytes(24))
    for name, packed in ("plain", False), ("packed", True):
        matrices = b""
        for key, array in ("X", PIXELS.transpose(1, 2, 3, 0)), ("y", LABELS.astype("u1")[:, None]):
            parts = [(6, (9).to_bytes(8, "little")), (5, np.array(array.shape, "<i4").tobytes()), (1, key.encode()),
                     (2, array.tobytes("F"))]
            body = b"".join(kind.to_bytes(4, "little") + len(part).to_bytes(4, "little") + part + bytes(-len(part) % 8)
                            for kind, part in parts)
            matrix = (14).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body
            deflated = zlib.compress(matrix)
            matrices += (15).to_bytes(4, "little") + len(deflated).to_bytes(4, "little") + deflated if packed else matrix
        keep("mat", name, b"MATLAB 5.0".ljust(124) + b"\0\1IM" + matrices)
    text = b"".join(bytes(part) for part in ((6, 0, 0, 0, 8, 0, 0, 0, 4, *[0] * 7), (5, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0),
                                             (1, 0, 1, 0, 116, 0, 0, 0), (16, 0, 1, 0, 97, 0, 0, 0)))
    keep("mat", "text", b"MATLAB 5.0".ljust(124) + b"\0\1IM" + bytes((14, 0, 0, 0, len(text), 0, 0, 0)) + text)
    keep("checkpoint", "old_form", hdf5(checkpoint(3)))
    keep("checkpoint", "newest_form", hdf5(checkpoint(3), libver="latest"))
    keep("checkpoint", "large_group", hdf5(checkpoint(30), track_order=True))
    keep("checkpoint", "state_dict", hdf5(state_dict))
    keep("data_file", "old_form", hdf5(data))
    keep("data_file", "newest_form", hdf5(data, libver="latest"))
    keep("data_file", "unnamed", hdf5(unnamed_data, userblock_size=512))
    subprocess.run([PROGRAM, "data", "synthetic", "file.h5", "--size", "8", "--train", "3", "--test", "2", "--classes",
                    "2"], check=True, capture_output=True)
    # Without its seal, whose hash no mutant keeps.
    keep("data_file", "synthetic", bytes(512) + pathlib.Path("file.h5").read_bytes()[512:])
    os.remove("file.h5")
    keep("safetensors", "network", safetensors(small_cnn(), format="pt", step="7"))
    keep("safetensors", "types", safetensors([("a", "F16", np.ones((2, 3), np.float16)), ("b", "F64", np.ones(2)),
                                              ("c", "BF16", np.ones(3, np.uint16)), ("d", "U8", np.ones(0, np.uint8)),
                                              ("e.f", "F32", np.ones((), np.float32))]))
    keep("safetensors", "empty", safetensors([], more="\u00e9"))
    images()


main()
