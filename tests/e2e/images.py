"""Images of any shape, in folders and in tars: indexes, packed tars and data files of them.

DAT_IMAGES in the environment: a tar of many images, such as Tiny ImageNet's, for what is done at night.
"""

import collections
import errno
import functools
import glob
import io
import os
import random
import shutil
import signal
import tarfile
import time
import unittest
from unittest import mock

import h5py
import numpy as np
from PIL import Image

import common

CLASSES = ["ant", "bee", "cow"]
RECORD = np.dtype([("offset", "<i8"), ("hash", "<u8"), ("name_end", "<i8"), ("container", "<i4"), ("bytes", "<i4"),
                   ("height", "<u2"), ("width", "<u2"), ("label", "<i2"), ("unused", "<i2")])


def picture(seed, mode="RGB", size=(40, 30)):
    """Slopes, edges and some noise."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[: size[1], : size[0]]
    slopes = [(x * (3 + c + seed) + y * (5 - c) + 80 * (x > y)) % 256 for c in range(len(Image.new(mode, (1, 1)).getbands()))]
    pixels = (np.stack(slopes, -1) + generator.integers(0, 9, (size[1], size[0], 1))).clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode)


def encoded(image, form="JPEG", **how):
    out = io.BytesIO()
    image.save(out, form, **how)
    return out.getvalue()


@functools.cache
def odd_files():
    """What ImageNet has beside its usual files: class and name -> bytes."""
    orientation = Image.Exif()
    orientation[0x0112] = 6
    return {"ant/wide.JPEG": encoded(picture(1, size=(500, 33))),
            "ant/high.jpg": encoded(picture(2, size=(33, 500)), progressive=True),
            "bee/cmyk.JPEG": encoded(picture(3, "CMYK")),
            "bee/grey.jpeg": encoded(picture(4, "L")),
            "cow/png.JPEG": encoded(picture(5), "PNG"),
            "cow/turned.jpg": encoded(picture(6, size=(50, 30)), exif=orientation),
            "cow/palette.png": encoded(picture(7).convert("P"), "PNG"),
            "ant/large.jpg": encoded(picture(8).resize((2592, 3888)), subsampling=2)}


@functools.cache
def files_of_source(count=60):
    files = {f"train/{name}": content for name, content in odd_files().items()}
    for k in range(count):
        split = "val" if k % 6 == 0 else "train"
        files[f"{split}/{CLASSES[k % 3]}/{k}.jpg"] = encoded(picture(10 + k, size=(30 + k, 45)), quality=95)
    return files


def put(folder, files):
    for name, content in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        common.write(f"{folder}/{name}", content)


def put_tar(path, files, form=tarfile.GNU_FORMAT):
    common.tar(path, *files.items(), format=form)


def records(path):
    """Of each split of an index: hash, label and shape of the images, in any order."""
    arrays = common.datasets(path)
    return {split: sorted((int(one["hash"]), int(one["label"]), int(one["height"]), int(one["width"]))
                          for one in arrays[f"{split}/records"].view(RECORD)[:, 0])
            for split in ("train", "test") if f"{split}/records" in arrays}


def order(path):
    """Hashes of the training images of an index, as they stand there."""
    return common.datasets(path)["train/records"].view(RECORD)[:, 0]["hash"].tolist()


def packed(folder):
    """Of each split (bytes, label) of all images, as Python's tarfile reads them."""
    found = {"train": [], "test": []}
    for path in sorted(glob.glob(f"{folder}/*.tar")):
        with tarfile.open(path) as archive:
            content = {entry.name: archive.extractfile(entry).read() for entry in archive}
        for name in content:
            if not name.endswith(".cls"):
                assert name.endswith(".png" if content[name].startswith(b"\x89PNG") else ".jpg"), name
                found[os.path.basename(path).split("-")[0]].append((content[name], int(content[name.split(".")[0] + ".cls"])))
    return {split: sorted(images) for split, images in found.items()}


class Images(common.TestCase):
    def index(self, *arguments):
        """What a call says that must succeed."""
        return self.run_well("data", "index", *arguments).text

    def folders_equal(self, one, other):
        self.assertEqual(sorted(os.listdir(one)), sorted(os.listdir(other)))
        for name in os.listdir(one):
            self.assertEqual(common.bytes_of(f"{one}/{name}"), common.bytes_of(f"{other}/{name}"), name)

    def test_folders_and_tars_have_the_same_images(self):
        files = files_of_source()
        put("folder", files)
        put("folder", {"readme": b"no image"})
        self.assertEqual(self.index("folder", "one.h5", "--threads", 1),
                         "wrote one.h5: 58 train and 10 test images of 3 classes; 1 file is no image\n")
        self.index("folder", "two.h5", "--threads", 2)
        self.assertEqual(common.bytes_of("one.h5"), common.bytes_of("two.h5"))
        wanted = records("one.h5")
        put_tar("pax.tar", files, tarfile.PAX_FORMAT)
        self.index("pax.tar", "pax.h5")
        self.assertEqual(records("pax.h5"), wanted)
        self.assertEqual(order("pax.h5"), order("one.h5"))
        for faults, code in ({}, 0), ({}, 0), (common.faults("own.h5:write", 0, 1, 1), 3):  # over an earlier call's index, too
            put("folder", {".own.h5.tmp-1": b""})  # a killed one's
            with mock.patch.dict(os.environ, faults):
                self.expect(code, common.run("data", "index", "folder", "folder/own.h5"))
            self.assertEqual(glob.glob("folder/.own*"), [])
        for source, output in ("folder", "folder/readme"), ("pax.tar", "pax.tar"):
            self.refuse(2, "would be written over .*; give the result another name", "data", "index", source, output)

    def test_a_data_file_has_what_pillow_makes_of_them(self):
        files = files_of_source(12)
        put("folder", files)
        self.index("folder", "one.h5", "--size", 24, "--threads", 1)
        self.assertIn("24 x 24 pixels", self.index("folder", "two.h5", "--size", 24, "--threads", 2))
        self.assertEqual(common.bytes_of("one.h5"), common.bytes_of("two.h5"))
        with h5py.File("one.h5") as file:
            images, labels = file["train/images"][()], file["train/labels"][()]
        for name, image, label in zip(sorted(name for name in files if name.startswith("train")), images, labels):
            self.assertEqual(label, CLASSES.index(name.split("/")[1]))
            whole = Image.open(io.BytesIO(files[name])).convert("RGB")
            shorter, least = 24 * 256 // 224, min(whole.size)
            width, height = (shorter * side // least for side in whole.size)
            left, top = round((width - 24) / 2), round((height - 24) / 2)
            seen = whole.resize((width, height), Image.BILINEAR).crop((left, top, left + 24, top + 24))
            self.assertLessEqual(np.abs(np.asarray(seen).astype(int) - image).max(), 1, name)

    def test_a_pack_that_is_killed_or_finds_the_disk_full_goes_on(self):
        noise = np.random.default_rng(1).integers(0, 256, (24, 200, 300, 3), np.uint8)
        files = files_of_source() | {f"train/bee/noise{k}.png": encoded(Image.fromarray(one), quality=95)
                                     for k, one in enumerate(noise)}
        put("folder", files)
        arguments = "--pack", "--shard-size", 1
        self.assertRegex(self.index("folder", "a", *arguments, "--threads", 1),
                         "^wrote a: 82 train and 10 test images of 3 classes in 4 tars\n$")
        wanted = {split: sorted((content, CLASSES.index(name.split("/")[1])) for name, content in files.items()
                                if name.startswith(folder)) for split, folder in (("train", "train"), ("test", "val"))}
        self.assertEqual(packed("a"), wanted)
        for name, kept, number, code in ("full", 1, errno.ENOSPC, 9), ("killed", 2, 0, 3):
            with mock.patch.dict(os.environ, common.faults(f"{name}/.train-00000{kept}.tar:write", number, 1, 1)):
                ended = common.run("data", "index", "folder", name, *arguments)
            self.assertEqual(ended.code, code, ended.text)
            self.assertEqual(sorted(set(os.listdir(name)) & set(os.listdir("a"))), [f"train-00000{k}.tar" for k in range(kept)])
            if number:
                self.assertEqual(ended.errors, ["dat_hpc: error: cannot write full/train-000001.tar: disk full"])
            self.assertIn(f", {kept} of which {'was' if kept == 1 else 'were'} there", self.index("folder", name, *arguments, "--threads", 2))
            self.folders_equal("a", name)
        self.assertIn(" in 4 tars, 4 of which were there\n", self.index("folder", "a", *arguments))
        self.index("a", "a.h5")
        self.index("folder", "folder.h5")
        self.assertEqual(records("a.h5"), records("folder.h5"))

    def test_damaged_images_are_listed(self):
        files = files_of_source(12)
        put("folder", files)
        whole = files["train/ant/3.jpg"]
        at = whole.index(b"\xff\xc0") + 5
        bomb = whole[:at] + bytes([0x40, 0, 0x40, 0]) + whole[at + 4:]
        damaged = {"train/ant/cut.jpg": whole[:-200], "train/ant/codes.jpg": whole[:700] + bytes(200) + whole[900:],
                   "train/bee/empty.png": b"", "val/bee/bomb.jpg": bomb,
                   "val/bee/side.png": encoded(Image.new("L", (16385, 1)), "PNG"),
                   "train/cow/crc.png": encoded(picture(5), "PNG")[:-40] + bytes(40)}
        put("folder", damaged)
        self.refuse(3, r"folder: 6 damaged images, listed in out\.h5\.damaged\.txt; --on-damage skip leaves them out; the "
                    r"first one is folder/train/ant/c", "data", "index", "folder", "out.h5")
        lines = common.bytes_of("out.h5.damaged.txt").decode().splitlines()
        self.assertEqual(sorted(line.split(": ")[0] for line in lines), sorted(f"folder/{name}" for name in damaged))
        self.assertFalse(os.path.exists("out.h5"))
        self.assertIn("; 6 damaged images are left out, listed in out.h5.damaged.txt",
                      self.index("folder", "out.h5", "--on-damage", "skip"))
        self.assertEqual(sum(map(len, records("out.h5").values())), len(files))
        # A hard link, which tar makes of a second name of a file.
        link = tarfile.TarInfo("bee/3.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "bee/2.jpg"
        common.tar("links.tar", ("ant/1.jpg", whole), ("bee/2.jpg", whole), (link, b""))
        self.refuse(3, r"links\.tar: 1 damaged image, .*links\.tar: bee/3\.jpg: is no file, but a link", "data", "index",
                    "links.tar", "out.h5")
        sparse = tarfile.TarInfo("bee/3.jpg")
        sparse.pax_headers = {"GNU.sparse.map": "0,1"}
        common.tar("sparse.tar", ("ant/1.jpg", whole), (sparse, whole), format=tarfile.PAX_FORMAT)
        self.refuse(3, r"sparse\.tar: bee/3\.jpg is a sparse file", "data", "index", "sparse.tar", "out.h5")

    @common.at_night
    def test_a_thousand_damaged_images(self):
        """Each is listed or left as it is; of those that are cut off, none is taken."""
        whole = [content for name, content in files_of_source().items() if "large" not in name]
        generator = random.Random(1)
        files = {}
        for k in range(1000):
            content = bytearray(generator.choice(whole))
            if k % 2:
                files[f"{CLASSES[k % 3]}/{k}-cut.jpg"] = content[: generator.randrange(len(content) - 60)]
                continue
            for _ in range(generator.randrange(1, 20)):
                content[generator.randrange(len(content))] = generator.randrange(256)
            files[f"{CLASSES[k % 3]}/{k}-changed.jpg"] = content
        put("folder", files)
        text = self.index("folder", "out.h5", "--on-damage", "skip")
        listed = {line.split(": ")[0] for line in common.bytes_of("out.h5.damaged.txt").decode().splitlines()}
        self.assertGreaterEqual(listed, {f"folder/{name}" for name in files if "cut" in name})
        self.assertEqual(len(records("out.h5")["train"]), 1000 - len(listed), text)
        print(f"  {len(listed)} of 1000 damaged images are refused", flush=True)

    @common.at_night
    @unittest.skipUnless("DAT_IMAGES" in os.environ, "DAT_IMAGES names no tar of images")
    def test_many_images_killed_at_any_moment(self):
        source = os.environ["DAT_IMAGES"]
        begin = time.monotonic()
        print(" ", self.index(source, "index.h5", "--threads", 1).strip(), f"{time.monotonic() - begin:.1f} s", flush=True)
        begin = time.monotonic()
        self.index(source, "pack", "--pack", "--shard-size", 5, "--threads", 1)
        seconds = time.monotonic() - begin
        seed = int(time.time())
        print(f"  seed {seed}", flush=True)
        generator = random.Random(seed)
        for kind, arguments in ("index", ["again.h5"]), ("pack", ["again", "--pack", "--shard-size", 5]):
            for k in range(5):
                running = common.Running(["data", "index", source, *arguments, "--threads", 1 + k % 2], 0)
                time.sleep(generator.uniform(0.05, 0.9 if kind == "index" else 0.5) * seconds)
                common.kill(running.process.pid, signal.SIGKILL)
                running.wait()
                if kind == "pack":
                    print(f"  {len(glob.glob('again/*.tar'))} tars at the kill", flush=True)
            print(" ", self.index(source, *arguments, "--threads", 2).strip(), flush=True)
        self.assertEqual(common.bytes_of("index.h5"), common.bytes_of("again.h5"))
        self.folders_equal("pack", "again")
        with tarfile.open(source) as archive:
            wanted = collections.Counter(archive.extractfile(entry).read() for entry in archive
                                         if entry.isfile() and entry.name.endswith(("JPEG", "jpg", "png")))
        found = packed("pack")
        self.assertEqual(collections.Counter(content for images in found.values() for content, _ in images), wanted)
        self.index("pack", "pack.h5")
        self.assertEqual(records("pack.h5"), records("index.h5"))
        shutil.rmtree("pack")


if __name__ == "__main__":
    common.main()
