#!/usr/bin/env bash
# Trains under Slurm. Stops with a checkpoint shortly before the time limit or when preempted, and goes on by itself.
#
#   sbatch [options of sbatch] jobs/slurm/train.sh [options of dat_hpc train]
#   sbatch --nodes=4 jobs/slurm/train.sh --data cifar10.h5 --network preact_resnet18
#
# Submit it from the folder of this repository, or set DAT_ROOT to it. Results are in runs/slurm-JOBID unless --out
# says otherwise; the same job, requeued, goes on there. Further settings are in common.sh. submit.sh makes arrays of
# it: then DAT_STUDY is a folder, and task N trains with the options in line N of its tasks.tsv.
#
#SBATCH --job-name=dat_hpc
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=dat_hpc-%j.log
. "${DAT_ROOT:-.}/jobs/slurm/common.sh" || exit 2

if [ -n "${DAT_STUDY:-}" ]; then
  IFS=$'\t' read -r -a words < <(sed -n "${SLURM_ARRAY_TASK_ID}p" "$DAT_STUDY/tasks.tsv")
  set -- --out "$DAT_STUDY/${words[0]}" "${words[@]:2}" "$@"
fi
dat_train "$@"
