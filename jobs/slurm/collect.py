#!/usr/bin/env python3
"""Gathers the runs of a study of submit.sh into one table: collect.py FOLDER [PROGRAM]

One row for each line of FOLDER/tasks.tsv, whatever has become of it, into table.txt and table.csv, anew with each call.
With the PROGRAM the finished runs are drawn beside each other into FOLDER/plots. The exit code is 1 where a run is not
finished. Needs no Python package.
"""

import csv
import json
import pathlib
import statistics
import subprocess
import sys

FIRST = 10  # steps that are not measured
# A step is made of these phases (include/dat/report.hpp); those of the reduction are waited for.
PHASES = ["data", "attack", "forward", "backward", "encode", "exposed", "decode", "select", "update", "other"]
REDUCTION = ["encode", "exposed", "decode"]
COLUMNS = ["name", "ranks", "state", "steps", "s_per_step", "images_per_s", "efficiency", "reduce_percent", "MB_per_step",
           "clean_acc", "adv_acc", "train_adv_acc", "gap"]


def lines_of(path):
    """The whole lines of a record; a run that is under way may be writing the last one."""
    if path.exists():
        with open(path) as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)


def row_of(name, size, run):
    nodes, per_node = map(int, size.split("x"))
    row = dict.fromkeys(COLUMNS) | {"name": name, "ranks": nodes * per_node}
    steps, evaluation = [], None
    for line in lines_of(run / "metrics.jsonl"):
        if line["kind"] == "step":
            steps.append(line)
        elif line["kind"] == "evaluation" and line["split"] == "test":
            evaluation = line
    row["state"] = "done" if (run / "SUMMARY.txt").exists() else "stopped" if steps else "missing"
    if not steps:
        return row
    row["steps"] = steps[-1]["step"]
    measured = steps[FIRST:] or steps
    seconds = [sum(step["t_" + phase] for phase in PHASES) for step in measured]
    row["s_per_step"] = statistics.median(seconds)
    row["images_per_s"] = statistics.median(step["images"] for step in measured) / row["s_per_step"]
    row["reduce_percent"] = 100 * sum(step["t_" + phase] for step in measured for phase in REDUCTION) / sum(seconds)
    row["MB_per_step"] = 1e-6 * statistics.mean(step["bytes_sent"] for step in measured)
    epoch = [step["acc_adv"] for step in steps if step["epoch"] == steps[-1]["epoch"] and step["acc_adv"] is not None]
    row["train_adv_acc"] = 100 * statistics.mean(epoch) if epoch else None
    if evaluation and row["state"] == "done":
        row["clean_acc"], row["adv_acc"] = 100 * evaluation["clean_acc"], 100 * evaluation["adv_acc"]
        row["gap"] = row["train_adv_acc"] - row["adv_acc"] if epoch else None
    return row


def text_of(value):
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main():
    folder = pathlib.Path(sys.argv[1])
    tasks = [line.split("\t") for line in (folder / "tasks.tsv").read_text().splitlines()]
    rows = [row_of(task[0], task[1], folder / task[0]) for task in tasks]
    # Strong and weak alike: images per second and rank, over those of the fewest ranks of the same kind.
    for row in rows:
        kind = [other for other in rows if other["name"].split("-")[0] == row["name"].split("-")[0] in ("strong", "weak")]
        if kind and row["images_per_s"] and kind[0]["images_per_s"]:
            row["efficiency"] = (row["images_per_s"] / row["ranks"]) / (kind[0]["images_per_s"] / kind[0]["ranks"])
    with open(folder / "table.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: text_of(value) if value is not None else "" for key, value in row.items()} for row in rows)
    cells = [COLUMNS, *[[text_of(row[column]) for column in COLUMNS] for row in rows]]
    widths = [max(len(line[k]) for line in cells) for k in range(len(COLUMNS))]
    text = "".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n" for line in cells)
    (folder / "table.txt").write_text(text)
    print(text, end="")
    done = [str(folder / row["name"]) for row in rows if row["state"] == "done"]
    if len(sys.argv) > 2 and len(done) > 1:
        command = [sys.argv[2], "plot", *done, "--out", str(folder / "plots")]
        drawn = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        print(f"pictures: {folder}/plots" if drawn.returncode == 0 else "no pictures")
    sys.exit(len(done) < len(rows))


main()
