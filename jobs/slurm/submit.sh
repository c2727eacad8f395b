#!/usr/bin/env bash
# Submits a study to Slurm: arrays of train.sh, one for each number of ranks, and a job behind them that gathers their
# results into one table. Run it on a login node; the same command again goes on with what is not finished.
#
#   bash jobs/slurm/submit.sh STUDY FOLDER [--small] [options of dat_hpc train, for every task]
#   bash jobs/slurm/submit.sh budgets runs/budgets --data cifar10.h5 cifar10_ext.h5
#
#   one_node     one node with 8 GPUs: DAT with PGD (jobs/dat_pgd.toml), 2048 images per rank
#   eight_nodes  8 nodes with one GPU each: DAT with JointSpar as at TU Delft (jobs/tudelft_jointspar.toml)
#   budgets      the same with budgets of 30, 35, 40, 45 layers, and with all layers
#   p_min        the same with five lowest probabilities
#   nodes        4 nodes against 8, with JointSpar and without
#   dropout      is leaving out layers a regulariser, as dropout is? All layers, layers drawn by the bandit, layers
#                drawn evenly: the column "train - attacked" is what training accuracy has over test accuracy
#   strong       2048 images a step, shared by 1, 2, 4, 8 ranks
#   weak         2048 images a step on each of 1, 2, 4, 8 ranks
#
# --small: 2 ranks (where numbers of ranks are compared, 1 and 2) on one node without GPUs, a narrow network, a few
# epochs. Settings, from the environment: DAT_SBATCH, options for sbatch ("--partition=gpu --time=24:00:00"), and those
# of common.sh. DAT_HPC is build/cuda/dat_hpc by default, with --small build/cpu/dat_hpc. Results: FOLDER/table.txt,
# table.csv, plots/.
set -euo pipefail

usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
[ $# -ge 2 ] || usage
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
study=$1 folder=$(realpath -m "$2") small=0
shift 2
if [ "${1-}" = --small ]; then small=1 && shift; fi
more=("$@")

delft=(--config "$root/jobs/tudelft_jointspar.toml")
pgd=(--config "$root/jobs/dat_pgd.toml")
few=(--device cuda) ranks=(1 2 4 8) half=4 whole=8 batch=2048
if [ "$small" -eq 1 ]; then
  few=(--width 16 --limit-train 512 --limit-test 128 --epochs 3 --warmup-epochs 1 --milestones 2 --threads 1)
  ranks=(1 2) half=1 whole=2 batch=64
fi
# Its first steps are not measured; nothing is evaluated that is not needed.
scaling=("${pgd[@]}" --max-steps 40 --eval-every 0 --eval pgd1 --eval-alpha 8/255)

tasks=()
# task NAME NODES RANKS-PER-NODE OPTIONS...: a line of tasks.tsv.
task() {
  local IFS=$'\t' name=$1 nodes=$2 per_node=$3
  shift 3
  if [ "$small" -eq 1 ]; then per_node=$((nodes * per_node > 2 ? 2 : nodes * per_node)) nodes=1; fi
  local words=("$name" "${nodes}x$per_node" "$@" "${few[@]}" "${more[@]}")
  tasks+=("${words[*]}")
}
case $study in
  one_node) task one_node 1 8 "${pgd[@]}" --batch "$batch" ;;
  eight_nodes) task eight_nodes 8 1 "${delft[@]}" --batch "$batch" ;;
  budgets)
    for budget in 30 35 40 45; do
      task "budget-$budget" "$whole" 1 "${delft[@]}" --batch "$batch" --budget "$budget"
    done
    task all "$whole" 1 "${delft[@]}" --batch "$batch" --selector all
    ;;
  p_min)
    # TU Delft's 1.25e-2 is 0.5 here, where p is the probability of a layer; their 1.25e-1 leaves out no layer at all.
    task all "$whole" 1 "${delft[@]}" --batch "$batch" --selector all
    for p in 0.5 0.05 0.005 0.0005; do task "p_min-$p" "$whole" 1 "${delft[@]}" --batch "$batch" --selector "exp3:p_min=$p"; done
    ;;
  nodes)
    for n in "$half" "$whole"; do
      task "all-$n" "$n" 1 "${delft[@]}" --batch "$batch" --selector all
      task "jointspar-$n" "$n" 1 "${delft[@]}" --batch "$batch"
    done
    ;;
  dropout)
    task all "$whole" 1 "${delft[@]}" --batch "$batch" --selector all
    for budget in 30 40; do
      task "bandit-$budget" "$whole" 1 "${delft[@]}" --batch "$batch" --budget "$budget"
      # The lowest probability is all but budget / layers: an even draw.
      task "even-$budget" "$whole" 1 "${delft[@]}" --batch "$batch" --budget "$budget" \
        --selector "exp3:p_min=$(awk "BEGIN { print 0.9999 * $budget / 54 }")"
    done
    ;;
  strong) for n in "${ranks[@]}"; do task "strong-$n" "$n" 1 "${scaling[@]}" --batch $((batch / n)); done ;;
  weak) for n in "${ranks[@]}"; do task "weak-$n" "$n" 1 "${scaling[@]}" --batch "$batch"; done ;;
  *) usage ;;
esac

if [ "$small" -eq 1 ]; then
  DAT_HPC=${DAT_HPC:-$root/build/cpu/dat_hpc}
  settings=(--cpus-per-task=1 --time=00:30:00)
else
  DAT_HPC=${DAT_HPC:-$root/build/cuda/dat_hpc}
  settings=(--time=24:00:00)
fi
if [ "$small" -eq 0 ] && "$DAT_HPC" --version | grep -q '^CUDA *not built'; then
  echo "submit.sh: $DAT_HPC was built without CUDA, and this study reserves GPUs; build it (cmake --preset cuda && cmake" \
    "--build build/cuda), set DAT_HPC, or add --small" >&2
  exit 5
fi
export DAT_HPC DAT_ROOT=$root DAT_STUDY=$folder
for line in "${tasks[@]}"; do  # an error is seen here, not when the job starts
  IFS=$'\t' read -r -a words <<<"$line"
  "$DAT_HPC" train --out x "${words[@]:2}" --print-config >/dev/null
done
mkdir -p "$folder"
if [ -e "$folder/tasks.tsv" ] && ! printf '%s\n' "${tasks[@]}" | cmp -s - "$folder/tasks.tsv"; then
  echo "submit.sh: $folder holds another study, or this one with other options; choose another folder" >&2
  exit 2
fi
printf '%s\n' "${tasks[@]}" >"$folder/tasks.tsv"

read -r -a site <<<"${DAT_SBATCH:-}"
jobs=()
first=1
while [ "$first" -le "${#tasks[@]}" ]; do  # lines of one size are one array
  size=$(cut -f2 <<<"${tasks[first - 1]}")
  last=$first
  while [ "$last" -lt "${#tasks[@]}" ] && [ "$(cut -f2 <<<"${tasks[last]}")" = "$size" ]; do last=$((last + 1)); done
  gpus=()
  [ "$small" -eq 1 ] || gpus=(--gpus-per-node="${size#*x}")
  jobs+=("$(sbatch --parsable --job-name="$study" --nodes="${size%x*}" --ntasks-per-node="${size#*x}" "${gpus[@]}" \
    "${settings[@]}" "${site[@]}" --array="$first-$last" --output="$folder/%A_%a.log" "$root/jobs/slurm/train.sh")")
  first=$((last + 1))
done
# A task that is requeued has not ended: this job waits for its return.
dependency=$(IFS=: && echo "afterany:${jobs[*]}")
jobs+=("$(sbatch --parsable --job-name="$study-table" --nodes=1 --ntasks=1 --time=00:30:00 "${site[@]}" \
  --dependency="$dependency" --output="$folder/table.log" "$root/jobs/slurm/table.sh")")
echo "${#tasks[@]} tasks in jobs ${jobs[*]}; the last one writes $folder/table.txt"
