"""What a run leaves behind tells what happened: bytes, layers, probabilities, times, evaluations, pictures."""

import csv
import datetime
import json
import os
import re
from unittest import mock

import h5py
import numpy as np

import common

TRAIN = ["--data", "set.h5", "--width", 16, "--threads", 1, "--attack-steps", 2, "--eval-every", 1,
         "--eval", "pgd2"]


def table(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


class Results(common.TestCase):
    set_h5 = dict(train=48, test=14, size=16, classes=4)

    def record(self, *arguments, ranks=2, network="small_cnn"):
        self.train("run", *TRAIN, "--network", network, *arguments, ranks=ranks)
        found = common.datasets("run/results.h5")
        names = [name.decode() for name in found["jointspar/layer_name"]]
        return found, names

    def assert_bytes(self, found, draws=0, ranks=2):
        """A step sends the gradients of the active layers, 4 bytes each, and of no other. Rank 0 alone tells the others
        what was drawn: p as double and the factors as float. One rank sends nothing."""
        elements = found["jointspar/active"].astype(np.int64) @ found["jointspar/layer_elements"]
        np.testing.assert_array_equal(found["history/step/bytes_sent"], 4 * elements * (ranks > 1))
        self.assertTrue(((found["history/step/bytes_other"] > 0) == (ranks > 1)).all())
        np.testing.assert_array_equal(found["history/step/active_elements"], elements)
        np.testing.assert_array_equal(found["history/step/n_active"], found["jointspar/active"].sum(1))
        sent = (found["history/step/bytes_sent"] + found["history/step/bytes_other"]).sum()
        told = draws * len(found["jointspar/layer_name"]) * (8 + 4)
        np.testing.assert_array_equal(found["ranks/bytes"].sum(0), [sent] + [sent - told] * (ranks - 1))

    def assert_weight_gradients(self, found, names, passes):
        """An inactive convolution's weight gradient is not computed."""
        shapes = {name[len("param/"):]: values.shape for name, values in common.state("run").items()
                  if name.startswith("param/")}
        convolutions = np.array([len(shapes[name]) == 4 for name in names])
        expected = found["jointspar/active"][:, convolutions].sum(1) * passes
        np.testing.assert_array_equal(found["history/step/weight_gradients"], expected)
        return convolutions.sum()

    def assert_probabilities(self, found, budget, p_min, warmup):
        p = found["jointspar/p"][warmup:].astype(float)
        self.assertGreater(len(p), 3)
        np.testing.assert_allclose(p.sum(1), budget, rtol=1e-6)
        self.assertGreaterEqual(p.min(), p_min * (1 - 1e-6))  # stored in single precision
        self.assertLessEqual(p.max(), 1)
        self.assertGreater(np.ptp(p, axis=0).max(), 0)  # something is learned
        np.testing.assert_array_equal(found["jointspar/p"][:warmup], 1)
        np.testing.assert_array_equal(found["jointspar/active"][:warmup], 1)
        self.assertTrue((found["jointspar/active"][warmup:] == 0).any())

    def test_layers_drawn_at_each_step(self):
        found, names = self.record("--batch", 8, "--warmup-epochs", 1, "--epochs", 4, "--budget", 6, "--selector", "exp3:p_min=0.2",
                                   "--lambda", 1)
        self.assert_bytes(found, draws=12)
        self.assertEqual(self.assert_weight_gradients(found, names, passes=2), 3)
        self.assert_probabilities(found, 6, 0.2, warmup=3)
        # Norms are those of active layers, and every step after the warm-up is one from which the bandit learns.
        np.testing.assert_array_equal(np.isfinite(found["jointspar/norm"][3:]), found["jointspar/active"][3:] == 1)
        self.assertFalse(np.isfinite(found["jointspar/norm"][:2]).any())

    @common.at_night
    def test_layers_drawn_every_three_steps_in_a_residual_network(self):
        found, names = self.record("--batch", 8, "--micro-batch", 4, "--warmup-epochs", 0, "--epochs", 4, "--resample",
                                   3, "--lambda", 0, network="preact_resnet18")
        self.assertEqual(len(names), 54)
        self.assert_bytes(found, draws=4)
        self.assertEqual(self.assert_weight_gradients(found, names, passes=2), 20)
        self.assert_probabilities(found, 40, 0.1, warmup=0)
        drawn = found["jointspar/active"]
        for step in range(12):
            np.testing.assert_array_equal(drawn[step], drawn[step // 3 * 3])
            learned = np.isfinite(found["jointspar/norm"][step])
            np.testing.assert_array_equal(learned, (drawn[step] == 1) & (step % 3 == 2))

    def test_one_rank_sends_nothing(self):
        found, _ = self.record("--batch", 8, "--warmup-epochs", 0, "--epochs", 2, "--warm-start", 2, ranks=1)
        self.assert_bytes(found, ranks=1)
        self.assertTrue((found["ranks/bytes"] == 0).all())
        self.assertRegex(common.text_of("run/SUMMARY.txt"), "gradients sent +nothing: one rank\n")

    def test_all_layers(self):
        found, names = self.record("--batch", 8, "--warmup-epochs", 0, "--epochs", 2, "--selector", "all",
                                   "--lambda", 0)
        self.assert_bytes(found, draws=6)
        self.assert_weight_gradients(found, names, passes=1)
        self.assertTrue((found["jointspar/active"] == 1).all() and (found["jointspar/p"] == 1).all())
        self.assertEqual(set(found["history/step/active_elements"]), {found["jointspar/layer_elements"].sum()})

    def test_passes_of_the_attack(self):
        """Two steps, or what an early stop leaves of them. Batches of 8, 8, 8 per rank, then of 5: with 3 empty places."""
        common.synthetic("set.h5", train=58, test=14, size=16, classes=4)
        found, _ = self.record("--batch", 8, "--warmup-epochs", 0, "--epochs", 1)
        images = found["history/step/images"]
        np.testing.assert_array_equal(images, [16, 16, 16, 10])
        np.testing.assert_array_equal(found["history/step/attack_passes"], [32, 32, 32, 32])
        self.assertRegex(common.text_of("run/SUMMARY.txt"), r"attack passes +2\.21 per image\n")
        os.rename("run", "whole")
        found, _ = self.record("--batch", 8, "--warmup-epochs", 0, "--epochs", 1, "--attack-stop", 0)
        passes = found["history/step/attack_passes"]
        self.assertTrue((images <= passes).all() and (passes <= 2 * images).all() and passes.sum() < 2 * images.sum(),
                        passes)
        self.assertRegex(common.text_of("run/SUMMARY.txt"),
                         r"attack passes +1\.\d+ per image of at most 2: \d+\.\d % saved\n")

    def test_times_add_up(self):
        """Every second is in one phase: what is missing is what follows the last stamp that a record knows of."""
        found, _ = self.record("--batch", 8, "--warmup-epochs", 0, "--epochs", 3, "--checkpoint-every", 4, ranks=2,
                               network="preact_resnet18")
        phases = [name for name in found if name.startswith("history/step/t_")]
        self.assertEqual(len(phases), 13)
        phases.remove("history/step/t_hidden")
        booked, wall = sum(found[name] for name in phases).sum(), found["history/step/wall_time"][-1]
        self.assertLessEqual(booked, wall)
        self.assertGreaterEqual(booked, 0.98 * wall)  # the last step's update is known after it
        self.assertTrue((np.diff(found["history/step/wall_time"]) > 0).all())
        # By rank: the same, with what follows the last step.
        by_rank = sum(found[name.replace("history/step", "ranks")] for name in phases)
        self.assertEqual(by_rank.shape, (len(found["ranks/step"]), 2))
        np.testing.assert_array_equal(found["ranks/step"], [4, 8, 9, 9])
        total = by_rank.sum(0)
        self.assertTrue((total >= 0.99 * wall).all(), (total, wall))
        for name in phases:
            if not name.endswith(("_evaluate", "_checkpoint", "_other", "_update")):
                rank_0 = found[name.replace("history/step", "ranks")][:, 0]
                np.testing.assert_allclose(rank_0.sum(), found[name].sum(), err_msg=name)

    def test_phases_are_the_same_in_every_table(self):
        """Also what follows the last step, of a run with several parts."""
        common.synthetic("set.h5", train=48, test=400, size=16, classes=4)
        for _ in range(2):  # the second one evaluates and writes its results again
            found, _ = self.record("--batch", 8, "--warmup-epochs", 0, "--epochs", 2, ranks=2)
        by_rank = {name[len("ranks/t_"):]: values.sum(0) for name, values in found.items() if name.startswith("ranks/t_")}
        self.assertEqual(len(by_rank), 13)
        del by_rank["hidden"]
        total = sum(by_rank.values())[0]
        with open("run/SUMMARY.txt") as file:
            table = {words[0]: words[1:] for words in map(str.split, file) if len(words) == 4 and words[-1] == "%"}
        self.assertEqual(sorted(table), sorted(by_rank))
        # What follows the last step is seen in two decimals.
        self.assertGreater(by_rank["evaluate"][0] - found["history/step/t_evaluate"].sum(), 0.02)
        self.assertEqual(common.run("plot", "run").code, 0)
        names, *rows = (line.replace('"', "").split(",") for line in common.text_of("run/plots/phases.csv").splitlines())
        for name, (seconds, share, _) in table.items():
            self.assertAlmostEqual(float(seconds), by_rank[name][0], delta=0.00501, msg=name)
            self.assertAlmostEqual(float(share), 100 * by_rank[name][0] / total, delta=0.0501, msg=name)
            drawn = [float(row[names.index(name + "_seconds")]) for row in rows]
            np.testing.assert_allclose(drawn, by_rank[name], rtol=1e-5, err_msg=name)  # six digits
        self.assertIn(f"evaluate ({table['evaluate'][1]} %)", common.text_of("run/plots/phases.gp"))

    def test_files(self):
        self.train("run", *TRAIN, "--network", "small_cnn", "--batch", 8, "--epochs", 2, "--warmup-epochs", 1, ranks=2)
        last = common.text_of("run/SUMMARY.txt").splitlines()[-1]
        number = r"\d+\.\d+"
        self.assertRegex(last, f"^Final: clean_acc={number} pgd2_acc={number} time_s={number} comm_s={number} VALID$")
        evaluation = common.rows("run", "evaluation")[-1]
        self.assertEqual(float(re.search("clean_acc=(\\S+)", last)[1]), round(evaluation["clean_acc"], 4))
        self.assertEqual(float(re.search("pgd2_acc=(\\S+)", last)[1]), round(evaluation["adv_acc"], 4))
        provenance = common.load("run/provenance.json")
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(provenance["started"].replace("Z", "+00:00"))
        self.assertTrue(datetime.timedelta(seconds=-1) <= age < datetime.timedelta(hours=1), provenance["started"])
        self.assertRegex(provenance["libraries"]["HDF5"], r"^[1-9]\d*\.\d+\.\d+$")
        self.assertNotIn("skipped", common.text_of("run/SUMMARY.txt"))
        # The configuration is one that --config takes, and it names the same run.
        resolved = common.text_of("run/config.resolved.toml")
        printed = common.run("train", "--config", "run/config.resolved.toml", "--print-config")
        values = [line for line in resolved.splitlines() if line and line[0] != "#"]
        self.assertEqual([line for line in printed.text.splitlines() if line and line[0] != "#"], values)
        self.assertIn('network = "small_cnn"', values)
        self.assertEqual(len(common.checkpoints("run")), 3)
        # The live record and results.h5 hold the same numbers.
        found = common.datasets("run/results.h5")
        for kind in "step", "evaluation":
            rows = common.rows("run", kind)
            for name in set(rows[0]) - {"kind", "active", "p", "norm", "split", "weights", "attack"}:
                np.testing.assert_array_equal(np.array([row[name] for row in rows], float), found[f"history/{kind}/{name}"], name)
        for name in "split", "weights", "attack", "norm":
            self.assertEqual([row[name] for row in rows], [text.decode() for text in found[f"history/evaluation/{name}"]])
        self.assertEqual(common.attribute("run/results.h5", "config_toml"), resolved)

    def test_pictures(self):
        self.train("run", *TRAIN, "--network", "small_cnn", "--batch", 8, "--epochs", 2, "--warmup-epochs", 1, ranks=2)
        # A picture on which gnuplot fails costs no other one.
        os.mkdir("bin")
        with open("bin/gnuplot", "w", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
            file.write('#!/bin/sh\necho "$2" >>log\ntest "$2" != accuracy.gp\n')
        with mock.patch.dict(os.environ, {"PATH": f"{os.path.abspath('bin')}:{os.environ['PATH']}"}):
            self.refuse(5, "gnuplot failed on run/plots/accuracy.gp; ", "plot", "run")
        self.assertEqual(len(common.text_of("run/plots/log").splitlines()), 4)
        # Several runs: those of each, then the comparison.
        os.rename("run", "one")
        self.train("two", *TRAIN, "--network", "small_cnn", "--batch", 8, "--epochs", 1, "--selector", "all")
        ended = self.run_well("plot", "one", "two", "--out", "both")
        self.assertEqual([line for line in ended.text.splitlines() if line.startswith("both/")],
                         ["both/accuracy.svg", "both/phases.svg", "both/communication.svg"])
        picture = common.text_of("both/accuracy.svg")
        for name in "one: clean", "two: pgd2":
            self.assertIn(name, picture)
        self.refuse(2, "--out is for the comparison", "plot", "one", "--out", "both")

    def test_pictures_of_an_evaluation(self):
        common.synthetic("set.h5", train=96, test=101, size=16, classes=4)
        self.train("run", *TRAIN, "--network", "small_cnn", "--batch", 16, "--warmup-epochs", 1, "--epochs", 3, "--lr", 0.05)
        evaluate = ["eval", "--checkpoint", "run", "--threads", 1, "--eps", "6/255", "--quiet"]
        self.run_well(*evaluate, "--eval", "fgsm,pgd2+pgd5", "--save-adversarial", "--out", "one")
        ended = common.run("plot", "one", "--format", "png")
        self.assertEqual((ended.code, ended.text.split()),
                         (0, [f"one/plots/{name}.png" for name in ("confusion", "classes", "images")]), ended.text)
        told = common.load("one/eval.json")
        self.assertEqual(told["step"], 24)
        each, label = told["per_image"], np.array(told["per_image"]["label"])
        sequence = "pgd2+pgd5"
        worst = min(("fgsm", sequence), key=lambda name: sum(each[name + "_correct"]))
        for name, prediction in ("clean", "clean_prediction"), ("attacked", "prediction" if worst == sequence else "fgsm_prediction"):
            counts = np.zeros((4, 4))
            np.add.at(counts, (label, np.array(each[prediction])), 1)
            header, *rows = table(f"one/plots/confusion-{name}.csv")
            self.assertEqual(header, ["class", "label", "prediction", "images", "percent of the class"])
            self.assertEqual([row[0] for row in rows[::4]], [row["name"] for row in told["classes"]])
            numbers = np.array([row[1:] for row in rows], float)
            np.testing.assert_array_equal(numbers[:, 0] * 4 + numbers[:, 1], np.arange(16))
            np.testing.assert_array_equal(numbers[:, 2].reshape(4, 4), counts)
            np.testing.assert_allclose(numbers[:, 3].reshape(4, 4), 100 * counts / counts.sum(1, keepdims=True), rtol=1e-7)
        header, *rows = table("one/plots/classes.csv")
        self.assertEqual(header[:7], ["class", "label", "images", "clean right", "clean (%)", "clean low (%)", "clean high (%)"])
        for number, row in enumerate(rows):
            n = (label == number).sum()
            self.assertEqual([int(cell) for cell in row[1:3]], [number, n])
            for k, name in enumerate(("clean", "fgsm", sequence)):
                right, share, low, high = (float(cell) for cell in row[3 + 4 * k : 7 + 4 * k])
                self.assertEqual(right, np.array(each[name + "_correct"])[label == number].sum())
                self.assertAlmostEqual(share, 100 * right / n, places=5)
                self.assertAlmostEqual(share / 100, told["classes"][number][name + "_accuracy"], places=6)
                self.assertTrue(0 <= low <= share <= high <= 100)
        # The images: those of the data file, where images.csv says that they are.
        header, *rows = table("one/plots/images.csv")
        shown = [int(row[1]) for row in rows]
        broken = np.flatnonzero((np.array(each["clean_correct"]) == 1) & (np.array(each[sequence + "_correct"]) == 0))
        self.assertGreater(len(broken), 6)
        self.assertEqual(shown, broken[:12].tolist())
        for row in rows:
            i = int(row[1])
            self.assertEqual([row[0], *map(int, row[2:5])], [each["broken_by"][i], label[i], each["clean_prediction"][i], each["prediction"][i]])
        script = common.text_of("one/plots/images.gp")
        width, height = map(int, re.search(r"array=\((\d+),(\d+)\)", script).groups())
        canvas = np.fromfile("one/plots/images.rgb", np.uint8).reshape(height, width, 3)
        clean = common.datasets("set.h5")["test/images"]
        with h5py.File("one/adversarial.h5") as file:
            attacked = file["images"][()]
            np.testing.assert_array_equal(file["clean"][()], clean)
        for k, i in enumerate(shown):
            x, y = 110 + k % 6 * 104, 70 + k // 6 * (46 + 3 * 104 + 10) + 46
            grow = np.ones((6, 6, 1))
            np.testing.assert_array_equal(canvas[y : y + 96, x : x + 96], np.kron(clean[i], grow))
            np.testing.assert_allclose(canvas[y + 104 : y + 200, x : x + 96], np.kron(255 * attacked[i], grow), atol=0.501)
        scale = 0.5 / np.abs(attacked[shown] - clean[shown] / 255).max()
        np.testing.assert_allclose(canvas[y + 208 : y + 304, x : x + 96],
                                   np.kron(255 * (0.5 + scale * (attacked[i] - clean[i] / 255)), grow), atol=0.51)
        # A file of its own has a folder of its own; several things at once.
        self.assertEqual(common.run(*evaluate, "--eval", "pgd2", "--out", "two.json").code, 0)
        ended = self.run_well("plot", "two.json", "run", "one/eval.json")
        self.assertEqual([line for line in ended.text.split() if not line.startswith("run/")],
                         ["two-plots/confusion.svg", "two-plots/classes.svg",
                          *[f"one/plots/{name}.svg" for name in ("confusion", "classes", "images")]])
        common.write("bad.json", json.dumps(told)[:-100])
        self.refuse(3, "bad.json: is no evaluation that 'eval --out' wrote, or cut off", "plot", "bad.json")


class Evaluation(common.TestCase):
    """Each sample counts once, on any number of ranks and in batches of any size."""

    def test_on_one_to_three_ranks(self):
        common.synthetic("set.h5", train=96, test=101, size=16, classes=4)
        self.train("run", *TRAIN, "--network", "small_cnn", "--batch", 16, "--warmup-epochs", 1, "--epochs", 3, "--lr",
                   0.05, ranks=2)
        arguments = ["eval", "--checkpoint", "run", "--threads", 1, "--eval", "pgd3", "--eps", "16/255"]
        found = []
        for ranks, batch in (1, 101), (1, 32), (2, 16), (3, 40):
            ended = self.run_well(*arguments, "--batch", batch, ranks=ranks)
            self.assertIn(" 101 test images", ended.text)
            found.append([float(word) for word in re.findall(r"(?:accuracy|loss) (\d\S+)", ended.text)])
        for clean, clean_loss, attacked, attacked_loss in found:
            # Counts of 101 images. A sample's numbers do not depend on its neighbours, so the counts agree exactly.
            # Losses are sums in another order, shown with 4 digits.
            self.assertEqual((clean, attacked), (found[0][0], found[0][2]))
            self.assertAlmostEqual(clean * 101, round(clean * 101), delta=0.01)
            self.assertAlmostEqual(clean_loss, found[0][1], delta=1.5e-4)
            self.assertAlmostEqual(attacked_loss, found[0][3], delta=1.5e-4)
        self.assertLess(found[0][2], found[0][0])
        self.assertGreater(found[0][0], 0.3)
        # An attack of several targets, too, and all that is told of each image.
        told = []
        for ranks, batch in (1, 1), (1, 7), (1, 64), (2, 16):
            ended = common.run("eval", "--checkpoint", "run", "--threads", 1, "--eval", "apgd-t", "--eps", "6/255", "--limit", 40,
                               "--batch", batch, "--out", "told.json", ranks=ranks)
            self.assertRegex(ended.final, " PARTIAL$")
            told.append(common.load("told.json"))
        first = told[0]
        self.assertTrue(0 < first["attacks"][0]["accuracy"] < first["clean"]["accuracy"])
        for other in told:
            self.assertEqual(other["verdict"], "PARTIAL")
            for name in "clean", "apgd-t":
                for what in "correct", "prediction":
                    self.assertEqual(other["per_image"][f"{name}_{what}"], first["per_image"][f"{name}_{what}"])
                # What batches of another size round differently may move a step's sign, and that a loss by this much.
                np.testing.assert_allclose(other["per_image"][f"{name}_loss"], first["per_image"][f"{name}_loss"], rtol=0.02)
        self.assertEqual([row["images"] for row in common.rows("run", "evaluation")], [101] * 4)

    @common.at_night
    def test_of_local_statistics_is_that_of_rank_0(self):
        """Two ranks that keep their own running statistics evaluate one network: the one that the checkpoint has."""
        common.synthetic("set.h5", train=48, test=50, size=16, classes=4)
        local = [*TRAIN, "--network", "small_cnn", "--batch", 4, "--warmup-epochs", 0, "--epochs", 2, "--lr", 0.05,
                 "--bn-statistics", "local"]
        self.train("run", *local, ranks=2)
        own = common.state("run")["state/bn_local"].reshape(2, -1)
        self.assertGreater(np.abs(own[0] - own[1]).max(), 0.01)
        ended = common.run("eval", "--checkpoint", "run", "--threads", 1, "--eval", "pgd2")
        found = [float(word) for word in re.findall(r"(?:accuracy|loss) (\d\S+)", ended.text)]
        last = common.rows("run", "evaluation")[-1]
        # Shown with 4 digits; accuracies are counts of 50.
        for name, value in zip(("clean_acc", "clean_loss", "adv_acc", "adv_loss"), found, strict=True):
            self.assertAlmostEqual(last[name], value, delta=1.5e-4, msg=name)
        # The ranks go on with their own: an evaluation changes nothing.
        local[local.index("--eval-every") + 1] = 0
        self.train("quiet", *local, ranks=2)
        self.assert_same(common.state("run"), common.state("quiet"))

    def test_agrees_with_the_training_program(self):
        common.synthetic("set.h5", train=48, test=50, size=16, classes=4)
        self.train("run", *TRAIN, "--network", "small_cnn", "--batch", 16, "--warmup-epochs", 0, "--epochs", 2)
        last = common.rows("run", "evaluation")[-1]
        for path in "run", "run/ckpt", common.checkpoints("run")[-1]:
            ended = common.run("eval", "--checkpoint", path, "--threads", 1, "--eval", "pgd2")
            self.assertRegex(ended.final, f"^Final: clean_acc={last['clean_acc']:.4f} pgd2_acc={last['adv_acc']:.4f} ")
        ended = common.run("eval", "--checkpoint", "run", "--split", "train", "--limit", 20, "--eval", "fgsm",
                           "--threads", 1)
        self.assertIn(" 20 training images", ended.text)
        self.assertRegex(ended.text, r"clean_acc=\S+ fgsm_acc=\S+ ")


class Validated(common.TestCase):
    def test_what_validate_says_is_what_train_does(self):
        common.synthetic("set.h5", train=50, test=10, size=16, classes=4)
        common.write("run.toml", """
                data = ["set.h5"]
                network = "small_cnn"
                width = 16
                threads = 1
                batch = 8
                epochs = 2
                warmup-epochs = 1
                eps = "6/255"
                alpha = 1.5/255  # a fraction, without quotes
                attack-steps = 2
                eval = ["pgd1"]
                """)
        ended = self.run_well("validate", "--config", "run.toml")
        for pattern in ("parameters +14548 in 11 tensors, 11 layers",
                        "data +50 training and 10 test images, 4 classes, 16x16",
                        "length +21 steps, 3 epochs of 7 steps \\(1 warm-up\\)", "all-reduce +0.0 MB per step",
                        "checkpoint +0.2 MB", "memory per rank +\\d"):
            self.assertRegex(ended.text, pattern)
        started = self.train("run", "--config", "run.toml").text
        self.assertRegex(started, ", 14548 parameters, 1 rank, (?!.* generators)")
        self.assertIn("run folder run, 21 steps, 3 epochs of 7 steps (1 warm-up)\n", started)
        self.assertEqual([(row["epoch"], row["steps_per_epoch"]) for row in common.rows("run", "step")],
                         [(step // 7, 7) for step in range(21)])
        self.assertRegex(started, r"step 21/21  epoch 3 of 3( \(1 warm-up\))?  loss ")
        ended = common.run("validate", "--config", "run.toml", "--max-steps", 20, "--attack-stop", 0)
        self.assertIn(" at most, of 8, 4, 2 or 1 images at a time\n", ended.text)
        self.assertRegex(ended.text, r"length +20 of 21 steps, 3 epochs of 7 steps \(1 warm-up\)")
        resolved = common.text_of("run/config.resolved.toml")
        self.assertRegex(resolved, '(?m)^eps = "6/255"$')
        self.assertRegex(resolved, f'(?m)^alpha = {1.5 / 255!r}|alpha = "1.5/255"$')
        # What is hardly meant is named, by both in the same words.
        odd = ["--config", "run.toml", "--batch", 1000, "--threads", os.cpu_count() + 1, "--alpha", 1]
        ended = common.run("validate", *odd)
        advised = re.findall("(?m)^warning +(.*)$", ended.text)
        self.assertEqual([line.split()[0] for line in advised], ["--threads", "--batch", "--alpha"], ended.text)
        self.assertIn("ranks            1, batch 50 each", ended.text)
        ended = self.train("odd", *odd)
        warned = [line.partition("warning: ")[2] for line in ended.warnings]
        self.assertEqual([line for line in warned if line.startswith("--")], advised)
        logged = common.text_of("odd/run.log")
        for line in advised:
            self.assertIn("Z warning: " + line + "\n", logged)
        ended = common.run("validate", "--config", "odd/config.resolved.toml")
        self.assertIn("ranks            1, batch 50 each", ended.text)
        self.refuse(2, "budget 1 ", "validate", "--config", "run.toml", "--budget", 1, "--selector", "exp3:p_min=0.5")
        self.refuse(2, "--micro-batch", "validate", "--config", "run.toml", "--micro-batch", 3)
        self.refuse(3, "none.h5", "validate", "--config", "run.toml", "--data", "none.h5")


if __name__ == "__main__":
    common.main()
