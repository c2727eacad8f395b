"""Certificates are the same on any number of ranks, in batches of any size, and however often a certification was killed;
votes and radii are those of an independent program."""

import errno
import json
import math
import os
import random
import re
import sys
from fractions import Fraction
from statistics import NormalDist
from unittest import mock

import numpy as np

import common
from numpy_network import logits_of, sure_classes

sys.path.append(f"{common.TESTS}/outside")
from random_numbers import normals  # noqa: E402

IMAGES, SIGMA, ALPHA = 60, 0.1, 0.001
EVERY, N0, N = (5, 300, 700) if common.ALL_CASES else (15, 100, 300)
TRAIN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--batch", 16, "--epochs", 4, "--lr", 0.05,
         "--attack", "none", "--lambda", 0, "--eval-every", 0, "--eval", "fgsm"]
KILLS = 10 if common.ALL_CASES else 3
CANDIDATE, CERTIFICATION = 14, 13  # purposes of random numbers


def options(**changes):
    chosen = {"checkpoint": "run", "sigma": SIGMA, "every": EVERY, "n0": N0, "n": N, "threads": 1, **changes}
    return ["certify", "--quiet", *common.option_words(**chosen)]


def told(folder):
    """certify.json without what may differ: times, and where it ran."""
    found = common.load(f"{folder}/certify.json")
    del found["provenance"]
    for image in found["images"] + found.get("attacked", {}).get("images", []):
        del image["seconds"]
    return found


def tsv(folder):
    return [line.split("\t")[:5] for line in common.text_of(f"{folder}/certify.tsv").splitlines(keepends=True)]


def lines(folder):
    return common.count_in(f"{folder}/certify.journal")


def noise_of(seed, purpose, image, samples, pixels):
    """Normal numbers [samples][pixels]."""
    return np.stack([normals(seed, purpose, sample, image, pixels) for sample in range(samples)])


def lower_bound(k, n, alpha):
    """Clopper and Pearson's: where the upper tail, term by term, is alpha."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(45):
        p = Fraction(round((low + high) / 2 * 2**45), 2**45)
        logs = [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) + j * math.log(p) + (n - j) * math.log1p(-p)
                for j in range(k, n + 1)]
        total = math.fsum(math.exp(one) for one in logs)
        low, high = (p, high) if total < alpha else (low, p)
    return float(low)


class Certification(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", train=96, test=IMAGES, size=16, classes=4)
        self.train("run", *TRAIN)

    def certify(self, folder, *flags, ranks=1, **changes):
        return self.run_well(*options(out=folder, **changes), *flags, ranks=ranks)

    def test_ranks_batches_and_kills(self):
        for radii in None, "0.02,0.1,0.2":
            kind = "fixed" if radii is None else "sequence"
            # A sequence may take many more samples than it needs.
            more = {"n": N if radii is None else 20_000, "radii": radii}
            self.assertNotIn("dat_hpc: warning: ", self.certify(kind, **more).text.splitlines())
            whole = told(kind)
            self.assertEqual([image["index"] for image in whole["images"]], list(range(0, IMAGES, EVERY)))
            for ranks, batch in common.drawn(((2, 256), (3, 1000)), 1):
                self.certify(f"{kind}-on{ranks}", ranks=ranks, batch=batch, **{**more, "radii": radii and "0.2,0.02,0.1"})
                self.assertEqual(told(f"{kind}-on{ranks}"), whole)
                self.assertEqual(tsv(f"{kind}-on{ranks}"), tsv(kind))
            if radii is not None:
                taken = [image["samples"] for image in whole["images"]]
                self.assertLess(min(taken), 3000)
                self.assertTrue(all(0 not in image["decided"] for image in whole["images"] if image["samples"] < 20_000))
                continue
            drawn = random.Random(common.SEED)
            for kill in range(KILLS):
                ranks = drawn.choice([1, 2, 3])
                # When it is about to write a line of its journal; those before it stay.
                running = common.Running(options(out="killed", batch=256, **more), ranks,
                                         common.faults("certify.journal:write", -1, [1, 3, 2][kill % 3], 1))
                running.wait_until_stopped()
                running.end()
                self.assertFalse(os.path.exists("killed/certify.json"), "it had ended before it was killed")
                if kill == 1:  # a write that was cut
                    common.write("killed/certify.journal", '{"seconds":0.1,"images":[0,', "ab")
            self.certify("killed", ranks=2, batch=1000, **more)
            self.assertEqual(told("killed"), whole)
            self.assertEqual(tsv("killed"), tsv(kind))
            before = lines("killed")
            with mock.patch.dict(os.environ, common.faults("killed/.lock:flock", errno.ENOLCK)):
                ended = self.run_well("certify", *options(out="killed", **more)[2:], ranks=1)  # computes nothing; not --quiet
            self.assertRegex(ended.warnings[0], r"the folder killed cannot be locked \(No locks available\)")
            self.assertIn(f"goes on after {before - 1} groups of blocks in killed/certify.journal", ended.text)
            self.assertEqual(lines("killed"), before)

    def test_votes_and_radii_from_outside(self):
        self.assertEqual(self.certify("float", noise_kind="float", ranks=2).text.count("Final: "), 1)  # one rank speaks
        found = told("float")
        given = common.datasets("set.h5")
        images, labels = given["test/images"][:IMAGES].astype(float) / 255, given["test/labels"][:IMAGES]
        checkpoint = common.checkpoints("run")[-1]
        for one in found["images"]:
            image = images[one["index"]]
            self.assertEqual(one["label"], labels[one["index"]])
            votes, unsure = {}, {}
            for purpose, samples in (CANDIDATE, N0), (CERTIFICATION, N):
                noise = noise_of(1, purpose, one["index"], samples, image.size)
                noisy = image + SIGMA * noise.reshape(samples, 3, 16, 16).transpose(0, 2, 3, 1)
                classes, sure = sure_classes(logits_of(noisy, checkpoint))
                votes[purpose], unsure[purpose] = np.bincount(classes, minlength=4), np.count_nonzero(~sure)
            chosen = int(votes[CANDIDATE].argmax())
            second = np.sort(votes[CANDIDATE])[-2]
            self.assertGreater(votes[CANDIDATE].max() - second, unsure[CANDIDATE])
            self.assertLessEqual(abs(int(votes[CERTIFICATION][chosen]) - one["votes"]), unsure[CERTIFICATION])
            bound = lower_bound(one["votes"], N, ALPHA)
            self.assertAlmostEqual(one["lower"], bound, delta=1e-10)
            self.assertEqual(one["prediction"], chosen if bound > 0.5 else -1)
            radius = SIGMA * NormalDist().inv_cdf(bound) if bound > 0.5 else 0
            self.assertAlmostEqual(one["radius"], radius, delta=1e-9)
        tables = common.datasets("float/results.h5")
        for name in "index", "label", "prediction", "radius", "votes", "samples":
            self.assertEqual(tables[f"image/{name}"].tolist(), [one[name] for one in found["images"]])

        # Noise on the grid: other draws of nearly the same law.
        self.certify("grid")
        grid = told("grid")
        self.assertNotEqual([one["votes"] for one in grid["images"]], [one["votes"] for one in found["images"]])
        for one, other in zip(grid["images"], found["images"]):
            p = (one["votes"] + other["votes"]) / (2 * N)
            if one["prediction"] == other["prediction"]:
                self.assertLess(abs(one["votes"] - other["votes"]), 6 * (2 * N * p * (1 - p)) ** 0.5 + 3)

        # PREDICT.
        self.certify("predicted", "--predict", noise_kind="float")
        for one in told("predicted")["images"]:
            self.assertEqual((one["samples"], one["prediction"] >= 0), (N, one["p_value"] <= ALPHA))

    def test_attacks_within_the_radii(self):
        more = {"attack_steps": 8, "noise_samples": 5, "noise_kind": "float", "sigma": 0.05, "batch": 512}
        ended = self.run_well("certify", *options(out="attacked", **more)[2:], "DAT_PROGRESS=0.000001", ranks=1)  # not --quiet
        found = told("attacked")
        self.assertEqual((found["attacked"]["steps"], found["attacked"]["noise_samples"]), (8, 5))
        self.assertRegex(ended.text, f" of {len(found['images'])} images, [0-9]+ samples  ETA")
        self.assertNotIn("goes on after", ended.text)
        certified = {one["index"]: one for one in found["images"] if one["radius"] > 0}
        attacked = found["attacked"]["images"]
        self.assertEqual([one["index"] for one in attacked], list(certified))
        self.assertEqual(re.findall(r"(\d+) of (\d+) certified images of a rank attacked  ETA", ended.text),
                         [(str(done), str(len(certified))) for done in range(1, len(certified))])
        clean = common.datasets("set.h5")["test/images"][:IMAGES].astype(float)
        tables = common.datasets("attacked/results.h5")
        self.assertEqual(tables["attacked/index"].tolist(), list(certified))
        checkpoint = common.checkpoints("run")[-1]
        broken, before, after = 0, 0, 0
        for one, image in zip(attacked, tables["attacked/images"].astype(float)):
            of = certified[one["index"]]
            distance = np.sqrt(np.sum((image - clean[one["index"]]) ** 2)) / 255
            self.assertAlmostEqual(one["distance"], distance, delta=1e-12)
            self.assertLessEqual(distance, of["radius"])
            self.assertGreater(distance, 0.9 * of["radius"])
            noise = noise_of(2, CERTIFICATION, one["index"], N, image.size)  # the next seed's
            noisy = image / 255 + 0.05 * noise.reshape(N, 3, 16, 16).transpose(0, 2, 3, 1)
            classes, sure = sure_classes(logits_of(noisy, checkpoint))
            votes = np.bincount(classes, minlength=4)
            self.assertLessEqual(abs(int(votes.max()) - one["votes"]), np.count_nonzero(~sure))
            if one["prediction"] >= 0 and np.sort(votes)[-2] + np.count_nonzero(~sure) < votes.max():
                self.assertEqual(one["prediction"], int(votes.argmax()))
            broken += one["prediction"] not in (-1, of["prediction"])
            before, after = before + of["votes"], after + int(votes[of["prediction"]])
        self.assertLess(after, before)  # the attack does harm
        self.assertEqual(found["attacked"]["broken"], broken)
        self.assertEqual(found["attacked"]["abstained"], sum(one["prediction"] == -1 for one in attacked))

        # Other ranks and threads; and where the journal of the predictions was cut.
        ended = self.certify("on2", "DAT_PROGRESS=0.000001", ranks=2, threads=2, **more)
        self.assertEqual((ended.text.count("ETA"), ended.text.count("Final: ")), (0, 1))
        self.assertEqual(told("on2"), found)
        os.remove("on2/certify.json")
        journal = common.text_of("on2/attacked.journal").splitlines(keepends=True)
        self.assertGreater(len(journal), 1)
        common.write("on2/attacked.journal", "".join(journal[:-1]))
        ended = self.certify("on2", "DAT_PROGRESS=0.000001", **more)
        self.assertRegex(ended.final, f" broken={broken} ")
        self.assertNotRegex(ended.text, "goes on after|ETA")  # --quiet
        self.assertEqual(told("on2"), found)
        self.refuse(2, "attack is pgd8 on 5 copies there and pgd9 on 5 copies here", *options(out="on2", **{**more, "attack_steps": 9}))
        self.refuse(2, "--attack-steps attacks certificates, which --predict makes none of", *options(attack_steps=1), "--predict")

    def test_what_is_refused(self):
        small = {"n": 100, "n0": 10, "limit": 2, "batch": 100}
        self.certify("one", **small)
        self.certify("few", attack_steps=1, **small)
        self.assertEqual((told("few")["attacked"]["steps"], len(told("few")["images"])), (1, 2))
        for folder, attacked in ("few", True), ("one", False):
            self.assertEqual((os.path.exists(f"{folder}/attacked.journal"), "attacked" in told(folder)), (attacked, attacked))
        ended = self.run_well(*options(**small))  # whose result is what it prints
        self.assertNotIn("wrote ", ended.text)
        self.assertIn("wrote one/certify.json, ", self.certify("one", **small).text)
        # As many images in a pass as a sequence takes on a CPU or a GPU, or the copies of the attack.
        for folder, passes in ("one", ("64", "256")), ("few", ("100",)):
            header = json.loads(common.text_of(f"{folder}/certify.journal").splitlines()[0])
            self.assertIn(header["facts"]["images in a pass"], passes)
            self.assertEqual(header["facts"]["hash of the weights"], told(folder)["settings"]["weights_hash"])

        def refuse(code, pattern, *flags, ranks=0, **changes):
            self.refuse(code, pattern, *options(**{**small, **changes}), *flags, ranks=ranks)

        for ranks in 0, 2:
            refuse(2, "certify.journal is the journal of another evaluation: seed is 1 there and 2 here", out="one", seed=2,
                   ranks=ranks)
        refuse(2, "sigma is 0.1.* there and 0.2.* here", out="one", sigma=0.2)
        refuse(2, "procedure is certify there and certify, sequential here", out="one", radii="0.1")
        self.train("second", *TRAIN, "--seed", 2, "--noise", SIGMA)
        refuse(2, "hash of the weights is", checkpoint="second", out="one")
        self.certify("of_training", checkpoint="second", sigma=None, **small)
        self.assertEqual(told("of_training")["settings"]["sigma"], SIGMA)
        refuse(2, "run is the folder of a training", out="run")
        refuse(2, "must be a folder", out="one.json")
        refuse(2, "run was trained without noise; give --sigma", sigma=None)
        refuse(2, "--radii is for certificates", "--predict", radii="0.1")
        refuse(2, "from 1/1024 to 16", sigma=0.0001)
        refuse(2, "held nothing out", split="holdout")
        journal = common.text_of("one/certify.journal").splitlines(keepends=True)
        entry = json.loads(journal[1])
        self.assertEqual(len(entry["blocks"]), 1)  # at a time, though more samples than a batch
        impossible = [{**entry, "blocks": [99] + entry["blocks"][1:]}, {**entry, "images": [1] + entry["images"][1:]},
                      {**entry, "votes": [[999, 0, 0, 0]] + entry["votes"][1:]}]
        for line, pattern in (["damage\n" + journal[1], "one/certify.journal: line 2 is damaged"],
                              *[(json.dumps(one) + "\n", "the journal has votes for image .* that cannot be") for one in impossible]):
            common.write("one/certify.journal", journal[0] + line)
            refuse(3, pattern, out="one")


if __name__ == "__main__":
    common.main()
