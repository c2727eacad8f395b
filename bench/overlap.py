"""How much of the sum of the gradients is hidden: overlap.py PROGRAM [--launch "mpirun -np 2"] [--gbit 1 ...]

Runs `PROGRAM train` on the ranks that the launcher makes, clean and with fast FGSM, first with the gradients summed after
the backward pass, then with --overlap (or what --hide says), in turns (A B A B), and prints for each, as medians over the
steps of all runs but the first two of each run:

    step        seconds of a step
    backward    seconds of its backward passes, which a message can hide behind
    exposed     seconds of the sum that the step waited for
    hidden      seconds of the sum beside other work
    sum         both together
    floor       what the bytes take at the line's rate: 2 (R - 1) / R times the message of R ranks in a ring
    sum/floor   1: the line is all that matters
    covered     hidden / the part of the sum that the backward pass can cover: min(sum, backward)
    computing   the part of the step in which nothing waits for the sum: the efficiency, against ranks without a network

The floor counts the payload of TCP over Ethernet frames of 1538 bytes on the wire, 1448 / 1538 of the nominal rate. The
launcher starts the ranks, one on each node, on a network of that rate; "none" names no rate, and no floor is printed.
"""

import os
import pathlib
import shlex
import statistics
import sys
import tempfile

import study
from launch import output_of, rows, seconds_of

PAYLOAD = 1448 / 1538
FIRST = 2  # steps of a run that are not counted


def train(arguments, attack, hide, folder):
    """The records of a run's steps, and its number of ranks."""
    if arguments.bucket:
        os.environ["DAT_BUCKET"] = str(arguments.bucket)
    output_of([*shlex.split(arguments.launch), os.path.abspath(arguments.program), "train", "--out", folder,
               "--network", arguments.network, "--width", arguments.width, "--batch", arguments.batch, "--attack", attack,
               "--lambda", vars(arguments)["lambda"], "--optimizer", "sgd", "--selector", "all", "--warmup-epochs", 0,
               "--epochs", 100, "--limit-test", 1, "--eval", "fgsm", "--eval-every", 0, "--check-every", 0,
               "--checkpoint-every", 1000000, "--max-steps", arguments.steps, "--threads", arguments.threads, "--quiet",
               *(shlex.split(arguments.hide) if hide else []), *shlex.split(arguments.options)])
    return rows(folder, "step")[FIRST:], max(len(record["bytes"]) for record in rows(folder, "ranks"))


def row(steps, ranks, gbit):
    middle = lambda value: statistics.median(map(value, steps))
    exposed, hidden = middle(lambda s: s["t_exposed"]), middle(lambda s: s["t_hidden"])
    backward, bytes_sent = middle(lambda s: s["t_backward"]), middle(lambda s: s["bytes_sent"])
    found = {"step": middle(seconds_of), "backward": backward, "exposed": exposed,
             "hidden": hidden, "sum": exposed + hidden, "MB": bytes_sent * 1e-6}
    if gbit:
        found["floor"] = 2 * (ranks - 1) / ranks * bytes_sent / (gbit * 1e9 / 8 * PAYLOAD)
        found["sum/floor"] = found["sum"] / found["floor"] if found["floor"] else float("nan")
    found["computing"] = 1 - exposed / found["step"]
    cover = min(found["sum"], backward)
    found["covered"] = hidden / cover if cover else float("nan")
    return found


def main():
    arguments, _ = study.parsed(
        __doc__, launch=("mpirun -np 2", "what stands before the program"),
        gbit=(0.0, "rate of the network between the ranks; 0: no floor"), attacks=["none", "fgsm"],
        network="preact_resnet18", width=64, batch=(16, "images of a rank"), bucket=(0, "0: the program's own"),
        options=("", "more of `train`, for all runs"), hide=("--overlap", "options of `train` that hide the sum"),
        threads=(1, "of a rank"), steps=(8, "of a run"), pairs=(2, "runs of both kinds"),
        **{"lambda": ("0", "of the training")})
    print(f"{arguments.launch}: {arguments.network}, width {arguments.width}, batch {arguments.batch}"
          + (f", {arguments.gbit:g} Gbit/s" if arguments.gbit else ""))
    head = ["step", "backward", "exposed", "hidden", "sum", "floor", "sum/floor", "covered", "computing", "MB"]
    print(f"{'seconds, medians':40}" + "".join(f"{name:>11}" for name in head))
    for attack in arguments.attacks:
        steps, ranks = {False: [], True: []}, 1
        for _ in range(arguments.pairs):
            for hide in steps:
                with tempfile.TemporaryDirectory(prefix="dat-overlap-") as folder:
                    more, ranks = train(arguments, attack, hide, pathlib.Path(folder) / "run")
                steps[hide] += more
        for hide, all_steps in steps.items():
            found = row(all_steps, ranks, arguments.gbit)
            name = ("clean" if attack == "none" else attack) + (f", {arguments.hide}" if hide else "")
            print(f"{name:40}" + "".join(f"{found[key]:11.4f}" if key in found else f"{'-':>11}" for key in head), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
