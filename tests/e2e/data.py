"""Images of any size and number of classes come through the same code."""

import os

import h5py
import numpy as np

import common

TRAIN = ["--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 8, "--warmup-epochs", 0, "--epochs", 1,
         "--attack-steps", 1, "--eval-every", 0, "--eval-attack-steps", 1]


def images(seed, count, size, classes):
    """Random images [count, size, size, 3] and labels in which each class occurs."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, size, size, 3), np.uint8)
    return pixels, generator.permutation(np.arange(count) % classes)


def write_records(path, pixels, labels, label_bytes=1):
    """The official binary format: label bytes, of which the last counts, then the planes of the image."""
    with open(path, "wb") as file:
        for image, label in zip(pixels, labels):
            file.write(bytes([7] * (label_bytes - 1) + [int(label)]) + image.transpose(2, 0, 1).tobytes())


class Records(common.TestCase):
    def convert(self, *options):
        ended = common.run("data", "convert", "folder", "set.h5", *options)
        self.assertEqual(ended.code, 0, ended.text)
        ended = common.run("data", "inspect", "set.h5")
        self.assertEqual(ended.code, 0, ended.text)
        return ended.text

    def assert_holds(self, split, pixels, labels):
        with h5py.File("set.h5") as file:
            np.testing.assert_array_equal(file[f"{split}/images"], pixels)
            np.testing.assert_array_equal(file[f"{split}/labels"], labels)

    def test_of_cifar10(self):
        os.mkdir("folder")
        parts = [images(seed, 20, 32, 10) for seed in range(5)]
        for number, (pixels, labels) in enumerate(parts, 1):
            write_records(f"folder/data_batch_{number}.bin", pixels, labels)
        test = images(9, 30, 32, 10)
        write_records("folder/test_batch.bin", *test)
        names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        with open("folder/batches.meta.txt", "w") as file:
            file.write("\n".join(names) + "\n\n")
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
        write_records("folder/data_batch_1.bin", *train)
        write_records("folder/test_batch.bin", *test)
        self.assertRegex(self.convert("--size", 12, "--classes", 3), "train +33 images of 12 x 12 x 3, 3 classes")
        self.assert_holds("train", *train)
        self.assert_holds("test", *test)
        self.train("run", *TRAIN, "--data", "set.h5", ranks=2)
        self.assertEqual(common.state("run")["param/linear.weight"].shape[0], 3)
        self.refuse(3, "label", "data", "convert", "folder", "other.h5", "--size", 12, "--classes", 2)
        self.assertFalse(os.path.exists("other.h5"))

    def test_of_hundred_classes_with_two_label_bytes(self):
        os.mkdir("folder")
        train, test = images(1, 200, 32, 100), images(2, 100, 32, 100)
        write_records("folder/train.bin", *train, label_bytes=2)
        write_records("folder/test.bin", *test, label_bytes=2)
        text = self.convert("--label-bytes", 2, "--classes", 100)
        self.assertRegex(text, "test +100 images of 32 x 32 x 3, 100 classes")
        self.assert_holds("train", *train)
        self.train("run", *TRAIN, "--data", "set.h5", "--limit-train", 16, "--limit-test", 10)
        self.assertEqual(common.state("run")["param/linear.weight"].shape[0], 100)


def write_own(path, train, test, **how):
    with h5py.File(path, "w") as file:
        for split, (pixels, labels) in {"train": train, "test": test}.items():
            file.create_dataset(f"{split}/images", data=pixels, **how)
            file[f"{split}/labels"] = labels


class Own(common.TestCase):
    def weights(self, run, *data, ranks=1):
        self.train(run, *TRAIN, "--data", *data, ranks=ranks)
        return common.weights(run)

    def test_layout_and_label_type_do_not_matter(self):
        train, test = images(1, 40, 16, 4), images(2, 8, 16, 4)
        write_own("plain.h5", train, test)
        write_own("packed.h5", train, test, chunks=(5, 16, 16, 3), compression="gzip")
        write_own("wide.h5", (train[0], train[1].astype(">i8")), (test[0], test[1].astype("u2")))
        reference = self.weights("a", "plain.h5", ranks=2)
        np.testing.assert_array_equal(self.weights("b", "packed.h5", ranks=2), reference)
        np.testing.assert_array_equal(self.weights("c", "wide.h5", ranks=2), reference)

    def test_several_files_are_one_pool(self):
        train, test = images(1, 40, 16, 4), images(2, 9, 16, 4)
        write_own("whole.h5", train, test)
        cuts = [0, 10, 11, 40]
        for number, (begin, end) in enumerate(zip(cuts, cuts[1:])):
            write_own(f"part{number}.h5", (train[0][begin:end], train[1][begin:end]),
                      (test[0][3 * number:3 * number + 3], test[1][3 * number:3 * number + 3]))
        np.testing.assert_array_equal(self.weights("a", "whole.h5"),
                                      self.weights("b", "part0.h5", "part1.h5", "part2.h5"))
        self.assertEqual(common.rows("a", "evaluation")[-1]["adv_loss"], common.rows("b", "evaluation")[-1]["adv_loss"])

    def test_limits_take_the_first_images(self):
        train, test = images(1, 40, 16, 4), images(2, 9, 16, 4)
        # The last image of a class that the limit leaves out keeps the number of classes.
        train[1][:24] %= 3
        write_own("whole.h5", train, test)
        self.train("limited", *TRAIN, "--data", "whole.h5", "--limit-train", 24, "--limit-test", 5)
        self.assertEqual(sum(row["images"] for row in common.rows("limited", "step")), 24)
        self.assertEqual(common.rows("limited", "evaluation")[-1]["images"], 5)
        self.assertEqual(common.state("limited")["param/linear.weight"].shape[0], 4)


class BuiltIn(common.TestCase):
    def test_set_is_the_synthetic_one(self):
        common.synthetic("set.h5", train=1024, test=256, size=16, classes=10, seed=5)
        for run, more in ("built-in", []), ("file", ["--data", "set.h5"]):
            self.train(run, *TRAIN, *more, "--seed", 5, "--limit-train", 40, "--limit-test", 20)
        np.testing.assert_array_equal(common.weights("built-in"), common.weights("file"))
        self.assertEqual(common.rows("built-in", "evaluation")[-1]["images"], 20)


if __name__ == "__main__":
    common.main()
