"""Runs with ranks that are made to cheat: what they say of themselves, what the record tells of the false ranks, and what is
refused."""

import re

import common

RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 16, "--threads", 1, "--attack-steps", 1, "--alpha", "8/255", "--eval",
       "fgsm", "--eval-every", 0, "--warmup-epochs", 0, "--epochs", 1, "--batch", 8, "--selector", "all", "--optimizer", "sgd", "--lr",
       0.05]


class Cheating(common.TestCase):
    set_h5 = dict(train=144, test=20, size=16, classes=4)

    def test_a_simulation_says_so_and_tells_false_ranks_by_distance(self):
        for options in (["--aggregator", "median"], ["--aggregator", "trimmed_mean", "--deterministic", "--checkpoint-every", 2]):
            folder = options[1]
            ended = self.run_well("train", "--out", folder, *RUN, *options, "--attackers", 1, "--cheat", "sign_flip@3",
                                  ranks=3)
            self.assertIn("a simulation with ranks that are made to cheat: rank 1: sign_flip from step 4 on\n", ended.text)
            self.assertIn("\nmade to cheat   rank 1: sign_flip from step 4 on, simulated\n",
                          common.text_of(f"{folder}/SUMMARY.txt"))
            steps = common.rows(folder, "step")
            self.assertEqual([row["step"] for row in steps], [1, 2, 3, 4, 5, 6])
            for row in steps:
                honest, false = max(row["distance"][0], row["distance"][2]), row["distance"][1]
                self.assertEqual(false > 100 * honest, row["step"] > 3, row["distance"])
        ended = self.run_well("train", "--out", "honest", *RUN, "--aggregator", "median", ranks=3)
        self.assertNotIn("cheat", ended.text)
        self.assertNotIn("distance", common.rows("honest", "step")[0])
        # Until then, nothing is otherwise; and the sum is not what the false rank wanted.
        both = [[row["loss_adv"] for row in common.rows(folder, "step")] for folder in ("median", "honest")]
        self.assertEqual(both[0][:4], both[1][:4])
        self.assertNotEqual(both[0], both[1])
        self.assertLess(both[0][-1], 2 * both[1][-1])

    def test_an_attack_that_is_begun_ahead_climbs_the_false_labels_too(self):
        """Of weights that hardly move, an attack begun a step ahead differs by the running statistics alone, whatever the labels."""
        run = [word for word in RUN if word != 0.05] + [1e-30, "--attack", "pgd", "--aggregator", "median"]
        differences = []
        for cheat in [], ["--attackers", 1, "--cheat", "label_flip@2"]:
            losses = []
            for folder, options in (f"ahead{len(cheat)}", ["--stale-attack", 1]), (f"at_once{len(cheat)}", []):
                self.train(folder, *run, *cheat, *options, ranks=3)
                losses.append([row["loss_adv"] for row in common.rows(folder, "step")][2:])
            differences.append(max(abs(a - b) for a, b in zip(*losses)))
        self.assertLess(differences[1], 3 * differences[0], differences)

    def test_memory_of_late_gradients(self):
        ended = self.run_well("validate", *RUN, "--attackers", "1,2", "--cheat", "delayed:99,alie")
        parameters = int(re.search(r"parameters +(\d+)", ended.text)[1])
        self.assertIn(f"cheats           delayed: {parameters * 400 / 1e6:.1f} MB of host memory on rank 1\n", ended.text)

    def test_what_is_refused(self):
        base = ["train", "--out", "run", *RUN, "--attackers", 1]
        for pattern, *arguments in [
                ("the sum is one of micro-batches", "--cheat", "alie", "--deterministic"),
                ("--attackers does not go with --overlap", "--cheat", "weak", "--overlap"),
                ("take --attack-bn eval", "--cheat", "weak", "--attack-bn", "train")]:
            with self.subTest(pattern=pattern):
                self.refuse(2, pattern, *base, *arguments, ranks=3)


if __name__ == "__main__":
    common.main()
