"""Strong and weak scaling: steps of all ranks, measured beside what `dat_hpc forecast` says of them. See bench/README.md."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import launch
from study import parsed


class Study:
    def __init__(self, arguments):
        self.arguments = arguments
        self.launcher = launch.Launcher(arguments.launcher, arguments.prepare)
        self.calibrations, self.links = {}, {}
        os.makedirs(arguments.out, exist_ok=True)

    def forecast(self, *words):
        return [f"{self.arguments.build}/dat_hpc", "forecast", *words, *(["--overlap"] if self.arguments.overlap else [])]

    def calibrate(self, name, batch, seconds, ranks=1, nodes=1, rate="none"):
        folder = f"{self.arguments.out}/{name}"
        self.launcher.run(self.forecast("--network", self.arguments.network, "--width", self.arguments.width, "--batch",
                                        batch, "--attack", self.arguments.attack, "--threads", 1, "--seconds", seconds,
                                        "--ranks", 1, "--out", folder), ranks, nodes, rate)
        return launch.read_json(f"{folder}/calibration.json")

    def computing(self, batch):
        """Of one rank alone."""
        if batch not in self.calibrations:
            self.calibrations[batch] = self.calibrate(f"batch{batch}", batch, self.arguments.seconds)
        return self.calibrations[batch]

    def network(self, nodes, rate):
        """Links and sums of two ranks: on one node, or on two."""
        key = (min(nodes, 2), rate if nodes > 1 else "none")
        if key not in self.links:
            name = "within" if nodes == 1 else f"between_{rate}"
            found = self.calibrate(name, 2, self.arguments.seconds, 2, *key)
            self.links[key] = found["network"]
        return self.links[key]

    def predict(self, batch, ranks, nodes, rate):
        calibration = dict(self.computing(batch))
        network = dict(self.network(nodes, rate))
        if nodes > 1 and ranks > nodes:
            network["within"] = self.network(1, "none")["within"]
        calibration["network"] = network
        folder = f"{self.arguments.out}/{nodes}nodes_{ranks}ranks_batch{batch}_{rate}"
        os.makedirs(folder, exist_ok=True)
        program, _, *overlap = self.forecast()
        row = launch.forecast(program, folder, calibration, "--ranks", ranks, "--ranks-per-node", ranks // nodes, "--codec", "float32",
                              "--bandwidth", "measured", *overlap)
        return f"{folder}/calibration.json", row["choices"][0]["step"]

    def measure(self, kind, batch, ranks, nodes, rate):
        path, predicted = self.predict(batch, ranks, nodes, rate)
        delayed = self.arguments.cores and ranks > self.arguments.cores
        words = ["--delay", path] if delayed else []
        program = [f"{self.arguments.build}/bench/bench_scaling", "--network", self.arguments.network, "--width",
                   self.arguments.width, "--batch", batch, "--attack", self.arguments.attack, "--repeat",
                   self.arguments.repeat, *words, *(["--overlap"] if self.arguments.overlap else [])]
        text = self.launcher.run(program, ranks, nodes, rate)
        line = json.loads(text[text.index("{"):].splitlines()[0])
        seconds = line["seconds"]
        measured = statistics.median(seconds)
        return {"scaling": kind, "rate": rate if nodes > 1 else "shared memory", "nodes": nodes, "ranks": ranks,
                "batch": batch, "computing": "delay" if delayed else "done", "measured_ms": 1e3 * measured,
                "least_ms": 1e3 * min(seconds), "most_ms": 1e3 * max(seconds), "predicted_ms": 1e3 * predicted,
                "error_percent": 100 * (predicted / measured - 1), "images_per_s": ranks * batch / measured}

    def rows(self):
        a = self.arguments
        for rate in a.rates:
            for nodes in a.nodes:
                if nodes == 1 and rate != a.rates[0]:
                    continue
                for ranks in a.ranks:
                    if ranks % nodes:
                        continue
                    yield self.measure("weak", a.batch, ranks, nodes, rate)
                    if a.total % ranks == 0:
                        yield self.measure("strong", a.total // ranks, ranks, nodes, rate)


def main():
    arguments, _ = parsed(
        __doc__, program="build", **launch.OPTIONS, nodes=[1, 2, 4], ranks=[1, 2, 4, 8], rates=(["1gbit"], "{rate} of --prepare"),
        cores=(os.cpu_count(), "of this machine, where all nodes are on it; 0: every rank has its own"),
        network="preact_resnet18", width=64, batch=(8, "images of a rank, weak scaling"),
        total=(32, "images of all ranks, strong scaling"), attack="fgsm", overlap=False, repeat=(8, "steps of a launch"),
        seconds=(15.0, "of a calibration"), out=("scaling", "folder for tables and calibrations"))
    study = Study(arguments)
    lines = []

    def say(text):
        print(text, flush=True)
        lines.append(text + "\n")

    say(f"{arguments.network}, width {arguments.width}, attack {arguments.attack}, "
        f"{'overlapped' if arguments.overlap else 'not overlapped'}. Computing 'delay': more ranks than the {arguments.cores}"
        " cores, so that\ncomputing is a delay of the calibrated length and only the communication is real.\n")
    say(f"{'scaling':8}{'network':>15}{'nodes':>6}{'ranks':>6}{'batch':>6}{'computing':>10}{'measured, ms':>13}"
        f"{'least - most':>20}{'predicted':>11}{'error':>8}{'images/s':>10}")
    rows = []
    for row in study.rows():
        rows.append(row)
        between = f"{row['least_ms']:.1f} - {row['most_ms']:.1f}"
        say(f"{row['scaling']:8}{row['rate']:>15}{row['nodes']:6}{row['ranks']:6}{row['batch']:6}{row['computing']:>10}"
            f"{row['measured_ms']:13.1f}{between:>20}{row['predicted_ms']:11.1f}{row['error_percent']:7.1f}%"
            f"{row['images_per_s']:10.1f}")
    errors = [abs(row["error_percent"]) for row in rows]
    say(f"\nmedian error of the prediction {statistics.median(errors):.1f} %, of {len(rows)} launches")
    launch.write_csv(f"{arguments.out}/scaling.csv", rows)
    for algorithm in ("ring", "tree"):
        calibration = f"{arguments.out}/batch{arguments.batch}/calibration.json"
        done = subprocess.run([str(word) for word in study.forecast("--calibration", calibration, "--algorithm", algorithm,
                                                                    "--codec", "float32")],
                              capture_output=True, text=True)
        table = done.stdout[done.stdout.index("A model"):]
        say(f"\nWeak scaling beyond, {algorithm}. {table}")
    pathlib.Path(arguments.out, "scaling.txt").write_text("".join(lines))
    print(f"{arguments.out}/scaling.txt\n{arguments.out}/scaling.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
