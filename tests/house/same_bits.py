"""Whether two builds of the program train the same weights, bit for bit: same_bits.py PROGRAM [PROGRAM]

Runs each recipe below with each program and prints its weights_hash, or both and whether they are equal, with all that both
records tell of steps and evaluations but the times. For a change that must not touch the numbers: build the commit before it in another folder. Results on different machines differ (other
instructions, other order of sums), so no hash is kept in the repository. The exit code is 1 where two hashes differ.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT

SMALL = "--width 16 --limit-train 104 --limit-test 32 --epochs 2 --threads 1 --eval pgd2"
RECIPES = [  # name, ranks, options
    ("pgd, lamb, exp3", 1, "--attack-steps 3 --lambda 0"),
    ("pgd, lamb, exp3, two ranks", 2, "--attack-steps 3 --batch 8"),
    ("fgsm, sgd, all layers", 1, "--attack fgsm --optimizer sgd --lr 0.1 --selector all"),
    ("fgsm, two ranks, local statistics", 2, "--attack fgsm --bn-statistics local --batch 8"),
    ("no attack, lars", 1, "--attack none --optimizer lars --lr 0.02"),
    ("clean loss, micro-batches", 1, "--lambda 0.5 --batch 16 --micro-batch 4 --attack-steps 2"),
    ("clean loss, micro-batches, two ranks", 2, "--lambda 1 --batch 8 --micro-batch 4 --attack-steps 2"),
    ("pgd in training mode", 1, "--attack-steps 2 --attack-bn train --optimizer sgd --lr 0.1"),
    ("early stop", 1, "--attack-steps 4 --attack-stop 1 --lambda 0"),
    ("warm start, two ranks", 2, "--warm-start 1 --attack-steps 2 --batch 8 --lambda 0"),
    ("paper's bandit, sgd", 1, "--optimizer sgd --lr 0.1 --selector exp3:paper"),
    ("draws by epoch, blocks, overlap", 2, "--resample epoch --granularity block --budget 3 --overlap --batch 8"),
    ("resnet18, cosine", 1, "--network resnet18 --attack-steps 2 --max-steps 4 --schedule cosine"),
    ("preact_resnet18, two ranks", 2, "--network preact_resnet18 --attack-steps 2 --max-steps 4 --batch 8"),
    ("trades, two ranks", 2, "--loss trades --attack-steps 2 --batch 8 --optimizer sgd --lr 0.1"),
    ("mart, weights perturbed", 1, "--loss mart --awp-gamma 0.01 --attack-steps 2 --batch 16 --micro-batch 8"),
    ("kl, weights perturbed by each rank", 2, "--loss kl --awp-gamma 0.01 --awp local --attack-steps 2 --batch 8"),
    ("pgi", 1, "--loss pgi --attack fgsm --attack-bn eval --optimizer sgd --lr 0.1"),
    ("pgi, detached, in training mode", 1, "--loss pgi:detach --attack fgsm --optimizer sgd --lr 0.1"),
    ("gat", 1, "--loss gat --attack fgsm --optimizer sgd --lr 0.1"),
    ("nuat, detached, three ranks", 3, "--loss nuat:detach --attack fgsm --optimizer sgd --lr 0.1 --batch 8"),
    ("noise, two copies, smooth-pgd", 1, "--noise 0.25 --noise-samples 2 --attack smooth-pgd --norm l2 --eps 0.5 --attack-steps 2"),
    ("noise, trades, average made anew", 2, "--noise 0.25 --loss trades --attack-steps 2 --batch 8 --average swa:bn=rebuild"),
    ("sizes by epoch", 2, "--train-size 8,16@1 --attack-steps 2 --batch 8"),
    ("a growing ball, l2", 1, "--norm l2 --eps 0.2..0.6@0-1 --attack-steps 2 --optimizer sgd --lr 0.1"),
    ("n-fgsm", 1, "--attack fgsm --attack-bn eval --project off --optimizer sgd --lr 0.1 --attack-start uniform:2"),
    ("no attack at first", 1, "--attack none,fgsm@1 --attack-bn eval --optimizer sgd --lr 0.1"),
    ("old weights, refreshed, three ranks, ordered", 3, "--staleness 2 --attack-steps 3 --deterministic --batch 8 --micro-batch 2"),
    ("stale attack", 2, "--stale-attack 1 --attack-steps 3 --batch 8 --lambda 0"),
    ("generators", 3, "--generators 1 --staleness 1 --attack-steps 2 --attack-bn eval --deterministic --batch 8 --micro-batch 4"),
    ("generators, trades", 3, "--generators 2 --loss trades --staleness 2 --attack-steps 2 --deterministic --batch 8"),
    ("flipped labels, median", 3, "--attackers 2 --cheat label_flip --aggregator median --attack-steps 2 --batch 8 --attack-bn eval"),
    ("a weak attack, krum", 5, "--attackers 1 --cheat weak1@2 --aggregator krum --attack-steps 2 --batch 4 --attack-bn eval"),
    ("a ban", 5, "--byzantine --deterministic --aggregator centered_clip:0.1 --attackers 3 --cheat sign_flip@2 "
                 "--faults 1 --attack-steps 2 --batch 4 --attack-bn eval"),
    ("recomputed", 2, "--verify 2 --deterministic --attack-steps 2 --batch 8 --micro-batch 4"),
    ("masks of each rank's own", 2, "--mask per_worker:transport=union --attack-steps 2 --batch 8"),
    ("powersgd", 2, "--codec powersgd --attack-steps 2 --batch 8 --optimizer sgd --lr 0.1"),
    ("int8, three ranks", 3, "--codec int8 --attack-steps 2 --batch 8 --optimizer sgd --lr 0.1 --width 21"),
    ("resumed", 2, "--attack-steps 2 --batch 8 --checkpoint-every 3 --warm-start 2 --eval-every 1"),
]


TIMES = re.compile("^t_|seconds|time|idle|waited|spans|age_|dealt_again|bytes_other")  # and what depends on who was faster


def run(program, ranks, words, folder):
    command = ["mpirun", "-np", str(ranks), program] if ranks > 1 else [program]
    ended = subprocess.run(command + ["train", *words, "--out", folder, "--quiet"], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command + words)}\nended with {ended.returncode}:\n{ended.stderr}")
    with open(os.path.join(folder, "SUMMARY.txt")) as file:
        found = re.search(r"^weights +([0-9a-f]{32})$", file.read(), re.MULTILINE)
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        records = [record for record in map(json.loads, file) if record["kind"] in ("step", "evaluation")]
    return found[1] if found else sys.exit(f"{folder}/SUMMARY.txt names no weights"), records


def outcome(program, name, ranks, options):
    """The weights and the records of a recipe."""
    network = "" if "--network" in options else "--network small_cnn "
    words = (network + SMALL + " " + options).split()
    with tempfile.TemporaryDirectory() as folder:
        if name == "resumed":  # a part of the run, and what is left of it
            run(program, ranks, words + ["--max-steps", "4"], folder)
        return run(program, ranks, words, folder)


def differing(one, other):
    """The fields in which two lists of records differ, of those that both have."""
    found = {"the number of records"} if len(one) != len(other) else set()
    for a, b in zip(one, other):
        found |= {key for key in a.keys() & b.keys() if not TIMES.search(key) and a[key] != b[key]}
    return sorted(found)


def main():
    programs = sys.argv[1:]
    if len(programs) not in (1, 2):
        sys.exit(__doc__)
    os.environ.update(MPI_ENVIRONMENT)
    differ = 0
    for name, ranks, options in RECIPES:
        hashes, records = zip(*(outcome(program, name, ranks, options) for program in programs))
        fields = differing(records[0], records[-1])
        same = len(set(hashes)) == 1 and not fields
        differ += not same
        said = "" if len(programs) == 1 else "  equal" if same else "  DIFFERENT " + " ".join(fields)
        print(f"{name:<44} {' '.join(hashes)}{said}", flush=True)
    if len(programs) == 2:
        print(f"{len(RECIPES) - differ} of {len(RECIPES)} recipes equal")
    sys.exit(differ > 0)


main()
