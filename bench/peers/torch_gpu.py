"""An adversarial-training step in PyTorch on one GPU, in its strongest forms: one line of JSON for each form.

The step is that of torch_step.py and bench_step, on the same weights, images and labels (inputs.py): PGD-K with running
statistics and input gradients only, one pass with batch statistics on the adversarial images, SGD (lr 0.01, momentum
0.9). Forms of the attack:

    eager_f32                    NCHW, no TF32
    eager_tf32                   NCHW
    eager_tf32_channels_last
    bf16_autocast_channels_last
    folded_f16_channels_last     batch norm folded into 16-bit weights once per step, the image padded to 8 channels
    compiled                     the same; an iteration, gradient and update, is one function of torch.compile
    compiled_graph               the same; folding and all K iterations are one CUDA graph

The training pass is eager float32 (TF32 but for eager_f32; --train-bf16: under autocast) in the attack's layout; with
`compiled` and `compiled_graph` its forward and backward are compiled too. Compiling, capturing and four steps come before
the clock starts. In them the attack must raise the loss, and losses must be finite.

With --attack-bn train the step is that of Wong, Rice, Kolter ("Fast is better than free", 2020), as bench_step's with
--attack fgsm --attack-bn train: a random start in the ball and the box, one signed step of 10/255 on batch statistics, the
training pass, SGD with weight decay 5e-4. In its forms attack and training pass are alike:

    eager_f32, eager_tf32_channels_last
    graph_tf32              channels_last; attack, training pass and update are one CUDA graph
    graph_bf16, graph_f16   the same under autocast; f16 has a fixed loss scale. Weights, statistics and loss are float32
    compiled_graph_f16      the same, the network compiled by torch.compile

Each step copies images and labels to where the graph reads them.

Behind each step that ms_per_step has, the script waits for the GPU; ms_per_step_flow is that of --repeat steps without a wait
between them (not with --serve).

--check times nothing: it compares logits and input gradients of every form with double precision. With --serve (and one
form) the script does a step for each line of stdin, so that a driver can alternate with other programs; --results FILE
first writes what compare.py compares with bench_step --check.
"""

import argparse
import copy
import functools
import inspect
import json
import math
import resource
import statistics
import sys
import time
import typing

import torch
from torch.nn import functional as F

import inputs
from networks import FoldedNetwork, fgsm_update, kEps, kLossScale, pgd_update, reference, scaled_loss
from tolerance import kBfloat16, kBfloat16InBatch, kFloat32, kTenBits, kTenBitsInBatch

kCompileMode = "max-autotune-no-cudagraphs"


class Form(typing.NamedTuple):
    tolerance: tuple
    tf32: bool = True
    channels_last: bool = True
    autocast: str = ""  # the type of its products; empty: none
    folded: bool = False
    compiled: bool = False
    graph: bool = False


kForms = {  # by --attack-bn
    "eval": {
        "eager_f32": Form(kFloat32, tf32=False, channels_last=False),
        "eager_tf32": Form(kTenBits, channels_last=False),
        "eager_tf32_channels_last": Form(kTenBits),
        "bf16_autocast_channels_last": Form(kBfloat16, autocast="bfloat16"),
        "folded_f16_channels_last": Form(kTenBits, folded=True),
        "compiled": Form(kTenBits, folded=True, compiled=True),
        "compiled_graph": Form(kTenBits, folded=True, compiled=True, graph=True),
    },
    "train": {
        "eager_f32": Form(kFloat32, tf32=False, channels_last=False),
        "eager_tf32_channels_last": Form(kTenBitsInBatch),
        "graph_tf32": Form(kTenBitsInBatch, graph=True),
        "graph_bf16": Form(kBfloat16InBatch, autocast="bfloat16", graph=True),
        "graph_f16": Form(kTenBitsInBatch, autocast="float16", graph=True),
        "compiled_graph_f16": Form(kTenBitsInBatch, autocast="float16", compiled=True, graph=True),
    },
}


class Trainer:
    mode = staticmethod(torch.nn.Module.eval)  # in which the attack sees the network
    update = staticmethod(pgd_update)

    def __init__(self, arguments, name, device):
        self.name, self.form, self.device = name, kForms[arguments.attack_bn][name], device
        self.steps = arguments.steps
        self.dtype, self.train_bf16 = arguments.dtype, arguments.train_bf16
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.form.tf32
        torch.backends.cudnn.benchmark = True
        self.memory_format = torch.channels_last if self.form.channels_last else torch.contiguous_format
        self.model = reference.make(arguments.network, arguments.width, 10)
        inputs.initialize(self.model)
        if arguments.check:  # with these even the batch norms matter
            reference.set_formula_weights(self.model)
            for k in range(3):
                self.model.train()(torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(k)))
        self.model.to(device).to(memory_format=self.memory_format)
        x, labels = inputs.images_and_labels(arguments.batch, arguments.size)
        self.x, self.labels = x.to(device).contiguous(memory_format=self.memory_format), labels.to(device)
        self.eta = torch.zeros_like(self.x)
        self.optimizer = self.make_optimizer(0.01)
        compile = None
        if self.form.compiled:  # the search for kernels is that of a few in the folded forms, and takes minutes in others
            compile = functools.partial(torch.compile, mode=kCompileMode if self.form.folded else None, dynamic=False)
        self.training_model = compile(self.model) if compile else self.model
        self.graph = None
        if self.form.folded:
            self.folded = FoldedNetwork(self.model, getattr(torch, self.dtype), channel_multiple=8)
            self.folded.refresh()
            self.iteration = compile(self.compiled_iteration) if compile else None
            if self.form.graph:
                self.capture(self.iterations)

    def make_optimizer(self, rate, **options):
        fused = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters and self.cuda else {}
        return torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9, **options, **fused)

    @property
    def cuda(self):
        return self.device.type == "cuda"

    def logits(self, x):
        if self.form.folded:
            return self.folded.logits(self.folded.weights, x)
        dtype = getattr(torch, self.form.autocast or "bfloat16")
        cached = not self.form.graph  # a graph has to cast weights anew at each replay
        with torch.autocast(self.device.type, dtype, enabled=bool(self.form.autocast), cache_enabled=cached):
            return self.training_model(x).float()

    def input_gradient(self, x):
        """Times kLossScale."""
        x = x.detach().requires_grad_()
        return torch.autograd.grad(scaled_loss(self.logits(x), self.labels), x)[0]

    def compiled_iteration(self, weights, x, eta):
        return pgd_update(x, eta, self.folded.input_gradient(weights, x + eta, self.labels))

    def iterations(self):
        """Refreshes what is folded; moves eta from its start to its end, in place."""
        if self.form.folded:
            self.folded.refresh()
        eta = self.eta
        for _ in range(self.steps):
            if self.form.compiled:
                eta = self.iteration(self.folded.weights, self.x, eta)
            else:
                eta = pgd_update(self.x, eta, self.input_gradient(self.x + eta))
        self.eta.copy_(eta)

    def capture(self, work):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):  # compiles, chooses algorithms, makes workspaces
                work()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            work()

    def run(self):
        self.graph.replay() if self.graph else self.iterations()

    def attack(self):
        if not self.form.folded:
            self.mode(self.model)
        self.eta.uniform_(-kEps, kEps)
        self.run()

    def train(self):
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        x_adv = (self.x + self.eta).clamp(0, 1)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.train_bf16):
            loss = F.cross_entropy(self.training_model(x_adv), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()
        return 1000 * time.perf_counter()

    def step(self):
        """Milliseconds of the attack and of the whole step."""
        begin = self.wait()
        self.attack()
        attacked = self.wait()
        self.train()
        return attacked - begin, self.wait() - begin

    def queue(self):
        """A step, without a wait."""
        self.attack()
        self.train()

    def flow(self, steps):
        """Milliseconds of one of so many steps."""
        begin = self.wait()
        for _ in range(steps):
            self.queue()
        return (self.wait() - begin) / steps

    @torch.no_grad()
    def loss(self, x):
        self.mode(self.model)
        return float(F.cross_entropy(self.model(x), self.labels))

    def first_steps(self):
        """The clean loss, that after an attack, and losses in training."""
        clean = self.loss(self.x)
        self.attack()
        attacked = self.loss((self.x + self.eta).clamp(0, 1))
        trained = [float(self.train())]
        for _ in range(2):
            self.attack()
            trained.append(float(self.train()))
        return clean, attacked, trained

    def warm_up(self):
        """Ends the program where the numbers are wrong: no timing of wrong work."""
        clean, attacked, trained = self.first_steps()
        if not (attacked > clean and all(math.isfinite(loss) for loss in [clean, attacked, *trained])):
            sys.exit(f"torch_gpu.py: {self.name} is wrong: clean loss {clean}, attacked {attacked}, in training {trained}")
        if self.cuda:  # from here on the peak is that of a step, without the search for algorithms
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.step()

    def measure(self, repeat, in_flow):
        attacks, steps = zip(*(self.step() for _ in range(repeat)))
        step, batch = statistics.median(steps), len(self.x)
        line = {
            "form": self.name,
            "ms_per_step": round(step, 3),
            "ms_per_step_min": round(min(steps), 3),
            "ms_per_step_max": round(max(steps), 3),
            "ms_per_image": round(step / batch, 6),
            "images_per_s": round(1000 * batch / step, 1),
            "peak_memory_mb": round(self.peak_memory() / 2**20, 1),
        }
        if any(attacks):
            line["ms_per_attack_iteration"] = round(statistics.median(attacks) / self.steps, 4)
        if in_flow:
            line["ms_per_step_flow"] = round(self.flow(repeat), 3)
        return line

    def peak_memory(self):
        """Bytes: what PyTorch holds on a GPU, graphs included, or the process on a CPU."""
        if self.cuda:
            return torch.cuda.max_memory_reserved()
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @property
    def tolerance(self):
        by_type = {"float32": kFloat32, "float16": kTenBits, "bfloat16": kBfloat16}
        return by_type[self.dtype] if self.form.folded else self.form.tolerance

    def gradient_found(self):
        if self.form.compiled:
            return torch.compile(self.folded.input_gradient)(self.folded.weights, self.x, self.labels)
        return self.input_gradient(self.x)

    def write_results(self, path, about):
        """What TrainingStep::results in src/measure/training_step.hpp computes."""
        with torch.no_grad():
            for _ in range(3):
                self.model.train()(self.x)
        self.mode(self.model)
        if self.form.folded:
            self.folded.refresh()
        with torch.no_grad():
            logits = self.logits(self.x)
        gradient, clean = self.gradient_found() / kLossScale, self.loss(self.x)
        self.eta.zero_()
        self.run()
        attacked = self.loss((self.x + self.eta).clamp(0, 1))
        about = {**about, "clean_loss": clean, "attacked_loss": attacked, "tolerance": self.tolerance}
        inputs.write_results(path, logits, gradient, **about)

    def check(self):
        """Errors against double precision: of logits, input gradient, and the signs that one iteration follows."""
        exact = copy.deepcopy(self.model).double().to(memory_format=torch.contiguous_format)
        self.mode(exact)
        if not self.form.folded:
            self.mode(self.model)
        x = self.x.double()
        dx = kLossScale * reference.input_gradient(exact, x, self.labels)
        with torch.no_grad():
            logits_error = reference.relative_error(self.logits(self.x), exact(x))
        found = self.gradient_found()
        self.eta.zero_()
        self.run()
        same = (self.eta.double() - self.update(x, torch.zeros_like(x), dx)).abs() < 1e-4
        line = {
            "form": self.name,
            "logits_error": logits_error,
            "gradient_error": reference.relative_error(found, dx),
            "signs_equal": float(same.double().mean()),
            "gradient_rms": float(dx.square().mean().sqrt()),
        }
        errors = line["logits_error"], line["gradient_error"], 1 - line["signs_equal"]
        line["passed"] = all(error <= limit for error, limit in zip(errors, self.tolerance))
        return line


class BatchTrainer(Trainer):
    """The step whose attack is FGSM on batch statistics. With a graph it is captured whole; its parts are not timed."""

    mode = staticmethod(torch.nn.Module.train)
    update = staticmethod(fgsm_update)

    def __init__(self, arguments, name, device):
        super().__init__(arguments, name, device)
        self.scale = kLossScale if self.form.autocast == "float16" else 1
        self.images, self.targets = self.x.clone(), self.labels.clone()
        rate = torch.tensor(0.01, device=device) if self.form.graph else 0.01  # a graph reads it on the GPU
        self.optimizer = self.make_optimizer(rate, weight_decay=5e-4)

    def scaled_mean(self, x):
        return self.scale * F.cross_entropy(self.logits(x), self.labels)

    def input_gradient(self, x):
        """Of scaled_mean."""
        self.model.requires_grad_(False)  # or a compiled backward pass would make gradients of the weights, too
        x = x.detach().requires_grad_()
        gradient = torch.autograd.grad(self.scaled_mean(x), x)[0]
        self.model.requires_grad_(True)
        return gradient

    def gradient_found(self):
        return self.input_gradient(self.x) * (kLossScale * len(self.x) / self.scale)

    def iterations(self):
        start = (self.x + self.eta).clamp(0, 1)
        self.eta.copy_(self.update(self.x, start - self.x, self.input_gradient(start)))

    def run(self):
        self.iterations()

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.scaled_mean((self.x + self.eta).clamp(0, 1))
        loss.backward()
        if self.scale != 1:
            torch._foreach_mul_([parameter.grad for parameter in self.model.parameters()], 1 / self.scale)
        self.optimizer.step()
        return loss.detach() / self.scale

    def work(self):
        self.attack()
        self.trained = self.train()

    def queue(self):
        self.x.copy_(self.images)
        self.labels.copy_(self.targets)
        self.graph.replay() if self.graph else self.work()

    def step(self):
        begin = self.wait()
        self.queue()
        return 0, self.wait() - begin

    def first_steps(self):
        if self.form.graph:
            self.capture(self.work)
        clean, trained = self.loss(self.x), []
        for _ in range(3):
            self.queue()
            trained.append(float(self.trained))
        return clean, trained[0], trained  # a training pass begins with the loss at the attacked images


def reason_to_skip(form, device):
    if form.graph and device.type != "cuda":
        return "needs CUDA"
    if form.compiled and not hasattr(torch, "compile"):
        return "needs torch.compile (PyTorch 2)"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18", choices=[name for name in reference.NETWORKS if name != "small_cnn"])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--attack-bn", default="eval", choices=list(kForms), help="eval: PGD; train: FGSM on batch statistics")
    parser.add_argument("--steps", type=int, help="of PGD; default 10")
    parser.add_argument("--form", nargs="+", metavar="FORM", help="default: all")
    parser.add_argument("--repeat", type=int, default=5, help="timed steps of each form")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), help="of the folded forms; on CPUs float32")
    parser.add_argument("--train-bf16", action="store_true", help="the training pass under bf16 autocast")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--check", action="store_true", help="compare the forms with double precision and time nothing")
    parser.add_argument("--results", metavar="FILE", help="first write logits, input gradient and losses; needs one --form")
    parser.add_argument("--serve", action="store_true", help="one step for each line of stdin, until it ends")
    arguments = parser.parse_args()
    forms, train = kForms[arguments.attack_bn], arguments.attack_bn == "train"
    arguments.form = arguments.form or list(forms)
    for name in arguments.form:
        if name not in forms:
            parser.error(f"no form {name} with --attack-bn {arguments.attack_bn}; there are {', '.join(forms)}")
    if train and (arguments.steps or arguments.dtype or arguments.train_bf16):
        parser.error("--steps, --dtype and --train-bf16 are of PGD's forms; leave them off with --attack-bn train")
    arguments.steps = arguments.steps or (1 if train else 10)
    if (arguments.serve or arguments.results) and len(arguments.form) > 1:
        parser.error("--serve and --results need one --form")
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_gpu.py: PyTorch finds no CUDA device here; --device cpu tests the script without one")
    arguments.dtype = arguments.dtype or ("float16" if device.type == "cuda" else "float32")
    torch.set_num_threads(arguments.threads)
    about = {
        **{name: getattr(arguments, name) for name in ("network", "width", "batch", "attack_bn", "steps")},
        **({} if train else {"dtype": arguments.dtype, "train_bf16": arguments.train_bf16}),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }
    if arguments.check:
        arguments.steps = 1

    passed = True
    for name in arguments.form:
        reason = reason_to_skip(forms[name], device)
        if reason:
            print(json.dumps({"form": name, "skipped": reason}), flush=True)
            continue
        trainer = (BatchTrainer if train else Trainer)(arguments, name, device)
        if arguments.check:
            line = trainer.check()
            passed = passed and line["passed"]
            print(json.dumps({**line, **about}), flush=True)
        else:
            if arguments.results:
                trainer.write_results(arguments.results, {"form": name, **about})
            trainer.warm_up()
            for _ in sys.stdin if arguments.serve else [None]:
                line = trainer.measure(1 if arguments.serve else arguments.repeat, not arguments.serve)
                print(json.dumps({**line, **about}), flush=True)
        del trainer
        if forms[name].compiled:
            torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
