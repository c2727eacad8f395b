"""Inputs that people have and that once went wrong (tests/cases), each with what is right."""

import os
import re
import shutil
import signal
import subprocess
import time

import common
import numpy as np

CASES = f"{common.TESTS}/cases"
TINY = ["--network", "small_cnn", "--width", 16, "--batch", 8, "--attack", "fgsm", "--threads", 1]
PLAIN = "9fb27d09e58edd4e7834b5c8e1b6045d"  # the weights of plain.safetensors, in whatever form


class Cases(common.TestCase):
    def setUp(self):
        super().setUp()
        for name in os.listdir(CASES):
            (shutil.copytree if os.path.isdir(f"{CASES}/{name}") else shutil.copy)(f"{CASES}/{name}", name)

    def shell(self, command, **environment):
        ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=common.LIMIT_S,
                               env=os.environ | {"D": common.PROGRAM, "T": " ".join(map(str, TINY))} | environment)
        return ended.returncode, ended.stdout + ended.stderr

    def test_epochs_beyond_31_bits(self):
        for epochs in 2147483647, 4294967296:
            with self.subTest(epochs=epochs):
                ended = common.run("train", "--data", "tiny8.h5", *TINY, "--epochs", epochs, "--max-steps", 3, "--out", f"r{epochs}")
                said = common.run("validate", "--data", "tiny8.h5", *TINY, "--epochs", epochs)
                self.assertNotRegex(ended.text + said.text, r"-\d+ (steps|epochs)")
                if ended.code == 2:
                    self.assertRegex(ended.errors[0], "--epochs")
                    self.assertEqual(said.code, 2, said.text)
                else:
                    self.assertEqual((ended.code, common.steps_written(f"r{epochs}")), (0, 3), ended.text)

    def test_runs_of_one_second(self):
        code, text = self.shell("for s in 1 2 3; do $D train --data tiny8.h5 $T --max-steps 2 --seed $s & done; wait")
        self.assertEqual(len(os.listdir("runs")), 3, text)
        self.assertEqual([common.steps_written(f"runs/{name}") for name in os.listdir("runs")], [2, 2, 2], text)

    def test_verbs_without_mpi_on_any_rank(self):
        for name in "SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK":
            code, text = self.shell(f"$D data convert labels-from-1.npz {name}.h5", **{name: "1"})
            self.assertEqual((code, os.path.exists(f"{name}.h5")), (0, True), text)

    def test_names_of_classes(self):
        for case in "names-newline", "names-cr":
            with self.subTest(case=case):
                first = common.run("train", "--data", f"{case}.h5", *TINY, "--max-steps", 1, "--out", case)
                if first.code != 0:
                    self.assertEqual((first.code, len(first.errors)), (3, 1), first.text)
                    continue
                self.run_well("eval", case, "--eval", "fgsm", "--threads", 1)
                self.run_well("export", case, "--out", f"{case}.safetensors")
                self.run_well("import", f"{case}.safetensors", "--out", f"{case}-back.h5")
                self.run_well("eval", f"{case}-back.h5", "--data", f"{case}.h5", "--eval", "fgsm", "--threads", 1)

    def test_no_flock(self):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "n.so", "noflock.c"], check=True)
        code, text = self.shell("LD_PRELOAD=$PWD/n.so $D train --data tiny8.h5 $T --max-steps 2 --out r")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "warning: .*lock")

    def test_two_files_of_one_number(self):
        self.refuse(3, r"data_batch_0?1\.bin.*data_batch_0?1\.bin", "data", "convert", "dup-batches", "o.h5", "--size", 8)
        self.assertFalse(os.path.exists("o.h5"))

    def test_labels(self):
        ended = self.run_well("data", "convert", "labels-from-1.npz", "o.h5")
        self.assertTrue(any(re.search(r"class 0\b", line) for line in ended.warnings), ended.text)
        self.refuse(3, "labels must be integers", "data", "convert", "labels-strings.npz", "s.h5")
        self.refuse(3, "x_test holds no image", "data", "convert", "empty-test.npz", "e.h5")

    def test_byte_order_mark(self):
        self.assertIn("small_cnn", self.run_well("validate", "--config", "bom.toml").text)

    def test_forms_of_one_network(self):
        plain, _ = common.read_safetensors("plain.safetensors")
        mean, std = np.float32([[0.4914, 0.4822, 0.4465], [0.2471, 0.2435, 0.2616]]).reshape(2, 1, 3, 1, 1)
        one = np.array(1)
        forms = {
            "averaged": {"n_averaged": one} | {f"module.{name}": of for name, of in plain.items()},
            "sequential": {"0.mean": mean, "0.std": std} | {f"1.{name}": of for name, of in plain.items()},
            "parallel": {"0.mean": mean, "0.std": std} | {f"1.module.{name}": of for name, of in plain.items()},
            "compiled": {f"module._orig_mod.{name}": of for name, of in plain.items()},
            "any": {f"net.backbone.{name}": of for name, of in plain.items()},
            "madry": {f"module.{part}model.{name}": of for part in ("", "attacker.") for name, of in plain.items()} |
                     {"module.normalizer.new_mean": mean, "module.normalizer.new_std": std},
        }
        for name, form in forms.items():
            common.write_safetensors(f"{name}.safetensors", form)
        for name in ["plain", *forms]:
            with self.subTest(form=name):
                ended = self.run_well("import", f"{name}.safetensors", "--network", "small_cnn", "--width", 16, "--normalize", "cifar10",
                                "--out", f"{name}.h5")
                self.assertIn(PLAIN, ended.text)

    def test_normalization_in_255ths(self):
        words = ["import", "mu-255.safetensors", "--network", "small_cnn", "--width", 16, "--out", "o.h5", "--normalize"]
        said = common.run(*words, "cifar10")
        self.assertIn(said.code, (2, 4), said.text)
        self.assertRegex(said.errors[0], r"0\.4913|125\.3")
        ended = self.run_well(*words, ",".join(f"{x}/255" for x in (125.3, 123.0, 113.9, 63.0, 62.1, 66.7)))
        self.assertIn(PLAIN, ended.text)

    def test_output_onto_input(self):
        os.symlink("plain.safetensors", "link.safetensors")
        for out in "plain.safetensors", "link.safetensors":
            self.refuse(2, "plain.safetensors", "import", "plain.safetensors", "--network", "small_cnn", "--width", 16, "--normalize",
                        "cifar10", "--out", out)
        self.assertEqual(common.bytes_of("plain.safetensors"), common.bytes_of(f"{CASES}/plain.safetensors"))

    def test_closed_descriptors(self):
        self.run_well("train", "--data", "tiny8.h5", *TINY, "--max-steps", 1, "--out", "r")
        words = "$D certify r --sigma 0.25 --n 3000 --limit 8 --threads 1 --out k"
        running = subprocess.Popen(["bash", "-c", f"exec {words} <&- >&- 2>&-"], env=os.environ | {"D": common.PROGRAM, "DAT_PROGRESS": "0.01"})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and running.poll() is None:
            if os.path.exists("k/certify.journal") and os.path.getsize("k/certify.journal") > 500:
                break
            time.sleep(0.01)
        self.assertIsNone(running.poll())
        running.send_signal(signal.SIGKILL)
        running.wait()
        code, text = self.shell(words)
        self.assertEqual(code, 0, text)

    def test_the_same_data_twice(self):
        os.symlink("tiny8.h5", "again.h5")
        self.refuse(2, "again.h5|tiny8.h5", "train", "--data", "tiny8.h5", "again.h5", *TINY, "--out", "r")

    def test_other_images_under_the_same_name(self):
        """As many, of the same classes."""
        words = ["train", "--data", "tiny8.h5", *TINY, "--out", "r", "--max-steps"]
        self.run_well(*words, 2)
        splits = common.read_data("tiny8.h5")
        common.write_data("new.h5", **{split: (255 - pixels, labels) for split, (pixels, labels) in splits.items()})
        os.replace("new.h5", "tiny8.h5")
        self.refuse(2, ".", *words, 4)


if __name__ == "__main__":
    common.main()
