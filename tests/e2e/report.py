"""The page about runs: it says what the records say, it is valid, and it loads nothing."""

import csv
import html.parser
import io
import json
import os
import re
import shutil
import subprocess

import common

TRAIN = ["--network", "small_cnn", "--width", 4, "--threads", 1, "--attack-steps", 1, "--warmup-epochs", 0, "--epochs", 2, "--batch", 8,
         "--eval", "pgd2", "--optimizer", "sgd", "--eval-every", 1, "--quiet"]
HOSTILE = "<script>alert(1)</script>"


class Reader(html.parser.HTMLParser):
    """The tags of a page with their attributes, the texts between them, and its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tables, self.words, self.ids = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_data(self, text):
        self.words.append(text)
        if self.tags and self.tags[-1][0] in ("td", "th") and self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += text.strip("\n")


class Report(common.TestCase):
    def report(self, *arguments, code=0, environment=None):
        ended = subprocess.run([common.PROGRAM, "report", *arguments], capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stdout, ended.stderr

    def read(self, path):
        """A page, which has to be small, valid, without scripts, and without an address outside of it."""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertLess(os.path.getsize(path), 2_000_000)
        page = Reader(text)
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for tag, attributes in page.tags:
            self.assertNotIn(tag, ("script", "link", "iframe", "object", "base", "form"))
            for name, value in attributes.items():
                self.assertFalse(name.startswith("on"), (tag, name))
                if name in ("src", "href", "xlink:href"):
                    self.assertRegex(value, r"^(data:image/png;base64,|#)")
                    if value[0] == "#":
                        self.assertIn(value[1:], page.ids)
        self.assertNotRegex(re.sub("data:image/png;base64,[^\"']*", "", text), r"@import|url\((?!#)|//[a-z]+\.[a-z]")
        if shutil.which("tidy"):
            ended = subprocess.run(["tidy", "-e", "-q", "--show-warnings", "yes", path], capture_output=True, text=True, check=False)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return page

    def test_pages(self):
        common.synthetic("one.h5", train=45, test=61, size=8, classes=3)
        hostile = "<i>&'run"
        names = ["a", "b", hostile]
        for seed, name in enumerate(names):
            self.train(name, *TRAIN, "--data", "one.h5", "--seed", seed)
            page = self.read(name + "/report.html")  # of the training itself
            self.assertIn(name, page.words)

        # The tables are those of compare, which are tested for themselves.
        self.report(*names, "--out", "all.html")
        page = self.read("all.html")
        compared = subprocess.run([common.PROGRAM, "compare", "--csv", *names], capture_output=True, text=True, check=True).stdout
        figures = [row for table in page.tables for row in table if row and row[0] in names]
        for row in csv.DictReader(io.StringIO(compared)):
            percent, low, high = (f"{float(row[key]):.2f}" for key in ("percent", "low", "high"))
            self.assertTrue(any(one[0] == row["row"] and percent in one and f"[{low}, {high}]" in one for one in figures), row)
        differing = next(table for table in page.tables if table[0][:2] == ["run", "seed"])
        self.assertEqual([row[1] for row in differing[1:]], ["0", "1", "2"])
        self.assertGreaterEqual(sum(tag == "svg" for tag, _ in page.tags), 4 if shutil.which("gnuplot") else 3)
        self.assertIn("3 seeds: means", " ".join(self.grouped(names).words))

        # Without gnuplot the page says so, and has all the rest.
        self.report("a", "--out", "plain.html", environment={**os.environ, "PATH": os.path.abspath("nothing")})
        self.assertIn("gnuplot was not found", " ".join(self.read("plain.html").words))

        # A run under way, whose last line is being written, and one without a step.
        for name, lines in ("now", 4), ("begun", 1):
            shutil.copytree("a", name)
            for gone in "SUMMARY.txt", "results.h5", "report.html":
                os.remove(f"{name}/{gone}")
            with open("a/metrics.jsonl", encoding="utf-8") as file:
                kept = file.readlines()[:lines]
            with open(f"{name}/metrics.jsonl", "w", encoding="utf-8") as file:
                file.write("".join(kept) + '{"kind":"st')
            self.report(name)
            words = " ".join(self.read(name + "/report.html").words)
            self.assertIn("No evaluation yet.", words)
            self.assertIn("Not at its end.", words)

        # Beside the figures stand those of the recipe that the command names.
        with open("a/provenance.json", encoding="utf-8") as file:
            told = json.load(file)
        told["command_line"] += ["--recipe", "imagenet_fast_at"]
        with open("a/provenance.json", "w", encoding="utf-8") as file:
            json.dump(told, file)
        self.report("a")
        self.assertIn("published: clean 60.90, PGD-50 43.46", " ".join(self.read("a/report.html").words))

        # What is no page is not written over; what cannot be read is named, and the rest is there.
        self.assertIn("is no page", self.report("a", "--out", "one.h5", code=2)[1])
        self.assertIn("left out", self.report("a", "missing", "--out", "all.html", code=3)[1])
        self.assertIn("a", self.read("all.html").words)

    def grouped(self, names):
        self.report(*names, "--by", "lr", "--out", "grouped.html")
        return self.read("grouped.html")

    def test_classes_and_images_of_an_evaluation(self):
        import h5py  # pylint: disable=import-outside-toplevel

        common.synthetic("set.h5", train=45, test=40, size=8, classes=3)
        with h5py.File("set.h5") as old, h5py.File("named.h5", "w") as new:
            for split in "train", "test":
                for part in "images", "labels":
                    new[f"{split}/{part}"] = old[f"{split}/{part}"][()]
            new.attrs["class_names"] = [HOSTILE, "b&\"c'", "dé"]
        self.train("run", *TRAIN, "--data", "named.h5", "--epochs", 6)
        subprocess.run([common.PROGRAM, "eval", "run", "--data", "named.h5", "--eval", "pgd2+fgsm", "--eps", "32/255", "--save-adversarial",
                        "--out", "run/strong", "--threads", "1"], capture_output=True, check=True)
        self.report("run")
        page = self.read("run/report.html")
        with open("run/strong/eval.json", encoding="utf-8") as file:
            told = json.load(file)
        each = told["per_image"]
        broken = [i for i, (clean, after) in enumerate(zip(each["clean_correct"], each["pgd2+fgsm_correct"], strict=True)) if clean and not after]
        self.assertTrue(broken)
        images = [attributes for tag, attributes in page.tags if tag == "img"]
        self.assertEqual(len(images), 3 * min(len(broken), 12))
        names = [HOSTILE, "b&\"c'", "dé"]
        self.assertEqual([image["alt"] for image in images[::3]], ["clean: " + names[each["label"][i]] for i in broken[:12]])
        self.assertEqual([image["alt"] for image in images[2::3]], ["attacked: " + names[each["prediction"][i]] for i in broken[:12]])


if __name__ == "__main__":
    common.main()
