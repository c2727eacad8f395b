"""The page about runs: it says what the records say, it is valid, and it loads nothing."""

import html.parser
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
        self.tags, self.tables, self.words, self.ids, self.headings = [], [], [], [], []
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
        if self.tags and self.tags[-1][0] in ("h1", "h2", "h3") and text.strip():
            self.headings.append((self.tags[-1][0], text))
        if self.tags and self.tags[-1][0] in ("td", "th") and self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += text.strip("\n")


class Report(common.TestCase):
    def report(self, *arguments, code=0):
        ended = subprocess.run([common.PROGRAM, "report", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stdout, ended.stderr

    def read(self, path):
        """A page, which has to be small, valid, without scripts, and without an address outside of it."""
        text = common.text_of(path)
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

    def page(self, path, *arguments, **how):
        self.report(*arguments, "--out", path, **how)
        return self.read(path)

    def test_pages(self):
        common.synthetic("one.h5", train=45, test=61, size=8, classes=3)
        hostile = "<i>&'run"
        names, own = ["a", "b", hostile], 0
        for seed, name in enumerate(names):
            self.train(name, *TRAIN, "--data", "one.h5", "--seed", seed)
            page = self.read(name + "/report.html")  # of the training itself
            self.assertIn(name, page.words)
            own += sum(tag == "svg" for tag, _ in page.tags)

        self.report(*names)
        page = self.read("report.html")  # of several runs in the folder of none
        self.assertIn("3 runs", page.words)
        differing = next(table for table in page.tables if table[0][:2] == ["run", "seed"])
        self.assertEqual([row[1] for row in differing[1:]], ["0", "1", "2"])
        self.assertGreaterEqual(sum(tag == "svg" for tag, _ in page.tags), max(own, 3) + bool(shutil.which("gnuplot")))
        self.assertIn("3 seeds: means", " ".join(self.page("grouped.html", *names, "--by", "lr").words))

        # A run under way, whose last line is being written, and one without a step.
        for name, lines in ("now", 4), ("begun", 1):
            shutil.copytree("a", name)
            for gone in "SUMMARY.txt", "results.h5", "report.html", ".lock":
                os.remove(f"{name}/{gone}")
            kept = common.text_of("a/metrics.jsonl").splitlines(keepends=True)[:lines]
            common.write(f"{name}/metrics.jsonl", "".join(kept) + '{"kind":"st')
            self.report(name)
            words = self.read(name + "/report.html").words
            self.assertIn("No evaluation yet.", words)
            self.assertIn("Not at its end, stopped.", words)
            self.assertNotIn("recipe", " ".join(words))
        self.assertIn("begun: Not at its end, stopped.", self.page("grouped.html", "now", "begun", "--by", "lr").words)

        # Beside the figures stand those of the recipe that the command names.
        told = common.load("a/provenance.json")
        told["command_line"] += ["--recipe", "imagenet_fast_at"]
        common.write("a/provenance.json", json.dumps(told))
        self.report("a")
        told = "published: clean 60.90, PGD-50 43.46, 12 hours of four RTX 2080 Ti. Not trained here."
        self.assertTrue(any(text.endswith(told) for text in self.read("a/report.html").words))

        # What is no page is not written over; what cannot be read is named, and the rest is there.
        self.assertIn("is no page", self.report("a", "--out", "one.h5", code=2)[1])
        self.assertIn("left out", self.report("a", "b", "begun", "missing", "--out", "all.html", code=3)[1])
        self.assertIn("a", self.read("all.html").words)
        self.assertFalse(any("begun" in drawn for drawn in re.findall("(?s)<svg.*?</svg>", common.text_of("all.html"))))

    def test_classes_and_images_of_an_evaluation(self):
        common.synthetic("set.h5", train=45, test=40, size=8, classes=3)
        common.write_data("named.h5", **common.read_data("set.h5"), names=[HOSTILE, "b&\"c'", "dé"])
        self.train("run", *TRAIN, "--data", "named.h5", "--epochs", 6)
        strong = ["eval", "run", "--data", "named.h5", "--eps", "32/255", "--save-adversarial", "--threads", 1]
        self.run_well(*strong, "--eval", "pgd2+fgsm", "--out", "run/strong")
        self.report("run")
        page = self.read("run/report.html")
        shown = [attributes["alt"] for tag, attributes in page.tags if tag == "img"]
        self.assertTrue(shown and all(any(f": {name} (" in alt for name in (HOSTILE, "b&\"c'", "dé")) for alt in shown if ":" in alt), shown)
        self.assertEqual([text for tag, text in page.headings if tag == "h2"],
                         ["Figures", "Curves, time and layers", "Time line", "Classes and images", "Provenance"])
        self.assertTrue(any(tag == "image" for tag, _ in page.tags) or not shutil.which("gnuplot"))  # the confusion's cells
        self.assertIn("The first images that are right, and wrong after pgd2+fgsm: clean, ", " ".join(page.words))
        self.assertTrue(any("command_line" in row and " eval run " in row[-1] for table in page.tables for row in table))

        # Of single attacks, alone, in a folder with a blank and a quote, and beside the other one of the same name.
        for folder in "it's one/strong", "other":
            self.run_well(*strong, "--eval", "fgsm,pgd2", "--out", folder)
        self.assertTrue(any(tag == "img" for tag, _ in self.page("the page.html", "it's one/strong").tags))
        page = self.page("two.html", "it's one/strong", "run/strong")
        self.assertTrue({"2 evaluations", "it's one/strong", "run/strong"} <= set(page.words))
        both = [("h3", "it's one/strong"), ("h3", "run/strong")]
        self.assertEqual(page.headings[-7:], [*both, ("h2", "Figures"), ("h2", "Classes and images"), *both, ("h2", "Provenance")])

        # Images of another evaluation: a sentence in their place.
        shutil.copy("run/strong/adversarial.h5", "other/adversarial.h5")
        page = self.page("other.html", "other")
        self.assertIn("is of another evaluation than the one beside it", " ".join(page.words))
        self.assertFalse(any(tag == "img" for tag, _ in page.tags))
        told = common.load("other/eval.json")

        # Many classes.
        for classes in 100, 1000:
            label = [i % classes for i in range(2 * classes)]
            wrong = [(i * i + 1) % classes for i in range(2 * classes)]
            told["classes"] = [{"name": f"{HOSTILE} {c}"} for c in range(classes)]
            told["per_image"] = {"label": label, "clean_loss": [0.5] * len(label)}
            for name, said in ("clean", label), ("fgsm", wrong), ("pgd2", wrong):
                told["per_image"] |= {name + "_prediction": said, name + "_correct": [int(a == b) for a, b in zip(label, said, strict=True)]}
            common.write("many.json", json.dumps(told))
            page = self.page("many.html", "many.json")
            if shutil.which("gnuplot"):
                self.assertEqual(sum(tag == "svg" for tag, _ in page.tags), 2 if classes == 100 else 1, classes)
                self.assertNotIn("would be larger", " ".join(page.words))

    def test_what_files_say(self):
        """Restarts are marks. Texts of files are text, and damaged, endless and enormous ones do no harm."""
        common.synthetic("one.h5", train=45, test=61, size=8, classes=3)
        usual = [*TRAIN, "--data", "one.h5"]
        self.train("run", *usual, "--max-steps", 4)
        self.train("run", *usual)
        self.report("run")
        page = self.read("run/report.html")
        marks = [word for word in page.words if word.startswith("step 4: restart ")]
        told = subprocess.run([common.PROGRAM, "status", "run", "--json"], capture_output=True, text=True, check=True).stdout
        self.assertEqual((len(marks), json.loads(told)["restarts"]), (1, 1))
        self.assertEqual(sum(tag == "path" and attributes.get("d", "").endswith("l6 12 h-12 z") for tag, attributes in page.tags), 1)

        os.rename("run", "a 'b' \"c\" $(d)")
        run = "a 'b' \"c\" $(d)"
        lines = common.rows(run)
        for line in lines:
            if line["kind"] == "run":
                line["layer_name"] = [f"{HOSTILE} %s %n {name}" for name in line["layer_name"]]
            if line["kind"] == "step":
                line["p"] = [0.5] * (len(line["p"]) - 1) + [None]
            if line["kind"] == "evaluation":
                line["attack"] = HOSTILE
        lines += 201 * [{"kind": "ban", "step": 3, "rank": 1, "by": None, "rule": HOSTILE}]

        def write(lines):
            common.write(run + "/metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

        write([line | {key: 1.7e308 for key in line if key.startswith("loss_") or key.endswith("_loss")} for line in lines])
        self.report(run, "--out", "hostile.html")
        self.read("hostile.html")
        write(lines)
        common.write(run + "/run.log", b"2026-01-01T00:00:00Z " + HOSTILE.encode() + b" \xff\x1b[31m\n2026 " + b"x" * 3_000_000 +
                     b"\n" + 300 * b"T line\n" + b"no end", "ab")
        told = common.load(run + "/provenance.json")
        common.write(run + "/provenance.json", json.dumps(told | {"host": HOSTILE, "long": "y" * 3_000_000}))
        page = self.page("hostile.html", run)
        words = " ".join(page.words)
        self.assertGreater(words.count(HOSTILE), 4)
        self.assertRegex(words, r"The first 200 of 20\d events")
        self.assertEqual(sum(tag == "circle" and attributes.get("cy") == "16" for tag, attributes in page.tags), 200)
        self.assertRegex(words, r"What the run has said; the last 300 of 3\d\d lines")
        self.assertEqual(len(next(table for table in page.tables if table[0] == ["UTC", "line"])), 1 + 300)
        self.assertTrue(f"{HOSTILE} %s %n conv1" in words or not shutil.which("gnuplot"))
        self.assertNotIn("would be larger", words)

        # A record that is damaged in its middle is named, the other run is there.
        shutil.copytree(run, "damaged")
        with open("damaged/metrics.jsonl", "r+b") as file:
            file.seek(os.path.getsize("damaged/metrics.jsonl") // 2)
            file.write(b'\n{"kind":"evaluation","step":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
        self.assertIn("is damaged", self.report("damaged", run, "--out", "hostile.html", code=3)[1])
        self.assertIn(run, self.read("hostile.html").words)

        # Many steps of many layers.
        steps, layers = (200_000, 20) if common.ALL_CASES else (4000, 300)
        header, step = lines[0], next(line for line in lines if line["kind"] == "step")
        header |= {"layer_name": [f"layer{k}.weight" for k in range(layers)], "layer_elements": [9] * layers, "layer_cost": [1] * layers}
        step |= {"active": "1" * layers, "p": [0.25] * layers, "norm": [0.5] * layers, "loss_adv": 1.5}
        last = next(line for line in lines if line["kind"] == "evaluation")

        def many():
            yield header
            for number in range(1, steps + 1):
                where = {"step": number, "wall_time": 0.1 * number}
                yield step | where | {"epoch": (number - 1) // 6}
                if number % 6 == 0:
                    yield last | where | {"epoch": number // 6}

        write(many())
        page = self.page("long.html", run)
        self.assertIn(f"step {steps}", page.words)
        self.assertNotIn("would be larger", " ".join(page.words))


if __name__ == "__main__":
    common.main()
