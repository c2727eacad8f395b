"""Whether two builds of the program train the same weights, bit for bit: same_bits.py PROGRAM [PROGRAM]

Runs each recipe below with each program and prints its weights_hash, or both and whether they are equal. For a change that
must not touch the numbers: build the commit before it in another folder. Results on different machines differ (other
instructions, other order of sums), so no hash is kept in the repository. The exit code is 1 where two hashes differ.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT

SMALL = "--width 16 --limit-train 104 --limit-test 32 --epochs 2 --threads 1 --eval-attack-steps 2"
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
    ("attack reuse", 1, "--warm-start 1 --attack-reuse --attack-bn train --attack-steps 3 --lambda 0"),
    ("paper's bandit, sgd outside", 1, "--bandit-loss paper --optimizer sgd --importance outside --lr 0.1"),
    ("draws by epoch, blocks, overlap", 2, "--resample epoch --granularity block --budget 3 --overlap --bucket 900 --batch 8"),
    ("resnet18, cosine", 1, "--network resnet18 --attack-steps 2 --max-steps 4 --schedule cosine"),
    ("preact_resnet18, two ranks", 2, "--network preact_resnet18 --attack-steps 2 --max-steps 4 --batch 8"),
    ("resumed", 2, "--attack-steps 2 --batch 8 --checkpoint-every 3 --warm-start 2 --eval-every 1"),
]


def run(program, ranks, words, folder):
    command = ["mpirun", "-np", str(ranks), program] if ranks > 1 else [program]
    ended = subprocess.run(command + ["train", *words, "--out", folder, "--quiet"], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command + words)}\nended with {ended.returncode}:\n{ended.stderr}")
    with open(os.path.join(folder, "SUMMARY.txt")) as file:
        found = re.search(r"^weights +([0-9a-f]{32})$", file.read(), re.MULTILINE)
    return found[1] if found else sys.exit(f"{folder}/SUMMARY.txt names no weights")


def weights_hash(program, name, ranks, options):
    network = "" if "--network" in options else "--network small_cnn "
    words = (network + SMALL + " " + options).split()
    with tempfile.TemporaryDirectory() as folder:
        if name == "resumed":  # a part of the run, and what is left of it
            run(program, ranks, words + ["--max-steps", "4"], folder)
        return run(program, ranks, words, folder)


def main():
    programs = sys.argv[1:]
    if len(programs) not in (1, 2):
        sys.exit(__doc__)
    os.environ.update(MPI_ENVIRONMENT)
    differ = 0
    for name, ranks, options in RECIPES:
        hashes = [weights_hash(program, name, ranks, options) for program in programs]
        same = len(set(hashes)) == 1
        differ += not same
        print(f"{name:<40} {' '.join(hashes)}{'' if len(programs) == 1 else '  equal' if same else '  DIFFERENT'}", flush=True)
    if len(programs) == 2:
        print(f"{len(RECIPES) - differ} of {len(RECIPES)} recipes equal")
    sys.exit(differ > 0)


main()
