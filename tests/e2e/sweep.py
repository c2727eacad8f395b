"""Sweeps by `train --sweep`: a folder for each point, all checked before anything starts, and what of them is made again."""

import os
import re
import signal

import common

RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 4, "--batch", 8, "--attack", "fgsm", "--eval", "fgsm", "--warmup-epochs", 0,
       "--threads", 1, "--out", "grid"]


def begun(text):
    """The points that were begun, in order."""
    return re.findall(r"sweep: point \d+ of \d+, (\S+)", text)


class Sweep(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", train=48, test=8, size=8, classes=2)

    def test_points_are_trainings_of_their_own(self):
        options = [*RUN, "--epochs", 1]
        ended = self.run_well("train", *options, "--sweep", "seed=1,2 lr=0.05,0.1", ranks=2)
        names = ["seed=1,lr=0.05", "seed=1,lr=0.1", "seed=2,lr=0.05", "seed=2,lr=0.1"]
        self.assertEqual((begun(ended.text), ended.text.count("\nRuns\n")), (names, 1))
        self.assertEqual(sorted(os.listdir("grid")), sorted(names))
        self.train("alone", *options[:-4], "--epochs", 1, "--seed", 2, "--lr", 0.05, ranks=2)
        self.assert_same(common.state("grid/seed=2,lr=0.05"), common.state("alone"))
        for name in names:
            self.assertIn(f'lr = {name.rpartition("=")[2]}\n', common.text_of(f"grid/{name}/config.resolved.toml"))
            self.assertIn(name, ended.text.partition("\nRuns\n")[2])  # a row of the table
            told = common.load(f"grid/{name}/provenance.json")["command_line"]
            self.assertEqual(told[:2] + told[-3:], [common.PROGRAM, "train", *(f"--{one}" for one in name.split(",")), f"--out=grid/{name}"])

    def test_a_sweep_goes_on_where_it_was_stopped(self):
        options = [*RUN, "--milestones", 9, "--eval-every", 0, "--checkpoint-every", 1000, "--max-steps", 200, "--sweep", "seed=1,2,3"]
        whole = common.run("train", *options)
        self.assertEqual(whole.code, 0, whole.text)
        os.rename("grid", "whole")
        running = common.Running(["train", *options], 0)
        self.addCleanup(running.end)
        self.assertTrue(running.wait_for(lambda: common.steps_written("grid/seed=2") > 2), running.text())
        running.process.send_signal(signal.SIGTERM)
        ended = running.wait()
        self.assertEqual(ended.code, 75, ended.text)
        times = lambda seed: [os.stat(f"grid/seed={seed}/{name}").st_mtime_ns for name in ("results.h5", "report.html")]
        done = {seed: times(seed) for seed in (1, 2, 3) if os.path.exists(f"grid/seed={seed}/results.h5")}
        self.assertIn(1, done)
        self.assertNotIn(3, done)
        self.assertEqual([seed for seed in (1, 2, 3) if os.path.exists(f"grid/seed={seed}/report.html")], list(done))
        ended = self.run_well("train", *options)
        for seed in 1, 2, 3:
            self.assertEqual(f"the run in grid/seed={seed} is finished" in ended.text, seed in done)
            if seed in done:
                self.assertEqual(times(seed), done[seed])
            self.assert_same(common.state(f"grid/seed={seed}"), common.state(f"whole/seed={seed}"))

    def test_a_point_that_fails_does_not_end_the_others(self):
        # And folders whose names begin as options do. A point that could not begin is in no table.
        os.mkdir("-x")
        common.write("-x/lr=0.2", "")
        ended = self.expect(7, common.run("train", *RUN[:-2], "--out=-x", "--epochs", 1, "--optimizer", "sgd", "--max-bad-steps", 0,
                                          "--sweep", "lr=1e30,0.1,0.2", ranks=2))
        self.assertEqual(begun(ended.text), ["lr=1e30", "lr=0.1", "lr=0.2"])
        self.assertNotIn("left out", ended.text)
        self.assertIn("lr=0.1", ended.text.partition("\nRuns\n")[2])
        for file in "SUMMARY.txt", "report.html":
            self.assertTrue(os.path.exists(f"-x/lr=0.1/{file}"), ended.text)
            self.assertFalse(os.path.exists(f"-x/lr=1e30/{file}"))

    def test_nothing_starts_where_a_point_cannot(self):
        # Three images are no whole share of each of two ranks: known when all is planned.
        self.refuse(2, "sweep point total-batch=3: --total-batch 3 is no multiple of 2 ranks", "train", *RUN[:6], *RUN[8:], "--sweep",
                    "total-batch=8,3", ranks=2)
        # What all points have may want what each of them adds.
        self.refuse(2, "sweep point attack=pdg,loss=trades: .*did you mean", "train", *RUN[:8], *RUN[10:], "--beta", 5, "--sweep",
                    "attack=pgd,pdg loss=trades")
        self.assertFalse(os.path.exists("grid"))
        # There is no table where none has begun, and why where the one that is there cannot be read.
        os.makedirs("grid/seed=2/ckpt")
        for name in "seed=1", "seed=2/metrics.jsonl", "seed=2/ckpt/step-000000001.h5":
            common.write("grid/" + name, "")
        self.refuse(9, "cannot create the folder grid/seed=1", "train", *RUN, "--sweep", "seed=1")
        errors = self.expect(4, common.run("train", *RUN, "--sweep", "seed=2")).errors
        self.assertRegex("\n".join(errors), "none of the 1 checkpoints is whole.*\n.*no run in grid/seed=2")


if __name__ == "__main__":
    common.main()
