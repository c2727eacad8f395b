"""Ranks that only attack (--generators): a generator that is late or hangs, what generators go through, and how many a forecast
wants. Runs at any split of ranks, and killed: interrupted.py.
"""

import json
import re
import shutil
import signal
import time

import common

SET = {"train": 100, "test": 30, "size": 16, "classes": 4}
RUN = ["--data", "set.h5", "--width", 16, "--network", "small_cnn", "--threads", 1, "--attack-steps", 4, "--eval-every", 1,
       "--eval", "pgd2", "--warmup-epochs", 1, "--epochs", 1, "--checkpoint-every", 2]
# An epoch of 100 images in micro-batches of 4, six of them a step: the last step's micro-batches have one image each.
DEALT = ["--deterministic", "--total-batch", 24, "--micro-batch", 4]
OF_GENERATORS = ("age_mean", "age_max", "dealt_again")


class Generators(common.TestCase):
    set_h5 = SET

    @staticmethod
    def options(split, *arguments):
        trainers, generators = split
        return [*RUN, *arguments, *(["--generators", generators] if generators else [])], trainers + generators

    def go(self, folder, split, *arguments):
        options, ranks = self.options(split, *arguments)
        self.train(folder, *options, ranks=ranks)

    @common.at_night
    def test_every_attack(self):
        """Also those that look at no gradient; with weights of before, and checked by other ranks."""
        names = re.search(r"must be one of (.*), not '[?]'", common.run("train", "--attack", "?").text)[1].split(", ")
        for attack in sorted(set(names) - {"none", "smooth-pgd"}):
            for ways in [["--verify", 1], ["--staleness", 1]]:
                with self.subTest(attack=attack, ways=ways):
                    arguments = [*DEALT, "--attack", attack, "--attack-steps", 2, "--attack-bn", "eval", "--max-steps", 3, *ways]
                    self.go("reference", (1, 0), *arguments)
                    self.go("split", (2, 1), *arguments)
                    self.assert_equal_runs("split", "reference")
                    shutil.rmtree("reference")
                    shutil.rmtree("split")

    def test_late_generator(self):
        """What a generator is late with, another one does once more: with the same bits."""
        # The more micro-batches are dealt at once, the less a generator is passed over that was slow by chance.
        arguments = [*DEALT[:-1], 2, "--staleness", 1, "--attack-steps", 20, "--epochs", 4, "--comm-timeout", 60]
        self.go("reference", (1, 0), *arguments)
        options, ranks = self.options((1, 2), *arguments)
        running = self.start_run([*options, "--quiet", "--out", "late"], ranks, "late", steps=2)
        slow = running.ranks()[1]

        def dealt_again():
            return any(row["dealt_again"] for row in common.rows("late", "step"))

        while common.alive(slow) and not dealt_again():
            common.kill(slow, signal.SIGSTOP)
            end = time.monotonic() + 10
            while time.monotonic() < end and not dealt_again():
                time.sleep(0.05)
            common.kill(slow, signal.SIGCONT)
            steps = len(common.rows("late", "step"))
            running.wait_for(lambda: dealt_again() or len(common.rows("late", "step")) > steps)
        self.expect(0, running.wait())
        self.assertGreater(sum(row["dealt_again"] for row in common.rows("late", "step")), 0)
        self.assert_equal_runs("late", "reference")

    def test_newest_weights(self):
        """Without an order of the micro-batches the newest weights count: every image is attacked once an epoch."""
        for (trainers, generators), staleness in common.drawn([((1, 1), 3), ((2, 3), 1)], 1):
            folder = f"free{trainers}"
            self.go(folder, (trainers, generators), "--batch", 24 // trainers, "--micro-batch", 4, "--staleness", staleness,
                    "--limit-train", 96)
            steps = common.rows(folder, "step")
            epoch = [row for row in steps if row["epoch"] == 0]
            self.assertEqual(sum(row["images"] for row in epoch), 96)
            for row in steps:
                self.assertEqual(row["attack_passes"], 4 * row["images"])
                self.assertTrue(0 <= row["age_mean"] <= row["age_max"] <= staleness)
            found = common.datasets(f"{folder}/results.h5")
            for name in OF_GENERATORS:
                self.assertEqual([row[name] for row in steps], list(found[f"history/step/{name}"]))
            self.assertRegex(common.text_of(f"{folder}/SUMMARY.txt"),
                             rf"(?m)^generators +{generators}; .* waited for them, .* dealt again$")

    def test_rounded_weights(self):
        """Half the bytes of each version, and attacks that are as good."""
        sent = {}
        for weights in "f32", "bf16":
            self.go(weights, (1, 1), "--batch", 24, "--micro-batch", 4, "--staleness", 1, "--generator-weights", weights)
            steps = common.rows(weights, "step")
            sent[weights] = [row["bytes_other"] for row in steps[1:]]
            self.assertTrue(all(0 < row["loss_adv"] < 10 for row in steps))
        parameters = 14548 + 2 * sum(value.size for name, value in common.state("f32").items() if name.endswith("running_mean"))
        # A version goes in each step, and 24 bytes for each micro-batch of the step after; the last step has none after it.
        orders = [16 + 6 * 24] * (len(sent["f32"]) - 1) + [16]
        self.assertEqual(sent["f32"], [4 * parameters + bytes for bytes in orders])
        self.assertEqual(sent["bf16"], [2 * parameters + bytes for bytes in orders])

    def test_ages_by_rule(self):
        """Iteration i of n runs on weights K - floor(i K / n) steps old, and there are none from before the first step."""
        self.go("run", (1, 1), *DEALT, "--staleness", 3)
        ages = [3 - i * 3 // 4 for i in range(4)]
        for row in common.rows("run", "step"):
            here = [min(age, row["step"] - 1) for age in ages]
            self.assertEqual((row["age_max"], row["age_mean"]), (max(here), sum(here) / 4))

    def test_stopped_generator(self):
        options, ranks = self.options((1, 1), *DEALT, "--epochs", 1000, "--comm-timeout", 2.5, "--checkpoint-every", 100000, "--eval-every", 0)
        running = self.start_run([*options, "--quiet", "--out", "run"], ranks, steps=3)
        generator = running.ranks()[1]
        common.kill(generator, signal.SIGSTOP)
        ended = self.expect_error(6, rf"hang: rank 1 on \S+ \(process {generator}\) has sent no heartbeat", running.wait())
        self.assertRegex(ended.errors[0], r"rank 0 .* waits in message from rank 1 \(attacked images\)")

    def test_signal(self):
        """All ranks get it, as from a job system, or one alone, also one that hardly has work, of a single micro-batch a step."""
        options, ranks = self.options((1, 3), "--batch", 8, "--micro-batch", 8, "--staleness", 2, "--epochs", 40)
        for told in common.drawn([[0, 1, 2, 3], [1], [2], [3]], 2):
            running = self.start_run([*options, "--quiet", "--out", "run"], ranks, steps=common.steps_written("run") + 3)
            pids = running.ranks()
            for rank in told:
                common.kill(pids[rank], signal.SIGTERM)
            self.expect(75, running.wait())

    def test_numbers_that_are_not_finite(self):
        """The trainers end the run, and generators end with it."""
        options, ranks = self.options((1, 2), *DEALT, "--lr", 1e30, "--optimizer", "sgd")
        self.expect_error(7, ".", common.run(*options, "--out", "run", ranks=ranks))

    def test_who_did_what_when(self):
        """Told of the first 32 steps of each process, as rank 0 has seen it; the picture is of the last process."""
        arguments = [*DEALT, "--staleness", 2, "--epochs", 8]
        self.go("run", (1, 2), *arguments, "--max-steps", 4)
        self.go("run", (1, 2), *arguments)
        rows = common.rows("run", "attacks")
        self.assertEqual([row["step"] for row in rows], [*range(1, 5), *range(5, 37)])
        self.assertEqual([row["step"] for row in rows if row["first"]], [1, 5])
        steps = {row["step"]: row for row in common.rows("run", "step")}
        for part in rows[:4], rows[4:]:
            done = {}
            for row in part:
                waited = 0
                for rank, step, unit, begin, end in row["spans"]:
                    self.assertTrue(0 <= end - begin < 100)
                    self.assertIn(rank, (0, 1, 2))
                    if rank == 0:
                        self.assertEqual(step, row["step"])
                        waited += end - begin
                    else:
                        done.setdefault(step, set()).add(unit)
                self.assertAlmostEqual(waited, steps[row["step"]]["t_generators"], places=6)
            for row in part[:-3]:
                self.assertEqual(len(done[row["step"]]), 6)
        ended = self.run_well("plot", "run")
        self.assertIn("run/plots/attacks.svg", ended.text)
        lines = common.text_of("run/plots/attacks.csv").splitlines()
        self.assertEqual(len(lines), 1 + sum(len(row["spans"]) for row in rows[4:]))
        self.assertEqual(lines[0].replace('"', ""), "begin,end,rank,step,micro-batch")
        self.assertGreaterEqual(min(float(line.split(",")[0]) for line in lines[1:]), 0)

    def calibration(self, **other):
        """Of a link on which sums take longer than an attack on all images."""
        seconds = {"data": 0, "attack": 0.1, "forward": 0.01, "backward": 0.02, "select": 0, "update": 0}
        link = {"latency": 1e-5, "bandwidth": 1e9}
        written = {"filetype": "dat_hpc calibration", "format_version": 2, "about": {"network": "small_cnn", "width": 16},
                   "ranks": 2, "batch": 4, "seconds": seconds, "attack_iterations": 8, "backward_passes": 1, "step_message_bytes": 0,
                   "layers": [{"name": "all", "elements": 10**8, "backward": 0.02, "weight_gradient": 0.01}],
                   "codecs": [{"name": "float32", "transport": "sum", "rounds": 1, "exact": True, "encode": 0, "decode": 0,
                               "bytes": [4 * 10**8]}],
                   "network": {"within": link, "between": link}} | other
        common.write("calibration.json", json.dumps(written))
        return ["--generators", "auto", "--calibration", "calibration.json", *DEALT, "--staleness", 8, "--selector", "all"]

    def test_as_many_as_a_forecast_says(self):
        arguments = self.calibration()
        # 24 images, 12.5 ms each to attack in 4 iterations and 15 ms to train on, in two passes. Two ranks that train compute
        # for 0.33 s and then wait for the sum of 400 MB; with one that trains, it is 0.4 s until the other has the weights, and an
        # eighth of the attack, for which it has eight steps: 0.3 s / 8; everything else is beside these.
        ended = self.run_well("train", "--out", "auto", *RUN, *arguments, ranks=2)
        self.assertIn("dat_hpc: --generators auto: 1 of 2 ranks, by a forecast: 54.8 images/s, 32.9 with none", ended.text)
        self.assertIn(" parameters, 1 rank, 1 generator, ", ended.text)
        self.go("told", (1, 1), *arguments[4:])
        self.assert_equal_runs("auto", "told")
        text = common.attribute(common.checkpoints("auto")[-1], "config_toml")
        self.assertIn("generators = 1\n", text)
        self.assertNotIn("calibration.json", text)
        planned = common.run("validate", *RUN, *self.calibration(image_size=SET["size"]), ranks=2)
        self.assertRegex(planned.text, r"1 of 2 ranks, by a forecast: 54\.[89] images/s, 32\.9 with none")  # of smaller images
        self.assertRegex(planned.text, r"\ntime +0:00:04 h by (.*\n)+generators +1, beside the ranks that train")  # of ten steps
        # Without generators that is 0.73 s a step, five an epoch.
        planned = common.run("validate", *common.merged(*RUN, "--epochs", 9863), *self.calibration(image_size=SET["size"])[2:], ranks=2)
        self.assertRegex(planned.text, r"(?m)^time +10:00:0[3-8] h by calibration.json, without evaluations and checkpoints$")
        planned = common.run("validate", *RUN, *self.calibration()[2:], ranks=2)
        self.assertRegex(planned.text, r"(?m)^time +not known: calibration.json is of images of 32x32, and these have 16x16$")

        # A job's time is that of as many.
        arguments = [*RUN, *self.calibration(image_size=SET["size"])[2:], "--ranks-per-node", 2]
        auto, told = (re.search("(?m)^# Time: .*$", self.run_well("slurm", *arguments, "--generators", number).text)[0] for number in ("auto", 1))
        self.assertEqual(auto, told)
        self.assertRegex(told, r"^# Time: 0\.43\d+ s a step \(a forecast by calibration\.json")

    def test_no_trainer(self):
        ended = self.expect(2, common.run(*self.options((0, 2), *DEALT)[0], "--out", "run", ranks=2, environment=common.AT_ONCE))
        self.assertRegex(ended.errors[0], "--generators 2 leaves no rank of 2 to train")  # of each rank that comes so far

    def test_no_work(self):
        arguments = [*RUN, "--batch", 8, "--micro-batch", 8, "--generators", 3, "--staleness", 1]
        self.refuse(2, "--generators 3 are more than the 2 micro-batches that can be under way: those of 2 steps; ", *arguments, "--out", "run", ranks=4)
        checked = common.run("validate", *arguments, ranks=4)
        self.assertRegex(checked.errors[0], "--generators 3 are more than the 2 micro-batches")
        checked = common.run("validate", *arguments, "--staleness", 2, ranks=4)
        self.assertRegex(checked.text, r"(?m)^ranks +1 that train, batch 8 each")
        self.assertRegex(checked.text, r"(?m)^generators +3, beside the ranks that train; \d+\.\d MB of memory each$")


if __name__ == "__main__":
    common.main()
