"""Steps of the built program against the reference: the state of a checkpoint, one step in double precision, and the
state of the next checkpoint.

    python3 tests/outside/step.py PATH/TO/dat_hpc [--brief] [--only NAME...] [--stop-at-first] [--jobs N] [--list]

Bounds. The reference repeats each step with errors of the size of f32 arithmetic (NOISE, UNIT) at the result of every
layer, but with the same decisions: signs, sides of a ReLU, misclassified images. How far that takes the results, times
FACTOR, is how far the program may be off. Where it is off further, a decision may have fallen the other way,
because the number that decides is within rounding of the edge. Such decisions turn in a reference with errors, too: the
program then has to agree, within the same bounds, with an exact step that repeats the decisions of one of ATTEMPTS such
references.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from drawn import SEED, drawn
from mpi_environment import MPI_ENVIRONMENT, own_session
from reference import automatic, Config, Reference, Rounding, UNIT

# Relative to the root mean square of a layer's result: 2e-7 was measured of direct convolutions, 4e-7 to 1.1e-6 of
# Winograd's algorithm, and 4e-6 of products in bf16x3. FACTOR is for the spread of one sample of errors.
NOISE, FACTOR, ATTEMPTS = 1e-6, 10, 16
KINDS = ["weights", "optimizer", "statistics", "p", "norms", "losses", "evaluation"]
LIMIT_S = 300

# 23 images in batches of 8: three steps an epoch, of which the last has seven images. Step 0 is the first, 2 a partial
# batch, 3 the first after the warm-up, 6 the first after the milestone.
BASE = ("--data 8.h5 --network small_cnn --width 16 --threads 1 --limit-train 23 --batch 8 --warmup-epochs 1 "
        "--epochs 3 --milestones 1 --attack-steps 3 --eval-every 0 --seed 7 --lambda 0 --quiet")
STEPS = "1 4 7"  # runs end after these; of each, the last two steps are compared
SGD = "--optimizer sgd --lr 0.5"
SMALL = "--batch 4 --limit-train 8 --warmup-epochs 0"  # of deep networks

# name, ranks, where the runs end, options
TABLE = [
    ("defaults", 1, STEPS, "--lambda 1"),
    ("two ranks", 2, STEPS, "--batch 4 --lambda 1 --eval pgd5 --eval-eps 0.1 --eval-alpha 0.04"),
    ("adversarial only", 1, STEPS, "--attack-steps 10"),
    ("half a clean loss", 1, STEPS, "--lambda 0.5 --optimizer sgd --lr 0.1"),
    ("half, two ranks", 2, STEPS, "--lambda 0.5 --batch 5 --micro-batch 5 --optimizer sgd --lr 0.1"),
    ("clean training", 1, STEPS, "--attack none --lambda 0.7 --optimizer lars --weight-decay 0.01"),
    ("no augmentation", 1, "4", f"{SGD} --augment none --attack none"),
    ("fgsm", 1, STEPS, "--attack fgsm --optimizer sgd --lr 0.05"),
    ("fgsm, two ranks", 2, STEPS, "--attack fgsm --batch 4 --micro-batch 2 --lambda 2 --alpha 0.02"),
    ("fgsm, running statistics", 1, "4", "--attack fgsm --attack-bn eval --eps 0.1 --eval pgd3,fgsm"),
    ("n-fgsm", 1, STEPS, "--attack fgsm --project off --alpha 8/255 --optimizer sgd --lr 0.05 --attack-start uniform:radius=2"),
    ("n-fgsm, start not cut, two ranks", 2, "4",
     "--attack fgsm --attack-bn eval --project off --batch 4 --eps 0.1 --eval pgd3,fgsm --attack-start uniform:radius=1.5:box=off"),
    ("pgd, far start", 1, "4", f"{SGD} --eps 0.1 --alpha 0.03 --attack-start uniform:radius=2"),
    ("pgd, no ball, early stop", 1, "4", "--project off --attack-stop 1 --eps 0.1 --alpha 0.05 --attack-start uniform:radius=0"),
    ("pgd, start in the box", 2, "4", f"{SGD} --stale-attack 1 --batch 4 --eps 0.2 --attack-start uniform:box=on"),
    ("pgd, batch statistics", 1, STEPS, f"{SGD} --attack-bn train --momentum 0.5"),
    ("pgd, batch statistics, micro", 2, STEPS, "--attack-bn train --batch 4 --micro-batch 2 --lambda 1"),
    ("early stop", 1, STEPS, "--attack-steps 6 --attack-stop 1 --eps 0.1 --alpha 0.03"),
    ("early stop at once", 2, STEPS, "--attack-steps 4 --attack-stop 0 --batch 6 --micro-batch 3"),
    ("warm start", 1, "1 5 7 10", "--warm-start 2 --attack-steps 2"),
    ("warm start, two ranks", 2, "1 5 10", "--warm-start 3 --batch 4 --micro-batch 2 --attack-steps 1 --alpha 0.011"),
    ("warm start, fgsm", 1, "5", "--warm-start 4 --attack fgsm"),
    ("stale attack", 1, STEPS, f"{SGD} --stale-attack 2 --attack-steps 3"),
    ("stale attack, two ranks", 2, "5 8",
     "DAT_BUCKET=700 --stale-attack 1 --batch 4 --micro-batch 2 --attack-steps 2 --lambda 1 --overlap"),
    ("old weights", 1, "1 2 5 8", f"{SGD} --staleness 2 --attack-steps 3 --lambda 1"),
    ("old weights, two ranks", 2, "3 7", "--staleness 4 --attack-stop 1 --batch 4 --micro-batch 2 --attack-steps 2 --optimizer sgd --lr 0.5"),
    ("old weights, fgsm", 1, "4", f"{SGD} --staleness 2 --attack fgsm --attack-bn eval"),
    ("old weights, trades", 1, "6", f"{SGD} --staleness 3 --attack-steps 2 --loss trades"),
    ("attacks by epoch", 1, "3 4 7 10", "--attack none,fgsm@1,pgd@2 --attack-steps 2 --attack-bn eval --optimizer sgd "
                                        "--lr 0.05"),
    ("steps by epoch, two ranks", 2, "4 7", f"{SGD} --attack-steps 1,3@1,2@2 --lambda 1 --batch 4 --micro-batch 2 "
     "--eval pgd3"),
    ("a growing ball", 1, "2 4 7 10", "--attack fgsm --eps 0..0.1@0-2 --optimizer sgd --lr 0.05 --eval pgd3,fgsm"),
    ("a growing ball, no attack at first", 1, "2 4 7", f"{SGD} --eps 0,0.04..0.1@1-3 --attack-steps 2 "
     "--alpha 0.02,auto@2"),
    ("a growing ball, warm start", 2, "4 7", f"{SGD} --warm-start 5 --eps 2/255..0.1@0-2 --attack-steps 1 "
     "--alpha 1/255,0.02@1 --batch 4"),
    ("a growing ball, old weights", 1, "4 5", f"{SGD} --staleness 2 --eps 4/255..0.1@0-2 --attack-steps 3"),
    ("a wider ball, stale attack", 1, "1 4", f"{SGD} --stale-attack 1 --attack-steps 2,3@1 --eps 0.02,0.1@1"),
    ("a growing ball, l2", 1, "4 7", f"{SGD} --norm l2 --eps 0.2..0.6@0-2 --attack-steps 2"),
    ("wide ball", 1, STEPS, "--eps 0.3 --alpha 0.1 --optimizer lars --eval pgd4x3,pgd7x3"),
    ("l2", 1, STEPS, f"{SGD} --norm l2 --eps 0.5 --eval pgd4x2"),
    ("l2, batch statistics, two ranks", 2, STEPS, "--norm l2 --eps 0.4 --alpha 0.2 --attack-bn train --batch 4 "
                                                  "--micro-batch 2 --lambda 1 --eval fgsm,pgd3"),
    ("l2, fgsm", 1, "4", "--norm l2 --eps 1.5 --attack fgsm --optimizer sgd --lr 0.05 --eval-eps 4/255"),
    ("l2, trades", 1, "4", f"{SGD} --norm l2 --eps 0.5 --loss trades --attack-start uniform"),
    ("l2, stale attack", 1, "4", f"{SGD} --norm l2 --eps 0.5 --stale-attack 1 --attack-steps 2"),
    ("micro-batches", 1, STEPS, f"{SGD} --micro-batch 2 --lambda 1"),
    ("micro-batches, two ranks", 2, STEPS, f"{SGD} --limit-train 21 --batch 6 --micro-batch 2 --lambda 0.5"),
    ("local statistics", 2, "1 3 5 7", "--bn-statistics local --batch 4 --lambda 1 --eval pgd10x2"),
    ("local, batch statistics", 2, "4", "--bn-statistics local --attack fgsm --batch 4 --micro-batch 2"),
    ("local, evaluated on the way", 2, "4", "--bn-statistics local --batch 4 --eval-every 1"),
    ("overlap", 2, STEPS, "DAT_BUCKET=700 --overlap --batch 4 --lambda 0.5 --optimizer lars"),
    ("small messages", 2, "4", f"DAT_BUCKET=1 {SGD} --batch 4"),
    ("lamb, clamped", 1, STEPS, "--weight-decay 0.1 --optimizer lamb:clamp=3"),
    ("lamb, clamped and drawn", 1, STEPS, "--weight-decay 0.1 --budget 5 --optimizer lamb:clamp=1.5"),
    ("lars", 1, STEPS, "--optimizer lars --weight-decay 0.05"),
    ("lars, two ranks", 2, STEPS, "--optimizer lars:clamp=1 --momentum 0.7 --weight-decay 0.05 --batch 4"),
    ("sgd", 1, STEPS, "--optimizer sgd --weight-decay 0.05 --lr 0.1 --budget 6"),
    ("nesterov", 1, "4 7", "--optimizer sgd:nesterov --lr 0.1 --weight-decay 0.01 --budget 6"),
    ("lamb's averages", 1, "4 7", "--budget 6 --optimizer lamb:beta1=0.7:beta2=0.95:epsilon=1e-4"),
    ("bias correction", 1, "1 4 5 8", "--budget 5 --optimizer lamb:beta2=0.99:bias_correction"),
    ("lars_sgd", 1, STEPS, "--optimizer lars_sgd:trust=0.02 --lr 0.5 --weight-decay 0.01 --budget 6"),
    ("lars_sgd, two ranks", 2, "4 7",
     "--optimizer lars_sgd:trust=0.01 --lr 0.7 --momentum 0.8 --weight-decay 0.01 --batch 4 --budget 6"),
    ("norms do not decay", 1, "4 7", "--optimizer sgd --lr 0.1 --weight-decay 0.3 --no-decay norms --budget 6"),
    ("norms do not decay, lars", 2, "4", "--optimizer lars --weight-decay 0.3 --no-decay norms --batch 4"),
    ("norms do not decay, lamb", 1, "4 7", "--weight-decay 0.3 --no-decay norms"),
    ("clipped", 1, STEPS, f"{SGD} --clip-norm 1.5 --budget 6"),
    ("clipped lamb", 2, "4 7", "DAT_BUCKET=700 --clip-norm 1 --batch 4 --overlap --optimizer lamb:bias_correction"),
    ("all layers", 1, STEPS, f"{SGD} --selector all --weight-decay 0"),
    ("paper's bandit", 1, STEPS, "--budget 6 --selector exp3:loss=paper:rate=1e-5:p_min=0.2"),
    ("oracle", 1, "4 6 9", f"{SGD} --selector oracle --budget 5"),
    ("oracle, two ranks", 2, "4 7", "--selector oracle --resample 2 --granularity module --budget 2 --batch 4"),
    ("oracle in bytes", 1, "4 7", f"{SGD} --selector oracle --budget 5 --budget-unit bytes"),
    ("bandit in bytes", 2, "4 7", "--budget 5 --budget-unit bytes --batch 4 --selector exp3:rate=0.5:p_min=0.05"),
    ("oracle in seconds, blocks", 1, "4 7", "--selector oracle --budget 3 --budget-unit seconds --granularity block "
                                            "--resample 2 --optimizer lars"),
    ("masks in seconds", 2, "4 7", "--mask per_worker --selector oracle --budget 4 --budget-unit seconds --batch 4"),
    ("uniform", 2, "4 7", f"{SGD} --selector uniform --budget 4 --budget-unit bytes --batch 4"),
    ("freezeout", 1, "5 9 12", f"{SGD} --selector freezeout:t0=0.5 --lambda 1"),
    ("freezeout, lamb, two ranks", 2, "6 12",
     "--selector freezeout:t0=0.3:schedule=linear:lr=unscaled --batch 4 --clip-norm 1 --optimizer lamb:bias_correction"),
    ("freezeout, rates left alone", 1, "12", "--selector freezeout:t0=0.4:schedule=squared:lr=constant --granularity module --resample 2"),
    ("autofreeze", 2, "9 12", f"{SGD} --selector autofreeze --batch 4"),
    ("autofreeze, few", 1, "12", "--selector autofreeze:percentile=20 --granularity module --optimizer lars"),
    ("frozen", 1, STEPS, f"{SGD} --freeze conv1 --selector all --weight-decay 0.05 --lambda 1 --micro-batch 4"),
    ("frozen, then not, batch statistics", 1, "4 7", "--freeze conv2,none@2 --selector all --attack-bn train "
     "--warm-start 3 --optimizer lamb:bias_correction --clip-norm 1 --average ema:decay=0.3:bn=ema"),
    ("frozen, then not, two ranks", 2, "4 7", "--freeze bn2,none@2 --selector all --attack fgsm --batch 4 "
     "--micro-batch 2 --optimizer lars --weight-decay 0.05 --average ema:decay=0.3 --head-lr 0.03"),
    ("linear probe", 2, "4", f"{SGD} --freeze all-but-head --selector all --batch 4 --awp-gamma 0.01 --width 20"),
    ("frozen resnet18, batch statistics", 1, "2", f"{SMALL} --network resnet18 --freeze layer2.0.conv2 "
     "--selector all --data 16.h5 --attack-bn train --attack-steps 1 --granularity module --optimizer sgd --lr 0.05"),
    ("frozen preact_resnet18, batch statistics", 1, "2", f"{SMALL} --network preact_resnet18 --freeze layer3 "
     "--selector all --data 16.h5 --attack fgsm --activation silu --granularity block --head-lr 0.1"),
    ("a rate of the head", 1, "4 7", "--head-lr 0.1 --lr 0.02 --budget 6 --weight-decay 0.1"),
    ("a rate of the head, lars_sgd", 2, "4", "--head-lr 0.1 --optimizer lars_sgd:trust=0.02 --lr 0.5 --budget 6 --batch 4"),
    ("self-normalised", 1, STEPS, "--budget 4 --selector exp3:loss=selfnorm:rate=0.5:p_min=0.3"),
    ("rarely any layer", 1, "4 7 9", f"{SGD} --granularity block --budget 0.6 --selector exp3:rate=0.3:p_min=0.05"),
    ("a draw an epoch", 1, "4 6 7", "--resample epoch --granularity module --budget 2"),
    ("a draw in two steps", 2, "4 6 7", "--resample 2 --batch 4 --budget 5"),
    ("masks per worker", 2, STEPS, "--mask per_worker --budget 5 --batch 4 --lambda 1"),
    ("masks, dense", 2, "1 4 7", f"{SGD} --mask per_worker:transport=dense --budget 4 --batch 4 --weight-decay 0.05"),
    ("masks, gathered", 2, STEPS,
     "--mask per_worker:transport=allgather --budget 4 --batch 4 --optimizer lars --selector exp3:loss=paper:p_min=0.2"),
    ("masks, gathered, overlap", 2, "4 7", "DAT_BUCKET=700 --mask per_worker:transport=allgather --overlap "
     "--budget 3 --clip-norm 1 --batch 4 --micro-batch 2 --optimizer lamb:bias_correction"),
    ("masks, dense, oracle", 2, "4 7", "DAT_BUCKET=700 --mask per_worker:transport=dense --selector oracle "
     "--budget 5 --overlap --batch 4 --optimizer lars_sgd:trust=0.02 --lr 0.5"),
    ("masks of one rank", 1, "4 7", f"{SGD} --mask per_worker --budget 5"),
    ("masks, blocks in two steps", 2, "4 6 7", f"DAT_BUCKET=700 {SGD} --mask per_worker --granularity block "
     "--budget 0.6 --resample 2 --batch 4 --weight-decay 0.01 --overlap --selector exp3:rate=0.3:p_min=0.05"),
    ("masks of three ranks", 3, "4 7", "--mask per_worker:transport=allgather --budget 3 --batch 3 --lambda 1"),
    ("int8", 1, STEPS, f"{SGD} --codec int8"),
    ("int8, two ranks", 2, STEPS, "DAT_BUCKET=3000 --codec int8 --batch 4 --lambda 1 --overlap --optimizer lars"),
    ("int8, two-sided", 2, STEPS, "DAT_BUCKET=3000 --codec int8 --codec-transport two_sided --batch 4 --optimizer sgd --lr 0.5 --budget 6"),
    ("int8, masks", 2, "4 7", f"{SGD} --codec int8 --codec-transport two_sided --mask per_worker --budget 5 --batch 4"),
    ("int8, three ranks", 3, "4", f"{SGD} --codec int8 --codec-transport two_sided --batch 3 --overlap"),
    ("terngrad", 2, STEPS, "--codec terngrad --batch 4 --optimizer sgd --lr 0.1"),
    ("terngrad, not clipped", 2, "4", "--codec terngrad:clip=0 --codec-transport two_sided --batch 4 --optimizer sgd --lr 0.1"),
    ("powersgd", 1, STEPS, "--codec powersgd --optimizer sgd --lr 0.1"),
    ("powersgd, two ranks", 2, STEPS, "DAT_BUCKET=3000 --codec powersgd:rank=4 --batch 4 --overlap --optimizer sgd --lr 0.1 --budget 6"),
    ("powersgd, masks", 2, "4 7", "--codec powersgd --mask per_worker --budget 5 --batch 4 --optimizer sgd --lr 0.1"),
    ("median", 3, "4 7", "--aggregator median --batch 3 --optimizer sgd --lr 0.1"),
    ("trimmed mean, mixed", 3, "4", "DAT_BUCKET=700 --aggregator trimmed_mean:mixing --batch 3 --overlap --budget 6"),
    ("geometric median", 3, "4 7", "--aggregator geometric_median:iterations=40 --batch 3 --lambda 1"),
    ("Krum", 3, "4", "--aggregator krum --batch 3 --optimizer sgd --lr 0.1"),
    ("Multi-Krum, mixed", 3, "4", "--aggregator multi_krum:mixing --faults 1 --batch 3 --optimizer sgd --lr 0.1"),
    ("CenteredClip", 3, "4 7", "--aggregator centered_clip:tau=0.3 --batch 3 --optimizer sgd --lr 0.1"),
    ("two ranks, median", 2, "4", "--aggregator median --batch 4 --attack-bn train --optimizer sgd --lr 0.1"),
    ("CenteredClip of parts", 3, "4",
     "DAT_BUCKET=700 --aggregator centered_clip --codec-transport butterfly --batch 3 --budget 6 --overlap"),
    ("cosine", 1, "4 8 12", f"{SGD} --schedule cosine --attack none"),
    ("linear", 1, "4 9 12", f"{SGD} --schedule linear --attack none --warmup-epochs 2"),
    ("cyclic, momentum against the rate", 1, "2 5 8 12",
     "--schedule cyclic --warmup-epochs 1.5 --epochs 2.5 --momentum 0.9 --optimizer sgd:peak_momentum=0.8 --lr 0.2 --attack none"),
    ("one cycle, momentum against the rate", 2, "4 7 12", "--schedule one_cycle --warmup-epochs 1.2 --epochs 2.8 "
     "--batch 4 --momentum 0.95 --optimizer lars_sgd:trust=0.02:peak_momentum=0.85 --lr 0.5 --budget 6"),
    ("a warm-up of half an epoch", 1, "2 3 6", "--schedule cosine --warmup-epochs 0.5 --epochs 2.5 --momentum 0.5 "
     "--optimizer lars:peak_momentum=0.9 --budget 6 --average ema:bn=ema"),
    ("milestones", 1, "7 10", f"{SGD} --milestones 1,2 --attack none --schedule step:decay=0.3"),
    ("lines between milestones", 1, "7 10", f"{SGD} --schedule ramps:decay=0.3 --milestones 1,2 --attack none"),
    ("trades", 1, STEPS, f"{SGD} --loss trades --attack-start uniform"),
    ("trades, two ranks", 2, STEPS, "--loss trades --attack-start uniform --beta 2.5 --label-smoothing 0.1 --batch 4 "
                                    "--micro-batch 2"),
    ("trades, beside the image", 2, "1 4", f"{SGD} --loss trades --attack-steps 1 --batch 2"),
    ("trades, warm start", 1, "5", "--loss trades --warm-start 3 --attack-steps 1"),
    ("kl", 1, STEPS, f"{SGD} --loss kl --beta 3 --attack-start uniform --eps 0.1 --alpha 0.03"),
    ("mart", 1, STEPS, f"{SGD} --loss mart"),
    ("mart, two ranks", 2, STEPS, "--loss mart --beta 2 --attack-start uniform --batch 4 --micro-batch 2"),
    ("mart, fgsm", 1, "4", "--loss mart --attack fgsm --optimizer sgd --lr 0.05"),
    ("pgi", 1, STEPS, "--loss pgi --attack-steps 2 --optimizer sgd --lr 0.1"),
    ("pgi, fgsm, two ranks", 2, "4", "--loss pgi --attack fgsm --batch 4 --micro-batch 2 --label-smoothing 0.3 --optimizer sgd "
                                     "--lr 0.05"),
    ("pgi, detached", 1, STEPS, "DAT_ATTACK_BATCH=2 --loss pgi:detach --attack-steps 2 --beta 3 --micro-batch 4 --optimizer sgd --lr 0.1"),
    ("pgi, detached, fgsm", 2, "4", "--loss pgi:detach --attack fgsm --batch 4 --micro-batch 2 --warm-start 2 --optimizer sgd --lr 0.05"),
    ("pgi, old weights", 1, "4", "--loss pgi --staleness 2 --attack-steps 2 --optimizer sgd --lr 0.1"),
    ("pgi, early stop", 1, "4", "--loss pgi --attack-stop 1 --attack-steps 4 --eps 0.1 --alpha 0.03 --optimizer sgd --lr 0.1"),
    ("gat", 1, STEPS, f"{SGD} --loss gat"),
    ("gat, detached, two ranks", 2, "4 7", "--loss gat:detach --attack fgsm --attack-bn eval --batch 4 "
     "--micro-batch 2 --label-smoothing 0.1 --beta 40 --optimizer sgd --lr 0.1"),
    ("nuat", 1, STEPS, "--loss nuat --optimizer sgd --lr 0.1"),
    ("nuat, two ranks", 2, "4", "--loss nuat --attack fgsm --batch 8 --micro-batch 4 --beta 1.5 --optimizer sgd --lr 0.1"),
    ("nuat, detached", 2, "4", "--loss nuat:detach --batch 4 --awp-gamma 0.01 --optimizer sgd --lr 0.1"),
    ("noise", 1, STEPS, f"{SGD} --noise 0.2 --noise-samples 3 --attack none"),
    ("noise, two ranks", 2, "4 7", "--noise 0.12 --attack none --batch 4 --micro-batch 2 --codec int8 --average ema:decay=0.3 --budget 6"),
    ("smooth-pgd", 1, STEPS, "--noise 0.2 --noise-samples 2 --attack smooth-pgd --attack-steps 2 --norm l2 --eps 0.5 "
                             "--optimizer sgd --lr 0.1 --eval pgd3,smooth-pgd2 --budget 6"),
    ("smooth-pgd, a growing ball, two ranks", 2, "2 4 7",
     "DAT_ATTACK_BATCH=1 --noise 0.25 --noise-samples 3 --attack smooth-pgd --attack-steps 3 --norm l2 --eps 0..1@0-2 --batch 4 "
     "--micro-batch 2 --optimizer sgd --lr 0.1"),
    ("smooth-pgd, one copy", 1, "4", "--noise 0.2 --attack smooth-pgd --attack-steps 2 --norm l2 --eps 0.5 --alpha 0.2 "
                                     "--optimizer sgd --lr 0.1 --label-smoothing 0.1"),
    ("pgd under noise", 2, "4",
     "--noise 0.1 --noise-samples 2 --lambda 1 --batch 4 --optimizer sgd --lr 0.1 --eval pgd3x2 --attack-steps 2"),
    ("stability", 1, STEPS, f"{SGD} --noise 0.2 --loss kl --attack none --beta 3"),
    ("stability, copies, two ranks", 2, "4 7", "--noise 0.25 --noise-samples 2 --loss trades --attack none --batch 4 "
                                               "--micro-batch 2 --awp-gamma 0.01 --optimizer sgd --lr 0.1"),
    ("trades under noise", 1, "4", "--noise 0.2 --noise-samples 2 --loss trades --attack-steps 2 --eps 0.1 --alpha 0.04 "
                                   "--attack-start uniform --optimizer sgd --lr 0.1"),
    ("growing images under noise", 1, "4", f"{SGD} --data 12.h5 --train-size 9,12@1 --noise 0.2 --noise-samples 2 "
     "--attack none --average ema:decay=0.9"),
    ("smoothed labels", 2, "4 7", f"{SGD} --label-smoothing 0.2 --lambda 0.5 --batch 4"),
    ("no labels, trades", 1, "1 6", f"{SGD} --data 8.h5 8u.h5 --mix balanced:0.5 --loss trades "
     "--attack-start uniform --label-smoothing 0.1"),
    ("no labels, two ranks", 2, "5 7", f"{SGD} --data 8.h5 8u.h5 --mix balanced:0.5 --lambda 0.7 --batch 4 "
     "--micro-batch 2 --attack-steps 2"),
    ("perturbed weights", 1, "1 4 7", f"{SGD} --awp-gamma 0.01 --weight-decay 0.05 --lambda 1"),
    ("perturbed weights, two ranks", 2, "4 7",
     "--awp-gamma 0,0.02@1 --loss trades --attack-start uniform --batch 4 --micro-batch 2 --optimizer lars --weight-decay 0.05"),
    ("perturbed weights, own", 2, "4 7", f"{SGD} --awp-gamma 0.02 --awp local --batch 4 --weight-decay 0.05 "
     "--budget 5"),
    ("perturbed weights, overlap", 2, "4", "DAT_BUCKET=700 --awp-gamma 0.01 --overlap --batch 4 --codec int8 --loss mart"),
    ("long warm-up", 1, "3 5 8", "--warmup-epochs 2 --attack none --lambda 1"),
    ("no warm-up", 1, "1 3", "--warmup-epochs 0 --optimizer lars"),
    ("perturbed weights, averaged", 1, "4", f"{SGD} --awp-gamma 0.02 --average ema:decay=0.3:bn=raw"),
    ("exponential average", 1, STEPS, f"{SGD} --average ema:decay=0.3:bn=ema --budget 6"),
    ("exponential average, later", 2, "4 7",
     "--average none,ema:bn=rebuild@1 --batch 4 --micro-batch 2 --lambda 1 --optimizer lamb:bias_correction"),
    ("stochastic average", 2, "3 6 9", f"{SGD} --average swa --limit-train 36 --batch 4 --budget 6"),
    ("stochastic average, later", 1, "6 7 12", "--average none,swa:bn=raw@1 --optimizer lars --holdout 6"),
    ("held-out images", 1, "5", "--holdout 6 --attack none --lambda 1 --optimizer lars"),
    ("balanced", 1, "1 6 7 13", f"{SGD} --data 8.h5 8x.h5 --mix balanced:0.5 --attack-steps 1"),
    ("balanced, two ranks", 2, "5 7", f"{SGD} --data 8.h5 8x.h5 --mix balanced:1/4 --micro-batch 4 --holdout 3 "
     "--warm-start 2 --attack-steps 1"),
    ("batch above the data", 2, "1 3", "--batch 20 --warmup-epochs 1"),
    ("micro-batches above the data", 2, "3", "--limit-train 5 --batch 8 --micro-batch 2 --lambda 1"),
    ("resnet18", 1, "2", f"{SMALL} --network resnet18 --data 16.h5 --attack-steps 1 --lambda 1"),
    ("preact_resnet18", 2, "2", "--network preact_resnet18 --data 16.h5 --attack-steps 1 --batch 4 --limit-train 16 "
                                "--warmup-epochs 0 --granularity block --budget 6"),
    ("preact_resnet18_bn, normalized", 1, "2", f"{SMALL} --network preact_resnet18_bn --data 16.h5 --attack fgsm "
     "--attack-bn train --lambda 0 --normalize 0.4914,0.4822,0.4465,0.2471,0.2435,0.2616 --budget 30 "
     "--attack-start uniform:box=on"),
    # Smooth: of the million ReLUs of its fifty layers, some are always within rounding of the edge.
    ("preact_resnet50, SiLU", 1, "2", f"{SMALL} --network preact_resnet50 --activation silu --data 16.h5 "
     "--attack-steps 1 --lambda 1 --granularity module --budget 30"),
    ("wrn_28_10", 1, "2", f"{SMALL} --network wrn_28_10 --data 16.h5 --attack-steps 1 --lambda 1"),
    ("wrn_16_4, SiLU, normalized", 2, "2", "--network wrn_16_4 --width 32 --activation silu --data 16.h5 --attack-steps 1 "
                                          "--batch 4 --limit-train 16 --warmup-epochs 0 --granularity block --budget 5 "
                                          "--normalize 0.4914,0.4822,0.4465,0.2471,0.2435,0.2616"),
    ("a width of 20", 2, STEPS, "--width 20 --batch 4 --lambda 1 --budget 6 --weight-decay 0.05 --awp-gamma 0.01"),
    ("a width of 3", 1, STEPS, "--width 3 --attack fgsm --optimizer lars --weight-decay 0.05 --average ema:bn=ema"),
    # Its first stage has as many channels as the stem, when they are filled up.
    ("wrn_16_4, width 12", 1, "2", f"{SMALL} --network wrn_16_4 --width 12 --data 16.h5 --attack-steps 1 --lambda 1"),
    ("dm_wrn_10_2", 1, "2", f"{SMALL} --network dm_wrn_10_2 --width 20 --data 16.h5 --attack-steps 1 --lambda 1 "
     "--granularity module --normalize cifar10"),
    ("dm_wrn_16_1, ReLU, odd", 1, "2", f"{SMALL} --network dm_wrn_16_1 --activation relu --data 21.h5 --attack fgsm"),
    ("imagenet_resnet18", 2, "2", "--network imagenet_resnet18 --width 21 --data 37.h5 --attack-steps 1 --batch 2 "
     "--limit-train 8 --warmup-epochs 0 --lambda 1 --normalize imagenet --granularity block --budget 6"),
    ("imagenet_resnet18, 64 pixels", 1, "2", f"{SMALL} --network imagenet_resnet18 --width 16 --data 64.h5 "
     "--attack fgsm --attack-bn train --granularity module"),
    ("imagenet_resnet50, SiLU", 1, "2", f"{SMALL} --network imagenet_resnet50 --width 16 --activation silu "
     "--data 64.h5 --attack-steps 1 --lambda 1"),
    ("imagenet_resnet50, SiLU, 224 pixels", 1, "2", f"{SMALL} --network imagenet_resnet50 --width 5 "
     "--activation silu --data 224.h5 --attack-steps 1 --limit-test 4 --lambda 1 --normalize imagenet"),
    ("imagenet_wrn50_2, SiLU", 1, "2", f"{SMALL} --network imagenet_wrn50_2 --width 16 --activation silu "
     "--data 64.h5 --attack none --lambda 1"),
    ("SiLU", 1, STEPS, f"{SGD} --activation silu --lambda 1"),
    ("resnet18, SiLU", 1, "2", f"{SMALL} --network resnet18 --activation silu --data 16.h5 --attack-steps 1 "
     "--lambda 1"),
    ("normalized", 1, STEPS, "--normalize 0.4,0.5,0.6,0.2,0.25,0.3 --lambda 1 --optimizer sgd --lr 0.05"),
    ("normalized, fgsm, two ranks", 2, "4", "--normalize 0.4,0.5,0.6,0.2,0.25,0.3 --attack fgsm --batch 4 --eval pgd3,fgsm"),
    ("growing images", 1, "4 7", f"{SGD} --data 12.h5 --train-size 8,11@1,12@2 --lambda 1 --holdout 3"),
    ("growing images, two ranks", 2, "1 4", "--data 12.h5 --train-size 8,12@1 --warm-start 3 --attack-bn train --batch 4 --micro-batch 2"),
    ("growing everything, pgi", 2, "1 4", "--data 12.h5 --train-size 8,12@1 --loss pgi --attack-steps 1,2@1 "
     "--eps 2/255..0.1@0-2 --batch 4 --micro-batch 2 --optimizer sgd --lr 0.1 --no-decay norms"),
    ("growing n-fgsm", 1, "4", "--data 12.h5 --train-size 8,12@1 --attack fgsm --project off --loss pgi:detach "
     "--eps 2/255..0.1@0-2 --optimizer sgd:peak_momentum=0.85 --lr 0.1 --schedule one_cycle --momentum 0.95 "
     "--warmup-epochs 0.5 --epochs 2.5 --attack-start uniform:radius=2"),
    ("pgd, then fgsm from far outside", 1, "1 4", "--data 12.h5 --attack pgd,fgsm@1 --attack-steps 2 "
     "--alpha 0.03,0.05@1 --project off --attack-bn eval --optimizer sgd --lr 0.1 --attack-start uniform:radius=2"),
    ("growing images, average", 1, "4",
     "--data 12.h5 --train-size 9,12@1 --augment none --attack-stop 1 --awp-gamma 0.01 --average ema:decay=0.9"),
    ("grey images", 1, STEPS, "--data grey.h5 --lambda 1 --warm-start 2"),
    ("grey images, normalized", 2, "4", "--data grey.h5 --normalize 0.3,0.4 --activation silu --batch 4 --holdout 4"),
    ("products in bf16x3", 1, STEPS, "--width 32 --math bf16x3 --lambda 1 --optimizer sgd --lr 0.1"),
    # Without sides of a ReLU and signs, which in a network as deep as this turn at errors of 4e-6.
    ("products in bf16x3, deep", 2, "2", f"{SMALL} --network preact_resnet18 --activation silu --width 32 "
     "--data 16.h5 --math bf16x3 --attack none"),
    ("modules of a resnet", 1, "2", f"{SMALL} --network preact_resnet18 --data 16.h5 --attack none "
     "--granularity module --budget 12 --optimizer lars"),
]

ENVIRONMENT = {"OMP_NUM_THREADS": "1", **MPI_ENVIRONMENT}


class Wrong(Exception):
    pass

# What --brief leaves out whatever the day: networks like others, or of their size, take ten seconds and more each.
NIGHT = {
    "imagenet_resnet50, SiLU", "imagenet_resnet50, SiLU, 224 pixels", "imagenet_wrn50_2, SiLU", "imagenet_resnet18, 64 pixels",
    "dm_wrn_16_1, ReLU, odd", "preact_resnet50, SiLU", "wrn_28_10", "resnet18, SiLU", "modules of a resnet",
    "wrn_16_4, SiLU, normalized", "products in bf16x3, deep", "frozen preact_resnet18, batch statistics",
}


def words(entry):
    """What a configuration has to show: its options, by the word of each value and on one rank or several."""
    found, option = {entry[1] > 1}, None
    for word in shlex.split(entry[3]):
        if word.startswith(("--", "DAT_")):
            option = word.split("=")[0]
            found.add((option, entry[1] > 1))
        else:
            found.update((option, part) for part in re.findall("[a-z_][a-z0-9_-]*", word) if part != "h5")
    return found


def by_day(table):
    """Configurations that have every word of all between them, and a tenth of the others, drawn; in their order."""
    table = [entry for entry in table if entry[0] not in NIGHT]
    chosen, left, rest = [], set().union(*map(words, table)), list(table)
    while left:
        chosen.append(max(rest, key=lambda entry: len(words(entry) & left)))
        left -= words(chosen[-1])
        rest.remove(chosen[-1])
    chosen += drawn(rest, len(rest) // 10)
    return [entry for entry in table if entry in chosen]


def write_data(path, size, train=40, test=12, channels=3, labelled=True):
    """Images in four classes, each with a shade of its own, and a fair share of black and white."""
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        for split, count in ("train", train), ("test", test):
            if count == 0:
                continue
            labels = random.integers(0, 4, count)
            labels[:4] = range(4)
            shade = random.integers(-60, 60, (4, 1, 1, channels)) if split == "train" else shade
            pixels = random.integers(-40, 296, (count, size, size, channels)) + shade[labels]
            file[f"{split}/images"] = pixels.clip(0, 255).astype(np.uint8)
            file[f"{split}/labels"] = labels if labelled else np.full_like(labels, -1)


def launch(program, ranks, arguments):
    settings = [word for word in arguments if word.startswith("DAT_")]
    command = (["mpirun", "-np", str(ranks)] if ranks > 1 else []) + [program] + [word for word in arguments if word not in settings]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env=ENVIRONMENT | os.environ | own_session() | dict(word.split("=") for word in settings), timeout=LIMIT_S)
    if ended.returncode != 0:
        raise Wrong(f"{shlex.join(command)}: exit code {ended.returncode}\n{ended.stdout}")


def arguments_of(options):
    """BASE with other options in their places, as a list for the program."""
    found = {}
    for word in f"{BASE} {options}".split():
        if word.startswith("--"):
            found[name := word] = []
        else:
            found[name].append(word)
    return [word for name, values in found.items() for word in (name, *values)]


def rows(folder, kind):
    with open(f"{folder}/metrics.jsonl") as file:
        return [row for row in map(json.loads, file) if row["kind"] == kind]


def relative(found, wanted, unit):
    difference = float(np.linalg.norm(found - wanted))
    return difference / max(float(np.linalg.norm(unit)), 1e-300) if difference else 0.0


class Distance:
    """How far a result is from the reference: relative errors by kind, and what should be equal and is not. `hopeless`:
    no decision can change that."""

    def __init__(self):
        self.errors, self.unequal, self.hopeless = {}, [], False

    def add(self, kind, error):
        self.errors[kind] = max(self.errors.get(kind, 0.0), error if error == error else float("inf"))

    def equal(self, what, found, wanted, tolerance=0.0, decided=False):
        close = found == wanted if isinstance(wanted, str) or wanted is None or found is None else (
            np.shape(found) == np.shape(wanted) and np.all(np.abs(np.subtract(found, wanted)) <= tolerance))
        if not close:
            if np.size(wanted) > 16 and np.shape(found) == np.shape(wanted):
                found, wanted = f"off by {np.abs(np.subtract(found, wanted)).max()} at most", "equal"
            self.unequal.append(f"{what}: {found}, reference {wanted}")
            self.hopeless |= not decided

    def within(self, bounds):
        return not self.unequal and all(error <= bounds[kind] for kind, error in self.errors.items())


def compare(before, found, wanted):
    """Two results (state, record, norms) of the step from the state `before`. The errors of weights, statistics and p
    are relative to what the step changes."""
    distance = Distance()
    (state, record, norms), (right, right_record, right_norms) = found, wanted
    for name, value in right.parameters.items():
        if torch.equal(value, before.parameters[name]):  # not drawn: the same bits, but for those of the first weights
            unit = 2 * UNIT if before.step == 0 else 0
            distance.equal(name, state.parameters[name].numpy(), value.numpy(), unit * value.abs().numpy())
        else:
            distance.add("weights", relative(state.parameters[name], value, value - before.parameters[name]))
        for array, of in right.optimizer.items():
            distance.add("optimizer", relative(state.optimizer[array][name], of[name], of[name]))
    for name, value in (right.average or {}).items():
        if torch.equal(value, before.average[name]):  # between the ends of epochs
            distance.equal(f"average of {name}", state.average[name].numpy(), value.numpy())
        else:
            distance.add("weights", relative(state.average[name], value, value - before.average[name]))
    distance.equal("averaged weights", state.averaged, right.averaged)
    for name, values in (right.average_running or {}).items():
        for found_one, value in zip(state.average_running[name], values):
            distance.add("statistics", relative(found_one, value, value))
    for rank, norms_of in enumerate(right.running):
        for name, values in norms_of.items():
            for k, value in enumerate(values):
                distance.add("statistics", relative(state.running[rank][name][k], value,
                                                    value - before.running[rank][name][k]))
    distance.add("p", relative(state.p, right.p, right.p - before.p))
    # Doubles that go through sums over the layers, which round: a unit for each layer, and a few.
    distance.equal("probabilities of the draw", state.drawn_p, right.drawn_p, (right.drawn_p.shape[-1] + 4) * 2.0**-52)
    distance.equal("1/p", state.scale, right.scale, 4 * UNIT * right.scale)
    distance.equal("batches tracked", state.batches_tracked, right.batches_tracked)
    distance.add("norms", relative(state.largest_norm, right.largest_norm, right.largest_norm))
    distance.add("norms", relative(state.squares, right.squares, right.squares))
    distance.add("norms", relative(state.freezing[:-3], right.freezing[:-3], right.freezing[:-3]))
    distance.equal("interval, steps of it, first layer", state.freezing[-3:], right.freezing[-3:])
    distance.equal("steps of the layers", state.counts, right.counts)
    if (norms is None) != (right_norms is None):
        distance.unequal.append("norms: the bandit learned, or did not, against the reference")
    elif norms is not None:
        distance.equal("layers with a norm", np.sign(norms), np.sign(right_norms))
        for norm, right_norm in zip(norms, right_norms):
            distance.add("norms", relative(norm, right_norm, right_norm))
    for name, array in (right.codec or {}).items():
        distance.add("optimizer", relative(state.codec[name], array, array))
    if right.perturbations is not None:
        off = np.abs(state.perturbations - right.perturbations)
        # A byte is a rounded number; one within 1e-3 of the edge may be rounded either way.
        distance.equal("perturbations further than a rounding off", int((off > .5 + 1e-3).sum()), 0,
                       decided=True)
    distance.equal("attacks that have begun", int(state.begun is not None), int(right.begun is not None))
    if state.begun is not None and right.begun is not None:
        # Sums of steps and clamped differences of numbers up to 1, in f32; a sign that turned is a whole step.
        off = max(float((found - right_one).abs().max()) for found, right_one in zip(state.begun, right.begun))
        distance.equal("begun perturbations", off, 0, 16 * UNIT, decided=True)
    distance.equal("weights of steps before", len(state.before), len(right.before))
    unit = 2 * UNIT if before.step == 0 else 0  # the first weights, as above
    for (weights, statistics), (right_weights, right_statistics) in zip(state.before, right.before):
        off = [(weights[name] - value).abs() - unit * value.abs() for name, value in right_weights.items()]
        off += [(a - b).abs() for name, values in right_statistics.items() for a, b in zip(statistics[name], values)]
        distance.equal("weights of steps before that differ", sum(int((one > 0).sum()) for one in off), 0)
    for key, value in right_record.items():
        if key.startswith("loss") and value is not None:
            distance.add("losses", relative(record[key], value, value))
        else:
            distance.equal(key, record[key], value, 1e-12 if isinstance(value, float) else 0,
                           decided=key in ("acc_adv", "acc_clean", "attack_passes"))
    return distance


def same(decisions, others):
    return len(decisions) == len(others) and all(map(torch.equal, decisions, others))


def check(compute, measure):
    """compute(rounding) gives a result, measure(wanted, found) its distance; found None: the program's. Returns the
    distance, the bounds, and whether a decision had to fall the other way; None: nothing agrees."""
    exact = Rounding()
    wanted = compute(exact)
    off = measure(wanted, compute(Rounding(NOISE, 0, exact.decisions)))
    bounds = {kind: FACTOR * (error + UNIT) for kind, error in off.errors.items()}
    distance = measure(wanted, None)
    if distance.within(bounds):
        return distance, bounds, False
    for attempt in range(0 if distance.hopeless else ATTEMPTS):
        # Smaller errors turn fewer of the decisions that the program's did not.
        turned = Rounding(2 * NOISE / 2 ** (attempt % 4), 1 + attempt)
        compute(turned)
        if same(turned.decisions, exact.decisions):
            continue
        other = measure(compute(Rounding(decisions=turned.decisions)), None)
        if other.within(bounds):
            return other, bounds, True
    return distance, bounds, None


class Row:
    """What was found of a configuration: by kind, the error that comes nearest to its bound."""

    def __init__(self, name):
        self.name, self.worst, self.turned, self.steps, self.wrong = name, {}, 0, 0, []

    def take(self, what, distance, bounds, turned):
        self.steps += 1
        self.turned += turned is True
        for kind, error in distance.errors.items():
            if kind not in self.worst or error / bounds[kind] > self.worst[kind][0] / self.worst[kind][1]:
                self.worst[kind] = error, bounds[kind]
        if turned is None:
            self.wrong.append(f"{self.name}, {what}: " + "; ".join(
                [f"{kind} off by {error:.1e}, bound {bounds[kind]:.1e}" for kind, error in distance.errors.items()
                 if error > bounds[kind]] + distance.unequal))

    def text(self):
        cells = ["%7.0e /%6.0e" % self.worst[kind] if kind in self.worst else " " * 15 for kind in KINDS]
        return f"{self.name:<29}{self.steps:>3}{self.turned:>4}  " + " ".join(cells)


HEAD = f"{'error / bound':<29}{'n':>3}{'turn':>5} " + " ".join(f"{kind:>15}" for kind in KINDS)


def the_record(folder, step):
    """The program's record of a step, and the norms from which it learned, if it did."""
    record = next(row for row in rows(folder, "step") if row["step"] == step)
    norms = np.array([norm or 0.0 for norm in record["norm"]])
    return record, norms if norms.any() else None


def check_configuration(entry, program, folder, stop):
    torch.set_num_threads(1)
    name, ranks, ends, options = entry
    row = Row(name)
    os.chdir(folder)
    try:
        for end in map(int, ends.split()):
            # Runs go on in one folder, where the schedule allows it.
            out = f"{name}-{end}" if "--schedule" in options or "freeze" in options else name
            arguments = arguments_of(options)
            launch(program, ranks, ["train", "--out", out, "--checkpoint-every", "1", "--max-steps", str(end),
                                    *arguments])
            with open(f"{out}/config.resolved.toml") as file:
                reference = Reference(Config(file.read()), ranks)
            for key, value in automatic(reference.config, len(reference.layers)).items():
                resolved = reference.config[key]
                if f"--{key}" in arguments or f"--no-{key}" in arguments:
                    continue
                close = abs(resolved - value) <= 1e-12 if isinstance(value, float) else resolved == value
                if not close:
                    raise Wrong(f"{key} is {resolved} where it is not given, not {value}")
            run, = rows(out, "run")
            if run["layer_name"] != reference.layers:
                raise Wrong(f"{name}: layers {run['layer_name']}, reference {reference.layers}")
            if reference.costs is None:
                reference.costs = np.array(run["layer_cost"])
            chosen = reference.costs[reference.chosen():]
            sums = np.abs(chosen.mean() - 1), np.abs(reference.costs - run["layer_cost"]).max()
            if max(sums) > 1e-12 or chosen.min() <= 0:
                raise Wrong(f"{name}: costs {run['layer_cost']}, reference {reference.costs}")
            read = lambda step: reference.read_state(f"{out}/ckpt/step-{step:09d}.h5")
            for step in range(max(0, end - 2), end):
                if step == 0:
                    before = reference.initial_state(Rounding())
                    compute = lambda r: reference.step(reference.initial_state(r), r)
                else:
                    before = read(step)
                    compute = lambda r: reference.step(before, r)
                after = read(step + 1)
                found = after, *the_record(out, step + 1)
                row.take(f"step {step}", *check(compute, lambda wanted, other: compare(before, other or found, wanted)))
                if stop and row.wrong:
                    return row
        last = [record for record in rows(out, "evaluation") if record["step"] == end]
        networks = ["raw", "average"][: 1 if reference.config["average"] == "none" else 2]
        wanted = {(split, weights, attack) for split in reference.splits for weights in networks
                  for attack in reference.config["eval"]}
        if {(record["split"], record["weights"], record["attack"]) for record in last} != wanted:
            raise Wrong(f"{name}: evaluations {last}, wanted {wanted}")
        for record in last:
            check_evaluation(row, reference, read(end), record)
    except Exception as error:  # whatever a wrong program leaves behind
        row.wrong.append(f"{name}: {type(error).__name__}: {error}")
    return row


def check_evaluation(row, reference, state, record):
    def measure(wanted, other):
        distance = Distance()
        for key, value in wanted.items():
            if key.endswith("loss"):
                distance.add("evaluation", relative((other or record)[key], value, value))
            else:
                distance.equal(key, (other or record)[key], value, 1e-12, decided=key.endswith("acc"))
        return distance

    attack, restarts = reference.evaluation_attack(record["attack"])
    if record["weights"] == "average":
        state = state.of_average()
    row.take(f"evaluation after step {state.step}, {record['split']}, {record['weights']}, {record['attack']}",
             *check(lambda rounding: reference.evaluate(state, record["split"], attack, restarts, rounding), measure))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--brief", action="store_true", help="of each configuration only the last of its runs, from the "
                        "first step to its end: two steps and an evaluation; unless --only asks, not all of them: see by_day")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="configurations, * and ? as in file names")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first step that is wrong")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the configurations")
    arguments = parser.parse_args()
    chosen = [entry for entry in TABLE
              if not arguments.only or any(fnmatch.fnmatch(entry[0], name) for name in arguments.only)]
    if arguments.brief:
        chosen = chosen if arguments.only else by_day(chosen)
        chosen = [(name, ranks, ends.split()[-1], options) for name, ranks, ends, options in chosen]
    if arguments.list:
        for name, ranks, ends, options in chosen:
            print(f"{name:<29}{ranks} ranks  to {ends:<9} {options}")
        return 0
    if not chosen:
        sys.exit(f"no configuration is called {' or '.join(arguments.only)}; see --list")
    others = [entry for entry in chosen if "--math bf16x3" not in entry[3]]
    if len(others) < len(chosen) and not re.search(
            "^AMX +yes", subprocess.run([arguments.program, "doctor"], capture_output=True, text=True).stdout, re.M):
        print("this CPU has no AMX: configurations with --math bf16x3 are left out")
        chosen = others
    folder = tempfile.mkdtemp(prefix="dat-outside-")
    ENVIRONMENT["OMPI_MCA_btl_vader_backing_directory"] = folder
    program, wrong = os.path.abspath(arguments.program), []
    try:
        write_data(f"{folder}/8.h5", 8)
        write_data(f"{folder}/8x.h5", 8, train=60, test=0)
        write_data(f"{folder}/8u.h5", 8, train=60, test=0, labelled=False)
        write_data(f"{folder}/12.h5", 12)
        for size in 16, 21, 37, 64, 224:
            write_data(f"{folder}/{size}.h5", size, train=40 if size < 224 else 8)
        write_data(f"{folder}/grey.h5", 8, channels=1)
        print(f"DAT_SEED={SEED}\n{HEAD}", flush=True)
        with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as pool:
            under_way = [pool.submit(check_configuration, entry, program, folder, arguments.stop_at_first)
                         for entry in chosen]
            for row in (future.result() for future in under_way):
                print(row.text(), flush=True)
                wrong += row.wrong
                if arguments.stop_at_first and wrong:
                    pool.shutdown(cancel_futures=True)
                    break
    finally:
        shutil.rmtree(folder)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(chosen)} configurations, {len(wrong)} steps or evaluations wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
