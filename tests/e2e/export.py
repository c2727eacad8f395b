"""Networks that leave the program and come back: export to safetensors, ONNX and folders for RobustBench and a hub, import of
what others have trained. Logits are those of dat_probe (DAT_PROBE); DAT_PYTHON_PACKAGES is a folder with onnxruntime and
safetensors from PyPI (tests/requirements.txt), and what needs them is skipped without. The files are read here by code of
this test, too, which needs neither."""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
from torch.nn import functional as F

import common
import reference
from common import read_safetensors, write_safetensors
from event_file import message
from published import NAMES

PROBE = os.environ.get("DAT_PROBE") or common.beside("dat_probe")
PACKAGES = os.environ.get("DAT_PYTHON_PACKAGES", f"{common.TESTS}/../build/python")
sys.path.append(PACKAGES)

TRAIN = ["--threads", 1, "--batch", 8, "--warmup-epochs", 0, "--epochs", 1, "--attack-steps", 1, "--eval-every",
         0, "--eval", "pgd1", "--max-steps", 2, "--lambda", 0, "--quiet", "--data", "set.h5"]
NETWORKS = {"small_cnn": {"width": 20}, "preact_resnet18": {"width": 16}, "resnet18": {"width": 16},
            "wrn_16_4": {"width": 16, "activation": "silu", "normalize": "cifar10"},
            "dm_wrn_10_2": {"width": 20, "activation": "silu", "normalize": "cifar10"},
            "imagenet_resnet18": {"width": 16, "normalize": "imagenet"}}
# By day those that have between them all that a network can have.
ALL = [name for name in NETWORKS if common.ALL_CASES or name not in ("resnet18", "wrn_16_4")]
SIZE, IMAGES = 16, 12
MADE = tempfile.TemporaryDirectory()
WIDTH = ["--width", NETWORKS["small_cnn"]["width"]]

CIFAR10 = [0.4914, 0.4822, 0.4465], [0.2471, 0.2435, 0.2616]
IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

# The bound of logits, which are below 10. Two programs in float32 that add in other orders differ by about
# 2^-24 sqrt(terms) of them per layer, 1e-6 in all; a wrong epsilon of batch norm or a mirrored kernel changes them by
# more than 1e-3.
LOGITS = 1e-5


def every(data, number):
    """Values of a field of a message of Protocol Buffers."""
    return message(data)[number]


def one(data, number):
    (value,) = every(data, number)
    return value


class Onnx:
    """An ONNX model, read and computed by the numbers of onnx.proto and the definitions of its operators."""

    def __init__(self, path):
        model = common.bytes_of(path)
        self.metadata = {one(entry, 1).decode(): one(entry, 2).decode() for entry in every(model, 14)}
        graph = one(model, 7)
        self.nodes = [([value.decode() for value in every(node, 1)], one(node, 2).decode(), one(node, 4).decode(),
                       {one(attribute, 1).decode(): self.value_of(attribute) for attribute in every(node, 5)})
                      for node in every(graph, 1)]
        self.weights = {one(tensor, 8).decode(): np.frombuffer(one(tensor, 9), np.float32).reshape(every(tensor, 1))
                        for tensor in every(graph, 5)}

    @staticmethod
    def value_of(attribute):
        kind = one(attribute, 20)
        return one(attribute, 2) if kind == 1 else one(attribute, 3) if kind == 2 else every(attribute, 8)

    def __call__(self, images):
        values = {name: torch.from_numpy(array.copy()).double() for name, array in self.weights.items()}
        values["images"] = torch.from_numpy(images).double()
        for names, output, kind, how in self.nodes:
            x, *rest = [values[name] for name in names]
            if kind == "Conv":
                top, left, bottom, right = how["pads"]
                assert how["kernel_shape"] == list(rest[0].shape[2:])
                y = F.conv2d(F.pad(x, (left, right, top, bottom)), rest[0], stride=how["strides"])
            elif kind == "MaxPool":
                top, left, bottom, right = how["pads"]
                y = F.max_pool2d(F.pad(x, (left, right, top, bottom), value=-np.inf), how["kernel_shape"], how["strides"])
            elif kind == "BatchNormalization":
                gamma, beta, mean, variance = (v.reshape(-1, 1, 1) for v in rest)
                y = (x - mean) / torch.sqrt(variance + how["epsilon"]) * gamma + beta
            elif kind == "Gemm":
                y = x @ (rest[0].T if how.get("transB") else rest[0]) + rest[1]
            else:
                y = {"Relu": lambda: x.clamp_min(0), "Add": lambda: x + rest[0], "Sub": lambda: x - rest[0],
                     "Mul": lambda: x * rest[0], "Div": lambda: x / rest[0], "Sigmoid": lambda: 1 / (1 + torch.exp(-x)),
                     "Flatten": lambda: x.flatten(1), "GlobalAveragePool": lambda: x.mean((2, 3), keepdim=True)}[kind]()
            assert output not in values
            values[output] = y
        return values["logits"].numpy()


def options_of(network):
    return ["--network", network, *[word for name, value in NETWORKS[network].items() for word in (f"--{name}", value)]]


def arrays_of(path):
    """Weights and running statistics of a checkpoint, by PyTorch's names."""
    return {name.split("/", 1)[1]: values for name, values in common.datasets(path).items()
            if name.startswith(("param/", "bn/"))}


def bits(arrays):
    return {name: values.tobytes() for name, values in arrays.items() if not name.endswith("num_batches_tracked")}


class Case(common.TestCase):
    def setUp(self):
        super().setUp()
        common.synthetic("set.h5", train=16, test=IMAGES, size=SIZE, classes=5, seed=3)
        with h5py.File("set.h5") as file:
            self.pixels, self.labels = file["test/images"][()], file["test/labels"][()].astype(np.int64)
        self.images = (self.pixels.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)

    def trained(self, network):
        """The checkpoint of a run of two steps, which is made once."""
        if not os.path.exists(f"{MADE.name}/{network}"):
            self.train(network, *TRAIN, *options_of(network))
            shutil.copytree(network, f"{MADE.name}/{network}")
        elif not os.path.exists(network):
            shutil.copytree(f"{MADE.name}/{network}", network)
        return common.checkpoints(network)[-1]

    def logits(self, network, checkpoint):
        """Those of the program, by dat_probe."""
        with h5py.File("probe_in.h5", "w") as file:
            for name, value in {"network": network, "batch": IMAGES, "classes": 5, "size": SIZE, "steps": 1,
                                "eps": 0.03, "alpha": 0.01, "lambda": 0.0, **NETWORKS[network]}.items():
                file.attrs[name] = value
            for name, values in arrays_of(checkpoint).items():
                file[("bn/" if ".running_" in name else "param/") + name] = values
            file["input/x"], file["input/start"], file["input/labels"] = self.images, np.zeros_like(self.images), self.labels
        ended = subprocess.run([PROBE, "probe_in.h5", "probe_out.h5"], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return common.datasets("probe_out.h5")["logits_eval"]

    def model(self, folder):
        """The folder's own class, with the weights that this test reads, loaded strictly."""
        module = self.module(folder)
        network = module.Network(common.load(f"{folder}/config.json")["nodes"])
        tensors = {name: torch.from_numpy(array.copy()) for name, array in read_safetensors(f"{folder}/model.safetensors")[0].items()}
        network.load_state_dict(tensors, strict=True)
        return network.eval()

    @staticmethod
    def module(folder):
        spec = importlib.util.spec_from_file_location("model", f"{folder}/model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def evaluated(self, checkpoint, attacks="pgd1", *more):
        self.run_well("eval", "--checkpoint", checkpoint, "--data", "set.h5", "--eval", attacks, "--threads", 1, "--out", "eval.json",
                      "--quiet", *more)
        return common.load("eval.json")


class Export(Case):
    def test_logits_elsewhere_are_the_program_s(self):
        for network in ALL:
            with self.subTest(network):
                checkpoint = self.trained(network)
                own = self.logits(network, checkpoint)
                self.assertGreater(np.abs(own).max(), 1e-2)
                for kind in "safetensors", "onnx", "robustbench":
                    text = self.run_well("export", checkpoint, "--format", kind, "--out", f"{network}.{kind}").text
                    words = {"width": "width {}", "activation": "{}", "normalize": "images normalized ({})"}
                    said = ", ".join(words[name].format(value) for name, value in NETWORKS[network].items())
                    self.assertIn(f": {network}, {said}, 5 classes, images of 16x16x3, step 2", text)

                tensors, metadata = read_safetensors(f"{network}.safetensors")
                self.assertEqual(bits(tensors), bits(arrays_of(checkpoint)))
                self.assertEqual((metadata["format"], metadata["network"], metadata["width"], metadata["step"], metadata["eps"]),
                                 ("pt", network, str(NETWORKS[network]["width"]), "2", "8/255"))
                batches = common.attribute(checkpoint, "batches_tracked", "state")
                self.assertGreater(batches, 0)
                self.assertEqual({int(n) for name, n in tensors.items() if name.endswith("tracked")}, {int(batches)})

                model = self.model(f"{network}.robustbench")
                self.assertEqual(sorted(model.state_dict()), sorted(tensors))
                with torch.no_grad():
                    np.testing.assert_allclose(model(torch.from_numpy(self.images)).numpy(), own, rtol=0, atol=LOGITS)

                onnx = Onnx(f"{network}.onnx")
                weights = {name: values for name, values in onnx.weights.items() if not name.startswith("normalize.")}
                self.assertEqual(bits(weights), bits(arrays_of(checkpoint)))
                self.assertEqual(len(onnx.weights) - len(weights), 2 if "normalize" in NETWORKS[network] else 0)
                self.assertEqual(onnx.metadata["network"], network)
                np.testing.assert_allclose(onnx(self.images), own, rtol=0, atol=LOGITS)

                # And so is the loss of each image that `eval` tells; both are printed with all their digits.
                told = self.evaluated(checkpoint)
                with torch.no_grad():
                    logits = model(torch.from_numpy(self.images))
                losses = F.cross_entropy(logits, torch.from_numpy(self.labels), reduction="none")
                np.testing.assert_allclose(told["per_image"]["clean_loss"], losses.numpy(), rtol=0, atol=2 * LOGITS)
                self.assertEqual(told["weights_hash"], metadata["weights_hash"])
                # And the class that it predicts, where rounding cannot change it.
                order = logits.sort(1).values
                sure = (order[:, -1] - order[:, -2] > 2 * LOGITS).numpy()
                self.assertGreater(sure.sum(), IMAGES // 2)
                np.testing.assert_array_equal(np.array(told["per_image"]["clean_prediction"])[sure], logits.argmax(1).numpy()[sure])
                self.check_onnxruntime(network, own)

    def check_onnxruntime(self, network, own):
        try:
            import onnxruntime
        except ImportError:
            self.skipTest("no onnxruntime: pip install --no-deps --target build/python -r tests/requirements.txt")
        session = onnxruntime.InferenceSession(f"{network}.onnx", providers=["CPUExecutionProvider"])
        for count in 1, IMAGES:  # the batch is free
            (logits,) = session.run(["logits"], {"images": self.images[:count]})
            np.testing.assert_allclose(logits, own[:count], rtol=0, atol=LOGITS)
        self.assertEqual(session.get_modelmeta().custom_metadata_map["network"], network)

    def test_the_package_safetensors_loads_the_folder(self):
        try:
            import safetensors.torch
        except ImportError:
            self.skipTest("no safetensors: pip install --no-deps --target build/python -r tests/requirements.txt")
        checkpoint = self.trained("resnet18")
        self.run_well("export", checkpoint, "--format", "robustbench", "--out", "folder")
        network, tensors = self.module("folder").load(), safetensors.torch.load_file("folder/model.safetensors")
        own = read_safetensors("folder/model.safetensors")[0]
        self.assertEqual(bits({name: tensor.numpy() for name, tensor in tensors.items()}), bits(own))
        with torch.no_grad():
            np.testing.assert_allclose(network(torch.from_numpy(self.images)).numpy(), self.logits("resnet18", checkpoint), rtol=0,
                                       atol=LOGITS)
        # What that package writes is read here.
        safetensors.torch.save_file({name: tensor.clone() for name, tensor in network.state_dict().items()}, "theirs.safetensors")
        self.run_well("import", "theirs.safetensors", "--network", "resnet18", "--width", 16, "--out", "back.h5")
        self.assertEqual(bits(arrays_of("back.h5")), bits(arrays_of(checkpoint)))
        # And the command that a refused pickle names works.
        torch.save({"state_dict": network.state_dict(), "epoch": 3}, "theirs.pt")
        ended = self.refuse(4, "is a pickle of PyTorch", "import", "theirs.pt", "--network", "resnet18", "--out", "no.h5")
        command = shlex.split(ended.errors[0][ended.errors[0].index("python3 -c"):])
        environment = {**os.environ, "PYTHONPATH": PACKAGES}
        subprocess.run([sys.executable, *command[1:-1], "new.safetensors"], check=True, env=environment)
        self.run_well("import", "new.safetensors", "--network", "resnet18", "--width", 16, "--out", "again.h5")
        self.assertEqual(bits(arrays_of("again.h5")), bits(arrays_of(checkpoint)))

    def test_a_folder_s_figures_are_those_of_its_weights(self):
        checkpoint = self.trained("small_cnn")
        text = self.run_well("export", checkpoint, "--format", "robustbench", "--out", "bare").text
        self.assertIn("No figures", text)
        bare = common.load("bare/model_info.json")
        self.assertEqual([bare[name] for name in ("clean_acc", "reported", "autoattack_acc")], [None] * 3)
        told = self.evaluated(checkpoint, "fgsm,pgd3")
        export = ["export", checkpoint, "--format", "robustbench", "--out"]
        self.run_well(*export, "full", "--evaluation", "eval.json")
        info = common.load("full/model_info.json")
        # The fields of RobustBench's own model_info/, of which figures are texts in percent.
        self.assertEqual(set(info), {"link", "name", "authors", "additional_data", "number_forward_passes", "dataset", "venue",
                                     "architecture", "eps", "clean_acc", "reported", "footnote", "autoattack_acc"})
        worst = min(attack["accuracy"] for attack in told["attacks"])
        self.assertEqual((info["clean_acc"], info["reported"], info["autoattack_acc"], info["eps"], info["additional_data"]),
                         (f"{100 * told['clean']['accuracy']:.2f}", f"{100 * worst:.2f}", None, "8/255", False))
        self.assertRegex(info["footnote"], "^On 12 test images: fgsm .* % \\(eps 8/255\\), pgd3 .* % \\(eps 8/255\\)$")
        self.assertEqual((told["images"], told["split_images"], told["verdict"]), (12, 12, "VALID"))
        common.write("limit.toml", "limit = 8\n")
        limited = self.evaluated(checkpoint, "fgsm", "--config", "limit.toml")
        self.assertEqual((limited["images"], limited["split_images"], limited["verdict"]), (8, 12, "PARTIAL"))
        text = self.run_well(*export, "limited", "--evaluation", "eval.json").text
        self.assertIn("autoattack_acc is null: the evaluation is of a part of the test images", text)
        self.evaluated(checkpoint, "pgd1", "--noise", 0.1)
        self.refuse(3, "is of the network under noise", *export, "no", "--evaluation", "eval.json")
        self.assertFalse(os.path.exists("no"))

    def card(self, *more):
        """The remarks on a folder for a hub, its card, and the accuracies in that: (attack, ball) -> percent."""
        if os.path.exists("hub/README.md"):  # which is the author's
            self.refuse(2, "is there, and may have words of yours", "export", "small_cnn", "--format", "hub", "--out", "hub")
            os.remove("hub/README.md")
        said = self.run_well("export", "small_cnn", "--format", "hub", "--out", "hub", *more).text
        card = common.text_of("hub/README.md")
        rows = re.findall(r"^\| (.*?) \| (.*?) \| ([0-9.]+) \|$", card, re.MULTILINE)
        metadata = card.split("---\n")[1]
        self.assertEqual(re.findall(r"value: (.*)", metadata), [value for *_, value in rows])
        return said, card, {(attack, ball): value for attack, ball, value in rows}

    def test_a_folder_for_a_hub(self):
        checkpoint = self.trained("small_cnn")
        last = [row for row in common.rows("small_cnn", "evaluation") if row["step"] == 2]
        own = {("none (clean)", ""): f"{100 * last[0]['clean_acc']:.2f}", ("pgd1", "linf eps 8/255"): f"{100 * last[0]['adv_acc']:.2f}"}
        said, card, figures = self.card()
        self.assertEqual(figures, own)
        self.assertRegex(card, r"(?s)^---\nlibrary_name: pytorch\n.*model-index:.*\n---\n\n# small_cnn, width 20\n.*On all 12 test images")
        self.assertIn("licence, authors and intended use are yours to add", said)
        self.assertIn("Madry et al.", card)
        self.assertIn("\nbatch = 8 (default ", card)
        self.assertNotIn("set.h5", card)  # paths are nobody's business
        # A fresh process has PyTorch alone, and no package of ours.
        np.save("images.npy", self.images)
        subprocess.run([sys.executable, "-S", "-c", "import sys; sys.path += sys.argv[1:]; import model, numpy, torch\n"
                        "numpy.save('logits.npy', model.load()(torch.from_numpy(numpy.load('../images.npy'))).detach().numpy())",
                        *[path for path in sys.path if "dist-packages" in path or "site-packages" in path]], cwd="hub", check=True)
        np.testing.assert_allclose(np.load("hub/logits.npy"), self.logits("small_cnn", checkpoint), rtol=0, atol=LOGITS)
        # An evaluation stands beside the run's own: sealed, of these weights, and of all test images.
        evaluate = ["eval", "small_cnn", "--eval", "pgd1+fgsm", "--threads", 1, "--quiet", "--out"]
        self.run_well(*evaluate, "sequence")
        robust = f"{100 * common.datasets('sequence/results.h5')['image/robust'].mean():.2f}"
        self.assertEqual(self.card("--evaluation", "sequence")[2], own | {("pgd1+fgsm", "linf eps 8/255"): robust})
        self.refuse(3, "is no results.h5 that", "export", "small_cnn", "--format", "hub", "--out", "no", "--evaluation", "small_cnn")
        self.assertFalse(os.path.exists("no"))
        os.mkdir("small_cnn/others")  # what is in it is not the run's
        other = "small_cnn/others/other.h5"
        self.run_well("import", "small_cnn", "--new-head", 5, "--norm", "l2", "--eps", 0.5, "--out", other)
        self.train("noisy", *TRAIN, *options_of("small_cnn"), "--noise", 0.25, "--attack", "none")
        for folder, why in (other, "the run has no results.h5"), ("noisy", "evaluates under noise"):
            shutil.rmtree("bare", ignore_errors=True)
            text = self.run_well("export", folder, "--format", "hub", "--out", "bare").text
            self.assertRegex(text, f"No figures: .*{why}")
            card = common.text_of("bare/README.md")
            self.assertIn("There are no figures of the whole test set.", card)
            self.assertIn("trained without an attack." if folder == "noisy" else "in the ball l2 eps 0.5.", card)

    def test_what_a_run_used_is_named(self):
        self.trained("small_cnn")
        text = self.run_well("--cite", "--config", "small_cnn", "--average", "none,swa@1", "--eval", "pgd2,pgd3", "--awp-gamma", 0.01).text
        for what in ("Distributed Adversarial Training to Robustify", "Towards Deep Learning Models.* (attack pgd, eval pgd)",
                     "Large Batch Optimization.* (optimizer lamb)", "Liu and Mozafari.* (selector exp3)", "Izmailov.* (average swa)",
                     "Adversarial Weight Perturbation.* (awp-gamma 0.01)"):
            self.assertRegex(text.replace("\n    ", " "), what.replace("(", "\\(").replace(")", "\\)"))
        for other in "TRADES", "Randomized Smoothing":
            self.assertNotIn(other, text)
        self.assertRegex(self.run_well("--cite", "--recipe", "trades").text, r"Theoretically Principled Trade-off")
        version = re.search(r"^version: (.*)", common.text_of(f"{common.TESTS}/../CITATION.cff"), re.MULTILINE)[1]
        self.assertIn(version, self.run_well("--version").text.splitlines()[0])

    def test_averaged_weights_are_taken_where_there_are_any(self):
        shutil.copy("set.h5", "more.h5")
        self.train("run", *TRAIN, "more.h5", *options_of("small_cnn"), "--average", "ema:bn=ema")
        checkpoint = common.checkpoints("run")[-1]
        raw = arrays_of(checkpoint)
        average = {name.removeprefix("optim/average/"): values for name, values in common.datasets(checkpoint).items()
                   if name.startswith("optim/average/")}
        self.assertEqual(sorted(raw), sorted(average))
        self.assertNotEqual(bits(raw), bits(average))
        for choice, expected, called in ("auto", average, "average"), ("average", average, "average"), ("raw", raw, "raw"):
            self.run_well("export", checkpoint, "--weights", choice, "--out", "out.safetensors")
            tensors, metadata = read_safetensors("out.safetensors")
            self.assertEqual(bits(tensors), bits(expected))
            self.assertEqual(metadata["weights"], called)
            # A card has the run's last figures of them.
            self.run_well("export", checkpoint, "--weights", choice, "--format", "hub", "--out", choice)
            last = [row for row in common.rows("run", "evaluation") if row["weights"] == called][-1]
            self.assertIn(f"\n| none (clean) |  | {100 * last['clean_acc']:.2f} |\n", common.text_of(f"{choice}/README.md"))
        # Figures are of the weights that `eval` took: the averaged ones here.
        self.evaluated(checkpoint)
        export = ["export", checkpoint, "--format", "robustbench", "--out", "folder", "--evaluation", "eval.json"]
        self.refuse(3, "evaluation of other weights", *export, "--weights", "raw")
        self.run_well(*export)
        self.assertIs(common.load("folder/model_info.json")["additional_data"], True)

    def test_refusals(self):
        checkpoint = self.trained("small_cnn")
        self.refuse(2, "give --out", "export", checkpoint)
        self.refuse(2, "--evaluation works with --format robustbench or hub", "export", checkpoint, "--out", "a", "--evaluation", "b.json")
        self.refuse(4, "there is no checkpoint in", "export", ".", "--out", "a")
        # The suffix decides where --format does not, and they must not contradict each other.
        for name, kind, told in ("a.onnx", "onnx", []), ("b", "onnx", ["--format", "onnx"]), ("c.safetensors", "safetensors", []), ("d", "safetensors", []):
            self.run_well("export", checkpoint, *told, "--out", name)
            if kind == "onnx":
                self.assertEqual(Onnx(name).metadata["network"], "small_cnn")
            else:
                self.assertEqual(read_safetensors(name)[1]["network"], "small_cnn")
        self.refuse(2, "contradict each other; leave --format off for onnx", "export", checkpoint, "--format", "safetensors", "--out", "e.onnx")
        self.assertFalse(os.path.exists("e.onnx"))
        for kind in "safetensors", "onnx":
            self.refuse(9, "no/such", "export", "small_cnn", "--format", kind, "--out", "no/such/file")
        self.refuse(9, "cannot create the folder", "export", "small_cnn", "--format", "robustbench", "--out", "/dev/null/folder")
        self.assertEqual([name for name in os.listdir() if ".tmp-" in name], [])


class Others(Case):
    """Files of torchvision, of robustness and of DeepMind's networks, and ours in their classes."""

    def there_and_back(self, network, theirs, wrapped, *more):
        """Theirs is a model of PyTorch with weights of its own; `wrapped` makes the tensors of a file of its state_dict."""
        with torch.no_grad():
            for module in theirs.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.running_mean.uniform_(-.1, .1)
                    module.running_var.uniform_(.5, 1.5)
        state = {name: value.numpy() for name, value in theirs.state_dict().items()}
        write_safetensors("theirs.safetensors", wrapped(state))
        self.run_well("import", "theirs.safetensors", "--network", network, "--size", SIZE, "--out", "back.h5", *more)
        self.run_well("export", "back.h5", "--out", "ours.safetensors")
        ours = {name: torch.from_numpy(value.copy()) for name, value in read_safetensors("ours.safetensors")[0].items()}
        theirs.load_state_dict(ours, strict=True)
        self.assertEqual(bits({name: value.numpy() for name, value in theirs.state_dict().items()}), bits(state))
        normalization = NETWORKS.get(network, {}).get("normalize", "none")
        mean, std = {"none": (0., 1.), "cifar10": CIFAR10, "imagenet": IMAGENET}[normalization]
        column = lambda numbers: torch.tensor(numbers).reshape(-1, 1, 1)
        with torch.no_grad():
            expected = theirs.eval()((torch.from_numpy(self.images) - column(mean)) / column(std)).numpy()
        self.run_well("eval", "--checkpoint", "back.h5", "--data", "set.h5", "--eval", "pgd1", "--threads", 1, "--out", "eval.json", "--quiet")
        told = common.load("eval.json")
        loss = F.cross_entropy(torch.from_numpy(expected), torch.from_numpy(self.labels), reduction="none")
        np.testing.assert_allclose(told["per_image"]["clean_loss"], loss.numpy(), rtol=0, atol=2 * LOGITS)

    def test_torchvision(self):
        try:
            from torchvision import models
        except ImportError:
            self.skipTest("no torchvision")
        torch.manual_seed(1)
        NETWORKS["imagenet_resnet50"] = NETWORKS["imagenet_wrn50_2"] = NETWORKS["imagenet_resnet18"]
        normalized = ["--normalize", "imagenet"]
        numbers = [np.array(numbers, np.float32).reshape(-1, 1, 1) for numbers in IMAGENET]

        def robustness(state):
            return {**{f"module.{copy}{name}": value for name, value in state.items() for copy in ("model.", "attacker.model.")},
                    **{f"module.{where}.{what}": value for where in ("normalizer", "attacker.normalize")
                       for what, value in zip(("new_mean", "new_std"), numbers)}}

        class Narrow(models.ResNet):
            """Of width 16: a fourth."""

            def _make_layer(self, block, planes, *more, **options):
                self.inplanes = min(self.inplanes, planes // 4) if planes == 64 else self.inplanes
                return super()._make_layer(block, planes // 4, *more, **options)
        theirs = Narrow(models.resnet.BasicBlock, [2, 2, 2, 2])
        theirs.conv1, theirs.bn1 = torch.nn.Conv2d(3, 16, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(16)
        theirs.fc = torch.nn.Linear(128, 5)
        self.there_and_back("imagenet_resnet18", theirs, robustness, "--width", 16, *normalized)
        if not common.ALL_CASES:
            return
        self.there_and_back("imagenet_resnet18", models.resnet18(num_classes=5), robustness, *normalized)
        with_normalizer = lambda state: {"normalize.mean": numbers[0], "normalize.std": numbers[1],
                                         **{"model." + name: value for name, value in state.items()}}
        self.there_and_back("imagenet_resnet50", models.resnet50(num_classes=1000), with_normalizer, *normalized)
        self.there_and_back("imagenet_wrn50_2", models.wide_resnet50_2(num_classes=5), dict, *normalized)

    def test_deepmind(self):
        torch.manual_seed(1)
        numbers = {name: np.array(numbers, np.float32).reshape(-1, 1, 1) for name, numbers in zip(("mean", "std"), CIFAR10)}
        theirs = reference.DeepMindWideResNet(10, 32, 5)
        for module in theirs.modules():
            if hasattr(module, "relu"):
                module.relu = torch.nn.SiLU()
        self.there_and_back("dm_wrn_10_2", theirs, lambda state: {**numbers, **state}, "--normalize", "cifar10")
        self.there_and_back("dm_wrn_10_2", theirs, lambda state: {f"module.0.{name}": value for name, value in state.items()},
                            "--normalize", "cifar10")


class Import(Case):
    def test_an_export_comes_back_bit_for_bit(self):
        for network in ALL:
            with self.subTest(network):
                checkpoint = self.trained(network)
                told = self.run_well("export", network, "--out", "out.safetensors").text  # a run's folder: its newest
                back = self.run_well("import", "out.safetensors", "--out", "back.h5").text  # which says what it is
                self.assertEqual(bits(arrays_of("back.h5")), bits(arrays_of(checkpoint)))
                lines = (told + back + common.text_of(f"{network}/SUMMARY.txt")).splitlines()
                hashes = {line.split()[-1] for line in lines if line.startswith("weights")}
                self.assertEqual(len(hashes), 1, hashes)
                # The network is the same: so are all figures, with the same batches on the same processor.
                before, after = self.evaluated(checkpoint), self.evaluated("back.h5")
                self.assertEqual(before["per_image"], after["per_image"])
                self.refuse(2, "was imported and has no data of its own; give --data", "eval", "--checkpoint", "back.h5")
        # Fine-tuning begins there.
        self.train("tuned", *TRAIN, *options_of(network), "--initialize", "back.h5", "--optimizer", "sgd", "--lr", "1e-12")
        for name, values in arrays_of(common.checkpoints("tuned")[-1]).items():
            if ".running_" not in name:
                np.testing.assert_allclose(values, arrays_of("back.h5")[name], rtol=0, atol=1e-9)

    def test_what_a_stranger_s_network_was_trained_on_is_unknown(self):
        self.run_well("export", self.trained("small_cnn"), "--out", "out.safetensors")
        self.run_well("import", "out.safetensors", "--out", "back.h5")
        text = self.run_well("export", "back.h5", "--format", "robustbench", "--out", "folder").text
        self.assertIn("additional_data is null", text)
        self.assertIsNone(common.load("folder/model_info.json")["additional_data"])
        # Names of classes are those of a data set.
        self.run_well("import", "back.h5", "--new-head", 10, "--out", "ten.h5")
        self.run_well("export", "ten.h5", "--out", "ten.safetensors")
        tensors, metadata = read_safetensors("ten.safetensors")
        write_safetensors("named.safetensors", tensors, metadata | {"class_names": "\n".join(NAMES) + "\n"})
        self.run_well("import", "named.safetensors", "--out", "named.h5")
        self.run_well("export", "named.h5", "--format", "robustbench", "--out", "ten")
        self.assertEqual([common.load(f"{name}/model_info.json")["dataset"] for name in ("folder", "ten")], ["", "cifar10"])
        # Nor what those weights had seen that a training began with.
        self.train("tuned", *TRAIN, *options_of("small_cnn"), "--initialize", "back.h5")
        text = self.run_well("export", "tuned", "--format", "robustbench", "--out", "on").text
        self.assertIn("additional_data is null", text)
        # What is written can be read: a radius that --norm l2 refuses is refused here.
        for message, more in ("would hardly perturb an image", ["--eps", "8/255"]), ("l2 needs the radius of its ball; give --eps", []):
            self.refuse(2, message, "import", "out.safetensors", "--norm", "l2", *more, "--out", "no.h5")

    def test_another_ball_than_the_training_s(self):
        """What its training says of L-infinity alone is no obstacle."""
        for k, more in enumerate((["--attack", "fgsm", "--attack-start", "uniform:radius=2", "--project", "off", "--alpha", "8/255"],
                                  ["--attack-steps", "1,2@1", "--eps", "0.01..0.03@0-2", "--warm-start", 5],
                                  ["--attack-stop", 1], ["--noise", 0.25, "--attack", "none"])):
            self.train(f"run{k}", *TRAIN, *options_of("small_cnn"), *more)
            self.run_well("import", f"run{k}", "--norm", "l2", "--eps", 0.5, "--out", f"back{k}.h5")
            text = common.attribute(f"back{k}.h5", "config_toml")
            self.assertIn('norm = "l2"\neps = 0.5\n', text)
            self.assertIn(f"\nnoise = {0.25 if '--noise' in more else 0}\n", text)
            self.assertIn(f'\nattack = "{"none" if "none" in more else "pgd"}"\n', text)
            self.assertIn("l2 eps 0.5", self.run_well("eval", "--checkpoint", f"back{k}.h5", "--data", "set.h5", "--eval", "pgd2").text)
        self.train("wide", *common.merged(*TRAIN, *options_of("small_cnn"), "--norm", "l2", "--eps", 2, "--eval", "smooth-pgd1", "--noise", 0.25))
        self.run_well("import", "wide", "--norm", "linf", "--eps", "8/255", "--activation", "silu", "--out", "linf.h5")
        self.assertIn('\nactivation = "silu"\n', common.attribute("linf.h5", "config_toml"))

    def test_initialize_takes_the_network_from_the_file(self):
        checkpoint = self.trained("wrn_16_4")  # with silu and the normalization of cifar10
        said = {"network": '"wrn_16_4"', "width": "16", "activation": '"silu"', "normalize": '"cifar10"'}
        step = ["--max-steps", 1, "--optimizer", "sgd", "--lr", "1e-12"]

        def resolved(run):
            with open(f"{run}/config.resolved.toml") as file:
                return dict(line.rstrip("\n").split(" = ", 1) for line in file if " = " in line)
        self.run_well("export", checkpoint, "--out", "out.safetensors")
        for run, source in ("of_file", checkpoint), ("of_run", str(pathlib.Path(checkpoint).parents[1])), ("of_tensors", "out.safetensors"):
            self.train(run, *TRAIN, *step, "--initialize", source)
            self.assertEqual({key: resolved(run)[key] for key in said}, said)
            for name, values in arrays_of(common.checkpoints(run)[-1]).items():
                if ".running_" not in name:
                    np.testing.assert_allclose(values, arrays_of(checkpoint)[name], rtol=0, atol=1e-9)
        # So do a batch script, whose job has the memory for it, and a configuration that is printed.
        scripts = [self.run_well("slurm", *TRAIN, *more).text for more in (["--initialize", checkpoint], options_of("wrn_16_4"))]
        self.assertEqual(*[re.search("(?m)^# Memory .*$", text)[0] for text in scripts])
        common.write("printed.toml", self.run_well("train", *TRAIN, "--initialize", checkpoint, "--print-config").text)
        self.run_well("train", *step, "--config", "printed.toml", "--out", "of_config")
        self.assertEqual({key: resolved("of_config")[key] for key in said}, said)
        # The same command goes on, whatever has become of the file.
        os.remove("out.safetensors")
        again = ["train", *TRAIN, *step, "--out", "of_tensors", "--initialize", "out.safetensors"]
        self.assertIn("is finished", common.run(*again).text)
        # What is given counts, and must be what the file says.
        for name, value, other in ("activation", "silu", "relu"), ("normalize", "cifar10", "none"), ("network", "wrn_16_4", "small_cnn"), ("width", "16", "32"):
            for ranks in 0, 2:
                self.refuse(2, f"was trained with --{name} {value}, this run has --{name} {other}; give --{name} {value} or leave it off",
                            "train", "--out", "no", *TRAIN, f"--{name}", other, "--initialize", checkpoint, ranks=ranks)
        # A network that is named alone has its own width.
        write_safetensors("named.safetensors", arrays_of(checkpoint), {"producer": "dat_hpc", "network": "wrn_16_1"})
        printed = self.run_well("train", *TRAIN, "--initialize", "named.safetensors", "--print-config").text
        self.assertRegex(printed, '(?m)^network = "wrn_16_1"$')
        self.assertRegex(printed, "(?m)^width = 16$")
        # A file of weights alone does not say.
        common.write_arrays("weights.h5", arrays_of(checkpoint))
        self.train("tuned", *TRAIN, "--network", "wrn_16_4", "--width", 16, "--initialize", "weights.h5")

    def test_initialize_takes_a_stranger_s_safetensors(self):
        checkpoint = self.trained("small_cnn")
        write_safetensors("theirs.safetensors", {"module." + name: values for name, values in arrays_of(checkpoint).items()})
        start = [*TRAIN, *options_of("small_cnn"), "--optimizer", "sgd", "--lr", "1e-12", "--initialize", "theirs.safetensors"]
        for ranks in 0, 2:
            self.train(f"tuned{ranks}", *start, ranks=ranks)
            for name, values in arrays_of(common.checkpoints(f"tuned{ranks}")[-1]).items():
                if ".running_" not in name:
                    np.testing.assert_allclose(values, arrays_of(checkpoint)[name], rtol=0, atol=1e-9)
        self.refuse(4, "--initialize theirs.safetensors: does not fit resnet18 of width 16", "train", *TRAIN, "--network", "resnet18",
                    "--width", 16, "--initialize", "theirs.safetensors", "--out", "no")
        nan = arrays_of(checkpoint)
        nan[next(iter(nan))].flat[0] = np.nan
        write_safetensors("nan.safetensors", nan)
        self.refuse(4, "has values that are not finite", "train", *TRAIN, *options_of("small_cnn"), "--initialize", "nan.safetensors",
                    "--out", "no")

    def test_counters_of_batches_in_hdf5_may_be_of_any_type(self):
        own = arrays_of(self.trained("small_cnn"))
        more = ["--network", "small_cnn", *WIDTH, "--size", SIZE, "--out"]
        for count in np.array(9), np.array([9.0]), np.array(9, np.float16), np.array(9, np.float32):
            common.write_arrays("theirs.h5", {**own, "bn1.num_batches_tracked": count, "n_averaged": np.array(7)})
            self.run_well("import", "theirs.h5", *more, "back.h5")
            self.assertEqual([common.attribute("back.h5", name, "state") for name in ("batches_tracked", "step")], [9, 0])
        # Several whole numbers are no counter.
        common.write_arrays("theirs.h5", {**own, "epochs": np.arange(2)})
        self.refuse(4, "epochs", "import", "theirs.h5", *more, "no.h5")

    def test_numbers_that_nothing_can_be_computed_with(self):
        own = arrays_of(self.trained("small_cnn"))
        for name, value, what in (("conv1.weight", np.nan, "not finite"), ("linear.bias", np.inf, "not finite"),
                                  ("bn1.running_mean", -np.inf, "not finite"), ("bn1.running_var", -1e-6, "negative")):
            changed = {**own, name: own[name].copy()}
            changed[name].flat[-1] = value
            write_safetensors("theirs.safetensors", changed)
            self.refuse(4, f"{name} has .*{what}", "import", "theirs.safetensors", "--network", "small_cnn", *WIDTH, "--out", "no.h5")

    def test_metadata_are_checked(self):
        self.run_well("export", self.trained("small_cnn"), "--out", "out.safetensors")
        tensors, metadata = read_safetensors("out.safetensors")
        for key, value, message in (("image_size", "4", "image_size is not 8 to 4096 pixels; give --size"),
                                    ("image_size", "4097", "image_size is not"), ("image_size", "0", "image_size is not"),
                                    ("image_size", "16x16", "image_size is not"),
                                    ("image_size", "99999999999999999999", "image_size is not"), ("image_size", "-16", "image_size is not"),
                                    ("class_names", "a\nb\nc\nd\n", "class_names are 4, its last layer has 5")):
            write_safetensors("other.safetensors", tensors, {**metadata, key: value})
            self.refuse(4, re.escape(message), "import", "other.safetensors", "--out", "no.h5")
            if key == "image_size":
                self.run_well("import", "other.safetensors", "--size", 4096, "--out", "back.h5")
        self.run_well("import", "other.safetensors", "--new-head", 3, "--out", "back.h5")
        write_safetensors("other.safetensors", tensors, {**metadata, "image_size": "8"})
        self.run_well("import", "other.safetensors", "--out", "back.h5")
        self.run_well("import", "out.safetensors", "--out", "sized.h5")
        with h5py.File("sized.h5", "r+") as file:
            file["state"].attrs["image_size"] = 5000
        common.seal("sized.h5")
        self.refuse(4, "image_size is not 8 to 4096", "import", "sized.h5", "--out", "no.h5")
        with h5py.File("sized.h5", "r+") as file:
            del file["state"].attrs["image_size"]
        common.seal("sized.h5")
        self.refuse(4, "sized.h5: does not say the size of its images", "export", "sized.h5", "--out", "no.onnx")

    def test_what_others_call_their_tensors(self):
        checkpoint = self.trained("resnet18")
        own = arrays_of(checkpoint)
        theirs = {}
        for name, values in own.items():  # torchvision's names, wrapped by DataParallel
            name = "module." + name.replace("shortcut", "downsample").replace("linear.", "fc.")
            theirs[name] = values
        theirs["module.bn1.num_batches_tracked"] = np.array(9)
        write_safetensors("theirs.safetensors", theirs)
        common.write_arrays("theirs.h5", theirs)
        more = ["--network", "resnet18", "--width", 16, "--size", SIZE]
        for source in "theirs.safetensors", "theirs.h5":
            said = [self.run_well("import", source, *more[:count], "--out", "back.h5").text for count in (4, 6)]
            self.assertIn(", images of 32x32x3\nweights ", said[0])
            self.assertEqual(bits(arrays_of("back.h5")), bits(own))
        self.assertEqual(self.evaluated("back.h5")["per_image"], self.evaluated(checkpoint)["per_image"])
        self.refuse(4, "does not fit resnet18 of width 64", "import", "theirs.h5", "--network", "resnet18", "--out", "no.h5")
        self.refuse(2, "does not say which network it holds; give --network", "import", "theirs.h5", "--out", "no.h5")
        self.refuse(4, "none.safetensors: cannot be opened", "import", "none.safetensors", *more, "--out", "no.h5")
        common.write("text", "hello world")
        self.refuse(4, "no safetensors file, or damaged", "import", "text", *more, "--out", "no.h5")
        self.assertFalse(os.path.exists("no.h5"))

    def test_a_new_last_layer(self):
        checkpoint = self.trained("small_cnn")
        text = self.run_well("import", checkpoint, "--new-head", 7, "--out", "seven.h5").text
        self.assertIn("7 classes (the last layer is new)", text)
        self.run_well("export", "seven.h5", "--out", "seven.safetensors")
        self.assertNotIn("class_names", read_safetensors("seven.safetensors")[1])
        old, new = arrays_of(checkpoint), arrays_of("seven.h5")
        features = 2 * NETWORKS["small_cnn"]["width"]
        self.assertEqual(new["linear.weight"].shape, (7, features))
        for name in "linear.weight", "linear.bias":
            del old[name], new[name]
        self.assertEqual(bits(old), bits(new))
        common.synthetic("seven_classes.h5", train=16, test=IMAGES, size=SIZE, classes=7, seed=3)
        options = [word if word != "set.h5" else "seven_classes.h5" for word in TRAIN]
        self.train("tuned", *options, *options_of("small_cnn"), "--initialize", "seven.h5")


if __name__ == "__main__":
    common.main()
