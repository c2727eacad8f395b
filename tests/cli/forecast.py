#!/usr/bin/env python3
"""`dat_hpc forecast` against bench/simulate.py, which moves every message, on random calibrations.

usage: forecast.py PROGRAM [--full]     --full: a ring of 1,024 ranks, too

What must hold, and why:
- equal ranks, one on each node, no jitter: all ranks do the same at the same time, so the closed form is exact. Both add
  some thousand positive numbers in double precision, in different order: 1e-9 of the step is far more than that makes.
- a tree of ranks that are no power of two: those that give all they have to a neighbour are one message apart from the
  others, so a second message may begin before the first has ended everywhere. At most the model; at least the model of
  the power of two below, whose ranks do all of that tree's messages.
- several ranks on a node: a link carries the next message while the one before is still arriving, for which the model of
  a ring waits: at most the model, at least the model with latencies of zero.
- jitter: nothing begins before the slowest rank has computed that could not have begun then, so the step is at most the
  slowest rank's computing and the model's communication. And that rank sends all of its messages itself: at least its
  computing and the bytes of 2 (p - 1) messages on its link. The mean of the slowest rank's computing is the model's,
  within 4 standard errors.
"""

import csv
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
specification = importlib.util.spec_from_file_location("simulate", f"{ROOT}/bench/simulate.py")
simulation = importlib.util.module_from_spec(specification)
specification.loader.exec_module(simulation)

EXACT = 1e-9
failures = 0
compared = 0


def check(condition, *about):
    global failures, compared
    compared += 1
    if not condition:
        failures += 1
        print("FAILED:", *about)


def random_calibration(draw):
    layers, backward = [], 0.0
    for number in range(draw.randint(1, 9)):
        seconds = draw.choice([0.0, draw.uniform(0, 0.05)])
        layers.append({"name": f"layer{number}", "elements": int(10 ** draw.uniform(1, 7)), "backward": seconds,
                       "weight_gradient": seconds * draw.random()})
        backward += seconds
    passes = draw.randint(1, 3)

    def codec(name, transport, exact, per_element, rounds=1):
        return {"name": name, "transport": transport, "rounds": rounds, "exact": exact,
                "encode": draw.choice([0.0, draw.uniform(0, 5e-9)]), "decode": draw.uniform(0, 5e-9),
                "bytes": [math.ceil(per_element * layer["elements"]) for layer in layers]}

    network = {} if draw.random() < 0.3 else {"reduction": 10 ** draw.uniform(8, 11)}
    return {"filetype": "dat_hpc calibration", "format_version": 2, "about": {}, "ranks": 1, "batch": 8,
            "seconds": {"data": draw.random() / 100, "attack": draw.random(), "forward": draw.random() / 10,
                        "backward": passes * (backward * (1 + 1e-12) + draw.random() / 100), "select": 0.001,
                        "update": draw.random() / 100},
            "attack_iterations": draw.randint(0, 10), "backward_passes": passes,
            "step_message_bytes": draw.choice([0, 76800]), "layers": layers,
            "codecs": [codec("float32", "sum", True, 4), codec("bytes", "gather", False, 1),
                       codec("both", "two_sided", False, 1), codec("rounds", "sum", False, 0.1, 2)],
            "network": network}


def forecast(program, folder, calibration, *options):
    path = f"{folder}/calibration.json"
    with open(path, "w") as file:
        json.dump(calibration, file)
    command = [program, "forecast", "--calibration", path, "--out", folder, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")
    with open(f"{folder}/forecast.json") as file:
        result = json.load(file)
    check_tables(folder, result)
    return result


def check_tables(folder, result):
    """The tables of the pictures, which there are with gnuplot: a column for each network, numbers of eight digits."""
    of = {"step": lambda row: row["choices"][0]["step"], "efficiency": lambda row: 100 * row["efficiency"],
          "gain": lambda row: max(said["gain"] for said in row["choices"])}
    for name, value in of.items():
        if not os.path.exists(path := f"{folder}/forecast-{name}.csv"):
            continue
        with open(path, newline="") as file:
            header, *found = csv.reader(file)
        os.remove(path)
        networks, best = [network["rows"] for network in result["networks"]], []
        for network in result["networks"]:  # what gains 2 % is named at the line's end
            pays = name == "gain" and value(network["rows"][-1]) >= 1.02
            best.append(network["name"] + (": " + network["rows"][-1]["best"] if pays else ""))
        check(header[1:] == best, path, header, best)
        for cells, rows in zip(found, zip(*networks), strict=True):
            check(all(math.isclose(float(cell), said, rel_tol=1e-7) for cell, said in
                      zip(cells, (rows[0]["ranks"], *map(value, rows)), strict=True)), path, cells, rows)


def settings_of(result, network, choice):
    link = {name: (network[name]["latency"], network[name]["bandwidth"]) for name in ("between", "within")}
    return dict(**link, per_node=result["ranks_per_node"], algorithm=result["algorithm"], codec=choice["codec"],
                probabilities=choice["probabilities"], bucket=result["bucket"], overlap=result["overlap"],
                stale_attack=result["stale_attack"])


def each(result):
    """(network, row, choice, what the model says of it)"""
    for network in result["networks"]:
        for row in network["rows"]:
            for choice, said in zip(result["choices"], row["choices"]):
                yield network, row, choice, said


def equal_ranks(program, folder, draw):
    calibration = random_calibration(draw)
    algorithm = draw.choice(["ring", "tree"])
    ranks = sorted({1, 2, 4, 8, *(draw.randint(3, 12) for _ in range(2))})
    options = ["--ranks", *ranks, "--algorithm", algorithm, "--bandwidth", f"{10 ** draw.uniform(-2, 1):.4f}GB/s",
               "--latency", f"{10 ** draw.uniform(0, 4):.3f}", "--bucket", draw.choice([1, 100000, 8388608]),
               "--stale-attack", draw.choice([0, 0, 3])]
    if draw.random() < 0.7:
        options.append("--overlap")
    if len(calibration["layers"]) > 1 and draw.random() < 0.5:
        options += ["--budget", f"{len(calibration['layers']) * draw.uniform(0.3, 1):.4f}", "--budget-unit",
                    draw.choice(["layers", "bytes"])]
    result = forecast(program, folder, calibration, *options)
    said_at = {(row["ranks"], said["name"]): said for _, row, _, said in each(result)}
    for network, row, choice, said in each(result):
        about = (choice["name"], row["ranks"], "ranks", *options, json.dumps(calibration))
        seconds, _, _ = simulation.simulate(calibration, row["ranks"], **settings_of(result, network, choice))
        inner = 1 << (row["ranks"].bit_length() - 1)
        if algorithm == "ring" or inner == row["ranks"]:
            check(abs(seconds - said["step"]) <= EXACT * seconds, "exact:", seconds, said["step"], *about)
            continue
        fewer = said_at[inner, said["name"]]
        coding = sum(said["seconds"][part] - fewer["seconds"][part] for part in ("encode", "decode"))
        low = fewer["step"] + coding
        check(low * (1 - EXACT) <= seconds <= said["step"] * (1 + EXACT), "no power of two:", seconds, low,
              said["step"], *about)


def several_on_a_node(program, folder, draw):
    calibration = random_calibration(draw)
    # Without the time of adding, which a rank spends while its link is busy.
    calibration["network"] = {"within": {"latency": 1e-6, "bandwidth": 5e10}}
    per_node = draw.choice([2, 4])
    options = ["--ranks", per_node, 2 * per_node, 4 * per_node, "--ranks-per-node", per_node, "--bandwidth",
               f"{10 ** draw.uniform(-2, 0):.4f}GB/s"]
    late = forecast(program, folder, calibration, *options, "--latency", 200)
    at_once = forecast(program, folder, calibration, *options, "--latency", 0)
    for (network, row, choice, said), (_, _, _, least) in zip(each(late), each(at_once)):
        if choice["codec"] == "both":
            continue  # its exchange is of all with all, which the model takes one partner after the other
        seconds, _, _ = simulation.simulate(calibration, row["ranks"], **settings_of(late, network, choice))
        low = least["step"] - 6 * row["ranks"] * 1e-6 * len(calibration["layers"])  # latencies inside the node
        check(low <= seconds * (1 + EXACT) and seconds <= said["step"] * (1 + EXACT), "ranks of a node:", low, seconds,
              said["step"], choice["name"], row["ranks"], *options, json.dumps(calibration))


def uneven_ranks(program, folder, draw):
    calibration = random_calibration(draw)
    calibration["layers"] = calibration["layers"][:1]
    for codec in calibration["codecs"]:
        codec["bytes"] = codec["bytes"][:1]
    jitter, steps = 0.05, 200
    result = forecast(program, folder, calibration, "--ranks", 8, "--bandwidth", "0.5GB/s", "--latency", 50, "--codec",
                      "float32", "--jitter", jitter)
    network = result["networks"][0]
    said = network["rows"][0]["choices"][0]
    settings = settings_of(result, network, result["choices"][0])
    calm, computing, _ = simulation.simulate(calibration, 8, **settings)
    sent = 14 * said["message_bytes"] / 8 / settings["between"][1]
    times = []
    for _ in range(steps):
        seconds, slowest, _ = simulation.simulate(calibration, 8, **settings, jitter=jitter,
                                                  draw=lambda: draw.gauss(0, 1))
        times.append(slowest)
        rest = calm - computing
        check(slowest + sent <= seconds * (1 + EXACT) and seconds <= (slowest + rest) * (1 + EXACT), "jitter:", seconds,
              slowest, sent, rest)
    mean = sum(times) / steps
    error = math.sqrt(sum((time - mean) ** 2 for time in times) / (steps - 1) / steps)
    expected = computing + said["seconds"]["straggling"]
    check(abs(mean - expected) <= 4 * error, "the slowest rank:", mean, "+-", error, "expected", expected)


def many_ranks(program, folder, draw, full):
    calibration = random_calibration(draw)
    calibration["layers"] = [{"name": "all", "elements": 11173962, "backward": 0.1, "weight_gradient": 0.05}]
    calibration["seconds"]["backward"] = 0.1 * calibration["backward_passes"]
    for codec, per_element in zip(calibration["codecs"], (4, 1, 1, 0.1)):
        codec["bytes"] = [int(11173962 * per_element)]
    for algorithm, ranks in (("tree", 1024), ("ring", 1024 if full else 200)):
        result = forecast(program, folder, calibration, "--ranks", ranks, "--bandwidth", "10gbit", "--codec", "float32",
                          "--algorithm", algorithm)
        network, row, choice, said = next(each(result))
        seconds, _, _ = simulation.simulate(calibration, ranks, **settings_of(result, network, choice))
        print(f"{ranks} ranks, {algorithm}: model {said['step']:.6f} s, simulation {seconds:.6f} s")
        # Twice as many additions as ranks, rounded each.
        check(abs(seconds - said["step"]) <= EXACT * seconds, algorithm, ranks, seconds, said["step"])


def main():
    program, full = os.path.abspath(sys.argv[1]), "--full" in sys.argv[2:]
    draw = random.Random(20)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(20):
            equal_ranks(program, folder, draw)
        for _ in range(5):
            several_on_a_node(program, folder, draw)
        for _ in range(2):
            uneven_ranks(program, folder, draw)
        many_ranks(program, folder, draw, full)
        os.makedirs(f"{folder}/new/forecast-step.csv")  # where a table was to be
        command = [program, "forecast", "--calibration", f"{folder}/calibration.json", "--ranks", "2", "--out", f"{folder}/new"]
        code = subprocess.run(command, capture_output=True, timeout=600, check=False).returncode
        check(code == 9, *command, "ended with code", code)
    print(f"{compared} comparisons, {failures} failed")
    return 1 if failures or compared < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
