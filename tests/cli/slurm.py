#!/usr/bin/env python3
"""The batch scripts of jobs/slurm without Slurm: slurm.py PROGRAM ROOT [unittest arguments]

Commands of Slurm's names on the path play time limits, TERM and cancels against the decision of jobs/slurm/common.sh: what
`scontrol show job` said in each of these cases was taken down under a real Slurm (22.05). Then the script that `dat_hpc slurm`
prints, and the table of a study, of runs of the program. With a real Slurm: tests/campaign/slurm_cycles.py.
"""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from drawn import SEED, drawn
from mpi_environment import MPI_ENVIRONMENT

PROGRAM, ROOT = os.path.abspath(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1)).resolve()
COMMON = ROOT / "jobs/slurm/common.sh"

# What stands in for the commands. scontrol answers with the file `job` and notes each requeue, which Slurm then shows as one
# more restart. srun hands USR1 on, and TERM comes to it and to its ranks, which is one process here.
COMMANDS = {
    "scontrol": """
case "$*" in
  "--oneliner show job 7" | "--oneliner show job 5_2") cat "$PLAY/job" ;;
  "requeue 7" | "requeue 5_2")
    if [ -e "$PLAY/refuse" ]; then rm "$PLAY/refuse"; exit 1; fi
    echo "$2" >>"$PLAY/requeued"; sed -i 's/Restarts=0/Restarts=1/' "$PLAY/job" ;;
  *) echo "scontrol: unexpected: $*" >&2; exit 1 ;;
esac
""",
    "srun": """
if [ "$*" = --mpi=list ]; then echo "specific pmix plugin versions available: pmix_v4"; exit; fi
[ "$1" = --mpi=pmix ] || exit 99
shift
exec "$@"
""",
    # Keeps what it is given, and the script.
    "sbatch": """
printf '%s\\n' "$@" >"$PLAY/submitted"
cat >"$PLAY/table.part" && mv "$PLAY/table.part" "$PLAY/table"
""",
    # Exits with the code in the file `code`, `delay` seconds after the first signal; 76 at the second.
    "dat_hpc": """
stop() { [ -z "$stopped" ] || exit 76; stopped=1; echo "$1" >>"$PLAY/signals"; }
trap 'stop USR1' USR1
trap 'stop TERM' TERM
printf '%s\\n' "$@" >"$PLAY/arguments"
: >"$PLAY/started"
until [ -n "$stopped" ] || [ -e "$PLAY/end" ]; do sleep 0.02; done
sleep "$(cat "$PLAY/delay")"
exit "$(cat "$PLAY/code")"
""",
}

RUNNING = ("JobId=7 JobName=dat_hpc UserId=u(1) Priority=1 JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 "
           "BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:08 TimeLimit=00:01:00 PreemptTime=None\n")
CANCELLED = RUNNING.replace("RUNNING", "COMPLETING")
LIMIT = CANCELLED.replace("Reason=None", "Reason=TimeLimit")
BACK = CANCELLED.replace("Restarts=0", "Restarts=1")
PREEMPTED = RUNNING.replace("PreemptTime=None", "PreemptTime=2026-11-22T14:17:03")


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


class Job:
    """A batch script under way: `dat_train` with these words, in a folder of its own."""

    def __init__(self, job=RUNNING, code=75, delay=0.0, script=None, **environment):
        self.folder = tempfile.TemporaryDirectory()
        self.play = pathlib.Path(self.folder.name)
        for name, text in COMMANDS.items():
            (self.play / name).write_text("#!/usr/bin/env bash" + text)
            (self.play / name).chmod(0o755)
        self.write(job=job, code=str(code), delay=str(delay))
        if script is None:
            script = self.play / "job.sh"
            script.write_text(f'. "{COMMON}"\ndat_train --lr 0.1\n')
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "DAT_"))}
        keep |= {"PLAY": str(self.play), "PATH": f"{self.play}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "DAT_HPC": "dat_hpc"}
        self.process = subprocess.Popen(["bash", str(script)], env=keep | environment, cwd=self.play, text=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def write(self, **files):
        for name, text in files.items():
            if text is None:
                (self.play / name).unlink()
            else:
                (self.play / name).write_text(text)

    def read(self, name):
        path = self.play / name
        return path.read_text().split() if path.exists() else []

    def started(self):
        wait_for(lambda: (self.play / "started").exists() or self.process.poll() is not None)
        assert (self.play / "started").exists(), self.process.stderr.read()
        return self

    def send(self, number):
        self.process.send_signal(number)
        return self

    def rank(self, number):
        """A signal at the ranks alone, as Slurm sends TERM to the steps of a job."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]), number)
        return self

    def ended(self):
        """(exit code, what was requeued)"""
        self.said = self.process.communicate(timeout=120)[1]
        result = self.process.returncode, self.read("requeued")
        self.signals = self.read("signals")
        self.folder.cleanup()
        return result


RANKS, HEARD = "TERM at the ranks alone", "until the ranks have been told"
USR1, TERM = signal.SIGUSR1, signal.SIGTERM
AGAIN = {"SLURM_RESTART_COUNT": "3"}
# Case: how the job begins; what happens then, in this order: files that are written (`job`: what Slurm says from now on), signals
# at the script, seconds; the exit code, or two; what is requeued.
DECISIONS = {
    **{f"a run that ends by itself stays ended, {code}": ({"code": code}, [{"end": ""}], code, []) for code in (0, 2, 3, 7, 9, 137)},
    "USR1 is handed on, and the job comes back": ({}, [USR1], 75, ["7"]),
    "USR1 before the program could take it: the ranks die of it": ({"code": 138}, [USR1], 138, ["7"]),
    "a time limit without USR1": ({}, [{"job": LIMIT}, TERM, RANKS], 75, ["7"]),
    "a time limit that only the ranks have heard of": ({}, [{"job": LIMIT}, RANKS], 75, ["7"]),
    # A step longer than the warning: TERM at the ranks is their second signal.
    "a time limit after USR1": ({"delay": 1}, [USR1, 0.3, {"job": LIMIT}, RANKS, TERM], (75, 76), ["7"]),
    "a cancelled job does not come back": ({}, [{"job": CANCELLED}, TERM, RANKS], 75, []),
    "a cancelled job, whose ranks are done before the script gets its TERM": ({}, [{"job": CANCELLED}, RANKS], 75, []),
    "a cancel after USR1": ({"delay": 1}, [USR1, {"job": CANCELLED}, TERM, RANKS], (75, 76), []),
    "what Slurm has requeued itself is not requeued again": ({}, [{"job": BACK}, TERM, RANKS], 75, []),
    # The restarts that it knows of are no new ones.
    "a job that has come back before": ({"job": RUNNING.replace("Restarts=0", "Restarts=3"), **AGAIN},
                                        [{"job": CANCELLED.replace("Restarts=0", "Restarts=3")}, TERM, RANKS], 75, []),
    # TERM comes to the ranks alone, and the job runs on: who ends in that time is complete, not requeued.
    **{f"a preemption with a grace time, {code}": ({"code": code}, [{"job": PREEMPTED}, RANKS], code, ["7"]) for code in (75, 76, 143)},
    "a preemption that would cancel": ({}, [{"job": PREEMPTED.replace("RUNNING", "COMPLETING")}, TERM, RANKS], 75, ["7"]),
    "TERM at the script alone stops the job for good": ({}, [TERM], 75, []),  # scancel --batch --signal=TERM
    "a time limit while the job stops for good": ({"delay": 2}, [TERM, HEARD, {"job": LIMIT}, TERM], (75, 76), []),
    "Slurm that does not answer": ({}, [{"job": None}, RANKS], 75, []),
    "a requeue that fails is tried again": ({}, [{"refuse": ""}, USR1], 75, ["7"]),
    "one restart more": ({"job": RUNNING.replace("Restarts=0", "Restarts=2"), "SLURM_RESTART_COUNT": "2", "DAT_RESTARTS": "3"}, [USR1],
                         75, ["7"]),
    "no restart more": ({"job": RUNNING.replace("Restarts=0", "Restarts=3"), "DAT_RESTARTS": "3", **AGAIN}, [USR1], 75, []),
    "a task of an array is requeued alone": ({"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}, [USR1], 75, ["5_2"]),
}


class Decisions(unittest.TestCase):
    def test_what_comes_back(self):
        for case, (how, events, code, requeued) in DECISIONS.items():
            with self.subTest(case):
                job = Job(**how).started()
                for event in events:
                    if isinstance(event, dict):
                        job.write(**event)
                    elif event == RANKS:
                        job.rank(TERM)
                    elif event == HEARD:
                        wait_for(lambda: job.read("signals"))
                    elif isinstance(event, float):
                        time.sleep(event)
                    else:
                        job.send(event)
                ended, found = job.ended()
                self.assertIn(ended, code if isinstance(code, tuple) else (code,))
                self.assertEqual(found, requeued)
                if events in ([USR1], [TERM]):
                    self.assertEqual(job.signals, ["USR1"])

    def test_a_time_limit_is_decided_before_the_ranks_have_ended(self):
        # Slurm kills the script when KillWait is over: it must not wait for them.
        job = Job(delay=30).started()
        job.write(job=LIMIT)
        job.send(TERM).rank(TERM)
        wait_for(lambda: job.read("requeued"), 20)
        self.assertIsNone(job.process.poll())
        self.assertEqual(job.read("requeued"), ["7"])
        job.process.kill()
        job.ended()

    def test_no_program(self):
        code, requeued = Job(DAT_HPC="/no/such/dat_hpc").ended()
        self.assertEqual((code, requeued), (2, []))


class Runs:
    """Runs of the program, made once: of 1 and 2 ranks, 24 steps each."""

    made = None

    @classmethod
    def folder(cls, name):
        if cls.made is None:
            cls.made = tempfile.TemporaryDirectory()
            data = f"{cls.made.name}/set.h5"
            subprocess.run([PROGRAM, "data", "synthetic", data, "--train", "48", "--test", "16", "--size", "8", "--classes", "2"],
                           check=True, stdout=subprocess.DEVNULL)
            for ranks in (1, 2):
                subprocess.run(["mpirun", "-np", str(ranks), PROGRAM, "train", "--data", data, "--network", "small_cnn", "--width", "16",
                                "--batch", "8", "--attack", "fgsm", "--eval", "fgsm", "--epochs", "100", "--max-steps", "24",
                                "--threads", "1", "--quiet", "--out", f"{cls.made.name}/{ranks}"],
                               check=True, stdout=subprocess.DEVNULL, env=os.environ | MPI_ENVIRONMENT)
        return pathlib.Path(cls.made.name, name)

    @classmethod
    def steps(cls, name):
        lines = (cls.folder(name) / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == "step"]


class Printed(unittest.TestCase):
    """The script of `dat_hpc slurm`."""

    def slurm(self, *arguments, code=0):
        if not {"--network=small_cnn", "--config"} & set(arguments):
            arguments = ["--network=small_cnn", "--width=16", *arguments]
        ended = subprocess.run([PROGRAM, "slurm", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stdout if code == 0 else ended.stderr

    def settings(self, text):
        lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH ")]
        return dict(line.split("=", 1) if "=" in line else (line, "") for line in lines)

    def words(self, *options):
        """What a program in the place of dat_hpc is given by the printed script, under a real shell."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "job.sh"
            script.write_text(self.slurm(*options))
            job = Job(script=script, code=0).started()
            words = (job.play / "arguments").read_text().split("\n")[:-1]
            job.write(end="")
            self.assertEqual(job.ended(), (0, []))
        return words

    def test_it_has_the_text_of_common_sh(self):
        text = self.slurm("--holdout=300")
        self.assertTrue(COMMON.read_text() in text, "the program was built from another jobs/slurm/common.sh")
        self.assertRegex(text, r"\A#!/usr/bin/env bash\n# A batch script for Slurm, .*\n# .*\n#\n# Length: ")
        self.assertIn("# is a guess, the job comes back until it is done.\n# Memory of a rank: 1.0 MB of images, ", text)

    def test_the_shell_takes_it(self):
        for options in ([], ["--out", "/a b/c'd$", "--nodes", "3"], ["--modules", "openmpi cuda/12.4"]):
            checked = subprocess.run(["bash", "-n"], input=self.slurm(*options), text=True, capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_resources(self):
        job = self.settings(self.slurm("--nodes=2", "--ranks-per-node=4", "--sbatch", "--partition=gpu --account=p1"))
        expected = {"nodes": "2", "ntasks-per-node": "4", "cpus-per-task": "8", "partition": "gpu", "account": "p1",
                    "time": "04:00:00", "signal": "B:USR1@120", "requeue": "", "open-mode": "append",
                    "job-name": "dat_hpc", "output": "dat_hpc-%j.log"}
        self.assertEqual(job, job | expected)
        text = self.slurm("--nodes=2", "--ranks-per-node=3", "--cpus-per-rank=5", "--time=1-00:00:00", "--modules=openmpi cuda/12.4")
        for part in "\n# is as given, the job comes back", "\nDAT_MODULES=${DAT_MODULES:-'openmpi cuda/12.4'}\n", '\n[ -n "${DAT_HPC:-}" ] || DAT_HPC=':
            self.assertIn(part, text)
        job = self.settings(text)
        self.assertEqual(job, job | {"nodes": "2", "ntasks-per-node": "3", "cpus-per-task": "5", "time": "1-00:00:00"})
        self.assertNotIn("gpus-per-node", job)
        for memory in "--mem", "--mem=3G", "--mem-per-gpu=3G":
            self.assertEqual(re.findall("#SBATCH (--mem.*)", self.slurm("--sbatch", memory)), [memory])

    def test_gpus_that_are_reserved_are_trained_on(self):
        self.assertIn("--device cpu leaves idle", self.slurm("--gpus-per-node=2", "--device=cpu", code=2))
        for wanted in "--device=cuda", "--precision=f16", "--precision=tf32", "--attack-precision=bf16":
            self.assertIn("add --gpus-per-node N", self.slurm(wanted, code=2))
        self.assertIn('device = "auto"', self.slurm("--gpus-per-node=2", "--print-config"))
        version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        if re.search(r"CUDA +not built", version):
            self.assertIn("was built without", self.slurm("--gpus-per-node=2", code=5))
            self.assertIn("was built without", self.slurm("--gpus-per-node=2", "--device=cuda", code=5))
            return
        job = self.slurm("--nodes=2", "--gpus-per-node=4")
        self.assertEqual(self.settings(job), self.settings(job) | {"nodes": "2", "ntasks-per-node": "4", "gpus-per-node": "4"})
        self.assertIn("--device cuda", job.splitlines()[-1])
        self.assertEqual(self.slurm("--gpus-per-node=4", "--device=cuda").splitlines()[-1].count("--device"), 1)
        self.assertIn("--precision f16", self.slurm("--gpus-per-node=4", "--precision=f16", "--network=small_cnn").splitlines()[-1])

    def test_memory_grows_with_what_validate_says(self):
        def megabytes(*options):
            return int(self.settings(self.slurm("--network=small_cnn", *options))["mem"][:-1])

        def validated(*options):
            text = subprocess.run([PROGRAM, "validate", "--network=small_cnn", "--threads=1", "--device=cpu", *options],
                                  capture_output=True, text=True, check=True).stdout
            line = next(line for line in text.splitlines() if line.startswith("memory per rank"))
            return float(line.split()[3])

        small, large = ["--width=16", "--batch=16"], ["--width=32", "--batch=256"]
        mebibyte = 1.048576  # Slurm's M, in MB
        self.assertAlmostEqual((megabytes(*large, "--threads=64") - megabytes(*small)) * mebibyte, validated(*large) - validated(*small), delta=3)
        # Rounding to whole mebibytes aside, a node needs what its ranks need.
        self.assertAlmostEqual(megabytes("--ranks-per-node=4", *small), 4 * megabytes(*small), delta=4)

    def test_time_follows_from_the_seconds_of_a_step(self):
        # 64 images on 2 ranks in batches of 8: 4 steps an epoch; 100 epochs and 20: 480 steps. 480 s * 1.25 + 600 s = 20 min.
        job = self.slurm("--nodes=2", "--limit-train=64", "--batch=8", "--epochs=100", "--warmup-epochs=20", "--step-seconds=1")
        self.assertRegex(job, r"# Length: 480 steps.* on 2 ranks\.\n")
        self.assertIn("# Time: 1 s a step (--step-seconds), 00:08:00 in all; the limit is a quarter and ten minutes more.\n", job)
        told = re.search(r"# Memory of a rank: (\S+) MB of images, (\S+) MB of buffers, (1000\.0) MB for the process\.\n#\n#SBATCH ", job)
        self.assertAlmostEqual(int(self.settings(job)["mem"][:-1]) * 1.048576, sum(map(float, told.groups())), delta=1.25)
        self.assertEqual(self.settings(job)["time"], "00:20:00")
        self.assertEqual(self.settings(self.slurm("--limit-train=64", "--step-seconds=70"))["signal"], "B:USR1@200")

    def test_an_epoch_of_a_mix_is_one_of_the_labelled_images(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/labelled.h5", f"{folder}/extra.h5"]
            for path, images in zip(files, ("64", "640")):
                subprocess.run([PROGRAM, "data", "synthetic", path, "--train", images, "--test", "10"], capture_output=True, check=True)
            job = self.slurm("--data", *files, "--mix=balanced:0.5", "--batch=8", "--epochs=1", "--warmup-epochs=0")
            self.assertIn("Length: 16 steps", job)  # 4 of 64 labelled images each

    def test_time_follows_from_a_run(self):
        run, last = Runs.folder("1"), Runs.steps("1")[-1]
        self.assertEqual(last["step"], 24)
        seconds = last["wall_time"] / 24
        job = self.slurm("--limit-train=64", "--batch=8", "--epochs=100000", "--warmup-epochs=0", "--milestones=9", "--like", str(run))
        self.assertIn(f"{seconds:.6g} s a step (the mean of the 24 steps of {run}", job)
        days, _, rest = ("0-" + self.settings(job)["time"]).rpartition("-")
        hours, minutes, _ = map(int, rest.split(":"))
        # 800,000 steps, a quarter more, and ten minutes, in whole minutes.
        told = 60 * (24 * int(days.rpartition("-")[2]) + hours) + minutes
        self.assertAlmostEqual(told, (1.25 * 800000 * seconds + 600) / 60, delta=1.01)
        self.assertIn("metrics.jsonl", self.slurm("--like", f"{run}/none", code=3))
        # A run that goes on after its fourth step on another run's time; and a record that begins with its last step.
        times = [step["wall_time"] for step in Runs.steps("1")]
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        first = next(k for k, line in enumerate(lines) if '"step":5,' in line)
        for kept, mean in (lines[:1] + lines[first:], (times[-1] - times[4]) / 19), (lines[:2], times[0]), (
                [lines[0], *[line for line in lines if '"step":24,' in line][:1]], times[-1] / 24):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "metrics.jsonl").write_text("".join(kept))
                self.assertIn(f"# Time: {mean:.6g} s a step (the mean of the ", self.slurm("--like", folder))
        for seconds, said in (0, "ends in no whole training step"), (1e300, "s are longer than "):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "metrics.jsonl").write_text(lines[0] + json.dumps(json.loads(lines[1]) | {"wall_time": seconds}) + "\n")
                self.assertIn(said, self.slurm("--like", folder, code=3))
        # Eight steps, and in whole minutes: a day, and a minute less.
        for seconds, limit, lead in (8580, "1-00:00:00", 17220), (8574, "23:59:00", 17208), (40000, "4-15:17:00", 65535):
            job = self.slurm("--limit-train=64", "--batch=8", "--epochs=1", "--warmup-epochs=0", "--milestones=9", f"--step-seconds={seconds}")
            self.assertEqual(self.settings(job), self.settings(job) | {"time": limit, "signal": f"B:USR1@{lead}"})

    def test_time_that_slurm_cannot_count(self):
        long = ["--limit-train=64", "--batch=8", "--warmup-epochs=0", "--milestones=9", "--epochs=1e12"]
        self.assertIn("more time than Slurm can count", self.slurm(*long, "--step-seconds=1", code=2))
        job = self.slurm(*long, "--step-seconds=1", "--time=24:00:00")
        self.assertRegex(job, r"Length: 8000000000000 steps.* on 1 rank\.\n# Time: 1 s a step \(--step-seconds\), more than 7000 years in all\.\n")
        self.assertNotIn("-0", "".join(line for line in job.splitlines() if line.startswith("# Time")))
        self.assertIn("at most", self.slurm("--epochs=1e13", code=2))
        self.assertIn("at most", self.slurm("--step-seconds=1e300", code=2))
        self.assertIn("at most", self.slurm("--nodes=2147483647", "--ranks-per-node=2147483647", code=2))

    def test_words_are_quoted(self):
        out = "/tmp/a b/$HOME/`id`/'q' \"r\" \\ ;&|<>*?!#~é/x"
        words = self.words("--network=small_cnn", "--out", out, "--augment", "none", "--milestones=3,4", "-q", "--eps", "4/255")
        self.assertEqual(words[0], "train")
        self.assertIn(out, words)
        resolved = [subprocess.run([PROGRAM, "train", *given, "--print-config"], capture_output=True, text=True, check=True).stdout
                    for given in (words[1:], ["--network=small_cnn", "--out", out, "--augment", "none", "--milestones=3,4", "-q",
                                              "--eps", "4/255"])]
        self.assertEqual(*resolved)

    def test_the_file_of_options_is_named_not_copied(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/a file.toml"
            pathlib.Path(path).write_text('network = "small_cnn"\nepochs = 2\n')
            self.assertEqual(self.words("--config", path, "--lr=0.5"), ["train", "--config", path, "--lr", "0.5"])

    def test_no_line_of_the_comments_is_broken(self):
        with tempfile.TemporaryDirectory() as folder:
            run = f"{folder}/a\nrm -rf x"
            os.mkdir(run)
            shutil.copy(Runs.folder("1") / "metrics.jsonl", run)
            self.assertNotIn("\nrm", self.slurm("--like", run))

    def test_a_machine_that_is_not_the_one_of_the_job(self):
        self.assertIn("--math bf16", self.slurm("--nodes=2", "--math", "bf16"))

    def test_what_several_ranks_are_refused(self):
        self.assertIn("--faults 2", self.slurm("--nodes=8", "--aggregator", "krum", "--faults", "2"))
        for options, expected in ((["--aggregator", "krum", "--faults", "4"], "--faults 4 of 8 ranks"),
                                  (["--attackers", "9", "--cheat", "sign_flip"], "names rank 9, and the ranks are 0 to 7"),
                                  (["--generators", "5", "--batch=8", "--micro-batch=8"], "--generators 5 are more than the 3")):
            self.assertIn(expected, self.slurm("--nodes=8", *options, code=2))

    def test_memory_of_messages_among_several(self):
        def megabytes(nodes):
            return int(self.settings(self.slurm("--width=128", "--nodes", nodes, "--aggregator", "krum"))["mem"][:-1])

        # Each rank has the gradients of all, twice: some 900,000 numbers.
        self.assertGreater(megabytes("64") - megabytes("4"), 60 * 2 * 3)

    def test_a_sweep_is_an_array_and_a_table(self):
        out = "/tmp/a b/$HOME/`id`/'q'"
        text = self.slurm("--sweep", "lr=0.05,0.1 selector=all,exp3:p_min=0.5", "--seed=3", "--out", out, "--sbatch",
                          "--qos=x --constraint=[a100*1&h100] --mem-per-cpu=4G", "--limit-train=64")
        job = self.settings(text)
        self.assertEqual(job, job | {"array": "1-4", "qos": "x", "constraint": "[a100*1&h100]", "output": "dat_hpc-%A_%a.log"})
        self.assertEqual((job.get("mem"), job["mem-per-cpu"]), (None, "4G"))  # Slurm refuses both together
        self.assertIn("\n# Sweep: 4 trainings, a task of an array each, ", text)
        names = [f"lr={lr},selector={selector}" for lr in ("0.05", "0.1") for selector in ("all", "exp3_p_min=0.5")]
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "job.sh"
            script.write_text(text.replace("mkdir -p", "echo mkdir"))
            for task, name in enumerate(names, 1):
                told = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": "1"}
                for restarts in ("0", "1") if task == 1 else ("0",):
                    job = Job(script=script, code=0, SLURM_RESTART_COUNT=restarts, **told).started()
                    words = (job.play / "arguments").read_text().split("\n")[:-1]
                    self.assertEqual(words[-3:], [f"--lr={name[3:].split(',')[0]}", "--selector=" + ("all" if task % 2 else "exp3:p_min=0.5"),
                                                  f"--out={out}/{name}"])
                    self.assertIn("3", words[words.index("--seed") :])
                    first = task == 1 and restarts == "0"
                    if first:
                        wait_for((job.play / "table").exists)
                        for option in "--qos=x", "--constraint=[a100*1&h100]", "--dependency=afterany:5":
                            self.assertIn(option, job.read("submitted"))
                        self.assertEqual([word for word in job.read("submitted") if word.startswith("--mem")], ["--mem=2G"])
                        # What that job would run, as its shell reads it.
                        table = subprocess.run(["bash", "-c", "compare() { :; }; set -f; dat_hpc() { printf '%s\\n' \"$@\"; }; "
                                                "eval \"$(sed -e 1d -e 's/ >.*//' \"$0\")\"", job.play / "table"], capture_output=True, text=True, check=True)
                        self.assertEqual(table.stdout.splitlines(), ["compare", f"{out}/*=*/"])
                    else:
                        self.assertFalse((job.play / "table").exists())
                    job.write(end="")
                    self.assertEqual(job.ended(), (0, []))
            job = Job(script=script)  # no task of an array
            self.assertEqual(job.ended(), (2, []))
            self.assertIn("this is a sweep of 4 points; submit it with sbatch", job.said)

    def test_every_point_of_a_sweep_is_planned(self):
        grid = ["--out=grid", "--nodes=2", "--limit-train=64"]
        self.assertIn("sweep point total-batch=3: --total-batch 3 is no multiple of 2 ranks",
                      self.slurm("--sweep=total-batch=8,3", *grid, code=2))
        # The largest and the longest count.
        def settings(*options):
            return self.settings(self.slurm(*grid, "--step-seconds=1", "--warmup-epochs=0", "--milestones=1", *options))
        swept, wide, long = (settings(*options) for options in (["--sweep=batch=32;2 epochs=2000,20"], ["--batch=32", "--epochs=20"],
                                                                 ["--batch=2", "--epochs=2000"]))
        self.assertEqual((swept["mem"], swept["time"]), (wide["mem"], long["time"]))

    def test_refusals(self):
        for arguments, expected in ((["--job-name", "a b"], "--job-name 'a b'"), (["--sbatch", "--qos=x;id"], "--sbatch '--qos=x;id'"),
                                    (["--sbatch", "--arra=1-3"], "--sbatch --arra is the script's own, as --array"),
                                    (["--time", "soon"], "--time 'soon'"), (["--modules", "$(id)"], "--modules"),
                                    (["--step-seconds=1", "--like=x"], "give one of them"), (["--node=2"], "'--nodes'")):
            self.assertIn(expected, self.slurm(*arguments, code=2))


class Studies(unittest.TestCase):
    """submit.sh with a stand-in for sbatch, table.sh on runs of the program."""

    def submit(self, folder, study, *options):
        (folder / "sbatch").write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$*" >>"$PLAY/submitted"; wc -l <"$PLAY/submitted"\n')
        (folder / "sbatch").chmod(0o755)
        # GPUs are for a program that knows them, or says so.
        (folder / "built").write_text(f'#!/usr/bin/env bash\n[ "$*" != --version ] || exec echo "CUDA      12"\nexec {PROGRAM} "$@"\n')
        (folder / "built").chmod(0o755)
        environment = os.environ | {"PLAY": str(folder), "PATH": f"{folder}:{os.environ['PATH']}",
                                    "DAT_HPC": PROGRAM if "--small" in options else str(folder / "built")}
        subprocess.run(["bash", ROOT / "jobs/slurm/submit.sh", study, folder / "study", *options], env=environment, check=True,
                       stdout=subprocess.DEVNULL)
        tasks = [line.split("\t") for line in (folder / "study/tasks.tsv").read_text().splitlines()]
        return tasks, (folder / "submitted").read_text().splitlines()

    def test_every_task_is_submitted_once_with_options_that_the_program_takes(self):
        for study in drawn(("one_node", "eight_nodes", "budgets", "p_min", "nodes", "dropout", "strong", "weak"), 2):
            for small in ([], ["--small"]):
                with self.subTest(study=study, small=small), tempfile.TemporaryDirectory() as folder:
                    tasks, submitted = self.submit(pathlib.Path(folder), study, *small)  # refuses wrong options itself
                    self.assertEqual(len({task[0] for task in tasks}), len(tasks))
                    numbers = []
                    for line in submitted[:-1]:
                        words = dict(word[2:].split("=", 1) for word in line.split() if word.startswith("--") and "=" in word)
                        first, last = map(int, words["array"].split("-"))
                        numbers += range(first, last + 1)
                        for task in tasks[first - 1 : last]:
                            self.assertEqual("--device cuda" in " ".join(task), not small)
                            self.assertEqual(task[1], f"{words['nodes']}x{words['ntasks-per-node']}")
                        self.assertEqual("gpus-per-node" in words, not small)
                    self.assertEqual(numbers, list(range(1, len(tasks) + 1)))
                    arrays = ":".join(str(k + 1) for k in range(len(submitted) - 1))
                    self.assertIn(f"--dependency=afterany:{arrays} ", submitted[-1])

    def test_gpus_are_not_reserved_for_a_program_without_cuda(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "dat_hpc")
            program.write_text('#!/usr/bin/env bash\necho "CUDA      not built"\n')
            program.chmod(0o755)
            ended = subprocess.run(["bash", ROOT / "jobs/slurm/submit.sh", "weak", f"{folder}/study"], capture_output=True, text=True,
                                   env=os.environ | {"DAT_HPC": str(program)}, check=False)
            self.assertEqual((ended.returncode, os.path.exists(f"{folder}/study")), (5, False))
            self.assertIn("was built without CUDA", ended.stderr)

    def test_a_table_has_one_row_for_each_task(self):
        with tempfile.TemporaryDirectory() as folder:
            study = pathlib.Path(folder)
            (study / "tasks.tsv").write_text("weak-1\t1x1\nweak-2\t1x2\nweak-4\t2x2\n")
            shutil.copytree(Runs.folder("1"), study / "weak-1")
            shutil.copytree(Runs.folder("2"), study / "weak-2")  # cut in the middle of a line, as a run under way leaves it
            for name in "SUMMARY.txt", "results.h5", ".lock":
                (study / "weak-2" / name).unlink()
            record = (study / "weak-2/metrics.jsonl").read_text()
            (study / "weak-2/metrics.jsonl").write_text(record[: record.index('"step":21,') + 20])
            ended = subprocess.run(["bash", ROOT / "jobs/slurm/table.sh"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                                   env=os.environ | {"DAT_ROOT": str(ROOT), "DAT_HPC": PROGRAM, "DAT_STUDY": folder})
            self.assertEqual((ended.returncode, ended.stderr.count("\n")), (3, 1), ended.stderr)  # weak-4 is not there
            self.assertIn("left out: no run in", ended.stderr)
            with open(study / "table.csv") as file:
                rows = list(csv.DictReader(file))
            self.assertIn("efficiency", (study / "table.txt").read_text())
        self.assertEqual([(row["row"], row["ranks"], row["state"], row["steps"], row["attack"]) for row in rows],
                         [("weak-1", "1", "done", "24", "clean"), ("weak-1", "1", "done", "24", "fgsm"), ("weak-2", "2", "stopped", "20", ""),
                          ("weak-4", "", "missing", "", "")])
        clean, attacked, second, _ = rows
        self.assertGreater(float(second["reduction_percent"]), float(attacked["reduction_percent"]))  # one rank has nobody to wait for
        self.assertEqual(float(attacked["efficiency"]), 1)
        summary = (Runs.folder("1") / "SUMMARY.txt").read_text()
        self.assertIn(f"clean_acc={float(clean['percent']) / 100:.4f} fgsm_acc={float(attacked['percent']) / 100:.4f}", summary)


if __name__ == "__main__":
    print(f"DAT_SEED={SEED}", file=sys.stderr)
    unittest.main(verbosity=2)
