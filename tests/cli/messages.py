#!/usr/bin/env python3
"""What two programs answer to the same command lines, where they differ: messages.py OLD NEW [--kind KIND] [--each]

Types command lines that a program refuses, or answers with text alone: every mistake of mistakes.txt, every option with bad
values, every two settings of `train` together, wrong files, every help, the configuration of every recipe (its comments are
the help's). Prints what differs in answers (exit code, output, errors), each difference with a line that it was seen in and
the number of such lines. The exit code is 1 where there is one. --kind: one kind alone. --each: answer by answer.
"""

import argparse
import concurrent.futures
import difflib
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX", "SLURM_"))}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

VERBS = ["train", "validate", "slurm", "eval", "data convert", "data synthetic", "data inspect", "plot", "bench", "doctor",
         "forecast", "export", "import"]
BEHIND = {"data convert": "in out.h5", "data synthetic": "out.h5", "data inspect": "a.h5", "plot": "a b", "export": "a",
          "import": "a", "eval": "a"}  # what a verb cannot do without
BAD = ["", "x", "-1", "0", "1.5", "1e400", "99999999999999999999", "0,5", "1/0", "PGD"]

# Settings of train that another one may not go with, or that go with few others.
SETTINGS = """
--mix balanced:0.5 | --data a.h5 b.h5 | --holdout 5 | --limit-train 64 | --augment none | --network wrn_28_10 | --width 16
--activation silu | --normalize 0.5 | --normalize cifar10 | --bn-statistics local | --attack fgsm | --attack none
--attack apgd-ce | --attack-steps 1 | --attack-steps 3 | --norm l2 | --norm l2 --eps 0.5 | --eps 0.5 | --eps 8 | --alpha 1.2
--alpha 2/255 | --attack-stop 1 | --attack-bn train | --attack-bn eval | --attack-precision f16 | --attack-batch 5
--attack-batch 500 | --warm-start 5 | --attack-reuse | --attack-reuse --attack-bn train --warm-start 5 | --stale-attack 1
--stale-attack 5 | --stale-attack 50 | --attack-start uniform | --start-radius 2 | --start-box on | --project off
--loss trades | --loss mart | --loss kl | --loss pgi | --loss nuat | --detach-reference | --loss gat --detach-reference | --lambda 1
--lambda 0 | --beta 1 | --beta 0 | --label-smoothing 0.1 | --awp-gamma 0.01 | --awp-from 1 | --awp local
--awp-gamma 0.01 --awp local | --eval fgsm | --eval pgd10,pgd | --eval aa-quick | --eval none | --eval-norm l2
--eval-norm linf | --eval-norm l2 --eval-eps 0.5 | --eval-eps 8 | --eval-eps 2/255 | --eval-alpha 1.2 | --eval-every 0
--patience 3 | --optimizer sgd | --optimizer lars | --optimizer lars_sgd | --momentum 0 | --nesterov | --beta1 0.8
--beta2 0.9 | --epsilon 1e-8 | --epsilon 8/255 | --bias-correction | --trust-coefficient 0.02 | --clamp-low 11
--clamp-high 0.5 | --clip-norm 1 | --importance outside | --average ema | --average swa | --average-decay 0.9
--average-from 1 | --average-bn ema | --average-bn raw | --average-bn rebuild | --schedule cosine | --milestones 90,75
--milestones 75,75 | --epochs 0 | --warmup-epochs 0 | --epochs 0 --warmup-epochs 0 | --batch 12 | --micro-batch 5
--micro-batch 4 | --total-batch 24 | --total-batch 24 --deterministic --micro-batch 4 | --selector all | --selector uniform
--selector oracle | --selector freezeout | --selector autofreeze | --budget 9 | --budget-unit bytes | --budget-unit seconds
--p-min 0.3 | --resample epoch | --mask per_worker | --bandit-loss paper | --bandit-rate 0.3 | --freeze-t0 0.5
--freeze-schedule linear | --freeze-lr constant | --freeze-percentile 20 | --codec int8 | --codec powersgd | --codec terngrad
--codec-transport gather | --codec-rank 4 | --codec-clip 3 | --transport allgather | --transport dense | --overlap
--bucket 1000 | --on-bad-steps rollback | --on-overfitting rollback | --on-overfitting stop | --overfitting-margin 0.1
--rollback-lr 0.1 | --rollback-lr 1 | --max-rollbacks 1 | --max-bad-steps 3 | --resume never | --resume somewhere
--initialize w.h5 | --new-head 10 | --freeze conv2 | --freeze-epochs 2 | --head-lr 0.2 | --deterministic | --quiet | --verbose | --verify 5 | --recipe trades | --recipe tudelft_jointspar
--recipe madry | --config selector.toml | --config awp.toml | --lr 0.2 --lr 0.3
"""
LINES = """
| --help | help | help all | --help all | --help milestnes | help tarin | help data | help data convert | data | data --help
data conv | data convert | data convert a | data convert a b c | data inspect | data synthetic | tarin | halp | test | convert a b
--train | train extra | train true | train a.toml | train a.h5 | train – | train –-lr 0.1 | --ltr 1 | -x | --micro_batch=3
--lr | --lr --batch | --recipe madri | --recipe jobs/madry.toml | --recipe resnet | --recipe list | --config madry | --config /
--config no.toml | validate --recipe list | eval | eval --data a.h5 b.h5 | eval --model a | eval --epsilon 1 | eval --steps 3
eval a --weights swa | eval a --save-adversarial --out b | eval a --eval aa-quick --save-adversarial
eval a --eval aa-quick --save-adversarial --out b.json | eval a --eval aa-quick,pgd+fgsm | eval a --eval none | eval a --eval pdg
eval --print-config | eval a --print-config | eval a --norm l2 --print-config | eval --eval pgd20 a --print-config | plot
plot a --out c | plot a --format gif | bench --second 3 | bench --config a | bench x | doctor x | doctor --x | export | export a
export a --out b.pt | export a --out b.onnx --format safetensors | export a --evaluation c --out b | export a --format pt --out b
import | import a | import a --network vgg --out b | import a --new-head 1 --out b | import a --normalize 0.5 --out b
forecast --latency 1,2 | forecast --algorithm star | forecast --jitter 2 | forecast --ranks 0 | forecast --attack pgd20
forecast x | slurm --time 24h | slurm --time soon | slurm --job-name 'a b' | slurm --partition 'a;b' | slurm --account '$x'
slurm --modules 'a;b' | slurm --step-seconds 3 --like run | slurm --nodes 0 | slurm --eval none | slurm --print-config
slurm --nodes 2 --lr 0.3 --print-config | slurm --lr 0.1 --lr 0.2 --print-config | imprt | bensh | forcast | exprot
train --swa-start 3 | train --learning-rate 1 | train --max_grad_norm 3 | train --gpu | train --deterministic on
"""
FILES = {
    "selector.toml": 'selector = "uniform"\nbudget = 9\n', "awp.toml": "awp-gamma = 0.01\n",
    "1.toml": "lr = 0.1\n[train]\n", "2.toml": "lr = 0.1\nlr = 0.2\n", "3.toml": "lr\n", "4.toml": "lr =\n", "5.toml": "lr = 1 2\n",
    "6.toml": "milestones = [1, 2\nlr = 3\n", "7.toml": '\nout = "a\nlr = 1\n', "8.toml": 'out = "a\\q"\n', "9.toml": "epoch = 3\n",
    "10.toml": "checkpoint = 'a'\n", "11.toml": "config = 'a'\n", "12.toml": "eps = -2\n", "13.toml": "overlap = 1\n",
    "14.toml": 'batch = "128"\n', "15.toml": "network = small_cnn\n", "16.toml": "lr = [0.1]\n", "17.toml": "learning_rate = 1\n",
    "18.toml": 'selector = "all"\nbudget = 9\n', "19.toml": "nodes = 2\n", "20.toml": 'eval = ["pgd", "pgd10"]\n', "21.toml": "= 3\n",
    "22.toml": 'device = "gpu"\neps = 4/255\nresample = 20\nepochs = "auto"\n', "23.toml": "", "24.toml": 'attack-stop = "off"\n',
}


def split(text):
    return [line.strip() for part in text.strip("\n").splitlines() for line in part.split(" | ") if line.strip() != "|"]


def options_of(program, verb):
    text = ask(program, [*verb.split(), "--help", "all"])[1]
    skipped = {"--help", "--version", "--recipe", "--config", "--print-config"}
    return sorted(set(re.findall(r"^ +(?:-\w,)?(--[a-z0-9-]+)", text, re.M)) - skipped)


def command_lines(program):
    """kind -> the words of each line."""
    here = pathlib.Path(__file__).parent
    mistakes = [line.partition("\t")[0].split(" ", 1)[1] for line in (here / "mistakes.txt").read_text().splitlines()
                if line and not line.startswith("#")]
    kinds = {"mistakes": [shlex.split(line)[1:] for line in mistakes if "dat_hpc train --network small_cnn" not in line]}
    kinds["lines"] = [shlex.split(line) for line in split(LINES)]
    kinds["values"] = [[*verb.split(), *shlex.split(BEHIND.get(verb, "")), option, value, "--no-such-option"]
                       for verb in VERBS if verb not in ("validate",) for option in options_of(program, verb) for value in BAD]
    kinds["values"] += [[*verb.split(), option, "--no-such-option"] for verb in VERBS for option in options_of(program, verb)]
    settings = [shlex.split(line) for line in split(SETTINGS)]
    kinds["settings"] = [["train", *one, "--print-config"] for one in settings]
    kinds["pairs"] = [["train", *one, *other, "--print-config"] for one, other in itertools.combinations(settings, 2)]
    kinds["files"] = [[verb, "--config", name, "--print-config"] for verb in ("train", "slurm", "eval") for name in FILES]
    words = ["", "all", "layers", "milestone", "trades", "jointspar", "eps", "codec", "transport", "holdout", "xyzzy"]
    kinds["help"] = [[*verb.split(), "--help", *([word] if word else [])] for verb in [*VERBS, ""] for word in words]
    listed = ask(program, ["--recipe", "list"])[1]
    recipes = re.findall(r"^([a-z0-9_]+)  ", listed, re.M)
    kinds["recipes"] = [[verb, "--recipe", name, "--print-config"] for verb in ("train", "slurm") for name in recipes]
    return kinds


def ask(program, words):
    try:
        ended = subprocess.run([program, *words], capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=20)
    except subprocess.TimeoutExpired:
        return None, "(no answer)", ""
    return ended.returncode, ended.stdout, ended.stderr


def shown(answer):
    """An answer in lines; of a configuration without comments."""
    code, output, errors = answer
    lines = [f"code {code}", *output.splitlines(), *errors.splitlines()]
    return [line for line in lines if not line.startswith("#")]


def difference(before, after):
    lines = list(difflib.unified_diff(shown(before), shown(after), lineterm="", n=0))[2:]
    return "\n".join("    " + line for line in lines if not line.startswith("@@"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old"), parser.add_argument("new"), parser.add_argument("--kind")
    parser.add_argument("--each", action="store_true")
    arguments = parser.parse_args()
    old, new = os.path.abspath(arguments.old), os.path.abspath(arguments.new)
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in FILES.items():
            pathlib.Path(name).write_text(text)
        for kind, lines in command_lines(old).items():
            if arguments.kind not in (None, kind):
                continue
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                answers = pool.map(lambda words: (words, ask(old, words), ask(new, words)), lines)
                other = [(words, difference(*both)) for words, *both in answers if shown(both[0]) != shown(both[1])]
            seen = {}
            for words, what in other:
                seen.setdefault((words[0], what) if not arguments.each else tuple(words), []).append((words, what))
            for all_of_it in seen.values():
                words, what = all_of_it[0]
                print(f"{kind}: dat_hpc {shlex.join(words)}" + (f" ({len(all_of_it)} times)" if len(all_of_it) > 1 else ""))
                print(what)
            differing += len(other)
            print(f"{kind}: {len(lines)} lines, {len(other)} answered differently, in {len(seen)} ways", flush=True)
        os.chdir("/")
    sys.exit(bool(differing))


main()
