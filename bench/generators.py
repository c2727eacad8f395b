"""Ranks that only attack (`--generators`): steps measured beside what `dat_hpc forecast` says of them. See bench/README.md.

  splits    one trainer and 1 to 7 generators, balanced and not: the share of the rate of the slower side
  slow      the same where generators are two and four times slower
  scaling   speed of one trainer and 1 to 7 generators in ranks that train alone, attacks of 32 iterations and of as many
            iterations as there are generators: the experiment of Mittal, Wang, Tumma and Maity
  links     all ranks training and the best split, on either side of where the split begins to pay
  pinned    real training of one trainer and one generator, each on a core of its own, and of two ranks that train

But in `pinned`, computing is a delay and the messages are real.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile

import launch
from study import parsed

BATCH = 64
WORK = ["--staleness", 2, "--micro-batch", 4]  # generators have whole micro-batches: what they are ahead has to be several


class Study:
    def __init__(self, arguments):
        self.arguments, self.rows = arguments, []
        self.launcher = launch.Launcher(arguments.launcher, arguments.prepare)
        self.folder = tempfile.TemporaryDirectory()

    def step(self, trainers, generators, image, attack, *options, nodes=1, rate="none"):
        """Seconds of a step of trainers and generators whose computing takes so many seconds an image."""
        a = self.arguments
        words = [f"{a.build}/bench/bench_generators", "--generators", generators, "--image-seconds", image, "--attack-seconds",
                 attack, "--repeat", a.repeat, *options]
        text = self.launcher.run(words, trainers + generators, nodes, rate)
        row = json.loads(text[text.index("{"):].splitlines()[0])
        row |= {"rate": rate, "image": image, "attack": attack}
        self.rows.append(row)
        return row

    def images(self, count, size):
        path = f"{self.folder.name}/images{size}.h5"
        launch.output_of([f"{self.arguments.build}/dat_hpc", "data", "synthetic", path, "--train", count, "--test", 16, "--size", size])
        return path

    def forecast(self, ranks, image, attack, elements, bandwidth, staleness, micro_batch, batch):
        """Of ranks on nodes of their own: seconds of a step of ranks that all train, and of the best split."""
        seconds = {"data": 0, "attack": attack * batch, "forward": image * batch, "backward": 0, "select": 0, "update": 0}
        calibration = {"filetype": "dat_hpc calibration", "format_version": 2, "about": {}, "ranks": 1, "batch": batch,
                       "seconds": seconds, "attack_iterations": 1, "backward_passes": 1, "step_message_bytes": 0,
                       "layers": [{"name": "all", "elements": elements, "backward": 0, "weight_gradient": 0}],
                       "codecs": [{"name": "float32", "transport": "sum", "rounds": 1, "exact": True, "encode": 0, "decode": 0,
                                   "bytes": [4 * elements]}], "network": {}}
        row = launch.forecast(f"{self.arguments.build}/dat_hpc", self.folder.name, calibration, "--ranks", ranks, "--bandwidth", bandwidth,
                              "--codec", "float32", "--budget", 1, "--staleness", staleness, "--micro-batch", micro_batch)
        return row["choices"][0]["step"], row["roles"]


def share(row):
    return max(row["trainer_seconds"], row["generators_seconds"]) / row["step_seconds"]


def splits(study):
    print("\nOne trainer, --staleness 2, micro-batches of 4 of 64 images, computing is a delay: seconds of a step, and the rate in parts of the slower side's")
    print(f"{'generators':>10}{'trainer, s':>12}{'generators, s':>15}{'step, s':>10}{'share':>9}{'dealt again':>13}")
    attack = study.arguments.attack_seconds
    for generators in study.arguments.generators:
        for image in (0.5 * attack / generators, attack / generators, 1.5 * attack / generators):
            row = study.step(1, generators, image, attack, *WORK)
            print(f"{generators:>10}{row['trainer_seconds']:>12.3f}{row['generators_seconds']:>15.3f}{row['step_seconds']:>10.3f}"
                  f"{100 * share(row):>8.1f}%{row['dealt_again']:>13}", flush=True)


def slow(study):
    print("\nOne trainer, --staleness 2, generators that are slower, computing is a delay")
    print(f"{'times slower':>16}{'trainer, s':>12}{'generators, s':>15}{'step, s':>10}{'share':>9}{'dealt again':>13}")
    attack = study.arguments.attack_seconds
    for slower in ([2], [4], [2, 1], [4, 1], [4, 2, 1], [2, 2, 4, 4, 1, 1, 1]):
        speed = sum(1 / times for times in slower)
        row = study.step(1, len(slower), attack / speed, attack, *WORK, "--before", 12, "--slower",
                         *slower)
        print(f"{','.join(map(str, slower)):>16}{row['trainer_seconds']:>12.3f}{row['generators_seconds']:>15.3f}"
              f"{row['step_seconds']:>10.3f}{100 * share(row):>8.1f}%{row['dealt_again']:>13}", flush=True)


def scaling(study):
    """An iteration takes as long as the trainer's pass."""
    pass_seconds = 0.001
    print("\nOne trainer and generators, --staleness 2, in speeds of one rank that does both, computing is a delay: an iteration\n"
          "of the attack and the training pass take 1 ms an image each, batch 64")
    print(f"{'':>10}{'strong, 32 iterations':>28}{'weak, as many as generators':>32}")
    print(f"{'generators':>10}{'step, s':>12}{'speed':>8}{'of best':>8}{'step, s':>16}{'speed':>8}{'of best':>8}")
    for generators in study.arguments.generators:
        text = f"{generators:>10}"
        for iterations in (32, generators):
            row = study.step(1, generators, pass_seconds, iterations * pass_seconds, *WORK, "--steps", iterations)
            alone = BATCH * (iterations + 1) * pass_seconds
            text += f"{row['step_seconds']:>{12 if iterations == 32 else 16}.3f}{alone / row['step_seconds']:>8.2f}{100 * share(row):>7.1f}%"
        print(text, flush=True)


def links(study):
    a = study.arguments
    print("\nAll ranks train, and the best split; a rank on each node, resnet18 of 11.2 million weights on images of 8x8, computing\n"
          "is a delay; ratio: speed of the split in that of all ranks training")
    print(f"{'link':>8}{'ranks':>7}{'image, s':>10}{'attack, s':>11}{'generators':>12}{'all, s':>9}{'forecast':>10}{'split, s':>10}"
          f"{'forecast':>10}{'ratio':>8}{'forecast':>10}")
    micro_batch, staleness = 2, 2
    network = ["--network", "resnet18", "--width", 64, "--data", study.images(512, 8), "--micro-batch", micro_batch, "--steps", 2]
    elements, wrong = 11180484, 0
    for rate, ranks in zip(a.rates, a.link_ranks):
        # Few images, so that what is computed is short beside its delay, which is about as long as a sum.
        images = micro_batch * ranks
        whole = study.forecast(ranks, 1e-9, 1e-9, elements, rate, staleness, micro_batch, images // ranks)[0]
        image = max(whole / 2, 0.12) / micro_batch / 2
        grid = [image * 1.1**k for k in range(45)]
        known = [study.forecast(ranks, image, attack, elements, rate, staleness, micro_batch, images // ranks) for attack in grid]
        for wanted in (max(all_train / split["step"] for all_train, split in known), 0.8):
            attack, (all_train, split) = min(zip(grid, known), key=lambda one: abs(one[1][0] / one[1][1]["step"] - wanted))
            both = [study.step(ranks, 0, image, attack, *network, "--total-batch", images, nodes=ranks, rate=rate),
                    study.step(ranks - split["generators"], split["generators"], image, attack, *network, "--total-batch", images, "--staleness", staleness,
                               nodes=ranks, rate=rate)]
            assert abs(both[1]["version_bytes"] / (4 * elements) - 1) < 0.01
            said, found = all_train / split["step"], both[0]["step_seconds"] / both[1]["step_seconds"]
            wrong += (said > 1) != (found > 1)
            print(f"{rate:>8}{ranks:>7}{image:>10.4f}{attack:>11.4f}{split['generators']:>12}{both[0]['step_seconds']:>9.3f}"
                  f"{all_train:>10.3f}{both[1]['step_seconds']:>10.3f}{split['step']:>10.3f}{found:>8.2f}{said:>10.2f}"
                  f"{'  WRONG SIDE' if (said > 1) != (found > 1) else ''}", flush=True)
    return wrong


def images_per_second(folder):
    """Behind the first quarter of the steps."""
    steps = launch.rows(folder, "step")
    times = [row["wall_time"] for row in steps]
    begin = len(steps) // 4
    return sum(row["images"] for row in steps[begin:]) / (times[-1] - times[begin - 1])


def pinned(study):
    """Real computing, no delay. Every rank has a core; two ranks calibrate at the same time."""
    a = study.arguments
    print(f"\n{a.network} of width {a.width}, PGD-10, batch 64 of all ranks, micro-batches of 8, a core a rank: images/s")
    cores = sorted(os.sched_getaffinity(0))[:2]
    wrapper = f"{study.folder.name}/pinned.sh"
    with open(wrapper, "w") as file:
        file.write('#!/bin/sh\ncores="' + " ".join(map(str, cores)) + '"\nset -- $cores -- "$@"\n'
                   '[ "$OMPI_COMM_WORLD_RANK" = 0 ] && core=$1 || core=$2\nshift 3\nexec taskset -c "$core" "$@"\n')
    os.chmod(wrapper, 0o755)
    common = ["--network", a.network, "--width", a.width, "--threads", 1]
    data = study.images(BATCH * a.repeat, 32)
    folder = f"{study.folder.name}/forecast"
    print(f"{'pair':>6}{'two train':>12}{'forecast':>10}{'1 + 1':>10}{'forecast':>10}{'off by':>9}")
    for pair in range(a.pairs):
        study.launcher.run([wrapper, f"{a.build}/dat_hpc", "forecast", *common, "--batch", 32, "--attack", "pgd", "--lambda", 0, "--seconds",
                            20, "--ranks", 2, "--ranks-per-node", 2, "--codec", "float32", "--bandwidth", "measured", "--micro-batch", 8,
                            "--staleness", 1, "--out", folder], 2)
        row = launch.read_json(f"{folder}/forecast.json")["networks"][0]["rows"][0]
        said = [BATCH / row["choices"][0]["step"], BATCH / row["roles"]["step"]]
        found = []
        for name, options in ("all", ["--batch", 32]), ("split", ["--batch", 64, "--generators", 1, "--staleness", 1]):
            out = f"{study.folder.name}/{name}{pair}"
            study.launcher.run([wrapper, f"{a.build}/dat_hpc", "train", *common, "--attack-steps", 10, "--lambda", 0, "--micro-batch", 8 if
                                name == "split" else 32, "--selector", "all", "--optimizer", "sgd", "--data", data,
                                "--epochs", 1, "--warmup-epochs", 0, "--eval-every", 0, "--limit-test", 16, "--quiet", *options, "--out",
                                out], 2)
            found.append(images_per_second(out))
        off = found[1] / said[1] - 1
        study.rows.append({"part": "pinned", "found": found, "forecast": said})
        print(f"{pair + 1:>6}{found[0]:>12.2f}{said[0]:>10.2f}{found[1]:>10.2f}{said[1]:>10.2f}{100 * off:>8.1f}%", flush=True)
    offs = [row["found"][1] / row["forecast"][1] - 1 for row in study.rows if row.get("part") == "pinned"]
    print(f"median: {100 * statistics.median(offs):+.1f} % of the forecast")


PARTS = {"splits": splits, "slow": slow, "scaling": scaling, "links": links, "pinned": pinned}


def main():
    arguments, _ = parsed(
        __doc__, program="build", after=["parts"], **launch.OPTIONS, generators=[1, 2, 3, 4, 5, 6, 7],
        attack_seconds=(0.02, "of an image"), repeat=(16, "steps of a launch"), rates=(["1gbit", "10gbit"], "of links, {rate} of --prepare"),
        link_ranks=([2, 2], "for each rate, a rank on each node"), pairs=(3, "of pinned"), network=("preact_resnet18", "of pinned"),
        width=(16, "of pinned"), out=(None, "JSON file for every launch"))
    chosen = arguments.parts or [name for name in PARTS if name != "links"]
    if unknown := set(chosen) - PARTS.keys():
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    study = Study(arguments)
    wrong = sum(PARTS[name](study) or 0 for name in chosen)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(study.rows, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
