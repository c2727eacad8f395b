"""Interrupted = straight: whatever ends a run, and wherever, the same command goes on with it, and it ends as if it had been left
alone: with the same weights and state, record and results. ROWS is the table. DAT_ALL_CASES: all rows, and all of their moments."""

import contextlib
import dataclasses
import errno
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import time

import common

SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
BASE = ["--data", "set.h5", "--network", "small_cnn", "--threads", 1, "--attack-steps", 2, "--eval", "pgd2", "--eval-every", 1,
        "--warmup-epochs", 1, "--epochs", 1]
# Epochs of seven steps on two or three ranks; checkpoints fall into epochs and into the three steps of a draw.
OWN = ["--width", 20, "--batch", 8, "--optimizer", "lamb", "--resample", 3, "--checkpoint-every", 4]
# Epochs of five steps on any number of ranks, the last one of a step's six micro-batches with one image each.
DEALT = ["--width", 16, "--deterministic", "--total-batch", 24, "--micro-batch", 4]
# Steps and checkpoints on any number of ranks that leave.
STAYING = ["--width", 16, "--deterministic", "--total-batch", 20, "--micro-batch", 2, "--checkpoint-every", 2]
BYZANTINE = ["--width", 8, "--deterministic", "--micro-batch", 2, "--optimizer", "sgd", "--lr", 0.05, "--alpha", "4/255", "--byzantine",
             "--aggregator", "centered_clip", "--faults", 1, "--epochs", 3, "--eval-every", 0]


@dataclasses.dataclass(frozen=True)
class Stop:
    """How a part of a run ends: at --max-steps ("end"), killed ("kill"), with its newest checkpoint damaged then ("flip", "truncate"
    or "empty"), by a signal, or by a call that fails with an error (their names)."""

    how: str
    at: object  # a number of steps, or the call of rank 0 where it happens: "PART:CALL:FROM"
    who: object = 0  # a rank, "ranks", "launcher" or "all"
    on: object = None  # the number of ranks of the part, or of trainers and generators; None: the row's


def line(number):
    """Where a process writes so many lines of the record; the first one of a run is its head."""
    return f"run/metrics.jsonl:write:{number}"


def end(steps, on=None):
    return Stop("end", steps, on=on)


# A process that goes on writes the step after its checkpoint as its first line.
KILLS = [Stop("kill", "run/metrics.jsonl:open:1", "all"), Stop("kill", line(1), 1), Stop("kill", line(3), "ranks"),
         Stop("kill", "step-:write:3"), Stop("kill", line(3), "launcher"), Stop("kill", line(4), "all"),
         Stop("kill", "step-:rename:1", 1), Stop("kill", "run/ckpt/latest:rename:1"),
         Stop("kill", "step-:fsync:1", "launcher"), Stop("kill", line(4), "ranks"),
         Stop("kill", "results.h5:write:1"), Stop("kill", "SUMMARY.txt:rename:1", "all")]
# mpirun sends SIGCONT, waits, sends SIGTERM, waits and kills; each wait gets a second shorter with each stop of a rank. So rank 0
# stands at two lines: it goes on from the first one by mpirun's SIGCONT, and from the other one with SIGTERM.
ENDED = Stop("SIGTERM", line(2), "launcher")
WAIT = {"OMPI_MCA_odls_base_sigkill_timeout": "6"}
SIGNALS = [Stop("SIGUSR1", line(2), "launcher"), ENDED, Stop("SIGTERM", "step-:write:1"), Stop("SIGUSR1", line(1), 1),
           Stop("SIGUSR1", line(3)), Stop("SIGINT", line(2), 1)]
DAMAGES = [Stop(how, line(14), "all") for how in ("flip", "truncate", "empty")]
FULL = [Stop(name, f"step-:{call}") for name, call in
        (("ENOSPC", "write:1"), ("EDQUOT", "write:4"), ("EIO", "write:2"), ("EIO", "fsync:1"), ("EROFS", "rename:1"), ("EROFS", "open:2"))]


@dataclasses.dataclass(frozen=True)
class Row:
    options: list
    stops: list
    ranks: object = 0  # of the straight run; 0: without a launcher
    last: object = None  # of the last part, as Stop.on; None: the same
    more: list = ()  # options that the interrupted run has besides
    night: bool = False
    of: str = ""  # the rows of which a part is drawn by day: BY_DAY


def any_ranks(*options, stops=[end(2, on=5), end(4, on=2)] if common.ALL_CASES else [end(4, on=4)], last=6 if common.ALL_CASES else 3, **other):
    """A row of a deterministic run: straight alone, its parts on other ranks."""
    return Row([*DEALT, *options], [*stops], last=last, **{"of": "any ranks"} | other)


def generators(*options, stops=(end(4, on=(1, 2)),), last=(2, 1), of="generators"):
    return any_ranks("--attack-steps", 4, "--checkpoint-every", 2, *options, stops=stops, last=last, of=of)


def leaving(who, when, *options, **other):
    options = [*STAYING, *options]
    return Row(options, [Stop("kill", line(6), on=5), Stop("kill", line(4), "all", on=5)], last=5,
               more=["--attackers", ",".join(map(str, who)), "--cheat", ",".join(f"leave@{step}" for step in when)], of="leaving", **other)


ROWS = {
    "killed at any moment": Row(OWN, common.drawn(KILLS, 4), ranks=2),
    "signals": Row([*OWN, "--epochs", 2], common.drawn(SIGNALS, 3), ranks=2),
    "damaged checkpoints": Row(OWN, common.drawn(DAMAGES, 1)),
    "a disk that is full": Row(OWN, common.drawn(FULL, 2)),
    "beside the steps": Row([*OWN, "--holdout", 16, "--warm-start", 2],
                            [Stop("kill", "step-:write:3"), Stop("kill", "latest:rename:1"), Stop("SIGUSR1", line(2), "launcher")],
                            ranks=2, more=["DAT_CHECKPOINT_ASYNC=on"]),
    "an attack that changes by epoch": Row(
        [*OWN, "--attack-steps", "1,2@1", "--eps", "4/255..10/255@0-2", "--optimizer", "sgd:peak_momentum=0.8",
         "--schedule", "cyclic"], [Stop("kill", line(5), "all"), Stop("SIGTERM", line(3), 1)], ranks=2),
    "batches by epoch": Row([*OWN[4:], "--width", 20, "--batch", "8,16@1,4@2", "--epochs", 2],
                            [Stop("SIGTERM", line(8)), Stop("kill", line(3)), Stop("kill", line(6), "all")], ranks=2),
    "statistics of each rank": Row([*OWN, "--bn-statistics", "local"], [Stop("kill", line(7), "launcher"), end(11)], ranks=3),
    "a codec's errors": Row([*OWN, "--codec", "powersgd", "--mask", "per_worker", "--overlap", "DAT_BUCKET=700"],
                            [Stop("kill", line(7)), end(11)], ranks=2),
    "a codec's rounding": Row([*OWN, "--codec", "int8", "--codec-transport", "two_sided", "--overlap", "DAT_BUCKET=700"],
                              [Stop("kill", line(7)), end(11)], ranks=2, night=True),
    "warm starts": Row([*OWN, "--warm-start", 2], [Stop("kill", line(12), "all"), end(10)], ranks=3),
    "sums of weights": Row([*OWN, "--holdout", 16, "--average", "none,swa@1"], [Stop("kill", line(7)), end(11)], ranks=2),
    "averages": Row([*OWN, "--holdout", 16, "--average", "ema:decay=0.8:bn=ema"],
                    [Stop("kill", line(7)), end(11)]),
    "noise": Row([*OWN, "--noise", 0.2, "--noise-samples", 2, "--micro-batch", 4, "--attack", "smooth-pgd", "--norm", "l2", "--eps",
                  "0..0.5@0-2"], [Stop("kill", line(3), "all"), Stop("kill", line(7), 1)], ranks=2, night=True),

    "lamb and the bandit": any_ranks("--optimizer", "lamb:bias_correction", "--checkpoint-every", 4, "--average", "ema:bn=ema",
                                     stops=[end(3, on=6), Stop("kill", line(4), 1, on=5)], last=2),
    "lars with clipped gradients": any_ranks("--optimizer", "lars", "--lr", 0.02, "--clip-norm", 0.5, "--resample", 3, "--average", "swa",
                                             night=True),
    "one partial sum for each of eight ranks": any_ranks("--optimizer", "sgd", "--lr", 0.05, "--selector", "all", "--lambda", 0,
                                                         "--total-batch", 16, "--micro-batch", 2, stops=[end(4, on=8)], last=3),
    "batch statistics in the attack": any_ranks("--attack", "fgsm", "--optimizer", "sgd", "--lr", 0.05, "--lambda", 1),
    "losses of both predictions": any_ranks("--loss", "trades", "--label-smoothing", 0.1),
    "a norm of each micro-batch": any_ranks("--loss", "nuat"),
    "logits of where the attack began": any_ranks("--loss", "pgi", "--attack", "fgsm", "--attack-start", "uniform:radius=2", "--project", "off"),
    "mart from warm starts": any_ranks("--loss", "mart", "--warm-start", 2),
    "perturbed weights": any_ranks("--awp-gamma", 0.01, "--loss", "trades"),
    "noise on any ranks": any_ranks("--noise", 0.2, "--noise-samples", 3, "--attack", "none", "--average", "ema"),
    "a smoothed network that is attacked": any_ranks("--noise", 0.2, "--noise-samples", 2, "--attack", "smooth-pgd", "--norm", "l2", "--eps",
                                                     "0..0.5@0-1", "--eval", "pgd2,smooth-pgd2"),
    "stability": any_ranks("--noise", 0.2, "--noise-samples", 2, "--attack", "none", "--loss", "kl", "--awp-gamma", 0.01, night=True),
    "a warm start on batch statistics": any_ranks("--warm-start", 2, "--attack-bn", "train"),
    "images that grow": any_ranks("--train-size", "11,16@1", "--warm-start", 2, "--average", "ema", stops=[end(3, on=2), end(6, on=3)], last=1),
    "batches and images by epoch": any_ranks("--total-batch", "16,32@1,12@2", "--epochs", 2, "--train-size", "9,16@1",
                                             stops=[Stop("kill", line(6), "all", on=3), Stop("SIGTERM", line(6), on=2)], last=1),
    "old weights": any_ranks("--staleness", 3, stops=[end(2, on=2), end(4, on=3)], last=1),
    "the oldest weights": any_ranks("--staleness", 2, "--attack-stop", 1, stops=[end(5, on=4)], last=1),
    "an early stop, and what is held out": any_ranks("--attack-stop", 1, "--holdout", 16, "--total-batch", 18, "--micro-batch", 3),

    "generators: weights of now": generators(stops=[end(3, on=(1, 2)), end(7, on=(2, 0))], last=(2, 1)),
    "generators: newer weights in each iteration": generators("--staleness", 4, stops=[end(3, on=(1, 0)), end(6, on=(3, 1))], last=(1, 3)),
    "generators: old weights throughout": generators("--staleness", 4 if common.ALL_CASES else 1, "--attack-stop", 1,
                                                     stops=[end(5, on=(2, 2))], last=(1, 1)),
    "generators: other losses, optimizers and weights": generators(
        "--staleness", 4, "--loss", "trades", "--optimizer", "lamb", "--average", "ema", "--eps", "3/255..12/255@0-1", "--alpha",
        "1/255,3/255@1"),
    "generators: images that grow": generators("--staleness", 2, "--train-size", "8,16@1"),
    "generators: perturbed weights": generators("--staleness", 2, "--awp-gamma", 0.01, "--max-bad-steps", 1, "--on-bad-steps", "rollback",
                                                stops=[], last=(2, 1)),
    # Of another rank's signal the others hear some steps later: the last one needs room before the end of the run.
    "generators: kills and signals": generators(
        "--staleness", 2, "--epochs", 2, stops=[Stop("kill", line(4), 2, on=(1, 2)), Stop("SIGTERM", line(2), 2, on=(2, 1)), Stop("kill", line(2), 1, on=(1, 1)),
                                 Stop("SIGTERM", line(1), on=(1, 2))], last=(2, 1), of=""),

    "leaving: the bandit": leaving([3, 1], [2, 4], "--optimizer", "lamb", "--selector", "exp3", "--resample", 3, "--average", "ema",
                                   "DAT_CHECKPOINT_ASYNC=on"),
    "leaving: warm starts": leaving([3, 4], [3, 4], "--optimizer", "sgd", "--lr", 0.05, "--warm-start", 2, "--selector", "all"),
    "leaving: sums of weights": leaving([2, 1], [1, 6], "--optimizer", "lars", "--lr", 0.02, "--average", "swa", "--loss", "trades",
                                        "--selector", "uniform", "--verify", 3),
    "leaving: perturbed weights": leaving([4, 1], [5, 5], "--awp-gamma", 0.01, "--loss", "trades", night=True),

    "a ban: killed": Row([*BYZANTINE, "--total-batch", 24, "--selector", "exp3", "--budget", "5", "--resample", 2, "--warmup-epochs", 0,
                          "--loss", "trades", "--checkpoint-every", 3, "--attackers", 2, "--cheat", "weak@4"],
                         [Stop("kill", line(7)), Stop("kill", line(5), "all")], ranks=4),
}


class Interrupted(common.TestCase):
    set_h5 = SET

    def words(self, row, on, interrupted):
        """The command, and its ranks."""
        on = row.ranks if on is None else on
        trainers, of_them = on if isinstance(on, tuple) else (on, 0)
        more = [*(row.more if interrupted else []), *(["--generators", of_them] if of_them else [])]
        return ["train", "--out", "run", *common.merged(*BASE, *row.options, *more)], trainers + of_them

    def end(self, row, on=None, interrupted=True):
        words, ranks = self.words(row, on, interrupted)
        return self.run_well(*words, ranks=ranks)

    def interrupt(self, row, stop):
        words, ranks = self.words(row, stop.on, True)
        if stop.how == "end":
            self.run_well(*words, "--max-steps", stop.at, ranks=ranks)
            return
        call, first = stop.at.rsplit(":", 1)
        number = getattr(errno, stop.how, -1)
        running = common.Running(words, ranks, common.faults(call, number, int(first), 1 + (stop == ENDED)) | (WAIT if stop == ENDED else {}))
        try:
            ended = running.wait() if number > 0 else self.strike(running, stop, ranks)
        finally:
            running.end()
        if number > 0:
            self.assertEqual((ended.code, len(ended.errors)), (9, 1), ended.text)
            self.assertIn(call.split(":")[0], ended.errors[0])
            self.assertEqual(stop.how in ("ENOSPC", "EDQUOT"), "disk full" in ended.errors[0], ended.errors[0])
        elif stop.how.startswith("SIG"):
            self.assertEqual(ended.errors, [], ended.text)
            if stop == ENDED:
                self.assertNotEqual(ended.code, 0, ended.text)  # a code of mpirun's own
            else:
                self.assertEqual(ended.code, 75, ended.text)
            last = common.rows("run", "step")[-1]["step"]
            self.assertEqual(common.checkpoints("run")[-1], f"run/ckpt/step-{last:09d}.h5")
            self.assertRegex(ended.text, f"stopped on a signal after step {last};")
        else:
            self.assertNotEqual(ended.code, 0, ended.text)

    def strike(self, running, stop, ranks):
        """When rank 0 stands at the call."""
        found = running.wait_until_stopped()
        launcher = running.process.pid
        targets = {"launcher": [launcher], "ranks": [*found.values()], "all": [launcher, *found.values()]}
        for pid in targets.get(stop.who) or [found[min(stop.who, max(ranks - 1, 0))]]:
            common.kill(pid, getattr(signal, stop.how, signal.SIGKILL))
        if stop.who == "launcher" and ranks:  # else rank 0 is at the end of the run before the others know
            running.wait_for(lambda: common.waits_for(found[0], getattr(signal, stop.how, signal.SIGKILL)))
            while not stop.how.startswith("SIG") and any(common.alive(found[rank]) for rank in range(1, ranks)):
                time.sleep(0.01)
        common.kill(found[0], signal.SIGCONT)
        return running.wait()

    def damage(self, how):
        newest = common.checkpoints("run")[-1]
        size = os.path.getsize(newest)
        if how == "flip":
            with open(newest, "r+b") as file:
                file.seek(size // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 1]))
        else:
            os.truncate(newest, size - 100 if how == "truncate" else 0)
        return newest

    def assert_same_runs(self, row):
        self.assert_equal_runs("run", "straight")
        self.assertEqual(glob.glob("run/**/.*", recursive=True), ["run/.lock"])
        if row.last is None and not any(stop.on for stop in row.stops):
            self.assert_same(common.history("run"), common.history("straight"))
        if "--holdout" in row.options:
            self.assert_same(*(common.state(folder, f"{folder}/ckpt/best.h5") for folder in ("run", "straight")))
        if all(stop.how == "kill" for stop in row.stops):
            self.assertEqual(*([os.path.basename(path) for path in common.checkpoints(folder)] for folder in ("run", "straight")))

    def check(self, row):
        self.end(row, interrupted=False)
        os.rename("run", "straight")
        damaged = []
        for stop in row.stops:
            with self.subTest(stop=stop):
                self.interrupt(row, stop)
                damaged = [self.damage(stop.how)] if stop.how in ("flip", "truncate", "empty") else []
        ended = self.end(row, row.last)
        self.assertEqual([path in line for path, line in zip(damaged, ended.warnings)], [True] * len(damaged), ended.text)
        self.assert_left(row)
        self.assert_same_runs(row)

    def assert_left(self, row):
        if "--cheat" in row.more:
            who, when = (row.more[row.more.index(name) + 1].replace("leave@", "").split(",") for name in ("--attackers", "--cheat"))
            left = [(row["rank"], row["step"]) for row in common.rows("run", "left")]
            self.assertEqual(sorted(left), sorted(zip(map(int, who), map(int, when))))

    @common.at_night
    def test_killed_at_moments_that_are_drawn(self):
        """Three hundred runs, each killed up to three times, that go on with another number of ranks each time."""
        self.kill(any_ranks("--micro-batch", 2, "--warm-start", 2, "--epochs", 2, "--checkpoint-every", 2), (1, 2, 3, 4, 6, 8), 300)

    @common.at_night
    def test_killed_at_moments_that_are_drawn_while_ranks_leave(self):
        self.kill(leaving([3, 1, 4], [2, 5, 5], "--optimizer", "lamb", "--selector", "exp3", "--resample", 3, "--average", "ema",
                          "DAT_CHECKPOINT_ASYNC=on"), (7,), 20)

    def kill(self, row, numbers, cycles):
        draw, seconds = random.Random(common.SEED), {}
        self.end(row, interrupted=False)
        os.rename("run", "straight")
        for ranks in numbers:
            begin = time.monotonic()
            self.end(row, ranks)
            seconds[ranks] = time.monotonic() - begin
            self.assert_equal_runs("run", "straight")
            shutil.rmtree("run")
        for cycle in range(cycles):
            kills = []
            for _ in range(draw.randint(1, 3)):
                words, ranks = self.words(row, draw.choice(numbers), True)
                running = common.Running(words, ranks)
                time.sleep(draw.random() * seconds[ranks])
                found = list(running.ranks().values())
                targets = draw.choice([found, [draw.choice(found)] if found else [], []]) or [running.process.pid]
                for pid in targets:
                    common.kill(pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):  # ranks without a launcher end by themselves, or later
                    running.process.wait(10)
                running.end()
                kills.append((len(targets), ranks, common.steps_written("run")))
            with self.subTest(cycle=cycle, kills=kills):
                self.end(row, draw.choice(numbers))
                self.assert_left(row)
                self.assert_equal_runs("run", "straight")
            shutil.rmtree("run")


BY_DAY = {"any ranks": 10, "generators": 3, "leaving": 2}


def add(name, row, today):
    def test(self):
        self.check(row)
    test.__doc__ = name
    setattr(Interrupted, "test_" + re.sub(r"\W+", "_", name), test if today else common.at_night(test))


today = {name for name, row in ROWS.items() if not row.night and not row.of}
for of, count in BY_DAY.items():
    today.update(common.drawn([name for name, row in ROWS.items() if not row.night and row.of == of], count))
for name, row in ROWS.items():
    add(name, row, name in today)

if __name__ == "__main__":
    common.main()
