"""Many runs in which three of eight ranks cheat, against the protocol that bans (--byzantine): bans.py PROGRAM [STEPS]

Two kinds of runs, each with seeds, ranks and cheats of its own, until STEPS steps (10000) are done. In the one every false
rank sends a false gradient in every step: the steps until all three are banned must follow the law of the drawing (below),
p > .01. In the other all cheats occur, those with gradients and those with messages, from any step on, in every step or
every few. In none an honest rank may be banned, whoever sends a false message must be found in the step in which it does,
and what is recorded of accusations must agree with the bans. --out FILE: a line for each run; what stands there is not
done again. The exit code is 1 where anything of this does not hold.
"""

import argparse
import collections
import json
import math
import os
import random
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import common

RANKS, LIARS, STEPS, FROM = 8, 3, 70, 2
# `delayed` and `free_rider` are honest for some steps when a rank has left; the law knows nothing of this.
ALWAYS = ["sign_flip", "constant", "label_flip", "ipm01", "ipm06", "alie", "mimic", "bit_flip", "bn_poison", "weak"]
GRADIENTS = [*ALWAYS, "delayed", "free_rider", "history"]
MESSAGES = {"equivocate": "disputes", "wrong_digest": "commitment", "wrong_aggregate": "aggregate", "false_norm": "norm",
            "false_product": "product", "no_reveal": "reveal", "silent": "silence", "false_accuser": "accusation",
            "malformed": "malformed"}
OTHERS = {"idle_validator": "validation"}
RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 8, "--threads", 1, "--attack", "pgd", "--attack-steps", 1,
       "--alpha", "8/255", "--eval", "fgsm", "--eval-every", 0, "--optimizer", "sgd", "--lr", 0.01, "--deterministic", "--aggregator",
       "centered_clip", "--byzantine", "--micro-batch", 1, "--total-batch", RANKS * 2, "--faults", LIARS, "--selector", "all", "--lambda",
       0, "--warmup-epochs", 0, "--epochs", 40, "--max-steps", STEPS, "--max-bad-steps", STEPS, "--quiet"]


def law(ranks, liars, steps):
    """How probable it is that all liars are gone after 0, 1, ... steps, where one rank checks another one each time, and liars
    cover each other. A rank that checks brings no gradient to the next step: it may be drawn again, but is no target there."""
    nobody, liar, honest = range(3)
    states, gone = {(ranks, liars, nobody): 1.0}, [0.0]
    for _ in range(steps):
        after = collections.Counter()
        for (n, a, busy), probability in states.items():
            if a == 0:
                after[n, a, busy] += probability
                continue
            for validator, many in ((liar, a), (honest, n - a)):
                for busy_itself in (False, True):
                    ways = (1 if busy == validator else 0) if busy_itself else many - (1 if busy == validator else 0)
                    if ways == 0:
                        continue
                    # Those who have brought a gradient, but the validator.
                    targets = n - (busy != nobody) - (not busy_itself)
                    false = a - (busy == liar) - (validator == liar and not busy_itself)
                    banned = ways / n * false / targets if validator == honest else 0
                    after[n - 1, a - 1, nobody] += probability * banned
                    after[n, a, validator] += probability * (ways / n - banned)
        states = after
        gone.append(sum(probability for (_, a, _), probability in states.items() if a == 0))
    return gone


def chi_squared(taken, gone, ranges=5):
    """Of the steps that were taken (None: more than there were), in ranges of about equal probability; degrees of freedom."""
    edges = [0]
    for number in range(1, ranges):
        edges.append(next(step for step, part in enumerate(gone) if part >= number / ranges))
    edges.append(math.inf)
    total, square = len(taken), 0
    for low, high in zip(edges, edges[1:]):
        expected = total * ((1 if high == math.inf else gone[high]) - gone[low])
        seen = sum(low < (math.inf if steps is None else steps) <= high for steps in taken)
        square += (seen - expected) ** 2 / expected
    return square, ranges - 1


def probability_above(square, freedom):
    """Of chi-squared with an even number of degrees of freedom."""
    assert freedom % 2 == 0
    return math.exp(-square / 2) * sum((square / 2) ** k / math.factorial(k) for k in range(freedom // 2))


def plan(number):
    """Who cheats in a run, how, from which step on, and how often."""
    draw = random.Random(number)
    liars = sorted(draw.sample(range(1, RANKS), LIARS))
    if number % 2 == 0:
        return liars, [draw.choice(ALWAYS) for _ in liars], [FROM] * LIARS, 1
    cheats = [draw.choice([*GRADIENTS, *MESSAGES, *MESSAGES, *OTHERS]) for _ in liars]
    return liars, cheats, [draw.randrange(1, 30) for _ in liars], draw.choice([1, 1, 2, 5])


def complaints(number, bans, accusations):
    """What is wrong with the bans of a run."""
    liars, cheats, begins, every = plan(number)
    cheat_of = dict(zip(liars, zip(cheats, begins)))
    found = []
    for rank, step, rule in bans:
        if rank not in cheat_of:
            found.append(f"rank {rank}, which is honest, was banned in step {step}: {rule}")
            continue
        cheat, begin = cheat_of[rank]
        wanted = MESSAGES.get(cheat, OTHERS.get(cheat, "gradient"))
        if rule != wanted:
            found.append(f"rank {rank} ({cheat}) was banned by the rule {rule}")
        if step <= begin:
            found.append(f"rank {rank} ({cheat}) was banned in step {step}, but cheats from step {begin + 1} on")
    there = {rank for rank, _, _ in bans}
    found += [f"rank {rank} ({cheat}, from step {begin + 1} on) was not banned" for rank, (cheat, begin) in cheat_of.items()
              if cheat in MESSAGES and rank not in there]
    upheld = {rank for _, rank, is_so in accusations if is_so}
    if upheld != there:
        found.append(f"accusations of {sorted(upheld)} were upheld, but {sorted(there)} are banned")
    return found


def run(number, program_folder):
    liars, cheats, begins, every = plan(number)
    shutil.rmtree(program_folder, ignore_errors=True)
    ended = common.run("train", "--out", program_folder, *RUN, "--seed", number, "--attackers", ",".join(map(str, liars)), "--cheat",
                       ",".join(f"{cheat}@{begin}/{every}" for cheat, begin in zip(cheats, begins)), ranks=RANKS)
    if ended.code != 0:
        return {"run": number, "wrong": [f"code {ended.code}: {ended.text[-500:]}"]}
    bans = [(row["rank"], row["step"], row["rule"]) for row in common.rows(program_folder, "ban")]
    accusations = [(row["by"], row["rank"], row["upheld"]) for row in common.rows(program_folder, "accusation")]
    return {"run": number, "cheats": cheats, "begins": begins, "every": every, "bans": bans,
            "wrong": complaints(number, bans, accusations)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("steps", nargs="?", type=int, default=10000)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    out = os.path.abspath(arguments.out) if arguments.out else None
    done = {}
    if out and os.path.exists(out):
        done = {row["run"]: row for row in map(json.loads, common.text_of(out).splitlines())}
    folder = tempfile.mkdtemp(prefix="dat-bans-")
    os.chdir(folder)
    try:
        common.synthetic("set.h5", train=256, test=32, size=16, classes=4)
        for number in range(math.ceil(arguments.steps / STEPS)):
            if number not in done:
                done[number] = run(number, "run")
                if out:
                    with open(out, "a") as file:
                        file.write(json.dumps(done[number]) + "\n")
            for line in done[number]["wrong"]:
                print(f"run {number}: {line}", flush=True)
    finally:
        shutil.rmtree(folder)
    rows = [row for row in done.values() if "bans" in row]
    wrong = sum(bool(row["wrong"]) for row in done.values())
    by_cheat = collections.Counter(cheat for row in rows for cheat in row["cheats"])
    print(f"{len(rows)} runs of {STEPS} steps, {sum(len(row['bans']) for row in rows)} bans, {wrong} runs in which something is wrong")
    print("cheats: " + ", ".join(f"{cheat} {many}" for cheat, many in sorted(by_cheat.items())))
    # A false gradient of step FROM + 1 is checked in the step after it.
    taken = [max(step for _, step, _ in row["bans"]) - FROM - 1 if len(row["bans"]) == LIARS else None
             for row in rows if row["run"] % 2 == 0]
    gone = law(RANKS, LIARS, STEPS)
    mean = sum(steps if steps is not None else STEPS for steps in taken) / len(taken)
    probability = probability_above(*chi_squared(taken, gone))
    print(f"false gradients alone: all gone after {mean:.1f} steps in the mean of {len(taken)} runs, "
          f"{sum(1 - part for part in gone):.1f} by the law; p = {probability:.3f} (chi-squared)")
    return 1 if wrong or probability < 0.01 else 0


if __name__ == "__main__":
    sys.exit(main())
