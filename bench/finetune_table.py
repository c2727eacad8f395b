"""Fine-tuning at equal cost: finetune_table.py PROGRAM --source images.tar --data cifar10.h5 --out DIR [--seeds 2] [-- OPTIONS]

Pre-trains a narrow ResNet-18 on --classes classes of the images of a tar (folders train/CLASS and val/CLASS), at 32 x 32 pixels,
clean and by PGD-2, and trains it then by PGD-2 on CIFAR-10 with --images images a class: from random weights, the last layer alone
(a linear probe), all after layer3, and all layers. Prints clean accuracy and PGD-10 on --test-images test images, and the
difference from the training from random weights with the same seed and the same images: its mean, and a 95 % interval of the mean
by the scatter of all rows over the seeds. That pre-training helps is said where the interval leaves zero out, and nowhere else.

All pre-trainings cost the same, and so do all trainings after them: --pre-passes and --passes thousands of passes, where a pass is
one image's way forward and back, of the attack or of the training. What stands still makes the passes of the training cheaper, not
fewer. Rates are not searched: .1 from random weights; .02, and .1 for the last layer, from others.

The same command goes on where it was stopped; what is finished (DIR/NAME.json) is not made again. --minutes ends a call when no
further row would fit; the table has what is there. --tiny: drawn images and few steps, for tests. Options after `--` go to every
training.
"""

import math
import pathlib
import tarfile

import student
import study
from launch import Clock

PGD = ["--attack", "pgd", "--attack-steps", 2, "--alpha", "5/255", "--lambda", 0]
# Of a way to pre-train: options, passes of an image.
SOURCES = {"clean": (["--attack", "none", "--lambda", 1], 1), "PGD-2": (PGD, 3)}
SCRATCH = "scratch"
ROWS = {SCRATCH: (None, [])}  # name: pre-training, options
for source in SOURCES:
    for name, options in ("probe", ["--freeze", "all-but-head"]), ("after layer3", ["--freeze", "layer3"]), ("all", []):
        ROWS[f"{source}, {name}"] = source, options
COLUMNS = ["clean", "PGD-10"]


class Study:
    def __init__(self, arguments):
        self.arguments, self.clock = arguments, Clock(arguments.minutes)
        self.runs = study.Runs(arguments.out, arguments.program)
        self.run = self.runs.say

    def source(self):
        """The images of the first classes, of one size."""
        a = self.arguments
        made = a.out / "source.h5"
        if made.exists():
            return made
        if a.tiny:
            self.run("data", "synthetic", made, "--train", 64, "--test", 16, "--size", 16, "--classes", 6)
            return made
        chosen, part = a.out / "source.tar", a.out / "source-part.tar"
        with tarfile.open(a.source) as images, tarfile.open(part, "w") as some:
            members = [member for member in images if member.isfile() and len(member.name.split("/")) >= 3]
            classes = sorted({member.name.split("/")[-2] for member in members})[: a.classes]
            for member in members:
                if member.name.split("/")[-2] in classes:
                    some.addfile(member, images.extractfile(member))
        part.replace(chosen)
        self.run("data", "index", "--size", 32, chosen, made)
        return made

    def task(self, seed):
        """So many images a class, drawn by the seed, and the first test images."""
        import h5py
        import numpy as np
        a = self.arguments
        made = a.out / f"task-{seed}.h5"
        if made.exists():
            return made
        data = a.data
        if a.tiny:
            data = a.out / "all.h5"
            self.run("data", "synthetic", data, "--train", 64, "--test", 16, "--size", 16, "--classes", 4)
        part = made.with_suffix(".part")
        with h5py.File(data) as file, h5py.File(part, "w") as few:
            labels = file["train/labels"][()]
            drawn = np.random.default_rng(seed).permutation(len(labels))
            chosen = np.sort(np.concatenate([drawn[labels[drawn] == label][: a.images] for label in np.unique(labels)]))
            few["train/images"], few["train/labels"] = file["train/images"][()][chosen], labels[chosen]
            for name in "test/images", "test/labels":
                few[name] = file[name][: a.test_images]
        part.replace(made)
        return made

    def trained(self, name, seed, data, images, passes, each, options):
        """What a training with so many thousands of passes, of which an image takes `each`, has left."""
        a = self.arguments
        steps = max(1, round(1000 * passes / each / a.batch))
        epochs = math.ceil(steps / math.ceil(images / a.batch))
        return self.runs.trained(f"{study.slug(name)}-{seed}", [
            "--data", data, "--network", "resnet18", "--width", a.width, "--batch", a.batch, "--optimizer", "sgd", "--weight-decay", 5e-4,
            "--schedule", "linear", "--warmup-epochs", 0, "--epochs", epochs, "--max-steps", steps, "--selector", "all", "--eval", "pgd10",
            "--eval-every", 0, "--seed", seed, *options, *a.options], lambda folder: study.accuracies(folder, **{"PGD-10": "pgd10"}))

    def pre_trained(self, source, seed):
        a = self.arguments
        options, each = SOURCES[source]
        self.trained(f"pre-{source}", seed, self.source(), 64 if a.tiny else 200 * a.classes, a.pre_passes, each,
                     ["--lr", 0.1, "--limit-test", 200, *options])
        return a.out / f"{study.slug(f'pre-{source}')}-{seed}"

    def row(self, name, seed):
        a = self.arguments
        source, options = ROWS[name]
        classes = 4 if a.tiny else 10
        start = ["--lr", 0.1] if source is None else ["--initialize", self.pre_trained(source, seed), "--new-head", classes, "--lr", 0.02,
                                                      "--head-lr", 0.1]
        return self.trained(name, seed, self.task(seed), classes * a.images, a.passes, 3, [*PGD, *start, *options])

    def all(self):
        found, longest = {}, 0
        for seed in range(1, self.arguments.seeds + 1):
            for name in ROWS:
                before = self.clock.left()
                made = (self.arguments.out / f"{study.slug(name)}-{seed}.json").exists()
                if not made and before < longest:
                    print(f"the time is over: {name}, seed {seed} is left out", flush=True)
                    continue
                found[name, seed] = self.row(name, seed)
                longest = max(longest, before - self.clock.left())
                print(f"seed {seed}, {name}: " + ", ".join(f"{column} {found[name, seed][column]:.2f} %" for column in COLUMNS), flush=True)
        return found


def report(found, seeds):
    whole = [seed for seed in range(1, seeds + 1) if all((name, seed) in found for name in ROWS)]
    if not whole:
        print("no seed has all rows yet")
        return
    rows = {name: [found[name, seed] for seed in whole] for name in ROWS}
    half = {column: student.block_interval([[row[column] for row in rows[name]] for name in ROWS]) for column in COLUMNS}
    print()
    told = study.compared("weights, what is trained", {name: name for name in ROWS}, rows, COLUMNS, max(map(len, ROWS)) + 6, half,
                          f"above {SCRATCH}, ")
    helps = [f"{name} ({column})" for (name, column), (mean, width) in told.items() if mean - width > 0]
    print(f"\n{len(whole)} paired seeds; intervals of 95 %, by the scatter of all rows over the seeds")
    print("pre-training helps: " + "; ".join(helps) if helps else "no interval is above zero: nothing is said of what pre-training does")


def main():
    arguments, parser = study.parsed(
        __doc__, source=(None, "a tar of images, train/CLASS/... and val/CLASS/..."),
        data=(None, "CIFAR-10, made by 'dat_hpc data convert'"), out=pathlib.Path("runs/finetune_table"),
        classes=(80, "that are pre-trained on"), images=(100, "of a class of the task"), test_images=1000, seeds=2, width=16, batch=50,
        pre_passes=(60.0, "thousands"), passes=(30.0, "thousands"), minutes=40.0, tiny=False)
    if arguments.tiny:
        arguments.width, arguments.batch, arguments.images, arguments.test_images = 3, 8, 4, 8
        arguments.pre_passes = arguments.passes = 0.024
    elif not (arguments.source and arguments.data):
        parser.error("--source and --data say which images; --tiny draws some")
    report(Study(arguments).all(), arguments.seeds)


if __name__ == "__main__":
    main()
