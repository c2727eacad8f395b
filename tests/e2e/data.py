"""Images of any size and number of classes come through the same code."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

import h5py
import numpy as np
from PIL import Image

import common
import extra_set

TRAIN = ["--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 8, "--warmup-epochs", 0, "--epochs", 1,
         "--attack-steps", 1, "--eval-every", 0, "--eval", "pgd1"]


def images(seed, count, size, classes):
    """Random images [count, size, size, 3] and labels in which each class occurs."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, size, size, 3), np.uint8)
    return pixels, generator.permutation(np.arange(count) % classes)


class Terminal(common.TestCase):
    def test_does_not_obey_a_file(self):
        common.synthetic("set.h5", train=8, test=8, size=8, classes=2)
        for name, value in ("source", "\x1b]0;not theirs\x07\x9b1m\nFinal: VALID"), ("filetype", "\x1b[31m\x9b"):
            with h5py.File("set.h5") as ours, h5py.File("theirs.h5", "w") as theirs:  # which has no seal
                for group in ours:
                    ours.copy(group, theirs)
                for attribute, of in (dict(ours.attrs) | {name: value}).items():
                    theirs.attrs[attribute] = of
            ended = common.run("data", "inspect", "theirs.h5")
            self.assertEqual(ended.code, 0 if name == "source" else 3, ended.text)
            said = re.sub("[\x07\x1b\x9b]", "?", value).replace("\n", " ")  # U+009B is "\x1b[", too
            self.assertIn(said, ended.text)
            self.assertNotRegex(ended.text, "[\x1b\x9b]")


class Records(common.TestCase):
    def convert(self, *options):
        self.run_well("data", "convert", "folder", "set.h5", *options)
        return self.run_well("data", "inspect", "set.h5").text

    def assert_holds(self, split, pixels, labels):
        with h5py.File("set.h5") as file:
            np.testing.assert_array_equal(file[f"{split}/images"], pixels)
            np.testing.assert_array_equal(file[f"{split}/labels"], labels)

    def test_of_cifar10(self):
        os.mkdir("folder")
        parts = [images(seed, 20, 32, 10) for seed in range(5)]
        for number, (pixels, labels) in enumerate(parts, 1):
            common.write_records(f"folder/data_batch_{number}.bin", pixels, labels)
        test = images(9, 30, 32, 10)
        common.write_records("folder/test_batch.bin", *test)
        names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        common.write("folder/batches.meta.txt", "\n".join(names) + "\n\n")
        text = self.convert()
        self.assertRegex(text, "train +100 images of 32 x 32 x 3, 10 classes, sha256 [0-9a-f]{64} \\(as recorded\\)")
        self.assertRegex(text, "9 +10 +3  truck")
        self.assert_holds("train", np.concatenate([p for p, _ in parts]), np.concatenate([l for _, l in parts]))
        self.assert_holds("test", *test)
        self.train("run", *TRAIN, "--data", "set.h5", "--max-steps", 2, ranks=2)
        self.assertEqual(common.rows("run", "evaluation")[-1]["images"], 30)

    def test_of_three_classes_and_twelve_pixels(self):
        os.mkdir("folder")
        train, test = images(1, 33, 12, 3), images(2, 7, 12, 3)
        common.write_records("folder/data_batch_1.bin", *train, label_bytes=2)
        common.write_records("folder/test_batch.bin", *test, label_bytes=2)
        options = "--size", 12, "--label-bytes", 2, "--classes"
        self.assertRegex(self.convert(*options, 3), "train +33 images of 12 x 12 x 3, 3 classes")
        self.assert_holds("train", *train)
        self.assert_holds("test", *test)
        self.train("run", *TRAIN, "--data", "set.h5", ranks=2)
        self.assertEqual(common.state("run")["param/linear.weight"].shape[0], 3)
        self.refuse(3, "label", "data", "convert", "folder", "other.h5", *options, 2)
        self.assertFalse(os.path.exists("other.h5"))


class Own(common.TestCase):
    def test_limits_take_the_first_images(self):
        train, test = images(1, 40, 16, 4), images(2, 9, 16, 4)
        # The last image of a class that the limit leaves out keeps the number of classes.
        train[1][:24] %= 3
        common.write_data("whole.h5", train, test)
        limited = self.train("limited", *TRAIN, "--data", "whole.h5", "--limit-train", 24, "--limit-test", 5)
        self.assertRegex(limited.final, " PARTIAL$")
        self.assertEqual(sum(row["images"] for row in common.rows("limited", "step")), 24)
        self.assertEqual(common.rows("limited", "evaluation")[-1]["images"], 5)
        self.assertEqual(common.state("limited")["param/linear.weight"].shape[0], 4)
        self.assert_named_images_are_evaluated("limited", train, test)

    def assert_named_images_are_evaluated(self, run, train, test):
        """As a file of these images alone."""
        def evaluated(out, *options):
            ended = self.run_well("eval", run, "--threads", 1, "--eval", "pgd2", "--out", out, *options)
            return ended.text, common.load(out)

        for name, text in ("some.txt", "7\n2\n\n4\n"), ("others.txt", "3\n4\n5\n"), ("none.txt", "2\n9\n"):
            common.write(name, text)
        common.write_data("some.h5", train, tuple(array[[2, 4, 7]] for array in test))
        (text, named), (_, alone) = evaluated("a.json", "--images", "some.txt"), evaluated("b.json", "--data", "some.h5")
        self.assertIn("3 test images of 9, named in some.txt", text)
        self.assertEqual((named["images"], named["split_images"], named["list"], named["verdict"]), (3, 9, "some.txt", "PARTIAL"))
        self.assertEqual(named["per_image"], alone["per_image"])
        self.assert_images_of_an_index_are_evaluated(evaluated, train, test)
        text = common.run("certify", run, "--threads", 1, "--sigma", 0.25, "--n", 10, "--every", 1, "--images", "some.txt", "--out", "certified").text
        self.assertIn("3 test images of 9, named in some.txt", text)
        self.assertEqual(common.load("certified/certify.json")["settings"]["list"], "some.txt")
        sequence = ["eval", run, "--threads", 1, "--quiet", "--eval", "none+fgsm", "--out", "sequence", "--images"]
        self.assertEqual(common.run(*sequence, "some.txt").code, 0)
        self.refuse(2, "another evaluation: hash of the images", *sequence, "others.txt")
        self.refuse(3, "none.txt: 1 of its 2 names are not among the images: 9 .line 2.$", *sequence, "none.txt")

    def assert_images_of_an_index_are_evaluated(self, evaluated, train, test):
        for split, (pixels, labels) in ("train", train), ("val", test):
            for i, (image, label) in enumerate(zip(pixels, labels)):
                os.makedirs(f"images/{split}/class {label}", exist_ok=True)
                Image.fromarray(image).save(f"images/{split}/class {label}/{i}.png")
        self.assertEqual(common.run("data", "index", "images", "index.h5").code, 0)
        chosen = sorted([2, 4, 7], key=lambda i: (test[1][i], i))  # as their paths
        common.write("paths.txt", "".join(f"val/class {test[1][i]}/{i}.png\n" for i in (7, 2, 4)))
        common.write_data("sorted.h5", train, tuple(array[chosen] for array in test))
        named, alone = (evaluated("c.json", *options)[1] for options in (("--data", "index.h5", "--images", "paths.txt"), ("--data", "sorted.h5")))
        self.assertEqual(named["per_image"], alone["per_image"])
        with tarfile.open("images.tar", "w") as file:
            file.add("images")
        self.assertNotIn("no image", self.run_well("data", "index", "images.tar", "tar.h5").text)  # as a folder is no file
        text = common.run("data", "inspect", "tar.h5").text
        self.assertRegex(text, "(?s)source +images in ., in 1 tar: images.tar\n.*test +9 images of 16 x 16 x 3, 4 classes; an image is checked")


class Page(common.TestCase):
    def draw(self, *options):
        self.assertEqual(common.run("data", "inspect", *options, "--page", "page.png").code, 0)
        with Image.open("page.png") as page:
            return np.asarray(page)

    def test_of_images_of_any_size_and_channels(self):
        for size, channels, cells, side in (12, 1, 70, 96), (96, 2, 9, 96), (300, 4, 3, 128):
            pixels = np.random.default_rng(1).integers(0, 256, (cells, size, size, channels), np.uint8)
            common.write_data("set.h5", (pixels, np.arange(cells) % 2), (pixels, np.arange(cells) % 2))
            page, cells = self.draw("set.h5"), min(cells, 64)
            rows, columns = (cells + 7) // 8, min(cells, 8)
            self.assertEqual(page.shape, (rows * (side + 16) + 4, columns * (side + 4) + 4, 3))
            if size < 300:  # the first image, each pixel as a square
                shown = {1: pixels[0][..., [0, 0, 0]], 2: np.concatenate([pixels[0], np.zeros_like(pixels[0][..., :1])], 2)}[channels]
                shown = shown.repeat(side // size, 0).repeat(side // size, 1)
                np.testing.assert_array_equal(page[4 : 4 + side, 4 : 4 + side], shown)
            self.assertLess(page[4 + side : 16 + side, 4 : 4 + side].min(), 1)  # "class 0"
        self.refuse(2, "--page draws images of one data file", "data", "inspect", "set.h5", "set.h5", "--page", "page.png")
        self.refuse(2, "--page set.h5: a page is a .png file", "data", "inspect", "set.h5", "--page", "set.h5")
        self.refuse(9, "no/page.png", "data", "inspect", "set.h5", "--page", "no/page.png")
        for label in range(2):
            os.makedirs(f"images/train/{label}")
            Image.new("RGB", (8, 8)).save(f"images/train/{label}/1.png")
        self.assertEqual(common.run("data", "index", "images", "index.h5").code, 0)
        common.write("text.png", "not a picture")
        shutil.copy("index.h5", "index.png")
        for path, why in ("text.png", "is no PNG"), ("index.png", "is no PNG"), ("images/train/1/1.png", "in the folder of the images"):
            before = common.bytes_of(path)
            ended = self.expect(2, common.run("data", "inspect", "index.png", "--page", path))
            self.assertRegex(ended.text, f"(?s)train +2 images of 8 x 8 x 3.*{path}: is there already.*{why}")
            self.assertEqual(common.bytes_of(path), before)
        for _ in range(2):
            self.draw("index.h5")


class ManyClasses(common.TestCase):
    """As many classes as ImageNet-21k has, through all that knows their names or counts them."""

    def go_through(self, classes):
        common.synthetic("set.h5", train=24, test=8, size=8, classes=classes)
        with h5py.File("set.h5", "r+") as file:
            del file["test/labels"]
            file["test/labels"] = classes - 1 - np.arange(8)
            names = file["class_names"][:].tobytes().decode().splitlines()
        self.assertEqual(len(names), classes)
        common.seal("set.h5")
        ranks = 2 if common.ALL_CASES else 0
        first = self.train("run", *TRAIN, "--data", "set.h5", "--epochs", 1, ranks=ranks)
        self.assertRegex(first.text, f"warning: 8 classes have test images and no training image: .*, \\.\\.\\.\n")
        self.assertRegex(first.text, f"warning: {classes - 32} classes have no image at all: .*, \\.\\.\\.\n")
        self.assertLess(len(first.text), 20000)
        self.train("run", *TRAIN, "--data", "set.h5", "--epochs", 2, ranks=ranks)  # goes on
        self.assertEqual(common.state("run")["param/linear.weight"].shape[0], classes)
        for arguments in (["export", "run", "--out", "run.safetensors"], ["import", "run.safetensors", "--out", "again.h5"],
                          ["eval", "--checkpoint", "run", "--threads", 1, "--eval", "pgd1", "--out", "eval"],
                          ["eval", "--checkpoint", "again.h5", "--data", "set.h5", "--threads", 1, "--eval", "pgd1",
                           "--out", "other"],
                          *common.ALL_CASES * [["plot", "eval"], ["export", "run", "--out", "run.onnx"]]):
            ended = self.run_well(*arguments)
            self.assertLess(len(ended.text), 20000)
        for folder in "eval", "other":
            found = common.load(f"{folder}/eval.json")
            self.assertEqual([one["name"] for one in found["classes"]], names)
            self.assertEqual(found["per_image"]["label"], list(range(classes - 1, classes - 9, -1)))
            self.assertEqual([one["images"] for one in found["classes"]], (classes - 8) * [0] + 8 * [1])
            if folder == "eval":
                loss = found["clean"]["loss"]
        self.assertEqual(found["clean"]["loss"], loss)

    def test_21841(self):
        self.go_through(21841)

    @common.at_night
    def test_1000_and_the_most(self):
        for classes in 1000, 32767:
            with self.subTest(classes):
                shutil.rmtree("run", ignore_errors=True)
                self.go_through(classes)


class Grey(common.TestCase):
    """Images of one channel, 28 x 28."""

    def test_are_converted_trained_on_and_evaluated(self):
        train, test = images(1, 40, 28, 4), images(2, 20, 28, 4)
        packed = (train[0][..., :1], train[1]), (test[0][..., :1], test[1])
        common.write_data("packed.h5", *packed, compression="gzip", chunks=(3, 5, 7, 1))
        self.assertEqual(common.run("data", "convert", "packed.h5", "set.h5").code, 0)
        for split, arrays in zip(("train", "test"), packed):
            for name, array in zip(("images", "labels"), arrays):
                np.testing.assert_array_equal(common.datasets("set.h5")[f"{split}/{name}"], array)
        self.assertRegex(common.run("data", "inspect", "set.h5").text, "train +40 images of 28 x 28 x 1, 4 classes")
        for ranks, network in (1, ["small_cnn"]), (2, ["wrn_16_4", "--activation", "silu", "--normalize", "0.4,0.3"]):
            with self.subTest(network):
                self.train(network[0], "--network", *network, *TRAIN[2:], "--data", "set.h5", ranks=ranks)
                last = common.rows(network[0], "evaluation")[-1]
                ended = common.run("eval", "--checkpoint", network[0], "--threads", 1, "--eval", "pgd1")
                found = [float(word) for word in re.findall(r"(?:accuracy|loss) (\d\S+)", ended.text)]
                # Shown with 4 digits; accuracies are counts of 20.
                for name, value in zip(("clean_acc", "clean_loss", "adv_acc", "adv_loss"), found, strict=True):
                    self.assertAlmostEqual(last[name], value, delta=1.5e-4, msg=name)

    def test_are_not_normalized_by_three_numbers(self):
        common.write_data("set.h5", *((pixels[..., :1], labels) for pixels, labels in (images(1, 40, 28, 4), images(2, 20, 28, 4))))
        self.refuse(2, "--normalize has 3 means, and the images have 1 channel", "train", "--out", "run", *TRAIN, "--data",
                    "set.h5", "--normalize", "cifar10")


class Arrays(common.TestCase):
    """Sets of extra images as Python users have them, element by element."""

    def convert(self, source, images, labels, *options):
        self.run_well("data", "convert", source, "out.h5", *options)
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(file["train/images"], images)
            np.testing.assert_array_equal(file["train/labels"], labels)
            self.assertEqual(file["train/images"].dtype, np.uint8)
            self.assertEqual(list(file), ["train"])
            self.assertNotIn("class_names", file.attrs)
        self.assertRegex(common.run("data", "inspect", "out.h5").text, "\\(as recorded\\)")

    def test_pickles(self):
        pixels, labels = extra_set.images(3000, 32)  # more than a block
        for protocol in range(2, 6):
            with self.subTest(protocol):
                extra_set.write_pickle("set.pickle", extra_set.carmon(pixels, labels), protocol)
                self.convert("set.pickle", pixels, labels)
        extra_set.write_python2("set.pickle", extra_set.carmon(pixels[:50], labels[:50]))
        self.convert("set.pickle", pixels[:50], labels[:50], "--classes", 10)

    def test_types_and_layouts(self):
        pixels, labels = extra_set.images(40, 12)
        turned = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        for kind in "<i8", ">i8", "<i4", ">i2", "|i1", "|u1", "<u4", ">u8":
            with self.subTest(kind):
                extra_set.write_pickle("set.pickle", {"data": turned, "labels": labels.astype(kind)}, 2 + len(kind) % 4)
                self.convert("set.pickle", pixels, labels)
                np.savez_compressed("set.npz", image=pixels, label=labels.astype(kind))
                self.convert("set.npz", pixels, labels)
        np.save("images.npy", pixels)
        np.save("labels.npy", labels)
        self.convert("images.npy", pixels, labels, "--labels", "labels.npy")

    def test_refusals(self):
        pixels, labels = extra_set.images(40, 12)

        class Call:
            def __reduce__(self):
                return os.mkdir, ("pwned",)

        def refuse(pattern, value, *options):
            extra_set.write_pickle("set.pickle", value, 4)
            self.refuse(3, pattern, "data", "convert", "set.pickle", "out.h5", *options)
            self.assertFalse(os.path.exists("out.h5"))

        refuse(r"byte \d+: wants posix.mkdir, which is no part of an array", {"data": pixels, "labels": Call()})
        self.assertFalse(os.path.exists("pwned"))
        refuse("has both label and labels", {"data": pixels, "label": labels, "labels": labels})
        refuse("Fortran's order", {"data": np.asfortranarray(pixels), "label": labels})
        refuse("label -2 of image 3 is not in 0..32766, nor -1", {"data": pixels, "label": np.where(np.arange(40) == 3, -2, labels)})
        refuse("label 7 of image 2 is not in 0..6", {"data": pixels, "label": labels}, "--classes", 7)
        refuse("has images of 12 x 12, not of 32", {"data": pixels, "label": labels}, "--size", 32)
        common.write_arrays("odd.h5", {"odd": np.zeros(2, [("a", "i4")])})
        self.refuse(3, "odd is neither numbers nor strings \\[2\\]", "data", "convert", "odd.h5", "out.h5")
        common.write("set.txt", "text")
        self.refuse(3, "neither a folder of binary records nor a pickle", "data", "convert", "set.txt", "out.h5")
        self.refuse(3, "no such folder or file", "data", "convert", "none", "out.h5")
        self.assertEqual([name for name in os.listdir() if "out.h5" in name], [])


class Balanced(common.TestCase):
    """--mix balanced: the labelled file's share in each batch."""

    def setUp(self):
        super().setUp()
        train, test = images(1, 24, 16, 4), images(2, 9, 16, 4)
        common.write_data("labelled.h5", train, test)
        extra = images(3, 50, 16, 4)
        np.savez("extra.npz", image=extra[0], label=extra[1])
        self.assertEqual(common.run("data", "convert", "extra.npz", "extra.h5").code, 0)

    def options(self, *more):
        return common.merged(*TRAIN, "--data", "labelled.h5", "extra.h5", "--mix", "balanced:0.5", *more)

    def test_an_epoch_is_one_pass_over_the_labelled_set(self):
        ended = self.train("run", *self.options("--epochs", 2))
        self.assertIn("4 of 8 images from the 24 labelled ones, the others from 50 extra ones, 24 in an epoch: once in 2 "
                      "epochs", ended.text)
        steps = common.rows("run", "step")
        self.assertEqual([row["images"] for row in steps], [8] * 12)
        self.assertEqual([row["epoch"] for row in steps], [0] * 6 + [1] * 6)
        self.assertEqual(common.rows("run", "evaluation")[-1]["images"], 9)
        plan = common.run("validate", *self.options("--holdout", 4, "--limit-train", 20))
        self.assertRegex(plan.text, "mix +4 of 8 images from the 16 labelled ones")
        self.assertIn("66 training and 9 test images", plan.text)

    def test_two_ranks_share_an_epoch(self):
        self.train("two", *self.options("--attack", "none"), ranks=2)
        self.assertEqual([row["images"] for row in common.rows("two", "step")], [16] * 3)

    def test_a_restart_in_the_middle_of_an_epoch_gives_the_bits_of_an_unbroken_run(self):
        more = ["--epochs", 3, "--warm-start", 2]
        self.train("straight", *self.options(*more), ranks=2)
        for steps in 2, 5:
            self.train("broken", *self.options(*more, "--max-steps", steps), ranks=2)
        self.train("broken", *self.options(*more), ranks=2)
        self.assert_same(common.state("broken"), common.state("straight"))

    def test_refusals(self):
        def refuse(code, pattern, *options):
            self.refuse(code, pattern, "validate", *self.options(*options))

        refuse(2, "--mix is pool or balanced:SHARE", "--mix", "balanced")
        refuse(2, "--mix is pool or balanced:SHARE", "--mix", "balanced:1")
        refuse(2, "a micro-batch of 2 images cannot hold the share 0.25", "--mix", "balanced:0.25", "--micro-batch", 2)
        refuse(2, "needs --data with the labelled file and at least one more", "--data", "labelled.h5")
        refuse(2, "leaves nothing of 24 labelled training images", "--holdout", 24)
        shutil.copy("extra.h5", "more.h5")
        refuse(3, "has training images and no test images", "--data", "extra.h5", "more.h5")
        common.write_data("large.h5", images(1, 8, 20, 4), images(1, 8, 20, 4))
        refuse(3, "large.h5: has images of 20 x 20", "--data", "labelled.h5", "large.h5")
        common.write_data("named-labelled.h5", **common.read_data("labelled.h5"), names=list("abcd"))
        common.write_data("named-more.h5", **common.read_data("more.h5", "train"), names=list("abce"))
        refuse(3, "has other class names than", "--data", "named-labelled.h5", "named-more.h5")


class StandIn(common.TestCase):
    """CIFAR10-Ext, but for its images: data/stand_in.py makes a labelled set and a pickle as Carmon et al. have it."""

    ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    MIX = ["--data", "set/labelled.h5", "extra.h5", "--mix", "balanced:0.5"]

    def make(self, folder, *options):
        ended = subprocess.run([sys.executable, f"{self.ROOT}/data/stand_in.py", common.PROGRAM, folder, "--labelled", "60",
                                "--extra", "400", "--test", "20", *options], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout, common.bytes_of(f"{folder}/ti_500K_pseudo_labeled.pickle")

    def convert(self):
        self.run_well("data", "convert", "set/ti_500K_pseudo_labeled.pickle", "extra.h5")
        with h5py.File("extra.h5") as file:
            return file["train/images"][()], file["train/labels"][()]

    def test_a_tenth_of_the_labels_is_wrong_and_half_of_a_batch_is_extra(self):
        text, pickled = self.make("set")
        self.assertIn("400 extra images, 40 of them without the right label", text)
        self.assertEqual(self.make("again"), (text, pickled))
        self.assertNotEqual(self.make("other", "--seed", "2")[1], pickled)
        pixels, labels = self.convert()
        right = np.arange(400) % 10  # of the synthetic set
        self.assertEqual(pixels.shape, (400, 32, 32, 3))
        self.assertEqual(np.count_nonzero(labels != right), 40)
        self.assertEqual((labels.min(), labels.max()), (0, 9))
        own = {image.tobytes() for image in common.datasets("set/labelled.h5")["train/images"]}
        self.assertFalse(own & {image.tobytes() for image in pixels})
        ended = self.train("run", *TRAIN, *self.MIX, ranks=2)
        self.assertIn("4 of 8 images from the 60 labelled ones, the others from 400 extra ones", ended.text)
        # 60 labelled images, 8 in a step.
        self.assertEqual([row["images"] for row in common.rows("run", "step")], 7 * [16] + [8])

    def test_images_without_labels_have_the_divergence_alone(self):
        text, _ = self.make("set", "--unlabelled")
        self.assertIn("400 of them without the right label", text)
        self.assertEqual(set(self.convert()[1]), {-1})
        self.assertRegex(common.run("data", "inspect", "extra.h5").text, " -1 +400  unknown")
        for loss, extra in ("trades", []), ("cross_entropy", ["--lambda", 1]), ("kl", ["--label-smoothing", 0.1]):
            with self.subTest(loss):
                self.train(loss, *TRAIN, *self.MIX, "--loss", loss, *extra, ranks=2)
                for row in common.rows(loss, "step"):
                    self.assertTrue(0 <= row["acc_adv"] <= 1 and row["loss_adv"] > 0 and row["loss_clean"] > 0)
                    # Over the images with labels: 8 of 16.
                    self.assertAlmostEqual(8 * row["acc_clean"] % 1, 0)
        black = np.zeros((8, 8, 8, 3), np.uint8)
        common.write_data("unknown.h5", (black, np.full(8, -1)), (black, np.arange(8) % 2))
        common.write_data("unfit.h5", (black, np.arange(8) % 2), (black[:, :6, :6], np.arange(8) % 2))
        self.refuse(3, "the test images do not fit the training images", "validate", *TRAIN, "--data", "unfit.h5")
        refuse = lambda pattern, *options: self.refuse(2, pattern, "validate", *TRAIN, *self.MIX, *options)
        refuse("some training images have no labels .* --loss mart does not take", "--loss", "mart")
        refuse("--loss cross_entropy --lambda 0 does not take", "--lambda", 0)
        refuse("wants --attack-bn eval and no --attack-stop", "--attack-stop", 0)
        refuse("wants --attack-bn eval and no --attack-stop", "--attack", "fgsm", "--lambda", 1)
        refuse("--attack apgd-ce climbs a loss of labels", "--attack", "apgd-ce", "--lambda", 1)
        self.refuse(2, "no training image has a label .* --data LABELLED.h5 EXTRA.h5", "validate", *TRAIN, "--data", "unknown.h5", "--loss", "trades")
        self.refuse(2, "--holdout draws from", "validate", *TRAIN, "--data", *self.MIX[1:3], "--loss", "trades", "--holdout", 50)


class Inputs(common.TestCase):
    """What goes in stays as it is, is known again, and comes out under its names."""

    SHORT = [*TRAIN, "--attack", "fgsm", "--max-steps", 2]
    EVAL = ["--threads", 1, "--eval", "fgsm"]

    def write(self, path, seed=1, names=(), **splits):
        """A data file of 8 x 8 pixels without a seal."""
        splits = {"train": [0, 1] * 4, "test": [0, 1] * 4} | splits
        common.write_data(path, names=names, **{split: (images(seed + (split == "test"), len(labels), 8, 2)[0], np.array(labels))
                                                for split, labels in splits.items() if labels is not None})

    def test_names_of_classes_go_all_the_way_round(self):
        given = ["a\nb", "cat\r", "\ttab ", 'com,ma "quoted" \\', "café", "", "100 % cat", "x" * 1000, "\x1b[31m", "class 9"]
        kept = ["a b", "cat", "tab", 'com,ma "quoted" \\', "café", "class 5", "100 % cat", "x" * 200, "[31m", "class 9"]
        self.write("set.h5", train=list(range(10)), test=list(range(10)), names=given)
        with h5py.File("set.h5", "a") as file:
            file.attrs["class_names"] = [b"\xff" + name.encode() if name == "class 9" else name.encode() for name in given]
        kept[9] = "?class 9"
        self.train("run", *self.SHORT, "--data", "set.h5")
        self.run_well("export", "run", "--out", "out.safetensors")
        self.run_well("import", "out.safetensors", "--out", "back.h5")
        of = {}
        for network in "run", "back.h5":
            self.run_well("eval", network, "--data", "set.h5", *self.EVAL, "--out", f"{network}.json")
            of[network] = common.load(f"{network}.json")
            self.assertEqual([row["name"] for row in of[network]["classes"]], kept)
        self.assertEqual(of["run"]["weights_hash"], of["back.h5"]["weights_hash"])
        self.run_well("plot", "run.json")
        self.run_well("export", "back.h5", "--out", "again.safetensors")
        with open("out.safetensors", "rb") as one, open("again.safetensors", "rb") as other:
            length = int.from_bytes(one.read(8), "little")
            names = json.loads(one.read(length))["__metadata__"]["class_names"]
            length = int.from_bytes(other.read(8), "little")
            self.assertEqual(json.loads(other.read(length))["__metadata__"]["class_names"], names)
        self.assertEqual(names.split("\n")[:-1], kept)

    def test_an_output_is_no_input(self):
        os.mkdir("d")
        self.write("d/results.h5")
        os.symlink("results.h5", "d/link.h5")
        os.makedirs("grid/seed=2")
        for name in "d/hard.h5", "grid/seed=2/results.h5":
            os.link("d/results.h5", name)
        self.train("run", *self.SHORT, "--data", "d/results.h5")
        self.run_well("export", "run", "--out", "n.safetensors")
        os.mkdir("board")
        self.run_well("eval", "run", *self.EVAL, "--out", "board/model_info.json")
        checkpoint = common.checkpoints("run")[-1]
        for path, text in (("given.json", "threads = 1\n"), ("board/forecast.json", "{}"), ("board/provenance.json", "threads = 1\n"),
                           ("names.json", "0\n1\n")):
            common.write(path, text)

        def contents():
            kept = "d/results.h5", "n.safetensors", "board/model_info.json", "board/provenance.json", "board/forecast.json", "given.json", "names.json"
            return {path: open(path, "rb").read() for path in (*kept, checkpoint)}

        before = contents()
        for arguments in (["import", "n.safetensors", "--out", "n.safetensors"], ["import", "run", "--out", checkpoint],
                          ["export", checkpoint, "--format", "safetensors", "--out", checkpoint],
                          ["export", "run", "--format", "safetensors", "--out", checkpoint],
                          ["export", "run", "--format", "robustbench", "--evaluation", "board/model_info.json", "--out", "board"],
                          ["data", "convert", "d/results.h5", "d/results.h5"], ["data", "convert", "d/link.h5", "d/hard.h5"],
                          ["eval", "run", *self.EVAL, "--data", "d/results.h5", "--out", "d"], ["eval", "run", *self.EVAL, "--out", "d"],
                          ["certify", "run", "--sigma", 0.25, "--n", 10, "--limit", 1, "--out", "d"],
                          ["train", *self.SHORT, "--data", "d/hard.h5", "--out", "d"],
                          ["train", *self.SHORT, "--data", "d/hard.h5", "--out", "grid", "--sweep", "seed=1,2"],
                          ["train", *self.SHORT, "--config", "board/provenance.json", "--out", "board"],
                          ["eval", "run", *self.EVAL, "--config", "given.json", "--out", "given.json"],
                          ["eval", "run", *self.EVAL, "--images", "names.json", "--out", "names.json"],
                          ["forecast", "--calibration", "board/forecast.json", "--out", "board"]):
            with self.subTest(arguments):
                self.refuse(2, "would be written over .*; give the result another name", *arguments)
        self.assertEqual(contents(), before)
        self.assertEqual(sorted(os.listdir("d")), ["hard.h5", "link.h5", "results.h5"])
        # What only lies beside the inputs may be written again.
        os.mkdir("m")
        shutil.copy(checkpoint, "m")
        self.run_well("export", "m", "--format", "robustbench", "--out", "m")
        os.mkdir("records")
        for name in "train.bin", "test.bin":
            common.write_records(f"records/{name}", *images(1, 4, 8, 2))
        self.refuse(2, "would be written over", "data", "convert", "records", "records/train.bin", "--size", 8)
        for _ in range(2):
            self.run_well("data", "convert", "records", "records/set.h5", "--size", 8)
            self.run_well("eval", "run", *self.EVAL, "--out", "board")

    def test_other_images_are_noticed(self):
        self.write("set.h5", 1)
        go = ["train", *self.SHORT[:-2], "--out", "run", "--data"]
        self.run_well(*go, "set.h5", "--max-steps", 1)
        shutil.copy("set.h5", "moved.h5")
        self.run_well(*go, "moved.h5", "--max-steps", 2, "--epochs", 2)
        self.assertEqual(sorted(common.load("run/provenance.json")["hashes_of_images"]), ["test", "train"])
        with h5py.File("set.h5", "a") as file:
            file["test/images"][7, 7, 7, 2] ^= 1
        more = ["--max-steps", 3, "--epochs", 3]
        self.refuse(2, "run was made with other images: --data has other test images now", *go, "set.h5", *more)
        self.refuse(2, "--data has other test images now", *go, "set.h5", *more, "--limit-test", 4)
        self.write("set.h5", 3)
        self.refuse(2, "--data has other test images, other training images now", *go, "set.h5", *more)
        text = self.run_well("train", *self.SHORT[:-2], *more, "--out", "other", "--resume", "run", "--data", "set.h5").text
        self.assertIn("with other options: other test images, other training images", text)
        self.run_well(*go, "moved.h5", *more, "--limit-test", 4)
        self.refuse(2, "--data has one file twice", "validate", *TRAIN, "--data", "moved.h5", "moved.h5")

    def test_what_is_strange_is_said(self):
        self.write("one.h5", train=[1, 2, 1, 2], test=[1, 2], names=())
        text = self.train("run", *self.SHORT, "--data", "one.h5").text
        self.assertIn("warning: class 0 (class 0) has no image: labels count from 0", text)
        self.assertIn("warning          class 0 (class 0) has no image", self.run_well("validate", *self.SHORT, "--data", "one.h5").text)
        self.write("many.h5", train=[1, 1, 0, 0], test=[1, 1, 0])
        for limits in ["--limit-train", 2], ["--limit-test", 2, "--limit-train", 3], ["--limit-test", 1]:
            self.assertNotRegex(self.run_well("validate", *self.SHORT, "--batch", 2, "--data", "many.h5", *limits).text, "one class|has no image")
        common.write_arrays("bools.h5", {"images": images(1, 4, 8, 2)[0], "labels": np.array([True, False] * 2)})
        self.refuse(3, r"labels is neither numbers nor strings \[4\], but labels must be integers", "data", "convert", "bools.h5", "no.h5")
        np.savez("one.npz", X=images(1, 4, 8, 2)[0], y=[1, 1, 1, 1])
        self.assertIn("all training images are of one class, class 1", self.run_well("data", "convert", "one.npz", "new.h5").text)
        np.savez("words.npz", X=images(1, 4, 8, 2)[0], y=["cat", "dog", "cat", "cat"])
        self.refuse(3, r"y is strings \[4\], but labels must be integers", "data", "convert", "words.npz", "no.h5")
        self.write("only.h5", train=[0, 1, 2, 1], test=None)
        self.refuse(3, "no test images .* --split train", "eval", "run", *self.EVAL, "--data", "only.h5")
        self.run_well("eval", "run", *self.EVAL, "--data", "only.h5", "--split", "train")
        self.refuse(3, "give the folder of a run", "plot", "only.h5")
        self.run_well("export", "run", "--out", "n.safetensors")
        shutil.copy("n.safetensors", "n m.safetensors")
        self.refuse(4, "'dat_hpc import \"n m.safetensors\" --out NEW.h5' makes one", "export", "n m.safetensors", "--out", "no.onnx")
        for verb in (["export", "--out", "no.onnx"], ["eval", "--data", "one.h5"]):
            self.refuse(4, "'dat_hpc import n.safetensors --out NEW.h5' makes one", verb[0], "n.safetensors", *verb[1:])


class BuiltIn(common.TestCase):
    def test_set_is_the_synthetic_one(self):
        common.synthetic("set.h5", train=1024, test=256, size=16, classes=10, seed=5)
        for run, more in ("built-in", []), ("file", ["--data", "set.h5"]):
            ended = self.train(run, *TRAIN, *more, "--seed", 5, "--limit-train", 40, "--limit-test", 20)
            self.assertEqual(" (built-in synthetic set; --data trains on yours)" in ended.text, not more)
        np.testing.assert_array_equal(common.weights("built-in"), common.weights("file"))
        self.assertEqual(common.rows("built-in", "evaluation")[-1]["images"], 20)


if __name__ == "__main__":
    common.main()
