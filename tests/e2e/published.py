"""Sets in the forms in which they are published become data files with the same images and labels."""

import bz2
import errno
import filecmp
import gzip
import io
import os
import pickle
import shutil
import struct
import tarfile
import unittest
import zipfile
import zlib
from unittest import mock

import h5py
import numpy as np

import common
import extra_set
from common import tar

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def images(seed, count, shape, classes):
    """Random images [count, *shape] and labels in which each class occurs."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, *shape), np.uint8), generator.permutation(np.arange(count) % classes)


class CPickler(extra_set.Python2Pickler):
    """Writes what cPickle of Python 2.7 writes: memos count from 1, and types of arrays have numbers for truth values."""

    dispatch_table = {type(np.dtype("u1")): lambda kind: (np.dtype, ("u1", 0, 1), (3, "|", None, None, None, -1, -1, 0))}

    def memoize(self, value):
        number = len(self.memo) + 1
        self.write(self.put(number))
        self.memo[id(value)] = number, value


def python2(items):
    made = io.BytesIO()
    CPickler(made, 2).dump(items)
    loaded = pickle.loads(made.getvalue(), encoding="bytes")  # it is a pickle
    assert list(loaded) == [key.encode() for key in items]
    return made.getvalue()


def python3(protocol):
    """Of what Python 3 has loaded with encoding="bytes", that is with bytes for keys and names."""
    def as_bytes(value):
        if isinstance(value, list):
            return [as_bytes(item) for item in value]
        return value.encode() if isinstance(value, str) else value

    return lambda items: pickle.dumps({key.encode(): as_bytes(value) for key, value in items.items()}, protocol)


def python3_text(items):
    return pickle.dumps(items, 2)


FORMS = {"python2": python2, "bytes2": python3(2), "bytes4": python3(4), "text": python3_text}


def write_cifar10(folder, parts, test, form=python2):
    os.makedirs(folder)
    for name, (pixels, labels) in {**{f"data_batch_{i}": part for i, part in enumerate(parts, 1)}, "test_batch": test}.items():
        common.write(f"{folder}/{name}", form({"batch_label": f"{name} of 5", "labels": [int(label) for label in labels],
                                               "data": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).reshape(len(pixels), -1),
                                               "filenames": [f"{i}_s_000001.png" for i in range(len(pixels))]}))
    common.write(f"{folder}/batches.meta", form({"num_cases_per_batch": 10000, "label_names": NAMES, "num_vis": 3072}))
    common.write(f"{folder}/readme.html", "<meta>")


def idx(array):
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype("u1").tobytes()


def write_mnist(folder, train, test, names="{}-idx{}-ubyte", wrap=lambda data: data):
    os.makedirs(folder)
    for stem, (pixels, labels) in ("train", train), ("t10k", test):
        for kind, dims, array in ("images", 3, pixels), ("labels", 1, labels):
            common.write(f"{folder}/" + names.format(f"{stem}-{kind}", dims), wrap(idx(array)))


def element(kind, data):
    """Of a MATLAB file of version 5."""
    if len(data) <= 4:
        return struct.pack("<HH", kind, len(data)) + data.ljust(4, b"\0")
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def variable(name, array, kind=9, stored=2, packed=True):
    matrix = (element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{array.ndim}i", *array.shape)) +
              element(1, name.encode()) + element(stored, array.tobytes("F")))
    matrix = struct.pack("<II", 14, len(matrix)) + matrix
    if not packed:
        return matrix
    data = zlib.compress(matrix)
    return struct.pack("<II", 15, len(data)) + data


def mat(*variables):
    return b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(124, b" ") + b"\0\x01IM" + b"".join(variables)


def svhn(pixels, labels, **how):
    """As Stanford's files: X [32, 32, 3, n] and y [n, 1], a double of which each fits a byte; 10 is the digit 0."""
    return mat(variable("X", pixels.transpose(1, 2, 3, 0), **how),
               variable("y", np.where(labels == 0, 10, labels).astype("u1")[:, None], kind=6, **how))


class Converts(common.TestCase):
    def convert(self, source, train, test, *options, names=None):
        ended = self.run_well("data", "convert", source, "set.h5", *options)
        with h5py.File("set.h5") as file:
            for split, (pixels, labels) in ("train", train), ("test", test):
                np.testing.assert_array_equal(file[f"{split}/images"], pixels.reshape(file[f"{split}/images"].shape))
                np.testing.assert_array_equal(file[f"{split}/labels"], labels.ravel())
                self.assertEqual(file[f"{split}/images"].ndim, 4)
            self.assertEqual(list(file.attrs["class_names"]) if "class_names" in file.attrs else None, names)
        self.assertRegex(common.run("data", "inspect", "set.h5").text, "(?s)train .*\\(as recorded\\).*test .*\\(as recorded\\)")
        return ended.text

    def refuse_convert(self, code, pattern, source, *options):
        self.refuse(code, pattern, "data", "convert", source, "out.h5", *options)
        self.assertEqual([name for name in os.listdir() if "out.h5" in name], [])


class Published(Converts):
    def test_cifar10_of_python(self):
        parts, test = [images(i, 300, (32, 32, 3), 10) for i in range(5)], images(9, 200, (32, 32, 3), 10)
        train = tuple(np.concatenate(arrays) for arrays in zip(*parts))
        for name, form in FORMS.items():
            with self.subTest(name):
                write_cifar10(name, parts, test, form)
                text = self.convert(name, train, test, names=NAMES)
                self.assertIn("wrote set.h5: 1500 train images of 32 x 32 x 3, 200 test images of 32 x 32 x 3", text)

    def test_mnist(self):
        train, test = images(1, 300, (28, 28), 10), images(2, 100, (28, 28), 10)
        write_mnist("plain", train, test)
        write_mnist("packed", train, test, "{}.idx{}-ubyte.gz", gzip.compress)
        self.convert("packed", train, test)
        self.convert("plain", train, test)
        self.assertRegex(common.run("data", "inspect", "set.h5").text, "images of 28 x 28 x 1, 10 classes")
        self.train("run", "--network", "small_cnn", "--width", 8, "--threads", 1, "--batch", 50, "--epochs", 1,
                   "--warmup-epochs", 0, "--attack-steps", 1, "--eval", "pgd1", "--data", "set.h5", ranks=2)
        self.assertEqual(common.rows("run", "evaluation")[-1]["images"], 100)
        os.makedirs("root/MNIST")
        shutil.move("plain", "root/MNIST/raw")
        self.refuse_convert(3, "one below has: 'dat_hpc data convert root/MNIST/raw data.h5'", "root")
        self.convert("root/MNIST/raw", train, test)

    def test_mnist_that_is_damaged(self):
        train, test = images(1, 30, (28, 28), 10), images(2, 10, (28, 28), 10)
        write_mnist("bad", train, test, "{}-idx{}-ubyte.gz", gzip.compress)
        pixels = gzip.compress(idx(train[0]))
        for data, pattern in (pixels[:5000], "is cut off"), (pixels[:-6] + bytes(6), "is damaged"):
            common.write("bad/train-images-idx3-ubyte.gz", data)
            self.refuse_convert(3, pattern, "bad")
        # Sixty million images of one pixel, packed a thousandfold.
        many = np.zeros((60_000_000, 1, 1), np.uint8)
        for name, array in ("images-idx3", many), ("labels-idx1", many[:, 0, 0]):
            common.write(f"bad/train-{name}-ubyte.gz", gzip.compress(idx(array), 1))
        self.refuse_convert(3, "wants more memory than it may have", "bad")

    def test_arrays_of_training_and_test_images(self):
        for shape, save in ((28, 28), np.savez), ((32, 32, 3), np.savez_compressed):
            train, val, test = (images(i, count, shape, 5) for i, count in enumerate((300, 40, 100)))
            save("keras.npz", x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
            self.convert("keras.npz", train, test)
            save("medical.npz", **{f"{name}_{what}": array for name, (pixels, labels) in (("train", train), ("val", val), ("test", test))
                                   for what, array in (("images", pixels), ("labels", labels[:, None].astype("u1")))})
            self.convert("medical.npz", tuple(np.concatenate(pair) for pair in zip(train, val)), test, "--val", "train")

    def test_svhn(self):
        train, test = images(1, 300, (32, 32, 3), 10), images(2, 100, (32, 32, 3), 10)
        os.mkdir("svhn")
        for packed in True, False:
            for split, arrays in ("train", train), ("test", test), ("extra", train):
                common.write(f"svhn/{split}_32x32.mat", svhn(*arrays, packed=packed))
            self.convert("svhn", train, test, names=[str(digit) for digit in range(10)])
        ended = common.run("data", "convert", "svhn/extra_32x32.mat", "extra.h5")
        self.assertIn("wrote extra.h5: 300 train images of 32 x 32 x 3; MATLAB files extra_32x32.mat", ended.text)
        common.write("row.mat", mat(variable("X", train[0].transpose(1, 2, 3, 0)), variable("y", np.where(train[1] == 0, 10, train[1]).astype("u1")[None])))
        self.run_well("data", "convert", "row.mat", "row.h5")
        np.testing.assert_array_equal(common.datasets("row.h5")["train/labels"], train[1])

        def refuse(pattern, data):
            with self.subTest(pattern):
                common.write("bad.mat", data)
                self.refuse_convert(3, pattern, "bad.mat")

        refuse("y is uint8 \\[3\\], but there must be one label for each of the 300", mat(
            variable("X", train[0].transpose(1, 2, 3, 0)), variable("y", np.ones((3, 1), "u1"))))
        refuse("label 1[0-9]+ of image 0 is not in 0..9", svhn(train[0], train[1] + 11))
        refuse("y is float64", mat(variable("X", train[0].transpose(1, 2, 3, 0)),
                                   variable("y", np.ones((300, 1)), kind=6, stored=9)))
        for shape in (2, 150), (3, 3, 3):
            refuse("y is uint8 .*, but must be uint8 \\[1, n\\]", mat(variable("y", np.ones(shape, "u1"))))
        refuse("X is uint8 \\[300, 32, 32, 3\\], but must be uint8 \\[n, channels, size, size\\]", mat(
            variable("X", train[0].transpose(3, 2, 1, 0)), variable("y", np.ones((300, 1), "u1"))))
        os.remove("svhn/test_32x32.mat")
        self.refuse_convert(3, "svhn: test_32x32.mat is missing", "svhn")

    def test_data_that_are_no_data_files(self):
        write_cifar10("cifar-10-batches-py", [images(i, 3, (32, 32, 3), 3) for i in range(5)], images(9, 3, (32, 32, 3), 3))
        with tarfile.open("cifar-10-python.tar.gz", "w:gz") as file:
            file.add("cifar-10-batches-py")
        for ranks, verb in (0, "validate"), (2, "train"):
            for path in "cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1":
                out = os.path.basename(path).removesuffix(".gz").removesuffix(".tar") + ".h5"
                self.refuse(3, f"'dat_hpc data convert {path} {out}' makes one$", verb, "--data", path, ranks=ranks)
        self.refuse(3, "separated by spaces: --data a.h5 b.h5$", "validate", "--data", "a.h5,b.h5")


class Archives(Converts):
    """As they were downloaded."""

    def convert(self, *arguments, **how):
        text = super().convert(*arguments, **how)
        self.assertEqual([name for name in os.listdir() if name.startswith(".")], [])
        return text

    def test_hold_sets_in_all_forms(self):
        parts, test = [images(i, 3, (32, 32, 3), 3) for i in range(5)], images(9, 3, (32, 32, 3), 3)
        train = tuple(np.concatenate(arrays) for arrays in zip(*parts))
        write_cifar10("cifar-10-batches-py", parts, test)
        for form in "gz", "bz2", "xz", "":
            with tarfile.open(f"cifar.tar.{form}", f"w:{form}") as file:
                file.add("cifar-10-batches-py")
        with zipfile.ZipFile("cifar.zip", "w", zipfile.ZIP_DEFLATED) as file:
            for name in os.listdir("cifar-10-batches-py"):
                file.write(f"cifar-10-batches-py/{name}", f"./all of it/cifar-10-batches-py/{name}")
        self.convert("cifar-10-batches-py", train, test, names=NAMES)
        os.rename("set.h5", "folder.h5")
        for name in "cifar.tar.gz", "cifar.tar.bz2", "cifar.tar.xz", "cifar.tar.", "cifar.zip":
            os.makedirs(".set.h5.tmp-killed/folder", exist_ok=True)  # as a run that was killed leaves it
            self.assertIn("15 train images", self.convert(name, train, test, names=NAMES))
            self.assertTrue(filecmp.cmp("set.h5", "folder.h5", False), name)

    def test_of_stl10_and_of_one_file(self):
        stl10 = images(3, 4, (96, 96, 3), 4)
        planes, labels = stl10[0].transpose(0, 3, 2, 1).tobytes(), (stl10[1] + 1).astype("u1").tobytes()
        tar("stl10_binary.tar.gz", *((f"stl10_binary/{split}_{kind}.bin", data) for split in ("train", "test")
                                     for kind, data in (("X", planes), ("y", labels))),
            ("stl10_binary/unlabeled_X.bin", bytes(10**7)), mode="w:gz")  # is passed over
        names = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
        self.convert("stl10_binary.tar.gz", stl10, stl10, names=names)
        os.mkdir("stl10")
        common.write("stl10/train_X.bin", planes)
        self.refuse_convert(3, "stl10: train_y.bin is missing", "stl10")
        common.write("extra.pickle.gz", gzip.compress(pickle.dumps({"data": stl10[0], "labels": stl10[1]}, 2)))
        self.assertEqual(common.run("data", "convert", "extra.pickle.gz", "set.h5").code, 0)
        np.testing.assert_array_equal(common.datasets("set.h5")["train/images"], stl10[0])
        inside = gzip.decompress(common.bytes_of("extra.pickle.gz"))
        self.assertEqual(common.run("data", "convert", tar("extra.tar", ("b.tar", b"1"), ("extra.pickle", inside)), "again.h5").code, 0)

    def test_that_are_refused(self):
        def special(name, kind, to=""):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, to
            return member

        refuse, path = self.refuse_convert, "a.tar"
        refuse(3, "a.tar: \\.\\./x leaves the archive's folder", tar(path, ("../x", b"1")))
        refuse(3, "\\.\\./x leaves", tar(path, ("a/../../x", b"1")))
        refuse(3, "/tmp/x leaves the archive's folder", tar(path, ("/tmp/x", b"1")))
        for kind in tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE:
            refuse(3, "a.tar: b is no file but a link .*; unpack the archive and give the folder", tar(path, ("a", b"1"), (special("b", kind, "a"), b"")))
        refuse(3, "lies more than 16 folders deep", tar(path, ("a/" * 16 + "x", b"1")))
        refuse(3, "a.tar: a is in it twice; unpack the archive", tar(path, ("a", b"1"), ("a", b"2")))
        for inner, why in ("b.tar", "holds an archive, b.tar; unpack it"), ("b.tgz", "b.tgz is an archive in an archive; unpack it"):
            tar(inner, ("a", b"1"), mode="w:gz" if inner == "b.tgz" else "w")
            with tarfile.open(path, "w") as file:
                file.add(inner)
            refuse(3, f"a.tar: {why}", path)
        refuse(3, "cannot be made: File name too long", tar(path, ("x" * 300, b"1")))
        refuse(3, "its folder cannot be made", tar(path, ("a", b"1"), ("a/b", b"2")))
        refuse(3, "a.tar: holds none of the forms that are known .data/README.md", tar(path, ("a", b"1"), ("b", b"2")))
        refuse(3, "a.tar: holds none of the forms that are known .*'dat_hpc data index'$", tar(path, ("a.jpg", b"1")))
        refuse(3, "a.tar: has several sets .a, b.; name a file of the one that is meant: unpack the archive for that$",
               tar(path, *((f"{name}-test-labels-idx1-ubyte", b"1") for name in "ab")))
        refuse(3, "a.tar: a: neither a folder .* nor a pickle", tar(path, ("a", b"1")))
        refuse(3, "a.tar: holds 2 files of which each", tar(path, ("a.pkl", pickle.dumps({}, 2)), ("b.pkl", pickle.dumps({}, 2))))
        photos = [(f"train/cat/{i}.JPEG", b"1") for i in range(101)]
        refuse(3, "a.tar: holds images .* 'dat_hpc data index a.tar OUT.h5' makes a data file of it$", tar(path, *photos))
        refuse(3, "'dat_hpc data index FOLDER OUT.h5' makes .* the folder in which", tar("a.tgz", *photos, mode="w:gz"))
        common.write("zeros.bz2", bz2.compress(bytes(range(256)) + bytes(10**7)))  # of a size that it does not say
        refuse(3, "zeros.bz2: zeros makes more than 1000 bytes of each", "zeros.bz2")
        common.write("many.tar.gz", gzip.compress(100_001 * tarfile.TarInfo("unlabeled_X.bin").tobuf(), 1))
        refuse(3, "many.tar.gz: has more than 100000 files", "many.tar.gz")
        huge = tarfile.TarInfo("huge")
        for huge.size, why in (1536000, "cannot be unpacked"), (1536001, "huge makes more than 1000 bytes of each"):
            common.write(path, huge.tobuf() + bytes(1024))
            refuse(3, f"a.tar: {why}", path)
        # A header without a kNames: one file, which is empty.
        header = bytes.fromhex("01 0501 0e0180 0f0180 00 00")
        start = struct.pack("<QQI", 0, len(header), zlib.crc32(header))
        common.write("a.7z", b"7z\xbc\xaf\x27\x1c\0\4" + struct.pack("<I", zlib.crc32(start)) + start + header)
        refuse(3, "a.7z: (has a name that cannot be read|cannot be unpacked)", "a.7z")
        write_cifar10("cifar-10-batches-py", [images(i, 9, (32, 32, 3), 3) for i in range(5)], images(9, 9, (32, 32, 3), 3))
        with tarfile.open("c.tar.gz", "w:gz") as file:
            file.add("cifar-10-batches-py")
        refuse(2, "--label-bytes is for .*, and c.tar.gz: cifar-10-batches-py is a folder of CIFAR's", "c.tar.gz", "--label-bytes", 2)
        data = common.bytes_of("c.tar.gz")
        for part, (why, changed) in enumerate({
                "is cut off": data[: len(data) // 2], "is damaged": data[:-8] + b"1234" + data[-4:],
                "is longer than it says": data + b"more", "cannot be unpacked": gzip.compress(b"")}.items()):
            common.write(f"{part}.tar.gz", changed)
            refuse(3, f"{part}.tar.gz:? {why}", f"{part}.tar.gz")
        data = gzip.decompress(data)
        with open("parts.tar.gz", "wb") as file:  # as some programs pack, with zeros after it
            file.write(gzip.compress(data[:70000]) + gzip.compress(b"") + gzip.compress(data[70000:]) + bytes(70000))
        self.assertEqual(common.run("data", "convert", "parts.tar.gz", "parts.h5").code, 0)
        with tarfile.open("c.tar.gz") as file:
            last = file.getmembers()[-1].offset
        for ending, pack in ("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress):
            common.write(f"cut.tar{ending}", pack(data[:last]))
            refuse(3, f"cut.tar{ending} is cut off", f"cut.tar{ending}")
        with zipfile.ZipFile("c.zip", "w") as file:
            file.write("cifar-10-batches-py/data_batch_1")
        data = bytearray(common.bytes_of("c.zip"))
        data[len(data) // 2] ^= 1
        common.write("d.zip", data)
        refuse(3, "d.zip: cannot be unpacked: .*CRC", "d.zip")
        common.write("e.ZIP", data[:2000])
        refuse(3, "e.ZIP: cannot be unpacked", "e.ZIP")
        data[6] |= 1
        data[data.rindex(b"PK\1\2") + 8] |= 1
        common.write("f.zip", data)
        refuse(3, "f.zip: .*data_batch_1 is encrypted", "f.zip")
        os.remove("cifar-10-batches-py/data_batch_2")
        with tarfile.open("g.tar.gz", "w:gz") as file:
            file.add("cifar-10-batches-py")
        refuse(3, "g.tar.gz: cifar-10-batches-py: data_batch_2 is missing", "g.tar.gz")
        # A full disk, and an end that nobody expects, while files are put on it.
        for number, code, pattern in (errno.ENOSPC, 9, "c.tar.gz: .*data_batch_3: disk full"), (0, 3, "ended by signal 9"):
            with mock.patch.dict(os.environ, common.faults("data_batch_3:write", number)):
                refuse(code, pattern, "c.tar.gz")
        with mock.patch.dict(os.environ, common.faults("out.h5:write", 0)):
            refuse(3, "parts.h5: the process that read it was ended by signal 9", "parts.h5")

    @unittest.skipUnless("DAT_CIFAR10_ARCHIVE" in os.environ, "DAT_CIFAR10_ARCHIVE names no archive of CIFAR-10")
    def test_of_the_real_cifar10(self):
        archive = os.environ["DAT_CIFAR10_ARCHIVE"]
        with tarfile.open(archive) as file:
            file.extractall()
        for source, out in (archive, "a.h5"), (next(name for name in os.listdir() if name.startswith("cifar-10-batches")), "b.h5"):
            self.assertEqual(common.run("data", "convert", source, out).code, 0)
        self.assertTrue(filecmp.cmp("a.h5", "b.h5", False))
        self.assertRegex(common.run("data", "inspect", "a.h5").text, "train +50000 images of 32 x 32 x 3, 10 classes")


if __name__ == "__main__":
    common.main()
