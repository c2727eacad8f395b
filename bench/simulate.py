#!/usr/bin/env python3
"""A discrete-event simulation of training steps on many ranks: ranks that compute, links with latency and bandwidth,
and every message of every sum. It shares no code with the model of `dat_hpc forecast`, and reads the same calibration.

A rank computes layer after layer of its last backward pass and gives a bucket of gradients to the network when its
layers are done (overlapped), or all of them at the end. The network of a rank works on one bucket at a time, in their
order, and runs the steps of the algorithm: a message leaves when the rank has what it shall send, and when the link is
free. A link carries one message at a time, size / bandwidth seconds each; it arrives `latency` later. Ranks of one node
share the node's link to the others, first come, first served.

Differences to the closed form that follow from this: with several ranks on a node and several nodes, messages wait for
a link but not for each other's latency, so the model is an upper bound for a ring; with jitter, early ranks send before
the last one is there.
"""

import argparse
import collections
import heapq
import json
import random
import sys


class Network:
    """Events in time, links, and messages between processes, which are generators: `yield ("sleep", seconds)`,
    `yield ("send", to, bytes, tag)`, `yield ("receive", sender, tag)`, `yield ("wait", name)`; `signal` wakes those who
    wait for a name. A send does not wait for its message."""

    def __init__(self, ranks, per_node, between, within):
        self.per_node, self.between, self.within = per_node, between, within
        self.now, self.events, self.count = 0.0, [], 0
        self.free = collections.defaultdict(float)  # link -> when
        self.arrived, self.waiting = {}, {}
        self.ranks = ranks

    def at(self, time, process):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, process))

    def send(self, sender, to, size, tag):
        if sender // self.per_node == to // self.per_node:
            link, (latency, bandwidth) = ("rank", sender), self.within
        else:
            link, (latency, bandwidth) = ("node", sender // self.per_node), self.between
        begin = max(self.now, self.free[link])
        self.free[link] = begin + size / bandwidth
        self.signal((to, sender, tag), self.free[link] + latency)

    def signal(self, name, time=None):
        time = self.now if time is None else time
        if name in self.waiting:
            self.at(time, self.waiting.pop(name))
        else:
            self.arrived[name] = time

    def run(self):
        while self.events:
            self.now, _, process = heapq.heappop(self.events)
            self.step(process)

    def step(self, process):
        rank, generator = process
        for what, *details in generator:
            if what == "sleep":
                self.at(self.now + details[0], process)
                return
            if what == "send":
                self.send(rank, *details)
                continue
            name = (rank, *details) if what == "receive" else details[0]
            time = self.arrived.pop(name, None)
            if time is None:
                self.waiting[name] = process
                return
            if time > self.now:
                self.at(time, process)
                return


def ring_sum(rank, ranks, size, tag, adding):
    part, right, left = size / ranks, (rank + 1) % ranks, (rank - 1) % ranks
    for k in range(2 * (ranks - 1)):
        yield ("send", right, part, (tag, k))
        yield ("receive", left, (tag, k))
        if k < ranks - 1 and adding:
            yield ("sleep", part * adding)


def tree_sum(rank, ranks, size, tag, adding):
    """Recursive halving, then doubling. Of ranks beyond a power of two, the first even ones give all they have to their
    right neighbour first, and get the result from it."""
    inner = 1 << (ranks.bit_length() - 1)
    rest = ranks - inner
    if rank < 2 * rest:
        if rank % 2 == 0:
            yield ("send", rank + 1, size, (tag, "in"))
            yield ("receive", rank + 1, (tag, "out"))
            return
        yield ("receive", rank - 1, (tag, "in"))
        yield ("sleep", size * adding)
        place = rank // 2
    else:
        place = rank - rest

    def real(other):
        return 2 * other + 1 if other < rest else other + rest

    distance, part, way = 1, size / 2, []
    while distance < inner:
        other = real(place ^ distance)
        yield ("send", other, part, (tag, distance, "halve"))
        yield ("receive", other, (tag, distance, "halve"))
        yield ("sleep", part * adding)
        way.append((distance, other, part))
        distance, part = 2 * distance, part / 2
    for distance, other, part in reversed(way):
        yield ("send", other, part, (tag, distance, "double"))
        yield ("receive", other, (tag, distance, "double"))
    if rank < 2 * rest:
        yield ("send", rank - 1, size, (tag, "out"))


def ring_gather(rank, ranks, size, tag):
    for k in range(ranks - 1):
        yield ("send", (rank + 1) % ranks, size, (tag, k))
        yield ("receive", (rank - 1) % ranks, (tag, k))


def exchange(rank, ranks, size, tag):
    for k in range(1, ranks):
        yield ("send", (rank + k) % ranks, size / ranks, (tag, k))
        yield ("receive", (rank - k) % ranks, (tag, k))


def collective(kind, algorithm, rank, ranks, size, tag, adding):
    if ranks == 1:
        return
    if kind == "sum":
        yield from (ring_sum if algorithm == "ring" else tree_sum)(rank, ranks, size, tag, adding)
    elif kind == "gather":
        yield from ring_gather(rank, ranks, size, tag)
    else:
        yield from exchange(rank, ranks, size, (tag, "parts"))
        yield from ring_gather(rank, ranks, size / ranks, (tag, "means"))


def buckets_of(calibration, codec, probabilities, most):
    """[(number of the last layer, elements, bytes)]"""
    buckets, elements, size = [], 0.0, 0.0
    for number, (layer, share, message) in enumerate(zip(calibration["layers"], probabilities, codec["bytes"])):
        if number > 0 and elements + share * layer["elements"] > most:
            buckets.append((number - 1, elements, size))
            elements = size = 0.0
        elements += share * layer["elements"]
        size += share * message
    return buckets + [(len(calibration["layers"]) - 1, elements, size)]


def simulate(calibration, ranks, between, within=(1e-6, 1e10), per_node=1, algorithm="ring", codec="float32",
             probabilities=None, bucket=8 << 20, overlap=False, stale_attack=0, jitter=0.0, draw=None):
    """One step. between, within: (latency in seconds, bytes a second). Returns seconds of the step, those of the
    slowest rank's computing, and the messages that were sent. draw(): standard normal numbers, for the jitter."""
    layers = calibration["layers"]
    probabilities = probabilities or [1.0] * len(layers)
    costs = next(one for one in calibration["codecs"] if one["name"] == codec)
    seconds = calibration["seconds"]
    adding = 1 / calibration["network"]["reduction"] if "reduction" in calibration["network"] else 0.0
    buckets = buckets_of(calibration, costs, probabilities, bucket)
    coded = ranks > 1 or not costs["exact"]
    encode = costs["encode"] if coded else 0.0
    elements = sum(of for _, of, _ in buckets)
    rounds = costs["rounds"] if costs["transport"] == "sum" else 1
    network = Network(ranks, per_node, between, within)
    computed, finished, sent_all = [0.0] * ranks, [0.0] * ranks, 0

    def count(commands):
        nonlocal sent_all
        for command in commands:
            sent_all += command[0] == "send"
            yield command

    def computer(rank, slowness):
        saved = sum((1 - p) * layer["weight_gradient"] for p, layer in zip(probabilities, layers))
        one_pass = seconds["backward"] / calibration["backward_passes"]
        yield ("sleep", slowness * (seconds["data"] + seconds["attack"] + seconds["forward"] +
                                    (calibration["backward_passes"] - 1) * (one_pass - saved)))
        ends = {last: (number, of) for number, (last, of, _) in enumerate(buckets)}
        for number, (layer, p) in enumerate(zip(layers, probabilities)):
            yield ("sleep", slowness * (layer["backward"] - (1 - p) * layer["weight_gradient"]))
            if number in ends:
                index, of = ends[number]
                yield ("sleep", slowness * encode * of)
                if overlap:
                    network.signal(("ready", rank, index))
        yield ("sleep", slowness * (one_pass - sum(layer["backward"] for layer in layers)))
        if not overlap:
            for index in range(len(buckets)):
                network.signal(("ready", rank, index))
        computed[rank] = network.now
        covered = 0.0
        if stale_attack and calibration["attack_iterations"]:  # of the step that comes next
            iterations = min(stale_attack, calibration["attack_iterations"])
            covered = iterations * seconds["attack"] / calibration["attack_iterations"]
        yield ("sleep", covered)
        yield ("wait", ("sent", rank))
        yield from count(collective("sum", algorithm, rank, ranks, calibration["step_message_bytes"], "statistics",
                                    adding))
        two_sided = costs["transport"] == "two_sided"
        if coded:
            yield ("sleep", (slowness * encode / ranks if two_sided else 0) * elements)
            decodes = {"sum": 1, "gather": ranks, "two_sided": 2}[costs["transport"]]
            yield ("sleep", decodes * costs["decode"] * elements)
        finished[rank] = network.now + seconds["select"] + seconds["update"] - covered

    def sender(rank):
        for index, (_, _, size) in enumerate(buckets):
            yield ("wait", ("ready", rank, index))
            for k in range(rounds):
                yield from count(collective(costs["transport"], algorithm, rank, ranks, size / rounds, (index, k),
                                            adding))
        network.signal(("sent", rank))

    for rank in range(ranks):
        slowness = 1 + jitter * draw() if jitter else 1.0
        network.at(0.0, (rank, computer(rank, slowness)))
        network.at(0.0, (rank, sender(rank)))
    network.run()
    return max(finished), max(computed), sent_all


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration", help="calibration.json of `dat_hpc forecast --out DIR`")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--latency", type=float, default=30, help="between nodes, microseconds")
    parser.add_argument("--bandwidth", type=float, default=117.7, help="between nodes, MB/s")
    parser.add_argument("--algorithm", choices=["ring", "tree"], default="ring")
    parser.add_argument("--codec", default="float32")
    parser.add_argument("--bucket", type=int, default=8 << 20, help="most gradients in one message")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--stale-attack", type=int, default=0)
    parser.add_argument("--jitter", type=float, default=0)
    parser.add_argument("--steps", type=int, default=1, help="with --jitter: steps to take the mean of")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with open(arguments.calibration) as file:
        calibration = json.load(file)
    generator = random.Random(arguments.seed)
    print(f"{'ranks':>7}{'step, ms':>14}{'computing, ms':>15}{'messages':>10}   simulated, not measured")
    for ranks in arguments.ranks:
        results = [simulate(calibration, ranks, (1e-6 * arguments.latency, 1e6 * arguments.bandwidth),
                            per_node=arguments.ranks_per_node, algorithm=arguments.algorithm, codec=arguments.codec,
                            bucket=arguments.bucket, overlap=arguments.overlap, stale_attack=arguments.stale_attack,
                            jitter=arguments.jitter, draw=lambda: generator.gauss(0, 1))
                   for _ in range(arguments.steps if arguments.jitter else 1)]
        step, computing = (sum(result[k] for result in results) / len(results) for k in (0, 1))
        print(f"{ranks:7}{1e3 * step:14.3f}{1e3 * computing:15.3f}{results[0][2]:10}")


if __name__ == "__main__":
    sys.exit(main())
