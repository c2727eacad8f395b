"""PyTorch's side of the comparison of AutoAttack: torch_autoattack.py CHECKPOINT DATA [--images N] [--form F] ...

Runs the attacks of the authors' code (the package pyautoattack, or autoattack where that is installed) on the network of a
checkpoint of dat_hpc and the first N test images of a data file, in the order and with the settings of its version
"standard" (autoattack.py, set_version and run_standard_evaluation), and prints one line of JSON: the flags after each
attack, and its seconds. Forms:

    eager          the network as it is, default layout: how the code is used
    channels_last  network and images in channels_last
    folded         the same, batch norm folded into weights that require no gradients (networks.py)

Where neither package is installed it prints a line with "skipped" and why, and exits with status 77.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time

import h5py
import torch

from networks import FoldedNetwork, reference

kSkipped = 77
kOrder = ("apgd-ce", "apgd-t", "fab-t", "square")
kNormalizations = {"cifar10": [0.4914, 0.4822, 0.4465, 0.2471, 0.2435, 0.2616],
                   "cifar100": [0.5071, 0.4865, 0.4409, 0.2673, 0.2564, 0.2762]}


def package():
    """The authors' code: its modules by name, or None."""
    for name in ("pyautoattack", "autoattack"):
        try:
            return {part: importlib.import_module(f"{name}.{part}") for part in ("autopgd_base", "fab_pt", "square")}
        except ImportError:
            continue
    return None


def option(toml, name):
    """Of the options that a checkpoint holds."""
    (line,) = [line for line in toml.splitlines() if line.startswith(f"{name} = ")]
    return line.split(" = ", 1)[1].strip('"')


def network_of(checkpoint):
    with h5py.File(checkpoint) as file:
        toml = file.attrs["config_toml"]
        toml = toml.decode() if isinstance(toml, bytes) else toml
        if option(toml, "activation") != "relu":
            sys.exit(f"torch_autoattack.py: {checkpoint}: the activation is {option(toml, 'activation')}, which reference.py has not")
        state = {}
        for group in ("param", "bn"):
            file[group].visititems(lambda name, item: state.update({name: torch.from_numpy(item[()])})
                                   if isinstance(item, h5py.Dataset) else None)
    model = reference.make(option(toml, "network"), int(option(toml, "width")), len(state["linear.bias"]))
    found = model.load_state_dict(state, strict=False)
    missing = [name for name in found.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or found.unexpected_keys:
        sys.exit(f"torch_autoattack.py: {checkpoint} is no network of reference.py: {missing} {found.unexpected_keys}")
    return model.eval(), normalization_of(option(toml, "normalize"))


def normalization_of(text):
    """Means and standard deviations [1, c, 1, 1] that --normalize stands for; empty: images are taken as they are."""
    if text == "none":
        return []
    numbers = kNormalizations.get(text) or [float(word) for word in text.split(",")]
    middle = len(numbers) // 2
    return [torch.tensor(part).view(1, -1, 1, 1) for part in (numbers[:middle], numbers[middle:])]


def attacks_of(code, model, eps, seed, device):
    """As in the authors' version "standard"."""
    shared = {"norm": "Linf", "eps": eps, "seed": seed, "verbose": False, "device": device}
    apgd = code["autopgd_base"].APGDAttack(model, n_iter=100, n_restarts=1, loss="ce", rho=0.75, eot_iter=1, **shared)
    apgd_t = code["autopgd_base"].APGDAttack_targeted(model, n_iter=100, n_restarts=1, n_target_classes=9, rho=0.75,
                                                      eot_iter=1, **shared)
    fab_t = code["fab_pt"].FABAttack_PT(model, n_iter=100, n_restarts=1, targeted=True, n_target_classes=9, **shared)
    square = code["square"].SquareAttack(model, p_init=0.8, n_queries=5000, n_restarts=1, resc_schedule=False, **shared)
    return dict(zip(kOrder, (apgd, apgd_t, fab_t, square), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--eps", type=float, default=8 / 255)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=250, help="images at a time; the authors' default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="products are f32 on both")
    parser.add_argument("--form", choices=("eager", "channels_last", "folded"), default="eager")
    parser.add_argument("--attacks", nargs="+", choices=kOrder, default=kOrder)
    arguments = parser.parse_args()

    code = package()
    if code is None:
        print(json.dumps({"skipped": "neither pyautoattack nor autoattack is installed (requirements.txt)"}))
        sys.exit(kSkipped)
    torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.allow_tf32 = False
    model, normalization = network_of(arguments.checkpoint)
    model.to(arguments.device)
    normalization = [part.to(arguments.device) for part in normalization]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with h5py.File(arguments.data) as file:
        images = torch.from_numpy(file["test/images"][: arguments.images]).permute(0, 3, 1, 2).float() / 255
        labels = torch.from_numpy(file["test/labels"][: arguments.images].astype("int64"))
    images, labels = images.to(arguments.device), labels.to(arguments.device)
    network = model
    if arguments.form == "eager":
        images = images.contiguous()
    else:
        images = images.contiguous(memory_format=torch.channels_last)
        model.to(memory_format=torch.channels_last)
    if arguments.form == "folded":
        folded = FoldedNetwork(model, torch.float32)
        folded.refresh()

        def network(x):
            return folded.logits(folded.weights, x)

    if normalization:
        (mean, deviation), of_normalized = normalization, network

        def network(x):
            return of_normalized((x - mean) / deviation)

    def right_of(x, y):
        with torch.no_grad():
            return network(x).argmax(1) == y

    begin = time.monotonic()
    robust = right_of(images, labels)
    rows = [{"name": "clean", "robust": robust.int().tolist(), "seconds": time.monotonic() - begin}]  # the list waits for a GPU
    attacks = attacks_of(code, network, arguments.eps, arguments.seed, arguments.device)
    for name in arguments.attacks:
        begin = time.monotonic()
        for batch in robust.nonzero().flatten().split(arguments.batch):
            x, y = images[batch].clone(), labels[batch].clone()
            attacked = attacks[name].perturb(x, y)
            robust[batch] = right_of(attacked, y)
        rows.append({"name": name, "robust": robust.int().tolist(), "seconds": time.monotonic() - begin})
    print(json.dumps({"form": arguments.form, "torch": torch.__version__, "attacks": rows}))


if __name__ == "__main__":
    main()
