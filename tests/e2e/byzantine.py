"""The protocol that bans: whoever cheats is found out by its own rule, in its own step, and leaves no trace where that is
before the update; cheats with gradients are found by whoever does the work once more; nobody else is banned. At night: more
ranks, steps and cheats."""

import os
import re
import shutil

import common

SET = {"train": 256, "test": 32, "size": 16, "classes": 4}
RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 8, "--threads", 1, "--attack", "pgd", "--attack-steps", 2, "--alpha", "4/255",
       "--eval", "fgsm", "--eval-every", 0, "--optimizer", "sgd", "--lr", 0.05, "--deterministic", "--aggregator", "centered_clip",
       "--byzantine", "--micro-batch", 2]
ALL = ["--selector", "all", "--lambda", 0]
DRAWN = ["--selector", "exp3", "--budget", "5", "--resample", 2, "--warmup-epochs", 0, "--loss", "trades"]
RULES = {"equivocate": "disputes", "wrong_digest": "commitment", "wrong_aggregate": "aggregate", "false_norm": "norm",
         "false_product": "product", "no_reveal": "reveal", "silent": "silence", "false_accuser": "accusation",
         "idle_validator": "validation", "malformed": "malformed"}
WHOLE = common.ALL_CASES


def attackers(who, what, start):
    return ["--attackers", ",".join(map(str, who)), "--cheat", f"{what}@{start}"]


def losses(folder):
    """What is recorded of each step, but times, bytes and what only a simulation tells."""
    return [{name: value for name, value in row.items() if not name.startswith(("t_", "bytes_", "wall_time", "distance"))}
            for row in common.rows(folder, "step")]


def bans(folder):
    return [(row["rank"], row["step"], row["rule"]) for row in common.rows(folder, "ban")]


class Byzantine(common.TestCase):
    set_h5 = SET

    def go(self, folder, *arguments, ranks=4, code=0):
        return self.expect(code, common.run("train", "--out", folder, *common.merged(*RUN, *arguments), ranks=ranks))

    def assert_equal_runs(self, folder, reference):
        self.assert_same(common.state(folder), common.state(reference))
        self.assertEqual(losses(folder), losses(reference))

    def test_every_cheat_by_its_own_rule(self):
        """And what is left has the bits of a run in which the same rank leaves at the same step."""
        for number, (cheat, rule) in common.drawn(enumerate(RULES.items()), 2):  # among threads, dat_tests has them all
            cases = [(4, [1 + number % 3], 1)] + ([(8, [2, 5, 7], 3), (5, [3], 1)] if WHOLE else [])
            for ranks, who, faults in cases:
                for folder in "cheated", "left":
                    shutil.rmtree(folder, ignore_errors=True)
                with self.subTest(cheat=cheat, ranks=ranks):
                    options = ["--total-batch", 24 if ranks == 4 else 40, "--faults", faults, *(DRAWN if number % 2 else ALL),
                               "--max-steps", 60 if cheat == "idle_validator" else 10, "--epochs", 6]
                    self.go("cheated", *options, *attackers(who, cheat, 2), ranks=ranks)
                    found = bans("cheated")
                    self.assertTrue(set(rank for rank, _, _ in found) <= set(who))
                    self.assertEqual({found_by for _, _, found_by in found}, {rule})
                    if cheat != "idle_validator":
                        self.assertEqual([rank for rank, _, _ in sorted(found)], who)
                        self.assertTrue(all(3 <= step <= 8 for _, step, _ in found), found)
                    left = common.rows("cheated", "left")
                    self.assertEqual([(row["rank"], row["step"] + 1, row["why"]) for row in left],
                                     [(rank, step, "banned: " + found_by) for rank, step, found_by in found])
                    self.go("left", *options, "--attackers", ",".join(str(row["rank"]) for row in left), "--cheat",
                            ",".join(f"leave@{row['step']}" for row in left), ranks=ranks)
                    self.assertEqual(bans("left"), [])
                    self.assert_equal_runs("cheated", "left")
                    summary = common.text_of("cheated/SUMMARY.txt")
                    for rank, step, _ in found:
                        self.assertIn(f"\nbanned          rank {rank}, in step {step}, by ", summary)

    def test_cheats_with_gradients(self):
        """Also where the image that it has not attacked is all that is wrong."""
        cheats = ["weak", "label_flip", "sign_flip", "bn_poison", "bit_flip", "alie"]
        for cheat in cheats if WHOLE else ["bn_poison"]:
            with self.subTest(cheat=cheat):
                ended = self.go("run", *ALL, "--total-batch", 30, "--faults", 1, "--max-steps", 120 if WHOLE else 40, "--validators", 2, "--epochs", 20,
                                *attackers([3], cheat, 4), ranks=5)
                self.assertEqual([(rank, rule) for rank, _, rule in bans("run")], [(3, "gradient")], ended.text)
                self.assertGreater(bans("run")[0][1], 5)
                rows = common.rows("run", "accusation")
                self.assertEqual([(row["rank"], row["upheld"]) for row in rows], [(3, True)])
                # How far each gradient was: of none of those who have checked another rank, nor who has left.
                for row in common.rows("run", "step"):
                    missing = {rank for rank, distance in enumerate(row["distance"]) if distance is None}
                    if row["step"] < bans("run")[0][1]:
                        self.assertTrue(len(missing) in (1, 2) if row["step"] > 1 else not missing, row)
                    elif row["step"] > bans("run")[0][1]:
                        self.assertTrue(3 in missing and len(missing) in (2, 3), row)  # a check may find nobody to look at
                self.assertEqual(common.run("plot", "run").code, 0)
                with open("run/plots/distances-ends.csv") as file:
                    self.assertEqual(len(file.readlines()), 2)
                shutil.rmtree("run")

    def test_honest_ranks_stay(self):
        cases = [ALL + ["--validators", 2], DRAWN, ALL + ["--aggregator", "centered_clip:tau=0.01"], ALL + ["--aggregator", "centered_clip:iterations=1"]]
        for options in common.drawn(cases, 1):
            with self.subTest(options=options):
                self.go("run", *options, "--total-batch", 28, "--faults", 1, "--max-steps", 20 if WHOLE else 8, "--epochs", 4, ranks=5)
                self.assertEqual(common.rows("run", "accusation") + common.rows("run", "ban"), [])
                shutil.rmtree("run")

    @common.at_night
    def test_several_leave_and_cheat(self):
        """Some leave by themselves meanwhile: what is pending among them is nobody's."""
        options = [*ALL, "--total-batch", 36, "--faults", 4, "--max-steps", 60, "--epochs", 10]
        self.go("run", *options, "--attackers", "1,3,4,8", "--cheat", "leave@6,sign_flip@4,leave@9,weak@4", ranks=10)
        self.assertEqual({rank for rank, _, _ in bans("run")} | {1, 4}, {row["rank"] for row in common.rows("run", "left")})
        self.assertTrue({rank for rank, _, _ in bans("run")} <= {3, 8})
        self.go("all", *options, "--attackers", "1,3,4,8", "--cheat", "leave@40,leave@42,leave@44,leave@46", ranks=10)
        self.assertEqual(len(common.rows("all", "left")), 4)

    def test_bytes_and_memory_as_validate_says(self):
        for ranks in (4, 8, 16) if WHOLE else (4,):
            options = [*ALL, "--total-batch", 4 * ranks, "--faults", 1, "--max-steps", 3]
            folder = f"bytes{ranks}"
            self.go(folder, *options, ranks=ranks)
            said = common.validate(*RUN, *options, ranks=ranks).text
            protocol = int(re.search(r"protocol +(\d+) bytes per step and rank", said)[1])
            rows = common.rows(folder, "step")
            # The first step checks nobody. Beside the protocol goes a message of votes and passes, which has two numbers.
            self.assertEqual([row["bytes_other"] for row in rows], [protocol - 32 * ranks + 16, protocol + 16, protocol + 16])
            self.assertIn("all-to-all of parts, all-gather ", said)
            # What such a run has written can be read.
            self.run_well("eval", folder, "--eval", "fgsm", "--limit", 8, "--threads", 1)

    def test_gone_on_after_each_step_around_a_ban(self):
        """What was to be checked when it stopped is checked, by those who are left: the group of the checkpoint, not of the
        launch."""
        options = [*ALL, "--total-batch", 40, "--faults", 1, "--validators", 2, "--epochs", 6, *attackers([3], "weak", 1)]
        self.go("straight", *options, "--max-steps", 14, ranks=5)
        ((rank, step, _),) = bans("straight")
        self.assertEqual(rank, 3)
        self.assertTrue(1 < step < 11, step)
        for end in [*(range(1, 14) if WHOLE else [step]), 14]:
            self.go("split", *options, "--max-steps", end, ranks=5)
        self.assertEqual(bans("split"), bans("straight"))
        self.assert_equal_runs("split", "straight")

    def test_gone_on_with_more_ranks_or_other_options(self):
        """What was to be checked of the last step is checked where that can be done; nobody is blamed for the rest."""
        options = [*DRAWN, "--total-batch", 24, "--faults", 1, "--epochs", 4, "--checkpoint-every", 3]
        self.go("straight", *options, "--max-steps", 6)
        for ranks in (6, 5) if WHOLE else (6,):
            folder = f"on{ranks}"
            shutil.copytree("straight", folder)
            for name in "ckpt/step-000000006.h5", "results.h5", "SUMMARY.txt":
                os.remove(f"{folder}/{name}")
            self.go(folder, *options, "--max-steps", 6, ranks=ranks)
            self.assertEqual(bans(folder), [])
        for change in common.drawn([["--eps", "4/255"], ["--seed", 2]], 1):
            folder = f"other{change[0]}"
            ended = self.go(folder, *options, "--resume", "straight", "--max-steps", 9, *change)
            self.assertIn(f"with other options: {change[0][2:]}", ended.text)
            self.assertEqual(common.rows(folder, "accusation") + common.rows(folder, "ban"), [])

    def test_what_does_not_go_with_it(self):
        for arguments, words in (
                (["--validators", 2, "--faults", 1], "with --validators 2, 2 of 4 ranks bring a gradient"),
                (["--holdout", 16], "--holdout")):
            self.expect_error(2, words, common.validate(*RUN, *ALL, "--total-batch", 24, *arguments, ranks=4))


if __name__ == "__main__":
    common.main()
