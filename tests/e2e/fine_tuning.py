"""Fine-tuning: what stands still keeps its bits on any number of ranks and over restarts, a new last layer begins in the run
itself."""

import os
import re
import signal
import subprocess
import sys

import h5py

import common

SET = {"train": 64, "test": 24, "size": 16, "classes": 4}
# Six steps an epoch, on any number of ranks.
RUN = ["--data", "set.h5", "--network", "small_cnn", "--width", 20, "--threads", 1, "--attack-steps", 2, "--eval", "pgd2", "--eval-every", 1,
       "--warmup-epochs", 1, "--epochs", 1, "--selector", "all", "--optimizer", "sgd", "--lr", 0.1, "--deterministic", "--total-batch", 12,
       "--micro-batch", 2, "--checkpoint-every", 2]
FREEZE = ["--freeze", "conv2,none@1", "--attack-bn", "train", "--head-lr", 0.2, "--average", "ema:decay=0.5"]
STILL = ("conv1", "bn1", "conv2", "bn2")


def merged(*words):
    return common.merged(*RUN, *words)


class FineTuning(common.TestCase):
    set_h5 = SET

    def arrays(self, folder, step):
        return common.datasets(f"{folder}/ckpt/step-{step:09d}.h5")

    def assert_still(self, folder, first, last, still=STILL):
        """Weights, running statistics and averages between two checkpoints."""
        before, after = self.arrays(folder, first), self.arrays(folder, last)
        names = [name for name in before if name.startswith(("param/", "bn/")) and name.split("/")[1].startswith(still)]
        self.assertEqual(len(names), 5 * len(still) // 2)
        self.assert_same({name: before[name] for name in names}, {name: after[name] for name in names})
        for name in names:
            if (average := name.replace("param/", "optim/average/")) in after:
                self.assertEqual(common.bits(after[average]), common.bits(after[name]))
        self.assertEqual([name for name in after if name.startswith("param/") and name not in names and
                          common.bits(after[name]) == common.bits(before[name])], [])

    def test_a_run_goes_on_across_the_border_on_any_number_of_ranks(self):
        self.train("whole", *merged(*FREEZE))
        running = self.start_run(["train", "--out", "run", *merged(*FREEZE, "--verify", 2)], 3, steps=2)
        for pid in running.ranks().values():
            common.kill(pid, signal.SIGKILL)
        running.wait()
        for ranks, steps in (1, 6), (3, 12):
            self.train("run", *merged(*FREEZE, "--max-steps", steps, *(["--verify", 2] if ranks > 1 else [])), ranks=ranks)
            if steps == 6:
                self.assert_still("run", 4, 6)
                border = self.arrays("run", 6)
        for name in "param/conv1.weight", "bn/bn1.running_mean", "optim/average/bn2.bias":
            self.assertNotEqual(common.bits(common.state("run")[name]), common.bits(border[name]), name)
        self.assert_same(common.state("run"), common.state("whole"))
        gradients = [row["weight_gradients"] for row in common.rows("run", "step")]
        self.assertEqual(gradients, [12] * 6 + [36] * 6)  # of six micro-batches, two passes each
        self.refuse(2, "freeze", "train", "--out", "run", *merged(*FREEZE, "--freeze", "conv2,none@2"))

    @common.at_night
    def test_ranks_that_only_attack_see_the_same_network(self):
        self.train("apart", *merged(*FREEZE, "--attack-bn", "eval"))
        self.train("generated", *merged(*FREEZE, "--attack-bn", "eval", "--generators", 1), ranks=3)
        self.assert_same(common.state("generated"), common.state("apart"))

    @common.at_night
    def test_ranks_that_may_be_false_do_the_same_work(self):
        false = ["--aggregator", "centered_clip", "--byzantine", "--attack-bn", "eval", "--attack-steps", 1, "--eval", "fgsm"]
        self.train("run", *merged(*FREEZE, *false, "--max-steps", 7), ranks=4)
        self.assertEqual(common.rows("run", "ban"), [])
        self.assert_still("run", 4, 6)

    def test_a_new_last_layer_in_one_step(self):
        common.synthetic("other.h5", **SET | {"classes": 3})
        self.train("base", *RUN, "--max-steps", 2)
        base = self.arrays("base", 2)
        common.write_safetensors("base.safetensors", {name.split("/")[1]: values for name, values in base.items() if name.startswith(("param/", "bn/"))})
        new = ["train", *merged("--data", "other.h5", "--seed", 5), "--initialize"]
        head = ["--new-head", 3, "--freeze", "all-but-head", "--max-steps", 4]
        for source in "base", "base.safetensors":
            ended = self.run_well(*new, source, *head, "--size", 20, "--out", f"of-{source}")
            self.assertIn(f"beginning with the weights of {source}, with a new last layer of 3 classes", ended.text)
            self.assertEqual(", of images of 16x16, where these are 20x20" in ended.text, source == "base")
            self.assert_still(f"of-{source}", 2, 4, (*STILL, "conv3", "bn3"))
            after = self.arrays(f"of-{source}", 4)
            for name, values in base.items():
                if name.startswith(("param/", "bn/")) and "linear" not in name:
                    self.assertEqual(common.bits(values), common.bits(after[name]), name)
            self.assertEqual(after["param/linear.weight"].shape, (3, 40))
        # The same last layer as `import` makes with this seed, and a fresh optimizer.
        self.assertEqual(common.run("import", "base", "--new-head", 3, "--seed", 5, "--out", "new.h5").code, 0)
        self.assertEqual(common.run(*new, "new.h5", "--freeze", "all-but-head", "--max-steps", 4, "--size", 20, "--out", "imported").code, 0)
        self.assert_same(common.state("imported"), common.state("of-base"))
        # What does not fit is told at once, all of it.
        ended = self.refuse(4, r"in 2 tensors: linear.bias is \[4\], not \[3\]; linear.weight is \[4,40\], not \[3,40\]|"
                            r"in 2 tensors: linear.weight is \[4,40\], not \[3,40\]; linear.bias is \[4\], not \[3\]", *new, "base", "--out", "no")
        self.assertIn("--new-head N begins its last layer anew", ended.errors[0])
        self.refuse(2, "the images have 3; give --new-head 3", *new, "base", "--new-head", 4, "--out", "no")
        self.refuse(2, "--freeze conv9: the network has nothing of this name; it has conv", *new, "base", "--new-head", 3, "--freeze", "conv9",
                    "--out", "no", ranks=2)
        self.refuse(2, "leaves nothing to train", "train", *merged(), "--freeze", "linear", "--out", "no")

    def test_what_is_saved_is_forecast(self):
        run = ["--data", "set.h5", "--network", "resnet18", "--width", 3, "--threads", 1, "--attack", "fgsm", "--eval-every", 0, "--batch", 8,
               "--eval", "fgsm", "--max-steps", 1, "--lambda", 1, "--freeze", "layer3", "--selector", "all"]
        text = common.run("validate", *run, ranks=2).text
        found = re.search(r"trained +(\d+) parameters, those after layer3; (\S+) weight gradients of convolutions per step", text)
        self.assertTrue(found, text)
        sent = float(re.search(r"([0-9.]+) MB with all layers active", text)[1])
        self.train("run", *run, ranks=2)
        row, = common.rows("run", "step")
        self.assertAlmostEqual(row["bytes_sent"] / 1e6, sent, delta=0.051)
        self.assertEqual(row["weight_gradients"], float(found[2]))
        with h5py.File(common.checkpoints("run")[-1]) as file:
            trained = sum(item.size for name, item in file["param"].items() if name.startswith(("layer4", "linear")))
        self.assertEqual(int(found[1]), trained)


class Table(common.TestCase):
    @common.at_night
    def test_a_table_goes_on_where_it_was_stopped(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/finetune_table.py")
        command = [sys.executable, script, common.PROGRAM, "--tiny", "--seeds", "2", "--out", "table", "--", "--threads", "1"]
        first = subprocess.run([*command[:3], "--minutes", "0", *command[3:]], capture_output=True, text=True)
        self.assertIn("is left out", first.stdout, first.stderr)
        self.assertIn("no seed has all rows yet", first.stdout)
        whole, again = (subprocess.run(command, capture_output=True, text=True).stdout for _ in range(2))
        self.assertEqual(whole, again)
        self.assertRegex(whole, r"PGD-2, after layer3 +[0-9.]+ +[0-9.]+ +[+-][0-9.]+ \[")
        self.assertRegex(whole, "pre-training helps|nothing is said")


if __name__ == "__main__":
    common.main()
