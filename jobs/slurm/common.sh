# shellcheck shell=bash
# What the batch scripts share: the program, what starts it, and whether the job comes back when it is stopped. Sourced
# by them; `dat_hpc slurm` prints it into its own. Settings, from the environment, all optional:
#   DAT_HPC       the program; default build/cpu/dat_hpc
#   DAT_MODULES   modules to load first, e.g. "openmpi/4.1 cuda/12.4"
#   DAT_LAUNCHER  what starts the ranks: "srun --mpi=pmix", mpirun, ...; default srun where Slurm has PMIx, else mpirun
#   DAT_RESTARTS  how often the job may come back; default 100

dat_say() { echo "dat_hpc job: $*" >&2; }

dat_program=${DAT_HPC:-build/cpu/dat_hpc}
# Of a task of an array: its own name. The array's number would mean all tasks.
dat_job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
dat_job=${dat_job:-$SLURM_JOB_ID}
dat_cpus=${SLURM_CPUS_PER_TASK:-1}

# dat_prepare: modules, the program, the launcher.
dat_prepare() {
  if [ -n "${DAT_MODULES:-}" ]; then
    [ "$(type -t module)" = function ] || . /etc/profile
    # shellcheck disable=SC2086  # a word for each module
    module load $DAT_MODULES || { dat_say "cannot load the modules $DAT_MODULES" && exit 2; }
  fi
  if ! command -v "$dat_program" >/dev/null; then
    dat_say "there is no program $dat_program; build it (cmake --preset cpu && cmake --build build/cpu), or set DAT_HPC"
    exit 2
  fi
  export SRUN_CPUS_PER_TASK=$dat_cpus  # srun no longer takes it from sbatch
  if [ -n "${DAT_LAUNCHER:-}" ]; then
    read -r -a dat_launcher <<<"$DAT_LAUNCHER"
  elif srun --mpi=list 2>&1 | grep -q pmix; then
    dat_launcher=(srun --mpi=pmix)
  else
    dat_launcher=(mpirun --map-by "slot:PE=$dat_cpus")
  fi
  # Told to end, mpirun kills its ranks a second later: too soon for a checkpoint.
  export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-20}
  # The program says in a line what is wrong; mpirun would add a dozen. What it alone knows, dat_train says.
  export OMPI_MCA_orte_execute_quiet=${OMPI_MCA_orte_execute_quiet:-1}
}

# What Slurm means to do with this job:
#   back       it is in the queue again already: requeued, preempted, or a node was lost
#   preempted  it has to make room
#   limit      its time is up
#   runs       nothing
#   ended      it was cancelled, or ends by itself
#   unknown    Slurm does not answer
dat_fate() {
  local job
  job=$(timeout 10 scontrol --oneliner show job "$dat_job" 2>/dev/null)
  if [[ $job =~ \ Restarts=([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
    echo back
  elif [[ $job =~ \ PreemptTime=[0-9] ]]; then
    echo preempted
  elif [[ $job =~ \ Reason=TimeLimit\  ]]; then  # a job that ends is COMPLETING, whatever the reason
    echo limit
  elif [[ $job =~ \ JobState=RUNNING\  ]]; then
    echo runs
  elif [[ $job =~ \ JobState= ]]; then
    echo ended
  else
    echo unknown
  fi
}

# dat_requeue WHY: puts this job back into the queue. It starts when all its processes are gone.
dat_requeue() {
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "${DAT_RESTARTS:-100}" ]; then
    dat_say "$1; job $dat_job has come back ${SLURM_RESTART_COUNT:-0} times: no more (DAT_RESTARTS)"
    return
  fi
  for _ in 1 2 3; do
    if timeout 10 scontrol requeue "$dat_job"; then
      dat_say "$1; job $dat_job is requeued"
      return
    fi
    sleep 1
  done
  dat_say "$1; job $dat_job cannot be requeued: submit it again, with the same --out, and it goes on"
}

# USR1: the time limit is near (--signal), or somebody wants the job to make room. The ranks finish the step, write a
# checkpoint and exit with 75.
dat_near_end() {
  dat_told=1
  [ -z "$dat_ranks" ] || kill -USR1 "$dat_ranks" 2>/dev/null
}

# TERM: Slurm has sent it to the ranks, too, and kills all that is left after KillWait (30 s by default), this script
# included. So a job that comes back is requeued now: the ranks may need all of that time for their checkpoint.
dat_terminated() {
  [ "$dat_stays" -eq 0 ] || return
  case $(dat_fate) in
    limit) dat_requeue 'the time limit is reached' ;;
    preempted) dat_requeue 'preempted' ;;
    back) dat_say 'Slurm starts this job again' ;;
    runs)  # scancel --batch --signal=TERM
      dat_say 'told to stop: a checkpoint, and no return'
      dat_stays=1
      dat_near_end
      ;;
    *) dat_say 'cancelled: this job does not come back' ;;
  esac
}

# dat_train OPTIONS...: runs `dat_hpc train` with them and exits with its code, requeued where there is more to do.
dat_train() {
  local code last
  dat_ranks='' dat_told=0 dat_stays=0
  trap dat_near_end USR1
  trap dat_terminated TERM
  dat_prepare
  "${dat_launcher[@]}" "$dat_program" train "$@" &
  dat_ranks=$!
  [ "$dat_told" -eq 0 ] || dat_near_end
  while :; do
    wait "$dat_ranks"
    code=$?
    # A trapped signal ends `wait` early, with a code above 128.
    if [ "$code" -le 128 ] || ! kill -0 "$dat_ranks" 2>/dev/null; then break; fi
  done
  if [ "$code" -gt 128 ]; then  # the ranks may have ended while a signal was handled
    wait "$dat_ranks"
    last=$?
    [ "$last" -eq 127 ] || code=$last
  fi
  if [ "$code" -gt 128 ] && [ "$dat_told" -eq 0 ]; then
    dat_say "ended by signal $((code - 128)) ($(kill -l "$((code - 128))")); KILL is often a lack of memory"
  fi
  # 75: a checkpoint is written. Above: ended by a second signal, or by one that came before the program could take it.
  if [ "$code" -ge 75 ] && [ "$dat_stays" -eq 0 ]; then
    case $(dat_fate) in
      limit) dat_requeue 'the time limit is reached' ;;
      preempted) dat_requeue 'preempted' ;;
      runs) if [ "$code" -eq 75 ] || [ "$dat_told" -eq 1 ]; then dat_requeue "stopped early (exit code $code)"; fi ;;
    esac
  fi
  exit "$code"
}
