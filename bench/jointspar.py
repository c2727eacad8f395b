"""What JointSpar and its rivals save and cost: jointspar.py savings|variance|table PROGRAM --data FILE [options]

savings   Whole training runs in turns: all layers, and each budget of them. What a step of B takes less is compared
          with what its own active sets say: the weight gradients and the bytes that its resting layers would have cost, by
          `dat_hpc bench` under the same launcher (each convolution alone, the sum over the ranks). Measured / predicted is
          1 where all that could be saved is. A budget of all layers shows what choosing costs.
variance  Gradient norms of a trained network (a run of all layers writes them down), and arithmetic: bytes of a step and
          variance of the estimator, sum g^2 (1/p - 1), of equal probabilities and of the best ones for budgets in layers,
          bytes and seconds; and the bytes at which each of these has the variance of equal probabilities.
table     One table of selectors and codecs at about equal bytes: accuracy of paired seeds against all layers, with a 95 %
          interval of the mean difference (Student's t).

--launcher is put before the program, for instance "mpirun -np 2" or the command that reaches nodes with a slow link. One
rank sends nothing: then only `variance` tells anything of bytes.
"""

import math
import pathlib
import re
import shlex
import statistics
import tempfile

import numpy as np
import student
import study
from launch import read_json, rows, seconds_of


class Run:
    """A training run: its layers, and of each step what metrics.jsonl says."""

    number = 0

    def __init__(self, arguments, *words):
        Run.number += 1
        folder = pathlib.Path(f"{arguments.work}/{Run.number}")
        data = ["--data", *arguments.data] if arguments.data else []
        always = ["--network", arguments.network, "--width", arguments.width, "--batch", arguments.batch, "--attack",
                  arguments.attack, "--threads", arguments.threads, "--out", folder, "--quiet"]
        arguments.runs.say("train", *study.merged(data, always, words, shlex.split(arguments.options)))
        run, = rows(folder, "run")
        self.names, self.sizes = run["layer_name"], np.array(run["layer_elements"], float)
        self.costs = np.array(run["layer_cost"])
        self.steps = rows(folder, "step")
        self.active = np.array([[mark == "1" for mark in row["active"]] for row in self.steps])
        last = [row for row in rows(folder, "evaluation") if row["split"] == "test"]
        self.accuracy = {"clean": 100 * last[-1]["clean_acc"], "attacked": 100 * last[-1]["adv_acc"]} if last else {}

    def milliseconds(self, skip):
        """Of each step but the first ones."""
        return 1e3 * np.array([*map(seconds_of, self.steps[skip:])])

    def bytes_of_a_step(self):
        """Gradients that a rank sends; where there is one rank, what it would send."""
        sent = statistics.fmean(row["bytes_sent"] for row in self.steps)
        return sent or 4 * float((self.active @ self.sizes).mean())


# Savings.


def layer_milliseconds(arguments, names, sizes):
    """Of each layer: its weight gradient, in the mean over micro-batches and passes one of each step, and its part of the
    sum over the ranks. A convolution is known by the number of its weights."""
    folder = f"{arguments.work}/bench"
    arguments.runs.say("bench", "--network", arguments.network, "--width", arguments.width, "--batch", arguments.batch, "--threads",
                       arguments.threads, "--seconds", arguments.bench_seconds, "--out", folder)
    bench = read_json(f"{folder}/bench.json")
    gradients = {}
    for row in bench["layers"]:
        shape = re.match(r"(\d+)-(\d+) (\d+)x\3/", row["name"])
        if shape:
            c_in, c_out, kernel = map(int, shape.groups())
            gradients.setdefault(c_in * c_out * kernel * kernel, []).append(row["train_weight_gradient"]["median_ms"])
    per_byte = 0
    if bench["ranks"] > 1:
        reduction = bench["sum_over_ranks"]
        per_byte = reduction["gradients"]["median_ms"] / reduction["bytes"]
    tensors = Run(arguments, "--selector", "all", "--granularity", "tensor", "--max-steps", 1)
    conv = {name: statistics.fmean(gradients[int(size)]) for name, size in zip(tensors.names, tensors.sizes)
            if int(size) in gradients and ("conv" in name or "shortcut" in name or "downsample" in name)}
    weights = np.array([sum(ms for name, ms in conv.items() if name == of or name.startswith(of + "."))
                        for of in names])
    return weights, 4 * sizes * per_byte


def savings(arguments):
    common = ["--max-steps", arguments.warm + arguments.steps, "--eval-every", 0, "--limit-test", 16, "--checkpoint-every",
              10**9, "--eval", "fgsm", "--lambda", 0, "--warmup-epochs", 0, "--epochs", 10**6]
    print(f"{'granularity':<12}{'budget':>7}{'all, ms':>10}{'saved, ms':>20}{'predicted':>11}{'(gradients, bytes)':>20}"
          f"{'measured / predicted':>26}{'of the step':>20}", flush=True)
    for granularity in arguments.granularity:
        found, whole = None, []
        saved, parts = ({share: [] for share in arguments.budgets} for _ in range(2))
        for pair in range(arguments.pairs):
            seed = ["--seed", pair + 1, "--granularity", granularity]
            a = Run(arguments, *common, *seed, "--selector", "all")
            whole.append(a.milliseconds(arguments.warm).mean())
            if found is None:
                found = layer_milliseconds(arguments, a.names, a.sizes)
            for share in arguments.budgets:
                budget = len(a.names) * share / 54
                b = Run(arguments, *common, *seed, "--selector",
                        f"{arguments.selector}:p_min={min(arguments.p_min, share / 54)}", "--budget", budget, "--budget-unit", arguments.unit)
                resting = ~b.active[arguments.warm:]
                parts[share].append([(resting @ cost).mean() for cost in found])
                saved[share].append(whole[-1] - b.milliseconds(arguments.warm).mean())
        for share in arguments.budgets:
            mean, half = student.interval(saved[share])
            gradient, message = np.mean(parts[share], axis=0)
            predicted = gradient + message
            # Of the means, and their interval: a pair by itself may have had nearly nothing to save.
            text = f"{mean / predicted:6.2f} +- {half / predicted:.2f}" if predicted > 0 else "-"
            loss = "%+.2f +- %.2f %%" % student.interval([100 * s / w for s, w in zip(saved[share], whole)])
            print(f"{granularity:<12}{share:>4g}/54{statistics.fmean(whole):>10.2f}{mean:>12.2f} +- {half:<5.2f}"
                  f"{predicted:>10.2f}{f'({gradient:.2f}, {message:.2f})':>20}{text:>26}{loss:>20}", flush=True)
    print(f"{arguments.pairs} rounds of runs of {arguments.steps} steps; +-: 95 % of the mean")


# Variance.


def best(norms, costs, budget, p_min):
    """clip(c norm/sqrt(cost), p_min, 1) with sum cost*p = budget; c by bisection."""
    weights = np.maximum(norms, 1e-300) / np.sqrt(costs)
    low, high = math.log(p_min) - math.log(weights.max()) - 1, 1 - math.log(weights.min())
    for _ in range(200):
        middle = (low + high) / 2
        p = np.exp(np.clip(np.log(weights) + middle, math.log(p_min), 0))
        low, high = (middle, high) if costs @ p < budget else (low, middle)
    return p


def variance(arguments):
    run = Run(arguments, "--selector", "all", "--granularity", arguments.granularity[0], "--max-steps", arguments.steps,
              "--eval-every", 0, "--warmup-epochs", 0, "--epochs", 10**6, "--limit-test", 1000)
    last = np.array([row["norm"] for row in run.steps[-arguments.last:]], float)
    squares = (last**2).mean(axis=0)
    layers, sizes = len(run.names), run.sizes
    timed = Run(arguments, "--selector", "uniform", "--budget-unit", "seconds", "--granularity", arguments.granularity[0],
                "--max-steps", 1, "--limit-test", 1)
    costs = {"layers": np.ones(layers), "bytes": sizes / sizes.mean(), "seconds": timed.costs}
    spread = lambda p: float(squares @ (1 / p - 1))
    moved = lambda p: 4 * float(sizes @ p)
    budget = layers * arguments.budget / 54
    equal = np.full(layers, budget / layers)
    print(f"{arguments.network}, width {arguments.width}, {layers} layers, after {arguments.steps} steps "
          f"({run.accuracy['clean']:.1f} % clean, {run.accuracy['attacked']:.1f} % attacked); mean squares of the norms of the last {arguments.last} steps, "
          f"p_min {arguments.p_min}")
    print(f"{'probabilities':<28}{'budget':>8}{'bytes':>12}{'of uniform':>12}{'of all':>9}{'variance':>12}"
          f"{'of uniform':>12}{'cost in seconds':>17}")

    def line(name, used, p):
        print(f"{name:<28}{used:>8.2f}{moved(p):>12.0f}{moved(p) / moved(equal):>12.3f}"
              f"{moved(p) / (4 * sizes.sum()):>9.3f}{spread(p):>12.4g}{spread(p) / spread(equal):>12.3f}"
              f"{float(costs['seconds'] @ p) / layers:>17.3f}")

    line("uniform", budget, equal)
    for unit, cost in costs.items():
        line(f"best, in {unit}", budget, best(np.sqrt(squares), cost, budget, arguments.p_min))
    print("at the variance of uniform:")
    for unit, cost in costs.items():
        low, high = arguments.p_min * layers, float(layers)
        for _ in range(100):
            middle = (low + high) / 2
            p = best(np.sqrt(squares), cost, middle, arguments.p_min)
            low, high = (middle, high) if spread(p) > spread(equal) else (low, middle)
        line(f"best, in {unit}", high, best(np.sqrt(squares), cost, high, arguments.p_min))


# Table.


def freezeout_t0(sizes, steps, share, schedule):
    """The t_0 at which FreezeOut sends this share of all bytes over a run, or the nearest that there is."""
    power = {"linear": 1, "squared": 2, "cubic": 3}[schedule]
    i = np.arange(len(sizes)) / (len(sizes) - 1)

    def sent(t0):
        phi = (t0 + (1 - t0) * i) ** power
        return sizes @ np.minimum(np.ceil(phi * steps), steps) / steps / sizes.sum()

    low, high = 1e-3, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sent(middle) < share else (low, middle)
    return high


def table(arguments):
    first = Run(arguments, "--selector", "all", "--granularity", arguments.granularity[0], "--max-steps", 1,
                "--limit-test", 1)
    layers, share = len(first.names), arguments.share
    steps = first.steps[0]["steps_per_epoch"] * arguments.epochs
    freeze = f"freezeout:t0={freezeout_t0(first.sizes, steps, share, arguments.freeze_schedule):.6f}:schedule={arguments.freeze_schedule}"

    def drawn(selector, unit="layers"):
        return ["--selector", f"{selector}:p_min={min(arguments.p_min, share)}", "--budget", layers * share, "--budget-unit", unit]

    methods = {
        "JointSpar, layers": drawn("exp3"),
        "JointSpar, bytes": drawn("exp3", "bytes"),
        "uniform": drawn("uniform"),
        "oracle, layers": drawn("oracle"),
        "oracle, bytes": drawn("oracle", "bytes"),
        "FreezeOut": ["--selector", freeze, *(["--schedule", "step:decay=1"] if arguments.flat else [])],
        "FreezeOut, rates kept": ["--selector", f"{freeze}:lr=constant"],
        "AutoFreeze": ["--selector", f"autofreeze:percentile={arguments.freeze_percentile}"],
    }
    text = study.Runs(arguments.work, arguments.program).say("train", "--help", "all")
    for codec in re.search(r"--codec (\S+)", text)[1].split("|"):
        if codec != "float32":
            methods[f"codec {codec}"] = ["--selector", "all", "--codec", codec]
    if arguments.only:
        methods = {name: words for name, words in methods.items() if any(word in name for word in arguments.only)}
    common = ["--epochs", arguments.epochs, "--warmup-epochs", 0, "--eval-every", 0, "--granularity",
              arguments.granularity[0]]
    plain, found = [], {name: [] for name in methods}
    for seed in range(1, arguments.seeds + 1):
        plain.append(Run(arguments, *common, "--seed", seed, "--selector", "all"))
        for name, words in methods.items():
            found[name].append(Run(arguments, *common, "--seed", seed, *words))
    exact = [run.accuracy for run in plain]
    whole = statistics.fmean(run.bytes_of_a_step() for run in plain)
    clean, attacked = (statistics.fmean(one[column] for one in exact) for column in ("clean", "attacked"))
    print(f"{arguments.seeds} seeds, {arguments.epochs} epochs; all layers: {clean:.2f} % clean, {attacked:.2f} % attacked, "
          f"{whole:.0f} bytes a step")
    print(f"{'':<24}{'bytes of all':>13}{'clean, %':>10}{'minus all':>18}{'attacked, %':>13}{'minus all':>18}   no loss shown")
    for name, runs in found.items():
        cells, good = "", True
        for column, width in ("clean", 10), ("attacked", 13):
            own = [run.accuracy for run in runs]
            mean, half = study.differences(own, exact, column)
            cells += f"{study.means(own, [column], width)}{f'{mean:+.2f} +- {half:.2f}':>18}"
            good &= math.isfinite(half) and (abs(mean) <= half or mean - half >= -0.5)
        sent = statistics.fmean(run.bytes_of_a_step() for run in runs) / whole
        print(f"{name:<24}{sent:>13.3f}{cells}   {'yes' if good else 'no'}", flush=True)
    print("minus all: mean of the paired differences, with its 95 % interval; no loss shown: both intervals contain 0 or lie "
          "above -0.5 points")


def main():
    arguments, _ = study.parsed(
        __doc__, {"what": ["savings", "variance", "table"]}, data=([], "data files; none: the built-in set"),
        launcher=("", 'e.g. "mpirun -np 2"'), network="preact_resnet18", width=64, batch=128, attack="none", threads=1,
        options=("", "further ones of dat_hpc train, for all runs"), granularity=[], p_min=0.1, steps=(0, "of a run"),
        keep=(None, "folder for the runs, which stay there; none: they are removed"), pairs=(20, "savings: runs of each kind"),
        warm=(2, "savings: steps of a run that do not count"), budgets=([54.0, 45.0, 40.0, 30.0], "savings: of 54"),
        selector=("uniform", "savings: who draws"), unit=("layers", "savings: of the budget"),
        bench_seconds=(60.0, "savings: of dat_hpc bench"), budget=(40.0, "variance: that of equal probabilities, of 54"),
        last=(50, "variance: steps whose norms count"), epochs=(10, "table"), seeds=(5, "table"),
        share=(0.5, "table: bytes of a step, of those of all layers"), freeze_schedule=("cubic", "table: of FreezeOut"),
        freeze_percentile=(50.0, "table: of AutoFreeze"), flat=(False, "table: FreezeOut with a constant rate to anneal from, as published"),
        only=([], "table: methods whose names contain one of these"))
    arguments.granularity = arguments.granularity or (["tensor", "block"] if arguments.what == "savings" else ["tensor"])
    arguments.steps = arguments.steps or {"savings": 10, "variance": 500, "table": 0}[arguments.what]
    with tempfile.TemporaryDirectory() as folder:
        arguments.work = arguments.keep or folder
        arguments.runs = study.Runs(arguments.work, arguments.program, arguments.launcher)
        {"savings": savings, "variance": variance, "table": table}[arguments.what](arguments)


if __name__ == "__main__":
    main()
