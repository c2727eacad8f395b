"""Runs and evaluations side by side: every figure, interval and p is what Python makes of their records."""

import csv
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys

import common

sys.path.append(f"{common.TESTS}/../bench")
import student  # noqa: E402

TRAIN = ["--network", "small_cnn", "--width", 4, "--threads", 1, "--attack-steps", 2, "--warmup-epochs", 0, "--epochs", 2, "--batch", 8,
         "--eval", "pgd2", "--optimizer", "sgd", "--selector", "all", "--eval-every", 1, "--quiet"]


def student_interval(values):
    """Mean, deviation and the interval of 95 %."""
    mean, half = student.interval(values)
    return mean, statistics.stdev(values), mean - half, mean + half


def wilson_interval(right, n):
    """The p from which right/n is 1.96 standard deviations away, by bisection."""
    z, share = statistics.NormalDist().inv_cdf(0.975), right / n

    def limit(inside, outside):
        for _ in range(80):
            middle = (inside + outside) / 2
            far = abs(middle - share) > z * math.sqrt(middle * (1 - middle) / n)
            inside, outside = (inside, middle) if far else (middle, outside)
        return inside

    return limit(share, 0) if right > 0 else 0, limit(share, 1) if right < n else 1


def mcnemar(only_a, only_b):
    n, k = only_a + only_b, min(only_a, only_b)
    return min(1, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if only_a != only_b else 1


class Compare(common.TestCase):
    def compare(self, *arguments, code=0):
        ended = subprocess.run([common.PROGRAM, "compare", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stdout, ended.stderr.splitlines()

    def figures(self, *arguments, code=0):
        text, said = self.compare("--csv", *arguments, code=code)
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertFalse(any(None in row or None in row.values() for row in rows))  # as many fields as names of columns
        return rows, said

    def assert_numbers(self, row, columns, expected):
        for column, value in zip(columns, expected, strict=True):
            self.assertAlmostEqual(float(row[column]), value, delta=1e-7 * max(1, abs(value)), msg=column)

    def test_studies_against_python(self):
        common.synthetic("one.h5", train=45, test=61, size=8, classes=3)
        common.synthetic("two.h5", train=45, test=37, size=8, classes=3)
        runs = {f"rates/{rate}-{seed}": (rate, seed) for rate in ("0.05", "0.1") for seed in ("1", "2", "3")}
        for run, (rate, seed) in runs.items():
            self.train(run, *TRAIN, "--data", "one.h5", "--lr", rate, "--seed", seed)
        for eps in "8", "4":
            self.train(f"balls/b_{eps}", *TRAIN, "--data", "two.h5", "--eval-eps", f"{eps}/255")
        os.mkdir("rates/notes")  # no run
        found, said = self.figures("rates")
        self.assertEqual(said, [])  # all figures compare
        self.assertEqual([row["row"] for row in found], [name.removeprefix("rates/") for name in sorted(runs) for _ in range(2)])
        percents = {}
        for row in found:
            run = "rates/" + row["row"]
            last = common.rows(run, "evaluation")[-1]
            accuracy = last["clean_acc" if row["attack"] == "clean" else "adv_acc"]
            right = round(61 * accuracy)
            percents[run, row["attack"]] = 100 * right / 61
            self.assertEqual((row["--lr"], row["--seed"], row["images"], row["right"], row["state"], row["ranks"], row["steps"]),
                             (*runs[run], "61", str(right), "done", "1", "12"))
            told = common.load(run + "/provenance.json")
            self.assertEqual(row["image_set"], f"61 test images, hash {told['hashes_of_images']['test']}")
            self.assert_numbers(row, ["percent", "low", "high"], [100 * right / 61, *(100 * p for p in wilson_interval(right, 61))])
            steps = common.rows(run, "step")
            self.assertAlmostEqual(float(row["seconds"]), last["wall_time"], places=6)
            epoch = [step for step in steps if step["epoch"] == 1]
            trained = sum(step["images"] * step["acc_adv"] for step in epoch) / sum(step["images"] for step in epoch)
            self.assertAlmostEqual(float(row["training_percent"]), 100 * trained, places=6)
        # Seeds: a row for each rate.
        found, said = self.figures("rates", "--by", "lr")
        self.assertEqual((said, [(row["row"], row["attack"], row["seeds"], row["runs"], row["state"]) for row in found]),
                         ([], [(f"lr={rate}", attack, "1 2 3", "3", "3 done") for rate in ("0.05", "0.1") for attack in ("clean", "pgd2")]))
        self.assertEqual(list(found[0])[:3], ["row", "--lr", "runs"])  # not the seed, in which the runs of a row differ
        for row in found:
            values = [percents[run, row["attack"]] for run, (rate, _) in runs.items() if f"lr={rate}" == row["row"]]
            self.assert_numbers(row, ["percent", "deviation", "low", "high"], student_interval(values))
        text, _ = self.compare("rates", "--by", "lr")
        mean, deviation, low, high = student_interval([percents[f"rates/0.1-{seed}", "pgd2"] for seed in "123"])
        self.assertRegex(text, rf"(?m)^lr=0\.1 .*  {mean:.2f}  +{deviation:.2f}  +\[{low:.2f}, {high:.2f}\]")
        # Other images and other balls stand apart, and say so.
        text, said = self.compare("rates", "balls/b_8", "balls/b_4")
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"warning: not all figures compare.*3 tables.*images: 61 test images.* / 37 test images, hash \w+; "
                                  r"balls: eps 8/255 / eps 4/255; steps and restarts: alpha 2/255, 1 restart / alpha 1/255, 1 restart$")
        self.assertEqual([re.sub("hash [0-9a-f]{32}", "", line) for line in text.splitlines() if "hash" in line],
                         [f"{n} test images, ; pgd2, eps {eps}/255, alpha {2 if eps == 8 else 1}/255, 1 restart; 95 % intervals of Wilson"
                          for n, eps in ((61, 8), (37, 8), (37, 4))])
        self.assertRegex(text, r"(?m)^run +data +eval-eps .*lr +seed")
        text, _ = self.compare("balls", "--latex")
        self.assertIn("b\\_4 & ", text)
        # What cannot be read is named, and the table has the rest.
        shutil.copytree("balls/b_4", "other")
        common.write("other/config.resolved.toml", "wings = 2\n", "ab")
        shutil.copytree("balls/b_4", "old")
        common.write("old/metrics.jsonl", common.text_of("old/metrics.jsonl").replace('"format_version":', '"format_version":9', 1))
        # A run on its way is in the table, but not in the mean over seeds; nor is the same seed twice.
        for gone in "results.h5", ".lock":
            os.remove(f"rates/0.1-3/{gone}")
        shutil.copytree("rates/0.1-2", "again")
        self.assertEqual([row["state"] for row in self.figures("rates/0.1-3")[0]], ["stopped", "stopped"])  # as status says
        found, said = self.figures("balls/b_4", "other", "nowhere", "old", code=3)
        self.assertEqual([(row["row"], row["state"], row["ranks"]) for row in found],
                         [*2 * [("b_4", "done", "1")], ("other", "unreadable", ""), ("nowhere", "missing", ""), ("old", "unreadable", "")])
        self.assertRegex(self.compare("balls/b_4", "nowhere", code=3)[0], "(?m)^nowhere +missing( +-)+$")
        for line, pattern in zip(said, ("other/config.resolved.toml is of another version of the program, or damaged: .*wings",
                                        "no run in nowhere", "old/metrics.jsonl is of another version of the program: it has format 9"),
                                 strict=True):
            self.assertRegex(line, "^dat_hpc: error: left out: " + pattern)
        found, said = self.figures("rates", "again", "--by", "lr")
        self.assertEqual([(row["row"], row["seeds"], row["state"]) for row in found if row["attack"] == "pgd2"],
                         [("lr=0.05", "1 2 3", "3 done"), ("lr=0.1", "1 2", "3 of 4 done")])
        self.assertRegex("\n".join(said), "(?s)0.1-3 is not at its end.*0.1-2 and again have one seed, 2: the second is left out")
        for folder in "nowhere", "rates/notes":
            self.refuse(3, "no run in " + folder, "compare", folder)
        self.refuse(2, "--by seed: runs that differ in their seeds alone are one row", "compare", "rates", "--by", "seed")
        self.refuse(2, "--by milestone: is no option .*did you mean 'milestones'", "compare", "rates", "--by", "milestone")
        # Pictures over seeds.
        self.run_well("plot", *sorted(runs)[:5], "--by", "lr", "--out", "both", "--format", "png", "--dpi", 50)
        with open("both/accuracy.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        name = "lr=0.05 (3 runs): clean"
        last = [row for row in rows if row[name + " (%)"]][-1]
        self.assert_numbers(last, [name + end for end in (" (%)", " low (%)", " high (%)")],
                            [value for k, value in enumerate(student_interval([percents[f"rates/0.05-{s}", "clean"] for s in "123"])) if k != 1])
        with open("both/accuracy.png", "rb") as file:
            self.assertEqual(int.from_bytes(file.read(20)[16:], "big"), 500)

    def test_evaluations_image_by_image(self):
        common.synthetic("set.h5", train=48, test=53, size=8, classes=3)
        for seed in 1, 2:
            self.train(f"run{seed}", *TRAIN, "--data", "set.h5", "--seed", seed, "--lr", 0.05)
            self.run_well("eval", f"run{seed}", "--threads", 1, "--eval", "fgsm,pgd2+pgd3", "--limit", 51, "--quiet", "--out",
                          f"e{seed}")
        found, said = self.figures("e1", "e2/eval.json")
        self.assertEqual((said, [(row["row"], row["--seed"]) for row in found]), ([], [(f"e{k}", f"{k}") for k in (1, 2) for _ in range(3)]))
        images = [common.load(f"e{k}/eval.json")["per_image"] for k in (1, 2)]
        for row in found:
            name = row["attack"]
            a, b = (each[name + "_correct"] for each in images)
            own = a if row["row"] == "e1" else b
            self.assertEqual((row["images"], row["right"], row["state"]), ("51", str(sum(own)), "-"))
            self.assert_numbers(row, ["low", "high"], [100 * p for p in wilson_interval(sum(own), 51)])
            if row["row"] == "e1":
                self.assertEqual((row["against"], row["mcnemar_p"]), ("", ""))
                continue
            pairs = list(zip(a, b, strict=True))
            counts = [pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 1), (0, 0))]
            self.assertEqual([row[name] for name in ("against", "both_right", "only_against", "only_this", "neither")], ["e1", *map(str, counts)])
            self.assert_numbers(row, ["mcnemar_p"], [mcnemar(counts[1], counts[2])])
        text, _ = self.compare("e1", "e2")
        self.assertRegex(text, rf"(?m)^e1 +e2 +{re.escape(name)} +51 +{counts[0]} +{counts[1]} +{counts[2]} +{counts[3]} +{mcnemar(counts[1], counts[2]):.4f}$")
        self.assertEqual(re.findall("(?m)^e1 +e2 +(\\S+) +51 ", text), ["clean", "fgsm", "pgd2+pgd3"])
        shutil.copytree("e1", "e3")
        self.assertEqual(re.findall("(?m)^e1 +(e\\d) +(\\S+) +51 ", self.compare("e1", "e2", "e3")[0]),
                         [(other, attack) for attack in ("clean", "fgsm", "pgd2+pgd3") for other in ("e2", "e3")])
        common.write_arrays("weights.h5", {"linear.bias": [0.0]})  # which do not say how they were trained
        told = common.load("e1/eval.json") | {"checkpoint": "weights.h5"}
        told["attacks"].append(told["attacks"][0] | {"name": "none", "steps": 0})  # is told as clean already
        told["per_image"] |= {f"none_{what}": told["per_image"][f"clean_{what}"] for what in ("prediction", "correct")}
        common.write("e3/eval.json", json.dumps(told))
        self.assertEqual([row["--seed"] for row in self.figures("e1", "e2", "e3")[0]], 3 * ["1"] + 3 * ["2"] + 3 * ["-"])
        # Evaluations of two seeds are one row, too; a run's own figures are of all images.
        found, said = self.figures("e1", "e2", "run1", "--by", "lr")
        self.assertEqual(len(said), 1)
        self.assertEqual([(row["row"], row["seeds"], row["attack"]) for row in found],
                         [("lr=0.05, 1 rank", "1", "clean"), ("lr=0.05, 1 rank", "1", "pgd2"),
                          *[("lr=0.05, evaluated", "1 2", attack) for attack in ("clean", "fgsm", "pgd2+pgd3")]])


if __name__ == "__main__":
    common.main()
