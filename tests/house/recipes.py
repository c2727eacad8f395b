"""Every recipe below jobs/ is one that the program takes, by path and by name, names the weight of the loss's other part, and
means what it says: its options, and the cost in its first line."""

import glob
import os
import re
import subprocess
import sys
import tempfile

program, root = sys.argv[1:3]
EXPECTED = {  # resolved options that make the recipe what it is named after
    "cifar10_small": {"attack": '"pgd"', "attack-steps": "2", "alpha": '"5/255"', "lambda": "0", "budget": "45"},
    "dat_pgd": {"attack": '"pgd"', "attack-steps": "10", "alpha": '"2/255"', "lambda": "1", "optimizer": '"lamb"', "lr": "0.01",
                "milestones": "[75, 90, 95]", "warmup-epochs": "5", "epochs": "100", "total-batch": "24576", "attack-bn": '"eval"',
                "bn-statistics": '"local"', "selector": '"all"'},
    "dat_fgsm": {"attack": '"fgsm"', "alpha": '"10/255"', "lambda": "0", "attack-bn": '"train"', "optimizer": '"lamb"'},
    "tudelft_jointspar": {"selector": '"exp3:rate=0.1:p_min=0.5"', "budget": '"auto"', "resample": '"epoch"', "lambda": "1"},
    "madry": {"attack-steps": "10", "optimizer": '"sgd"', "weight-decay": "2e-04", "lambda": "0", "max-steps": "80000", "total-batch": "128"},
    "friendly": {"attack-stop": "0", "alpha": "0.007", "epochs": "120", "lambda": "0"},
    "trades": {"loss": '"trades"', "beta": "6", "eps": "0.031", "alpha": "0.007", "attack-start": '"gaussian"', "weight-decay": "2e-04",
               "epochs": "76", "attack-bn": '"eval"', "awp-gamma": "0"},
    "mart": {"loss": '"mart"', "beta": "5", "lr": "0.01", "weight-decay": "0.0035", "epochs": "120", "attack-start": '"gaussian"'},
    "trades_awp": {"loss": '"trades"', "beta": "6", "awp-gamma": '"0,0.005@9"', "awp": '"global"', "epochs": "200"},
    "harvard_mnist": {"network": '"small_cnn"', "attack": '"pgd"', "attack-steps": "32", "eps": "0.3", "lambda": "0", "optimizer": '"sgd"',
                      "lr": "0.01", "momentum": "0.5", "total-batch": "64", "micro-batch": "8", "epochs": "10"},
    "fast_adversarial": {"attack": '"fgsm"', "alpha": '"10/255"', "attack-start": '"uniform:box=on"', "attack-bn": '"train"', "lr": "0.2",
                         "schedule": '"cyclic"', "warmup-epochs": "7.5", "epochs": "7.5", "momentum": "0.9",
                         "optimizer": '"sgd:peak_momentum=0.8"', "weight-decay": "5e-04", "total-batch": "128", "augment": '"crop"', "lambda": "0", "selector": '"all"'},
    "n_fgsm": {"attack": '"fgsm"', "attack-start": '"uniform:radius=2:box=on"', "project": '"off"', "alpha": '"8/255"', "epochs": "15",
               "warmup-epochs": "15", "optimizer": '"sgd:peak_momentum=0.8"', "lambda": "0"},
    "pgd2": {"attack": '"pgd"', "attack-steps": "2", "alpha": '"4/255"', "attack-start": '"uniform:radius=0:box=on"', "schedule": '"cyclic"',
             "epochs": "18",
             "warmup-epochs": "12", "attack-bn": '"train"', "lambda": "0"},
    "ladder": {"attack-start": '"uniform:radius=2:box=on"', "project": '"off"', "alpha": '"8/255"', "attack-bn": '"eval"', "schedule": '"cyclic"',
               "warmup-epochs": "5", "epochs": "9", "lr": "0.2", "lambda": "0"},
    "dat_fgsm_15": {"attack": '"fgsm"', "optimizer": '"lamb"', "selector": '"all"', "total-batch": "128", "lambda": "0"},
    "jointspar_15": {"attack": '"fgsm"', "optimizer": '"lamb"', "selector": '"exp3:rate=0.1"', "total-batch": "128", "lambda": "0"},
    "imagenet_dat": {"network": '"imagenet_resnet50"', "size": "224", "attack": '"pgd"', "attack-steps": "4", "eps": '"2/255"', "alpha": '"2/255"',
                     "optimizer": '"lamb"', "lr": "0.01", "milestones": "[20, 25, 28]", "warmup-epochs": "5", "epochs": "30", "total-batch": "3072",
                     "lambda": "1", "bn-statistics": '"local"'},
    "imagenet_dat_fgsm": {"network": '"imagenet_resnet50"', "attack": '"fgsm"', "attack-bn": '"train"', "lambda": "0", "optimizer": '"lamb"'},
    "imagenet_fast_at": {"train-size": '"128,224@6,288@12"', "total-batch": '"512,224@6,128@12"', "schedule": '"ramps"', "milestones": "[5, 11, 14]",
                         "lr": "0.4", "warmup-epochs": "1", "epochs": "14", "eps": '"2/255"'},
    "hendrycks": {"network": '"wrn_28_10"', "attack-steps": "10", "attack-bn": '"train"', "lr": "0.001", "schedule": '"cosine"',
                  "optimizer": '"sgd:nesterov"', "epochs": "5", "weight-decay": "5e-04"},
    "finetune_cifar": {"network": '"imagenet_resnet50"', "size": "224", "lr": "0.001", "head-lr": "0.01", "total-batch": "64"},
    "atta": {"warm-start": "10", "epochs": "38", "attack-steps": "10", "lambda": "0"},
}


def options(text):
    return dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line and not line.startswith("#"))


def cost(of):
    """Passes forward and back per image, and epochs, as the resolved options have them."""
    attack = {'"pgd"': int(of["attack-steps"]), '"fgsm"': 1, '"none"': 0}[of["attack"]]
    training = 1 + (of["loss"] != '"cross_entropy"' or float(of["lambda"]) > 0)
    gamma = float(of["awp-gamma"].strip('"').split(",")[-1].split("@")[0])
    return attack + training * (2 if gamma > 0 else 1), round(float(of["epochs"]) + float(of["warmup-epochs"]))


def run(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


failures = []
kept = tempfile.TemporaryDirectory()
images = os.path.join(kept.name, "images.h5")  # of 32 x 32, as CIFAR-10's
run("data", "synthetic", images, "--size", "32", "--train", "4096", "--test", "64")
listed = run("train", "--recipe", "list").stdout
found = {os.path.basename(path)[: -len(".toml")]: path for path in glob.glob(f"{root}/jobs/**/*.toml", recursive=True)}
if set(found) != set(EXPECTED):
    failures.append(f"recipes {sorted(found)}, expected {sorted(EXPECTED)}")
for name, path in sorted(found.items()):
    with open(path) as file:
        text = file.read()
        named = options(text)
    head = re.match(rf"# {name}: (.*)\. Cost: ((?:at most )?(\d+) passes x (\d+) epochs)\.\n", text)
    if not head:
        failures.append(f"{name}: the first line is not '# {name}: WHAT. Cost: N passes x N epochs.'")
    elif not re.search(rf"^{name} +{re.escape(head[2])} +{re.escape(head[1])}$", listed, re.M):
        failures.append(f"{name}: --recipe list does not say what its first line says")
    if "lambda" not in named and "beta" not in named:
        failures.append(f"{name}: does not name lambda, nor beta")
    # Planning is checked with a narrow network and a small batch: what they need grows with them, no rule depends on it.
    small = ["--width", "16", "--batch", "16", "--threads", "2", "--data", images]
    for verb in (["train", "--print-config"], ["validate", *small]):
        ended = run(*verb, "--config", path)
        if ended.returncode != 0:
            failures.append(f"{name}: {' '.join(verb)} ends with {ended.returncode}: {ended.stderr}")
        elif "--print-config" in verb:
            resolved = options(ended.stdout)
            for key, value in EXPECTED.get(name, {}).items():
                if key not in resolved:
                    failures.append(f"{name}: {key} is no option")
                elif resolved[key] != value:
                    failures.append(f"{name}: {key} = {resolved[key]}, expected {value}")
            if head and cost(resolved) != (int(head[3]), int(head[4])):
                failures.append(f"{name}: its first line says {head[2]}, its options {cost(resolved)}")
            if run("train", "--print-config", "--recipe", name).stdout != ended.stdout:
                failures.append(f"{name}: --recipe sets other options than --config")
# A recipe has its images a step on any number of ranks that can share them, and what differs from it comes first.
for ranks in "1", "2", "8", "3":
    ended = subprocess.run([program, "validate", "--recipe", "madry", "--width", "16", "--data", images, "--threads", "1"], capture_output=True,
                           text=True, check=False, env=os.environ | {"OMPI_COMM_WORLD_SIZE": ranks})
    shares = [line for line in ended.stdout.splitlines() if line.startswith("ranks ")]
    wanted = f"ranks            {ranks}, batch {128 // int(ranks)} each, 128 in all, micro-batch {128 // int(ranks)}"
    if ranks == "3":
        if ended.returncode != 2 or "128 is no multiple of 3 ranks, of which each has as many images; start 2 or 4 that train" not in ended.stderr:
            failures.append(f"madry on 3 ranks: {ended.returncode}, {ended.stderr}")
    elif shares != [wanted] or not ended.stdout.startswith("recipe           madry; options that differ from it:\n  width = 16 (recipe 64)\n"):
        failures.append(f"madry on {ranks} ranks: {ended.stdout}{ended.stderr}")
print("\n".join(failures) or f"{len(found)} recipes are as they say")
sys.exit(bool(failures))
