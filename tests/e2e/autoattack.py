"""A sequence of attacks finds the same flags on any number of ranks, in batches of any size, and however often it was killed.

The sequence is made of cheap attacks; DAT_SEQUENCE=aa-standard in the environment takes another one.
"""

import errno
import fcntl
import json
import os
import random
import re
import shutil
import signal
from unittest import mock

import numpy as np

import common
from numpy_network import logits_of, sure_classes

SEQUENCE = os.environ.get("DAT_SEQUENCE", "pgd3x4+fgsm+pgd60x4")
COSTLY = SEQUENCE.startswith("aa-")
IMAGES = 200 if "DAT_SEQUENCE" in os.environ else 96
TRAIN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 16, "--warmup-epochs", 1,
         "--epochs", 3, "--lr", 0.05, "--attack-steps", 2, "--eval-every", 0, "--eval", "fgsm"]
EPS = 6 / 255
NIGHT = common.ALL_CASES or COSTLY
KILLS = 10 if NIGHT else 3


def options(words, **changes):
    """Of `eval`."""
    chosen = {"checkpoint": "run", "threads": 1, "eps": "6/255", "limit": IMAGES, "eval": words, **changes}
    return ["eval", "--quiet", *common.option_words(**chosen)]


def loud(words):
    return [word for word in words if word != "--quiet"]


def told(folder):
    """eval.json without what may differ: times, and where it ran."""
    found = common.load(f"{folder}/eval.json")
    for row in found["sequence"]["attacks"]:
        del row["seconds"]
    return {name: found[name] for name in ("clean", "sequence", "classes", "per_image", "alarms")}


def confidences(images, checkpoint):
    """The largest probability of each image, by NumPy's network."""
    logits = logits_of(images, checkpoint)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return (shares / shares.sum(1, keepdims=True)).max(1)


def lines(folder):
    return common.count_in(f"{folder}/sequence.journal")


class Sequence(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", train=96, test=IMAGES, size=16, classes=4)
        self.train("run", *TRAIN)

    def evaluate(self, folder, *flags, ranks=1, words=SEQUENCE, **changes):
        return self.run_well(*options(words, out=folder, **changes), *flags, ranks=ranks)

    def assert_same_columns(self, folder, images):
        """results.h5 says what eval.json says."""
        found, tables = told(folder), common.datasets(f"{folder}/results.h5")
        rows, each = found["sequence"]["attacks"], found["per_image"]
        names = [row["name"] for row in rows]
        self.assertEqual([name.decode() for name in tables["attack/name"]], names)
        for name in "runs", "images", "broken", "accuracy":
            self.assertEqual(tables[f"attack/{name}"].tolist(), [row[name] for row in rows])
        self.assertEqual(tables["image/label"].tolist(), each["label"])
        self.assertEqual(tables["image/robust"].tolist(), each[f"{SEQUENCE}_correct"])
        self.assertEqual(tables["image/clean_correct"].tolist(), each["clean_correct"])
        for name in "run", "prediction", "distance":
            self.assertEqual(tables[f"image/{name}"].tolist(), each[name])
        self.assertEqual([None if by < 0 else names[by] for by in tables["image/broken_by"]], each["broken_by"])
        # The table's counts are those of the images.
        left = images
        for row in rows:
            self.assertEqual(row["images"], left)
            self.assertEqual(row["broken"], each["broken_by"].count(row["name"]))
            left -= row["broken"]
            self.assertEqual(row["accuracy"], left / images)
        self.assertEqual(sum(each[f"{SEQUENCE}_correct"]), left)
        self.assertEqual(found["sequence"]["accuracy"], left / images)

    def test_ranks_batches_and_kills(self):
        ended = self.evaluate("whole")
        whole = told("whole")
        rows = whole["sequence"]["attacks"]
        # It would say nothing if the first attack broke none, or all.
        self.assertGreater(rows[1]["broken"], 0)
        self.assertGreater(rows[-1]["images"], 0)
        self.assertRegex(ended.final, f"{whole['sequence']['accuracy']:.4f} time_s=.* VALID$")
        self.assert_same_columns("whole", IMAGES)
        for ranks, batch in ((1, 1), (2, 40), (4, 128), (3, 16)) if NIGHT else ((3, 16),):
            self.evaluate(f"on{ranks}", ranks=ranks, batch=batch)
            self.assertEqual(told(f"on{ranks}"), whole)

        drawn = random.Random(common.SEED)
        for kill in range(KILLS):
            ranks, batch = drawn.choice([(1, 16), (2, 16)] + ([] if COSTLY else [(4, 16), (2, 32)]))
            # When it is about to write a line of its journal; those before it stay.
            running = common.Running(options(SEQUENCE, out="killed", batch=batch), ranks,
                                     common.faults("sequence.journal:write", -1, [1, 3, 2, 4][kill % 4], 1))
            victims = list(running.wait_until_stopped().values())
            for pid in drawn.choice([victims, [drawn.choice(victims)], [running.process.pid]]):
                common.kill(pid, signal.SIGKILL)
            running.end()
            self.assertFalse(os.path.exists("killed/eval.json"), "the evaluation had ended before it was killed")
            if kill == 2:  # a write that was cut
                common.write("killed/sequence.journal", '{"stage":1,"seconds":0.1,"images":[0,', "ab")
        self.assertGreater(lines("killed"), 2)
        ended = self.evaluate("killed", "DAT_PROGRESS=0.000001", ranks=2)
        self.assertNotRegex(ended.text, "goes on after|ETA")  # --quiet
        self.assertEqual(told("killed"), whole)
        self.assert_same_columns("killed", IMAGES)
        # A finished one, asked again, computes nothing and says the same.
        before = lines("killed")
        ended = self.run_well(*loud(options(SEQUENCE, out="killed")), ranks=3)
        self.assertIn(f"goes on after {before - 1} groups of images in killed/sequence.journal", ended.text)
        self.assertEqual(lines("killed"), before)
        self.assertEqual(told("killed"), whole)

    def test_images_and_flags_from_outside(self):
        """A network in NumPy finds the clean flags, and misclassifies the images that were saved."""
        self.evaluate("one", "--save-adversarial", ranks=2)
        each = told("one")["per_image"]
        checkpoint = common.checkpoints("run")[-1]
        given = common.datasets("set.h5")
        images, labels = given["test/images"][:IMAGES].astype(np.float32) / np.float32(255), given["test/labels"][:IMAGES]
        self.assertEqual(each["label"], labels.tolist())
        classes, sure = sure_classes(logits_of(images, checkpoint))
        self.assertGreater(sure.sum(), 0.9 * IMAGES)
        np.testing.assert_array_equal((classes == labels)[sure], np.array(each["clean_correct"], bool)[sure])

        tables = common.datasets("one/adversarial.h5")
        attacked, robust = tables["images"], tables["robust"].astype(bool)
        self.assertEqual((attacked.dtype, attacked.shape), (np.float32, images.shape))
        self.assertEqual(tables["label"].tolist(), each["label"])
        self.assertEqual(robust.tolist(), [bool(value) for value in each[f"{SEQUENCE}_correct"]])
        self.assertTrue(attacked.min() >= 0 and attacked.max() <= 1)
        distance = np.abs(attacked.astype(float) - images).reshape(IMAGES, -1).max(1)
        self.assertLessEqual(distance.max(), EPS + 1e-6)
        np.testing.assert_allclose(distance, each["distance"], atol=1e-7)
        broken = np.array(each["run"]) > 0
        np.testing.assert_array_equal(attacked[~broken], images[~broken])
        classes, sure = sure_classes(logits_of(attacked, checkpoint))
        self.assertTrue((classes != labels)[broken & sure].all())
        np.testing.assert_array_equal(classes[sure], np.array(each["prediction"])[sure])
        self.assertFalse(os.path.exists("one/adversarial.part"))
        np.testing.assert_allclose(tables["confidence"], np.where(broken, confidences(attacked, checkpoint), np.nan), atol=1e-4)

        # Killed in between, the images are there all the same.
        running = common.Running([*options(SEQUENCE, out="other", batch=16), "--save-adversarial"], 2)
        self.assertTrue(running.wait_for(lambda: lines("other") > IMAGES // 16 + 2), running.text())
        running.end()
        self.assertTrue(os.path.exists("other/adversarial.part"))
        self.evaluate("other", "--save-adversarial")
        other = common.datasets("other/adversarial.h5")
        self.assert_same(other, tables)
        # An evaluation that is begun anew, without its journal, has nothing of the one before.
        os.remove("other/sequence.journal")
        self.refuse(2, "other is the folder of an evaluation, whose files", *options("fgsm", out="other", limit=16))
        self.evaluate("other", words="none+fgsm", limit=16)
        self.assertFalse(os.path.exists("other/adversarial.h5"))
        self.assertTrue(os.path.exists("other/results.h5"))

    def test_images_of_single_attacks(self):
        """Each image as the first attack leaves it that breaks it; NumPy's network takes it for what eval.json says. The
        figures are those of an evaluation that keeps no images."""
        words, count = "fgsm,pgd2x3,pgd20x3", 91
        plain = common.run(*loud(options(words, out="plain", batch=9, limit=count)), "DAT_PROGRESS=0.000001", ranks=2)
        share = 46  # of rank 0, which has a batch more than rank 1, and says how far it is after each of them
        self.assertEqual(re.findall(r"(\d+) % of the images", plain.text), [f"{100 * (done / share):.0f}" for done in range(9, share, 9)])
        kept = common.run(*options(words, out="kept", batch=9, limit=count), "--save-adversarial", ranks=2)
        self.assertEqual((plain.code, kept.code), (0, 0), plain.text + kept.text)
        each, same = (common.load(f"{folder}/eval.json")["per_image"] for folder in ("kept", "plain"))
        self.assertEqual(each, same)
        self.assertEqual(sorted(os.listdir("kept")), [".lock", "adversarial.h5", "eval.json"])
        tables, labels = common.datasets("kept/adversarial.h5"), np.array(each["label"])
        self.assertEqual(common.attribute("kept/adversarial.h5", "attacks"), "fgsm, pgd2x3, pgd20x3")
        by = np.full(count, -1)
        for number, name in reversed(list(enumerate(words.split(",")))):
            by[np.array(each[name + "_correct"]) == 0] = number
        right = np.array(each["clean_correct"], bool)
        broken = right & (by >= 0)
        self.assertGreater(len(set(by[broken])), 1)  # more than one attack has broken any
        self.assertEqual(tables["robust"].tolist(), (right & ~broken).tolist())
        attacked, clean = tables["images"], tables["clean"].astype(np.float32) / np.float32(255)
        np.testing.assert_array_equal(attacked[~broken], clean[~broken])
        self.assertLessEqual(np.abs(attacked.astype(float) - clean).max(), EPS + 1e-6)
        checkpoint = common.checkpoints("run")[-1]
        classes, sure = sure_classes(logits_of(attacked, checkpoint))
        said = np.array([each[name + "_prediction"] for name in words.split(",")])[by, np.arange(count)]
        np.testing.assert_array_equal(classes[broken & sure], said[broken & sure])
        self.assertTrue((classes != labels)[broken & sure].all())
        np.testing.assert_allclose(tables["confidence"], np.where(broken, confidences(attacked, checkpoint), np.nan), atol=1e-4)

        # Another evaluation in the folder. A sequence would remove what is there. One that cannot write its images leaves
        # nothing half done. One without images has the folder for itself, and at its end none of those that were there.
        few = {"out": "kept", "limit": 16}
        self.refuse(2, "kept is the folder of an evaluation without a sequence, whose files this evaluation would overwrite",
                    *options("none+fgsm", **few))
        with mock.patch.dict(os.environ, common.faults("adversarial.h5:rename", errno.EROFS)):
            self.refuse(9, "kept/adversarial.h5", *options("fgsm", **few), "--save-adversarial")
        self.assertEqual(sorted(os.listdir("kept")), [".lock", "eval.json"])
        self.evaluate("kept", "--save-adversarial", words="fgsm", limit=16)
        running = common.Running(options("fgsm", **few), 0, common.faults("kept/eval.json:rename", -1, 1, 1))
        self.assertTrue(running.wait_for(lambda: common.stopped(running.process.pid)), running.text())
        with open("kept/.lock") as lock, self.assertRaises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        common.kill(running.process.pid, signal.SIGCONT)
        self.assertEqual(running.wait().code, 0, running.text())
        self.assertEqual(sorted(os.listdir("kept")), [".lock", "eval.json"])

    def test_what_is_refused(self):
        self.evaluate("one", words="none+fgsm", limit=16)

        def refuse(code, pattern, words, *flags, ranks=0, **changes):
            self.refuse(code, pattern, *options(words, **{"limit": 16, **changes}), *flags, ranks=ranks)

        for ranks in 0, 2:
            refuse(2, "sequence.journal is the journal of another evaluation: seed is 1 there and 2 here", "none+fgsm",
                   out="one", seed=2, ranks=ranks)
        refuse(2, "eps is 0.0235.* there and 0.0313.* here", "none+fgsm", out="one", eps="8/255")
        refuse(2, "sequence is none.fgsm there and fgsm.none here", "fgsm+none", out="one")
        refuse(2, "adversarial images kept is no there and yes, with confidence here", "none+fgsm", "--save-adversarial", out="one")
        self.train("second", *TRAIN, "--seed", 2)
        refuse(2, "hash of the training's options is", "none+fgsm", checkpoint="second", out="one")
        newest = common.checkpoints("second")[-1]
        common.write(newest, "")  # the one before it is taken
        self.assertIn(newest, "\n".join(self.evaluate("older", words="none+fgsm", limit=16, checkpoint="second").warnings))
        refuse(2, "run is the folder of a training", "none+fgsm", out="run")
        os.mkdir("certified")
        common.write("certified/certify.journal", "")
        for name in "certify.journal", "certify.json":
            os.rename("certified/certify.journal", f"certified/{name}")
            refuse(2, "certified is the folder of a certification, whose files this evaluation", "none+fgsm", out="certified")
        self.refuse(2, "one is the folder of an evaluation, whose files this certification", "certify", "run", "--sigma", 0.25, "--out", "one")
        os.mkdir("folder.json")
        refuse(2, "folder.json is a folder", "fgsm", out="folder.json")
        # Without a journal this evaluation goes on with none of these files, but takes none away before it may write.
        shutil.copytree("one", "taken", ignore=shutil.ignore_patterns("*.journal", "eval.json"))
        os.mkdir("taken/eval.json")
        refuse(2, "taken/eval.json is a folder", "none+fgsm", out="taken")
        self.assertTrue(os.path.exists("taken/results.h5"))
        with mock.patch.dict(os.environ, common.faults("sealed:access", errno.EROFS)):
            refuse(9, "--out sealed/two.json: nothing can be written into sealed: ", "fgsm", out="sealed/two.json")
        for file in "adversarial.part", "sequence.journal":
            with mock.patch.dict(os.environ, common.faults(f"{file}:fsync", errno.EIO)):
                refuse(9, f"{file}: cannot bring it to disk", "none+fgsm", "--save-adversarial", out="full")
        refuse(2, "known: aa-standard, aa-plus, aa-rand, aa-quick", "aa-fast")
        refuse(2, "names two sequences", "none+fgsm,pgd2+fgsm")
        for folder in "run", "one", "certified":
            refuse(2, f"{folder} is the folder of an? .*, whose files this evaluation without", "pgd2", out=folder)
        for words, out in ("none+fgsm", None), ("pgd2", "two.json"):
            refuse(2, "--save-adversarial needs a folder", words, "--save-adversarial", out=out)
        self.refuse(2, "is a sequence of attacks, which the verb eval runs", "train", *TRAIN[:-1], "none+fgsm", "--out", "three")
        journal = common.text_of("one/sequence.journal").splitlines(keepends=True)
        common.write("one/sequence.journal", "".join([journal[0], "damage\n", *journal[1:]]))
        for ranks in 0, 2:
            refuse(3, "one/sequence.journal: line 2 is damaged", "none+fgsm", out="one", ranks=ranks)
        self.evaluate("far", "--save-adversarial", words="none+fgsm", limit=16)  # which looks up labels first
        header, line = common.text_of("far/sequence.journal").splitlines(keepends=True)[:2]
        self.assertIn(json.loads(header)["facts"]["images in a pass"], ("64", "256"))  # of a CPU, of a GPU
        entry = json.loads(line)
        for change in {"stage": 1, "images": [10**12] * len(entry["images"])}, {"stage": 1e30}:
            common.write("far/sequence.journal", header + json.dumps({**entry, **change}) + "\n")
            refuse(3, "image 1000000000000 that cannot be|line 2 is damaged", "none+fgsm", "--save-adversarial", out="far")

    def test_single_attacks_beside_a_sequence(self):
        """A JSON file alone, without a journal; the sequence is as hard as the worst of its attacks, image by image."""
        ended = self.run_well(*options("fgsm,pgd2+fgsm,pgd2,pgd10", out="all.json"), ranks=2)
        self.assertFalse(os.path.exists("all"))
        found = common.load("all.json")
        each = found["per_image"]
        self.assertEqual(each["pgd2+fgsm_correct"],
                         [min(flags) for flags in zip(each["pgd2_correct"], each["fgsm_correct"])])
        self.assertRegex(ended.text, "\n  zero gradients: no; more steps of PGD: ")
        for alarm in found["alarms"]:  # people are warned of those that are raised
            self.assertEqual(f"warning: {alarm['name']}: " in ended.text, alarm["raised"])
        self.assertRegex(ended.final, r"fgsm_acc=\S+ pgd2_acc=\S+ pgd10_acc=\S+ pgd2\+fgsm_acc=\S+ ")

    @common.at_night
    def test_l2(self):
        """Another norm than the training's: the same flags on any number of ranks; what is left is in the ball, and is
        misclassified by a network in NumPy."""
        images, eps = 16, 0.3
        l2 = {"norm": "l2", "eps": eps, "limit": images, "words": "aa-quick"}
        ended = self.evaluate("l2", "--save-adversarial", ranks=2, **l2)
        self.assertIn(f"(l2 eps {eps})", ended.text)
        self.evaluate("alone", batch=16, **l2)
        whole = told("l2")
        self.assertEqual(told("alone"), whole)
        self.assertEqual((whole["sequence"]["norm"], whole["sequence"]["eps"]), ("l2", eps))
        each, tables = whole["per_image"], common.datasets("l2/adversarial.h5")
        self.assertEqual(common.attribute("l2/results.h5", "norm"), "l2")
        given = common.datasets("set.h5")
        clean, labels = given["test/images"][:images].astype(np.float32) / np.float32(255), given["test/labels"][:images]
        attacked, broken = tables["images"], np.array(each["run"]) > 0
        self.assertTrue(attacked.min() >= 0 and attacked.max() <= 1)
        distance = np.sqrt((np.square(attacked.astype(float) - clean)).reshape(images, -1).sum(1))
        self.assertLessEqual(distance.max(), eps * (1 + 1e-6))
        np.testing.assert_allclose(distance, each["distance"], atol=1e-7)
        np.testing.assert_array_equal(attacked[~broken], clean[~broken])
        self.assertTrue(0 < broken.sum() < images)  # it would say nothing of none, or all
        classes, sure = sure_classes(logits_of(attacked, common.checkpoints("run")[-1]))
        self.assertTrue((classes != labels)[broken & sure].all())
        # Pixels are far from alike: it is not the other ball.
        largest = np.abs(attacked - clean).reshape(images, -1).max(1)[broken]
        self.assertGreater(np.median(largest / (eps / np.sqrt(clean[0].size))), 1.5)

        ended = self.evaluate("others", **{**l2, "words": "fab-t+square", "limit": 6})
        self.assertRegex(ended.text, r"fab-t\+square +accuracy .*\(l2 eps 0.3\)")
        ended = common.run(*options("pgd4x8", norm="l2", eps=eps, out="single.json"))
        self.assertRegex(ended.text, r"pgd4x?8? +accuracy .*\(l2 eps 0.3, alpha 0.1875, 8 restarts\)")

        def refuse(pattern, **changes):
            self.refuse(2, pattern, *options("aa-quick", **{"limit": images, "out": "l2", **changes}), ranks=0)

        refuse("norm is l2 there and linf here", eps=eps)
        refuse("eps is 0.299.* there and 0.25 here", norm="l2", eps=0.25)
        refuse("is not that of the training, linf, whose eps says nothing there; give --eps", norm="l2", eps=None)

    def test_images_without_labels_are_refused(self):
        """Nobody knows whether they are classified right."""
        splits = common.read_data("set.h5")
        labels = splits["train"][1].astype(np.int64)
        labels[3:5] = -1
        common.write_data("part.h5", (splits["train"][0], labels), splits["test"])
        for words in "pgd2", "none+fgsm":
            self.refuse(2, "2 of the [0-9]+ training images have no label", *options(words, data="part.h5", split="train", limit=None))
        self.run_well(*options("pgd2", data="part.h5"))
        self.refuse(2, "run held out images of its own data; leave --data off", *options("pgd2", data="part.h5", split="holdout"))

    def test_what_is_called_autoattack(self):
        ended = self.evaluate("quick", "--save-adversarial", words="aa-quick", limit=6)
        self.assertRegex(ended.final, " PARTIAL$")
        texts = [ended.text, *(common.bytes_of(f"quick/{name}").decode("latin1") for name in os.listdir("quick"))]
        for text in texts:  # the program's own place is in its command line
            self.assertNotIn("autoattack", text.replace(common.PROGRAM, "").lower())
        ended = self.evaluate("rand", words="aa-rand", limit=6)
        self.assertIn("AutoAttack, version rand", ended.text)
        self.assertIn("20 gradients", ended.text)
        self.assertEqual(told("rand")["sequence"]["title"], "AutoAttack, version rand")


if __name__ == "__main__":
    common.main()
