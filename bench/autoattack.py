"""AutoAttack beside the authors' code: autoattack.py PROGRAM CHECKPOINT DATA [--images N] [--pairs N] [--peer-python PATH]

Evaluates the network of a checkpoint on the first N test images with `dat_hpc eval --eval aa-standard` and with the
authors' code in PyTorch (peers/torch_autoattack.py), in turns, A B A B, one at a time. Prints a table by attack (images
attacked, seconds, their ratio pair by pair) and on how many images the flags differ after each attack: both draw their own
random numbers, and the authors' code with another seed differs from itself, too (--peer-seeds shows by how much).
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

kPeer = pathlib.Path(__file__).resolve().parent / "peers" / "torch_autoattack.py"
kSkipped = 77


def run(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, kSkipped):
        sys.exit(f"autoattack.py: {' '.join(map(str, command))} stopped with code {done.returncode}")
    return done.stdout


def ours(arguments):
    """Rows by attack: name, seconds, flags after it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "eval.json"
        run([*arguments.launch.split(), arguments.program, "eval", arguments.checkpoint, "--data",
             arguments.data, "--limit", arguments.images, "--eps", arguments.eps, "--norm", "linf", "--weights", "raw", "--eval", "aa-standard",
             "--math", "f32", "--threads", arguments.threads, "--device", arguments.device, "--quiet", "--out", path])
        found = json.loads(path.read_text())
    by, rows = found["per_image"]["broken_by"], []
    seen = set()
    for row in found["sequence"]["attacks"]:
        seen.add(row["name"])
        rows.append({"name": row["name"], "seconds": row["seconds"], "robust": [int(one not in seen) for one in by]})
    return rows


def peer(arguments, seed):
    line = json.loads(run([arguments.peer_python, kPeer, arguments.checkpoint, arguments.data, "--images", arguments.images,
                           "--eps", arguments.eps, "--threads", arguments.peer_threads, "--form", arguments.form, "--batch",
                           arguments.batch, "--seed", seed, "--device", arguments.device]))
    if "skipped" in line:
        sys.exit(f"autoattack.py: not run: {line['skipped']}")
    return line["torch"], line["attacks"]


def differing(one, other):
    return [sum(a != b for a, b in zip(mine["robust"], theirs["robust"], strict=True))
            for mine, theirs in zip(one, other, strict=True)]


def total(rows):
    return sum(row["seconds"] for row in rows)


def spread(values):
    return " / ".join(f"{value:.4g}" for value in (min(values), statistics.median(values), max(values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("checkpoint", type=pathlib.Path, help="a file")
    parser.add_argument("data", type=pathlib.Path, help="a data file")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--eps", type=float, default=8 / 255)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of a rank of ours")
    parser.add_argument("--peer-threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both")
    parser.add_argument("--launch", default="", help='before our program, e.g. "mpirun -np 2"')
    parser.add_argument("--form", default="eager", help="of peers/torch_autoattack.py")
    parser.add_argument("--batch", type=int, default=250, help="PyTorch's; the authors' default")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--peer-seeds", type=int, default=1, help="more than one: what the authors' code differs from itself")
    parser.add_argument("--json", type=pathlib.Path, help="every run as one line into this file")
    arguments = parser.parse_args()
    if arguments.pairs < 1 or arguments.peer_seeds < 1:
        parser.error("--pairs and --peer-seeds must be at least 1")

    print(f"aa-standard, {arguments.images} images, eps {arguments.eps:.5f}, {arguments.pairs} pairs, {arguments.launch} "
          f"{arguments.threads} threads, PyTorch {arguments.peer_threads}, {datetime.date.today()}, load {os.getloadavg()[0]:.1f}", flush=True)
    pairs, others, torch = [], [], ""
    for number in range(arguments.pairs):
        mine = ours(arguments)
        torch, theirs = peer(arguments, 1)
        pairs.append((mine, theirs))
        print(f"  pair {number + 1}: {total(mine):.1f} s, PyTorch {total(theirs):.1f} s", flush=True)
    for seed in range(2, arguments.peer_seeds + 1):
        others.append(peer(arguments, seed)[1])
    if arguments.json:
        with arguments.json.open("a") as file:
            for mine, theirs in pairs:
                file.write(json.dumps({"ours": mine, "peer": theirs}) + "\n")

    mine, theirs = pairs[0]
    different = differing(mine, theirs)
    itself = [max(column) for column in zip(*(differing(theirs, other) for other in others))] if others else None
    print(f"\nPyTorch {torch}, form {arguments.form}, batch {arguments.batch}")
    print(f"{'':10}{'robust':>8}{'PyTorch':>9}{'differ':>8}{'itself':>8}{'seconds':>12}{'PyTorch':>12}"
          f"   PyTorch / ours, min / median / max")
    for k, row in enumerate(mine):
        columns = [[pair[side][k]["seconds"] for pair in pairs] for side in (0, 1)]
        ratios = spread([b / a for a, b in zip(*columns)]) if min(columns[0]) > 0 else ""
        print(f"{row['name']:10}{sum(row['robust']):8}{sum(theirs[k]['robust']):9}{different[k]:8}"
              f"{'' if itself is None else itself[k]:>8}{statistics.median(columns[0]):12.2f}"
              f"{statistics.median(columns[1]):12.2f}   {ratios}")
    ratios = [total(b) / total(a) for a, b in pairs]
    print(f"{'all':43}{statistics.median(total(a) for a, _ in pairs):12.2f}"
          f"{statistics.median(total(b) for _, b in pairs):12.2f}   {spread(ratios)}")
    print(f"flags agree on {100 * (1 - different[-1] / arguments.images):.2f} % of the images")


if __name__ == "__main__":
    main()
