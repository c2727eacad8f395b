"""The file that TensorBoard reads has each number of metrics.jsonl once, whatever became of the run. It is read here by the
formats' descriptions (frames: tensorflow's record_writer.h; messages: tensorboard/compat/proto), and by TensorBoard's own
reader where DAT_PYTHON_PACKAGES or this Python has it."""

import collections
import glob
import io
import os
import struct
import sys
from unittest import mock

import numpy as np
from PIL import Image

import common

sys.path.append(os.environ.get("DAT_PYTHON_PACKAGES", ""))

TRAIN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 2, "--batch", 16,
         "--warmup-epochs", 1, "--epochs", 3, "--eval-every", 1, "--eval", "pgd2,fgsm", "--average", "ema", "--resample", 3,
         "--selector", "oracle:p_min=0.02", "--budget", 5, "--checkpoint-every", 5, "--quiet"]
NAMES = "events.out.tfevents.*[0-9].dat_hpc"
OTHER = "run/events.out.tfevents.1764370abc.dat_hpc"  # another program's


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


assert crc32c(b"123456789") == 0xe3069283  # the check value of CRC-32C


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def frames(path):
    data = common.bytes_of(path)
    at = 0
    while at < len(data):
        (length,), (crc,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        event = data[at + 12:at + 12 + length]
        assert crc == masked(data[at:at + 8]) and struct.unpack_from("<I", data, at + 12 + length)[0] == masked(event)
        yield event
        at += 16 + length


def message(data):
    """Values of each field, by its number."""
    found, at = collections.defaultdict(list), 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (data[at - 1] & 127) << shift
            shift += 7
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found[key >> 3].append(varint())
            continue
        length = {1: 8, 5: 4}.get(key & 7) or varint()
        found[key >> 3].append(data[at:at + length] if key & 7 == 2 else struct.unpack_from("<d" if length == 8 else "<f", data, at)[0])
        at += length
    return found


class Events:
    """What is in a file: scalars, histograms and images by tag and step, each a list."""

    def __init__(self, path):
        self.scalars, self.histograms, self.images = (collections.defaultdict(list) for _ in range(3))
        self.times = collections.defaultdict(list)
        version, start, *rest = map(message, frames(path))
        assert version[3] == [b"brain.Event:2"] and (start[2], message(start[7][0])[1]) == ([0], [1])
        for event in rest:
            (step,), (summary,) = event[2], event[5]
            for value in map(message, message(summary)[1]):
                self.times[value[1][0].decode(), step] += event[1]
                for kind, found in (2, self.scalars), (4, self.images), (5, self.histograms):
                    for content in value[kind]:
                        found[value[1][0].decode(), step].append(content)


def scalars(folder):
    """The numbers of metrics.jsonl as they should stand there."""
    found = {}
    for row in common.rows(folder):
        tag = {"step": "step", "evaluation": "evaluation/{split}/{weights}/{attack}"}.get(row["kind"])
        for name, value in row.items():
            if tag is not None and name != "step" and isinstance(value, (int, float)):
                place = f"{tag}/{name}".format(**row), row["step"]
                assert place not in found
                found[place] = np.float32(value)
    return found


class TensorBoard(common.TestCase):
    set_h5 = dict(train=96, test=21, size=16, classes=4, seed=7)

    def events(self):
        (path,) = glob.glob("run/" + NAMES)
        return path, Events(path)

    def check_numbers(self):
        path, found = self.events()
        expected = scalars("run")
        self.assertEqual({place: [value] for place, value in expected.items()},
                         {place: [np.float32(value) for value in values] for place, values in found.scalars.items()})
        return path, found, expected

    def check_probabilities(self, histograms):
        p = {("step/p", row["step"]): np.array(row["p"], np.float32).astype(float) for row in common.rows("run", "step") if min(row["p"]) < 1}
        self.assertEqual(len(p), 18)  # all but the warm-up
        self.assertEqual(p.keys(), histograms.keys())
        for place, (encoded,) in histograms.items():
            one = message(encoded)
            limits, counts = (np.frombuffer(one[k][0]) for k in (6, 7))
            below = [np.count_nonzero(p[place] <= limit) for limit in limits]
            np.testing.assert_array_equal(counts, np.diff([0, *below]))
            self.assertTrue(counts[0] > 0 and counts[-1] > 0 and counts.sum() == p[place].size)
            self.assertTrue(limits[0] < p[place].min() + 1 / 20 and limits[-1] < p[place].max() + 1 / 20)  # equal parts of [0, 1]
            np.testing.assert_allclose([one[k][0] for k in range(1, 6)],
                                       [p[place].min(), p[place].max(), p[place].size, p[place].sum(), (p[place]**2).sum()], rtol=1e-6)

    def check_pictures(self, images):
        clean = common.datasets("set.h5")["test/images"][:8].transpose(1, 0, 2, 3).reshape(16, 8 * 16, 3).astype(int)
        for place, (encoded,) in images.items():
            one = message(encoded)
            self.assertEqual((one[1], one[2], one[3]), ([32], [128], [3]))
            pixels = np.asarray(Image.open(io.BytesIO(one[4][0]))).astype(int)
            np.testing.assert_array_equal(pixels[:16], clean)
            moved = np.abs(pixels[16:] - clean)
            self.assertTrue(0 < moved.max() <= 8, (place, moved.max()))

    def check_by_its_own_reader(self, expected, pictures):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            return
        reader = EventAccumulator("run", size_guidance={"scalars": 0, "histograms": 0, "images": 0}).Reload()
        found = [(tag, one.step, np.float32(one.value)) for tag in reader.Tags()["scalars"] for one in reader.Scalars(tag)]
        self.assertEqual(sorted(found), sorted((*place, value) for place, value in expected.items()))
        self.assertEqual(len(reader.Histograms("step/p")), 18)
        self.assertEqual(sum(len(reader.Images(tag)) for tag in reader.Tags()["images"]), pictures)

    def test_each_number_once_after_a_kill_and_restarts(self):
        # Killed before the event of step 14 is written: after the beginning, a write for each step and evaluation.
        with mock.patch.dict(os.environ, common.faults("tfevents:write", 0, 1 + 14 + 8, 1)):
            self.assertEqual(common.run("train", "--out", "run", *TRAIN, "--tensorboard").code, -9)
        before, _ = self.events()
        self.assertEqual(common.steps_written("run"), 14)
        length = struct.pack("<Q", 2**62)  # of a frame that is not there
        common.write(before, length + struct.pack("<I", masked(length)), "ab")
        os.rename(before, "run/events.out.tfevents.9999999999.dat_hpc")  # by a clock of another time
        common.write(OTHER, "")
        self.train("run", *TRAIN, "--max-steps", 20)  # a run that has the file goes on with it, without pictures
        newest, _ = self.events()
        picture = next(one for one in frames(newest) if b"/attacked" in one).replace(b"\x10\x06", b"\x10\x0c", 1)  # of step 12
        length = struct.pack("<Q", len(picture))
        common.write(newest, length + struct.pack("<I", masked(length)) + picture + b"bits", "ab")  # with a wrong sum
        self.train("run", *TRAIN, "--tensorboard")
        path, found, expected = self.check_numbers()
        self.assertEqual(int(path.split(".")[3]), 9999999999 + 2)  # a file of each start
        self.assertTrue(os.path.exists(OTHER))
        for tag, step in found.images:  # as the evaluation's numbers, whenever the run went on
            self.assertEqual(found.times[tag, step], found.times[tag.replace("attacked", "adv_acc"), step])
        self.assertEqual(max(step for _, step in expected), 24)
        self.check_probabilities(found.histograms)
        pictured = {(f"evaluation/{row['split']}/{row['weights']}/{row['attack']}/attacked", row["step"])
                    for row in common.rows("run", "evaluation") if row["step"] in (6, 24)}
        self.assertEqual((len(pictured), pictured), (8, found.images.keys()))
        self.check_pictures(found.images)
        self.check_by_its_own_reader(expected, 8)

    def test_each_number_once_after_a_rollback(self):
        self.expect(7, common.run("train", "--out", "run", *TRAIN, "--tensorboard", "--awp-gamma", "0,1e30@2", "--on-bad-steps",
                                  "rollback:times=1"))
        self.assertEqual([row["to_step"] for row in common.rows("run", "setback") if row["event"] == "rollback"], [10])
        _, found, expected = self.check_numbers()
        self.assertEqual({step for _, step in expected}, set(range(1, 13)))
        self.assertEqual({step for _, step in found.images}, {6, 12})


if __name__ == "__main__":
    common.main()
