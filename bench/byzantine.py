"""Attackers against defences: byzantine.py PROGRAM [--form FORM] [--data FILE...] [-- OPTIONS]

Trains the same network once for each pair of a cheat (rows; "none": all ranks are honest) and a way to sum gradients
(columns), and prints a table each of clean accuracy, accuracy under PGD-10, the worst loss of a step while the ranks
cheated (means of what the ranks say, which is trimmed where the aggregator is robust), seconds and bytes of a step. The
last table tells how well the distances of the ranks' gradients from the result tell false ranks from honest ones: the area
under the curve, in the mean over the steps in which they cheated; 0.5 is chance. The simulation's own work is in neither
seconds nor bytes.

  cores    for two cores: 16 ranks, 7 of which cheat, small_cnn, PGD-3, CIFAR-10, 400 steps, from step 101 on, one seed
  bans     the same network and ranks with the protocol that bans (--byzantine), three seeds: all cheats, and honest ranks
           with the protocol, with the mean, and with 7 ranks that leave, to which the cheats are compared by seed
  minutes  a look at every row and column in ten minutes: 8 ranks, 3 of which cheat; the built-in set without --data
  paper    the setting of BTARD, with PGD-10: ResNet-18, 16 ranks of 8 images, 7 or 3 of which cheat, 5,100 steps (from step
           1,001 on) and 14,100 steps (from 10,001 on), 5 seeds. For a cluster: an array of N jobs, each with --part K/N
  paper_bans  that setting with the protocol, and the runs that `bans` compares to

A run leaves a folder below --out, and in it row.json, a line, when it is finished; what is finished is not made again, what
was interrupted goes on. --out/table.jsonl has all lines. --rows, --columns and --part choose runs, --list names them.
Options after `--` go to every training run. A run whose numbers are not finite goes on without these steps.
"""

import collections
import json
import math
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys

import launch
import student
import study

CHEATS = ["sign_flip", "constant", "label_flip", "delayed", "ipm01", "ipm06", "alie", "mimic", "history", "bit_flip", "bn_poison",
          "free_rider", "weak"]
MEASURES = ["median", "geometric_median", "multi_krum"]

# name; options of the program; whether it is told how many may cheat.
Defence = collections.namedtuple("Defence", "name options faults")
Form = collections.namedtuple("Form", "ranks faults lengths seeds taus train data bans")
# lengths: steps, steps before the ranks cheat, and steps by which a `delayed` gradient is late.
CORES = ["--network", "small_cnn", "--width", 16, "--attack", "pgd", "--attack-steps", 3, "--alpha", "4/255", "--batch", 8,
         "--optimizer", "sgd", "--lr", 0.05, "--schedule", "cosine", "--warmup-epochs", 0, "--limit-test", 2000]
PAPER = ["--network", "resnet18", "--attack", "pgd", "--attack-steps", 10, "--batch", 8, "--optimizer", "sgd:nesterov", "--lr", 0.01,
         "--momentum", 0.9, "--weight-decay", 5e-4, "--schedule", "cosine", "--warmup-epochs", 0]
OF_PAPER = Form(16, [7, 3], [(5100, 1000, 1000), (14100, 10000, 1000)], [0, 1, 2, 3, 4], [1, 10], PAPER, True, False)
FORMS = {
    "cores": Form(16, [7], [(400, 100, 100)], [1], ["auto"], CORES, True, False),
    "bans": Form(16, [7], [(400, 100, 100)], [1, 2, 3], ["auto"], CORES, True, True),
    "minutes": Form(8, [3], [(40, 10, 10)], [1], ["auto"], [
        "--network", "small_cnn", "--width", 16, "--attack", "pgd", "--attack-steps", 2, "--alpha", "5/255", "--batch", 8,
        "--optimizer", "sgd", "--lr", 0.05, "--schedule", "cosine", "--warmup-epochs", 0, "--limit-test", 200], False, False),
    "paper": OF_PAPER,
    "paper_bans": OF_PAPER._replace(bans=True),
}
EPOCHS_OF_PAPER = 64  # 25,000 steps of 128 images, over which the learning rate falls


IN_ORDER = ["--deterministic", "--micro-batch", 8]  # sums as ranks that leave do not change them


def defences(form):
    def clip(name, *options):
        return [Defence(name + (f" {tau}" if len(form.taus) > 1 else ""),
                        ["--aggregator", f"centered_clip:tau={tau}", *options], True) for tau in form.taus]
    if form.bans:
        return [*clip("protocol", "--byzantine", *IN_ORDER), Defence("mean", IN_ORDER, False)]
    clips = clip("centered_clip", "--codec-transport", "butterfly")
    return [Defence("mean", [], False), *(Defence(name, ["--aggregator", name], True) for name in MEASURES),
            Defence("trimmed_mean", ["--aggregator", "trimmed_mean"], True),
            Defence("trimmed_mixed", ["--aggregator", "trimmed_mean:mixing"], True), *clips]


class Run(collections.namedtuple("Run", "row column faults steps start delay seed")):
    """A training run: a cheat against a defence."""

    @property
    def name(self):
        return f"{self.row}-{self.column.name.replace(' ', '')}-f{self.faults}-{self.steps}-seed{self.seed}"

    def cheaters(self, ranks):
        """Never rank 0; with a seed the same ranks in every cell."""
        return sorted(random.Random(self.seed).sample(range(1, ranks), self.faults)) if self.row != "none" else []


def runs_of(form, rows, columns):
    return [Run(row, column, faults, *length, seed)
            for length in form.lengths for faults in form.faults for seed in form.seeds for row in rows for column in columns
            if not form.bans or row == "none" or column.name != "mean"]


def words_of(run, form, arguments, folder):
    """The command line after the launcher."""
    images = form.ranks * 8
    epochs = EPOCHS_OF_PAPER if form.train == PAPER else max(1, math.ceil(run.steps * images / arguments.images))
    words = ["train", "--out", folder, *(["--data", *arguments.data] if arguments.data else []), *form.train, "--epochs", epochs,
             "--max-steps", run.steps, "--lambda", 0, "--selector", "all", "--eval", "pgd10", "--eval-every", 0,
             "--seed", run.seed, "--max-bad-steps", run.steps, "--quiet", *run.column.options]
    if not arguments.data:
        words += ["--limit-train", arguments.images]
    if run.column.faults:
        words += ["--faults", run.faults]
    if cheaters := run.cheaters(form.ranks):
        # Those who leave do so one after the other, as those who are banned.
        cheat = f"delayed:{run.delay}" if run.row == "delayed" else run.row
        starts = [run.start + 5 * (k + 1) if run.row == "leave" else run.start for k in range(len(cheaters))]
        words += ["--attackers", ",".join(map(str, cheaters)), "--cheat", ",".join(f"{cheat}@{start}" for start in starts)]
    return [str(word) for word in [*words, *arguments.options]]


def area_under_curve(distances, cheaters):
    """The part of the pairs of a false and an honest rank in which the false one is further away; equal: a half. What is
    not finite, or not there since the rank checks another one, is furthest."""
    far = [math.inf if distance is None else distance for distance in distances]
    honest = [far[rank] for rank in range(len(far)) if rank not in cheaters]
    pairs = [(far[rank], other) for rank in cheaters for other in honest]
    return statistics.fmean((one > other) + 0.5 * (one == other) for one, other in pairs)


def figures(run, form, folder):
    """What the run's record says."""
    steps, bans, setbacks, left = (launch.rows(folder, kind) for kind in ("step", "ban", "setback", "left"))
    found = study.accuracies(folder, pgd10="pgd10")
    losses = [row["loss_adv"] for row in steps if row["step"] > run.start]
    cheaters = run.cheaters(form.ranks)
    last = min((row["step"] for row in left), default=run.steps)
    areas = [area_under_curve(row["distance"], cheaters) for row in steps
             if cheaters and run.start < row["step"] <= last and "distance" in row]  # all are there
    return {"clean": found["clean"], "pgd10": found["pgd10"],
            "worst_loss": max((math.inf if loss is None else loss for loss in losses), default=math.nan),
            "skipped": len(setbacks),
            "seconds": statistics.fmean(map(launch.seconds_of, steps)),
            "bytes": statistics.fmean(row["bytes_sent"] + row["bytes_other"] for row in steps),
            "auc": statistics.fmean(areas) if areas else None,
            "banned": [[row["rank"], row["step"], row["rule"]] for row in bans]}


def make(run, form, arguments):
    """Trains, and writes the row."""
    folder = arguments.out / run.name
    folder.mkdir(parents=True, exist_ok=True)
    command = [*shlex.split(arguments.launch.format(ranks=form.ranks)), os.path.abspath(arguments.program),
               *words_of(run, form, arguments, folder)]
    environment = launch.QUIET | {"OMPI_MCA_mpi_yield_when_idle": "1"} | dict(os.environ)
    ended = launch.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    if ended.returncode not in (0, 7):  # 7: numbers that are not finite, which is a result
        sys.exit(f"{shlex.join(command)}: exit code {ended.returncode}\n{ended.stdout[-4000:]}")
    row = {"form": arguments.form, "cheat": run.row, "defence": run.column.name, "ranks": form.ranks, "faults": run.faults,
           "steps": run.steps, "start": run.start, "seed": run.seed, "code": ended.returncode}
    try:
        row |= figures(run, form, folder)
    except (KeyError, OSError):  # no evaluation: the run has ended before
        row |= {"clean": None, "pgd10": None, "worst_loss": math.inf, "auc": None, "seconds": None, "bytes": None}
    launch.write_json(folder / "row.json", row)


def row_of(run, arguments):
    """None: not finished yet."""
    path = arguments.out / run.name / "row.json"
    return launch.read_json(path) if path.exists() else None


def report(found, rows, columns, arguments):
    """Tables of the rows that there are; a cell is a mean over seeds."""
    width = max(len(column.name) for column in columns) + 2
    for steps, faults in sorted({(run.steps, run.faults) for run, _ in found}):
        for title, key, form, scale in (("clean accuracy, %", "clean", ".2f", 1), ("accuracy under PGD-10, %", "pgd10", ".2f", 1),
                                        ("worst loss of a step while they cheated", "worst_loss", ".3g", 1),
                                        ("seconds of a step, rank 0", "seconds", ".3f", 1),
                                        ("kB of a step and rank", "bytes", ".1f", 1e-3),
                                        ("false ranks told by distance from the result, area under the curve", "auc", ".3f", 1)):
            print(f"\n{title} ({steps} steps, {faults} of {FORMS[arguments.form].ranks} ranks)\n")
            print(f"{'':<12}" + "".join(f"{column.name:>{width}}" for column in columns))
            for name in rows:
                cells = []
                for column in columns:
                    values = [row.get(key) for run, row in found
                              if (run.row, run.column, run.steps, run.faults) == (name, column, steps, faults)]
                    values = [value for value in values if value is not None]
                    cells.append(f"{scale * statistics.fmean(values):{form}}" if values else "-")
                print(f"{name:<12}" + "".join(f"{cell:>{width}}" for cell in cells))


def report_bans(all_found):
    """Each cheat beside the run of its seed that as many ranks have left; pooled, with an error by seed."""
    for steps, faults in sorted({(run.steps, run.faults) for run, _ in all_found}):
        found = {(run.row, run.column.name, run.seed): row for run, row in all_found if (run.steps, run.faults) == (steps, faults)}
        seeds = sorted({seed for _, _, seed in found})
        print(f"\n{f'{steps} steps, {faults} ranks':<22}" + "".join(f"{'seed ' + str(seed):>18}" for seed in seeds) +
              "   clean and PGD-10, %; of cheats, step of the last ban")
        for (name, column) in dict.fromkeys((name, column) for name, column, _ in found):
            cells = []
            for seed in seeds:
                row = found.get((name, column, seed))
                cell = "-" if row is None or row["clean"] is None else f"{row['clean']:.2f} {row['pgd10']:.2f}"
                if row and row.get("banned"):
                    cell += f" {max(step for _, step, _ in row['banned'])}" + ("" if len(row["banned"]) == row["faults"] else "!")
                cells.append(f"{cell:>18}")
            print(f"{name + ' ' + column:<22}" + "".join(cells))
        for column in dict.fromkeys(column for _, column, _ in found if column != "mean"):
            for key in "clean", "pgd10":
                by_seed = []
                for seed in seeds:
                    left = found.get(("leave", column, seed))
                    cheats = [row[key] for (name, of_column, of), row in found.items()
                              if (of_column, of) == (column, seed) and name in CHEATS and row[key] is not None]
                    if left is not None and cheats:
                        by_seed.append(statistics.fmean(cheats) - left[key])
                if len(by_seed) > 1:
                    mean, half = student.interval(by_seed)
                    print(f"{key}, {column}: cheats less leaving ranks {mean:+.2f} points, "
                          f"95 % interval {half:.2f} to either side")
    false_bans = [(run.name, rank) for run, row in all_found for rank, _, _ in row.get("banned") or []
                  if rank not in run.cheaters(row["ranks"])]
    print(f"honest ranks banned: {len(false_bans)} {false_bans or ''}")


def main():
    arguments, parser = study.parsed(
        __doc__, form=("cores", "", list(FORMS)), data=([], "CIFAR-10, as the program takes it; the form `minutes` goes without"),
        images=(0, "of an epoch: 50,000; without --data 2,000"), rows=([], "cheats, or none"), columns=([], "defences"),
        part=(None, "K/N: every N-th run, from the K-th on, and no table"), list=(False, "the runs, and what is finished of them"),
        launch=(None, "mpirun --oversubscribe -np {ranks}; of the forms of the paper srun"), out=(None, "runs/byzantine-FORM"))
    form = FORMS[arguments.form]
    arguments.out = pathlib.Path(arguments.out or f"runs/byzantine-{arguments.form}")
    arguments.launch = arguments.launch or ("srun" if form.train == PAPER else "mpirun --oversubscribe -np {ranks}")
    arguments.images = arguments.images or (50_000 if arguments.data else 2_000)
    if form.data and not arguments.data:
        parser.error(f"the form {arguments.form} wants --data")
    known = ["none", "leave", *CHEATS] if form.bans else ["none", *CHEATS]
    rows = study.chosen(arguments.rows, known, "cheat")
    names = study.chosen(arguments.columns, [column.name for column in defences(form)], "defence")
    columns = [column for column in defences(form) if column.name in names]
    runs = runs_of(form, rows, columns)
    parts = re.fullmatch(r"(\d+)/(\d+)", arguments.part or "1/1")
    part, of = map(int, parts.groups()) if parts else (0, 0)
    if not 1 <= part <= of:
        parser.error("--part K/N wants a K from 1 to N")
    if arguments.list:
        for number, run in enumerate(runs):
            print(number, run.name, "finished" if row_of(run, arguments) else "")
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    launch.begin(arguments.out / "begun.json", {"data": [os.path.abspath(path) for path in arguments.data or []],
                                                "images": arguments.images, "options": arguments.options})
    for number, run in enumerate(runs):
        if number % of != part - 1 or row_of(run, arguments):
            continue
        make(run, form, arguments)
        print(f"{number + 1} of {len(runs)}: {json.dumps(row_of(run, arguments))}", flush=True)
    if arguments.part:
        return 0
    found = [(run, row) for run in runs if (row := row_of(run, arguments)) is not None]
    (arguments.out / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for _, row in found))
    if form.bans:
        report_bans(found)
    else:
        report(found, rows, columns, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
