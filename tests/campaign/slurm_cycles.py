#!/usr/bin/env python3
"""Jobs that a real Slurm interrupts again and again: slurm_cycles.py PROGRAM ROOT [CYCLES] [KIND...]

Each kind of interruption meets one job of jobs/slurm/train.sh, CYCLES times (10); then the job trains to its end. An unbroken
run under mpirun, as long, must have the same weights in bits, and the same lines in its record, each once. Kinds:

    usr1     a time limit of a minute, with USR1 before it (sooner than Slurm is told to: it looks every 30 s only)
    limit    a time limit of a minute without USR1: TERM, and KILL after KillWait
    requeue  scontrol requeue at a random moment
    cancel   scancel at a random moment, then the same job submitted again; the cancelled one must not come back
    preempt  a job of a partition that preempts (named "urgent", or by DAT_URGENT); skipped where there is none
    sweep    once: a sweep of six points, one of them requeued in the middle, as unbroken ones, and their table

The Slurm is that whose sbatch is on the path, with two nodes free, or one with two cores; DAT_LAUNCHER as in common.sh. Ten
cycles take half an hour. Without a Slurm the exit code is 77.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

OPTIONS = ("--network small_cnn --width 16 --attack-steps 4 --eval pgd4 --limit-train 64 --limit-test 32 --batch 8 --epochs 100000 "
           "--warmup-epochs 0 --milestones 99999 --eval-every 100 --threads 1 --checkpoint-every 50 --quiet").split()
URGENT = os.environ.get("DAT_URGENT", "urgent")
PATIENCE_S = 600  # for one interruption and the new start: a minute or two where the machine is not busy


def output_of(*command):
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout if ended.returncode == 0 else ""


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.5)


class Trial:
    def __init__(self, kind, program, root, nodes):
        self.kind, self.program, self.root, self.nodes = kind, program, root, nodes
        self.out = pathlib.Path(f"{kind}-run").absolute()
        self.random = random.Random(kind)

    def submit(self, *options, extra=()):
        size = ["--nodes=2", "--ntasks-per-node=1"] if self.nodes > 1 else ["--nodes=1", "--ntasks-per-node=2"]
        limit = {"usr1": ["--time=1", "--signal=B:USR1@20"], "limit": ["--time=1", "--signal=B:USR1@0"]}
        command = ["sbatch", "--parsable", "--cpus-per-task=1", *size, *limit.get(self.kind, ["--time=60"]), *extra,
                   f"--output={self.kind}-%j.log", f"{self.root}/jobs/slurm/train.sh", *OPTIONS, "--out", str(self.out), *options]
        environment = os.environ | {"DAT_ROOT": str(self.root), "DAT_HPC": self.program}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.job = ended.stdout.strip()
        assert self.job.isdigit() or "--wait" in extra, ended.stderr
        return ended.returncode

    def restarts(self):
        return int(re.search(r" Restarts=(\d+)", output_of("scontrol", "--oneliner", "show", "job", self.job))[1])

    def gone(self):
        return not output_of("squeue", "--noheader", "--states=all", "--job", self.job, "--format=%T").startswith(
            ("RUNNING", "COMPLETING", "PENDING", "REQUEUED"))

    def record(self):
        with open(self.out / "metrics.jsonl") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def steps(self):
        record = self.record() if (self.out / "metrics.jsonl").exists() else []
        return record[-1].get("step", 0) if record else 0

    def interrupted(self):
        """One cycle, from steps made in this part to a part that has begun after it."""
        before = self.steps()
        wait_for(lambda: self.steps() > before + 5, f"steps of the {self.kind} job {self.job}")
        restarts = self.restarts()
        time.sleep(0 if self.kind in ("usr1", "limit") else self.random.uniform(0, 5))
        if self.kind == "requeue":
            subprocess.run(["scontrol", "requeue", self.job], check=True)
        elif self.kind == "preempt":
            subprocess.run(["sbatch", "--wait", f"--partition={URGENT}", f"--nodes={self.nodes}", "--exclusive", "--time=1",
                            "--output=/dev/null", "--wrap=sleep 1"], check=True, stdout=subprocess.DEVNULL)
        elif self.kind == "cancel":
            subprocess.run(["scancel", self.job], check=True)
            wait_for(self.gone, f"the end of the cancelled job {self.job}")
            assert self.restarts() == restarts, f"the cancelled job {self.job} came back"
            self.submit()
            return
        wait_for(lambda: self.restarts() > restarts, f"a restart of the {self.kind} job {self.job}")

    def run(self, cycles):
        self.submit()
        for cycle in range(cycles):
            self.interrupted()
            print(f"{self.kind}: {cycle + 1} of {cycles}, step {self.steps()}", flush=True)
        before = self.steps()
        wait_for(lambda: self.steps() > before + 5, f"steps of the {self.kind} job {self.job}")
        # The end: TERM at the script alone is a checkpoint without a return.
        restarts = self.restarts()
        subprocess.run(["scancel", "--batch", "--signal=TERM", self.job], check=True)
        wait_for(self.gone, f"the end of job {self.job}")
        assert self.restarts() == restarts, f"job {self.job} came back after scancel --batch --signal=TERM"
        last = (self.out / "ckpt/latest").read_text()
        steps = int(re.search(r"step-0*(\d+)\.h5", last)[1]) + 20
        self.kind += "-end"  # without its time limit
        assert self.submit("--max-steps", str(steps), extra=["--wait"]) == 0, "the last part failed"
        return steps

    def differences(self, steps):
        """What the interrupted run has otherwise than an unbroken one."""
        unbroken = Trial(f"{self.kind}-unbroken", self.program, self.root, self.nodes)
        subprocess.run(["mpirun", "-np", "2", self.program, "train", *OPTIONS, "--max-steps", str(steps), "--out", unbroken.out],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def lines(trial):  # all that is not of one part of a run, or of its time
            return [{key: value for key, value in line.items() if not key.startswith("t_") and key != "wall_time"}
                    for line in trial.record() if line["kind"] not in ("ranks", "straggler")]

        def weights(trial):
            return re.search(r"^weights\s+(\w+)$", (trial.out / "SUMMARY.txt").read_text(), re.MULTILINE)[1]

        ours, theirs = lines(self), lines(unbroken)
        found = [] if ours == theirs else [f"the record differs: {len(ours)} and {len(theirs)} lines, first at line "
                                           f"{next((k for k, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), 'end')}"]
        return found if weights(self) == weights(unbroken) else [*found, f"weights {weights(self)} and {weights(unbroken)}"]


def trial(kind, program, root, nodes, cycles):
    begin = time.monotonic()
    try:
        one = Trial(kind, program, root, nodes)
        steps = one.run(cycles)
        found = one.differences(steps)
    except Exception as error:  # whatever it was: the other kinds go on
        steps, found = 0, [repr(error)]
    print(f"{kind}: {cycles} cycles, {steps} steps, {time.monotonic() - begin:.0f} s: {'; '.join(found) or 'as the unbroken run'}",
          flush=True)
    return not found


def printed_script(program, nodes):
    """The script of `dat_hpc slurm`, with words that a shell would take apart."""
    out = "it's $HOME, `id` \"here\""
    options = ["--max-steps=3", "--network=small_cnn", "--width=16", "--limit-train=64", "--limit-test=32", "--out", out]
    text = output_of(program, "slurm", f"--nodes={nodes}", f"--ranks-per-node={3 - nodes}", "--cpus-per-rank=1", "--time=10", *options)
    pathlib.Path("printed.sh").write_text(text)
    ended = subprocess.run(["sbatch", "--wait", "printed.sh"], stdout=subprocess.DEVNULL, check=False).returncode
    good = ended == 0 and os.path.exists(f"{out}/SUMMARY.txt")
    print(f"printed script: exit code {ended}, {'the run is where it should be' if good else 'no run'}", flush=True)
    return good


def sweep(program):
    """Six points in an array, of which the second is requeued in the middle, and the job that makes their table."""
    options = [*OPTIONS, "--max-steps=400", "--out=grid"]
    text = output_of(program, "slurm", "--sweep", "seed=1,2,3 lr=0.05,0.1", "--cpus-per-rank=1", "--time=10", "--sbatch=--comment=a&b",
                     *options)
    pathlib.Path("sweep.sh").write_text(text)
    job = output_of("sbatch", "--parsable", "sweep.sh").strip()
    points = [f"seed={seed},lr={lr}" for seed in (1, 2, 3) for lr in ("0.05", "0.1")]

    def steps(point):
        path = pathlib.Path("grid", point, "metrics.jsonl")
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [row["step"] for row in map(json.loads, lines) if row["kind"] == "step"]

    wait_for(lambda: len(steps(points[1])) > 60, f"steps of point 2 of job {job}")
    subprocess.run(["scontrol", "requeue", f"{job}_2"], check=True)
    table = pathlib.Path("grid/compare.txt")
    wait_for(lambda: table.exists() and not output_of("squeue", "--noheader", "--name=dat_hpc,dat_hpc-table"), f"the table of job {job}")
    subprocess.run([program, "train", *options[:-1], "--seed=1", "--lr=0.1", "--out=grid-unbroken"], check=True, stdout=subprocess.DEVNULL)
    weights = [re.search(r"^weights .*$", (pathlib.Path(folder) / "SUMMARY.txt").read_text(), re.MULTILINE)[0]
               for folder in (f"grid/{points[1]}", "grid-unbroken")]
    missing = [point for point in points if steps(point) != [*range(1, 401)] or point not in table.read_text()]
    log = pathlib.Path(f"dat_hpc-{job}_2.log").read_text()
    good = not missing and weights[0] == weights[1] and "going on after step" in (pathlib.Path("grid") / points[1] / "run.log").read_text()
    print(table.read_text())
    print(f"sweep: {'six points, one of them after a requeue, and their table' if good else f'missing {missing}, {weights}, {log}'}", flush=True)
    return good


def main():
    program, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    cycles = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    kinds = sys.argv[4:] or ["usr1", "limit", "requeue", "cancel", "preempt", "sweep"]
    try:
        partitions = output_of("sinfo", "--noheader", "--format=%R").split()
    except FileNotFoundError:
        partitions = []
    if not partitions:
        print("no Slurm here (sinfo): nothing was tested")
        sys.exit(77)
    if URGENT not in partitions and "preempt" in kinds:
        print(f"no partition {URGENT} (DAT_URGENT): no preemption is tested")
        kinds.remove("preempt")
    nodes = min(2, int(output_of("sinfo", "--noheader", "--summarize", "--format=%D").split()[0]))
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    os.environ.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        os.chdir(folder)
        good = [printed_script(program, nodes)]
        if "sweep" in kinds:
            kinds.remove("sweep")
            good.append(sweep(program))
        # A preempting job would meet the others, too.
        good += list(pool.map(lambda kind: trial(kind, program, root, nodes, cycles), [k for k in kinds if k != "preempt"]))
        good += [trial(kind, program, root, nodes, cycles) for kind in kinds if kind == "preempt"]
        if not all(good):
            for log in sorted(pathlib.Path(folder).glob("*.log")):
                print(f"== {log.name}\n{log.read_text()[-3000:]}")
        os.chdir("/")
    sys.exit(not all(good))


main()
