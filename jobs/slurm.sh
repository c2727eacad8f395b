#!/usr/bin/env bash
# Trains under Slurm. Stops with a checkpoint shortly before the time limit or when preempted, and goes on by itself.
#
#   sbatch [options of sbatch] jobs/slurm.sh [options of dat_hpc train]
#   sbatch --nodes=4 jobs/slurm.sh --data cifar10.h5 --network preact_resnet18
#
# Run it from the folder that holds build/cpu/dat_hpc, or set DAT_HPC to the path of the program. Results are in
# runs/slurm-JOBID unless --out says otherwise; the same job, requeued, goes on there. DAT_LAUNCHER=mpirun or
# DAT_LAUNCHER="srun --mpi=..." overrides the choice of the launcher.
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
set -u

program=${DAT_HPC:-build/cpu/dat_hpc}
if [ ! -x "$program" ]; then
  echo "slurm.sh: there is no program $program; build it (cmake --preset cpu && cmake --build build/cpu), or set DAT_HPC" >&2
  exit 2
fi

export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # srun no longer takes it from sbatch
if [ -n "${DAT_LAUNCHER:-}" ]; then
  read -r -a launcher <<<"$DAT_LAUNCHER"
elif srun --mpi=list 2>&1 | grep -q pmix; then
  launcher=(srun --mpi=pmix)
else
  launcher=(mpirun --map-by "slot:PE=$SRUN_CPUS_PER_TASK")
fi

# Told to end, mpirun kills its ranks a second later: too soon for a checkpoint. Slurm kills mpirun after 30.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-20}

# USR1 comes from --signal; srun and mpirun hand it on to the ranks, which finish the step, write a checkpoint and exit
# with code 75. TERM at this script means that the job was cancelled: the ranks have it too, and it must not come back.
cancelled=0
"${launcher[@]}" "$program" train "$@" &
job=$!
trap 'kill -USR1 "$job" 2>/dev/null' USR1
trap 'cancelled=1' TERM
while :; do
  wait "$job"
  code=$?
  # A trapped signal ends `wait` early, with a code above 128.
  if [ "$code" -le 128 ] || ! kill -0 "$job" 2>/dev/null; then break; fi
done
if [ "$code" -gt 128 ]; then  # the job may have ended while a signal was handled
  wait "$job"
  last=$?
  [ "$last" -eq 127 ] || code=$last
fi

if [ "$code" -eq 75 ] && [ "$cancelled" -eq 0 ]; then
  echo "slurm.sh: stopped early with a checkpoint; requeueing job $SLURM_JOB_ID"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
