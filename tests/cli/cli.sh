#!/usr/bin/env bash
# Tests of the built program's command line: what it prints, where, and its exit codes.
# Usage: DAT_HPC=path/to/dat_hpc [DAT_HPC_CUDA=path/to/dat_hpc/with/CUDA] bash tests/cli/cli.sh
set -u
# What a launcher or Slurm has told the shell of the tests is not meant for the processes below.
for name in $(compgen -e | grep -E '^(SLURM_|OMPI_|PMI|MPI_LOCAL|MV2_|MVP_|MPT_)'); do unset "$name"; done
program=$(realpath "${DAT_HPC:?set DAT_HPC to the path of the program}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
passed=0
failed=0

# check NAME CODE STDOUT-PATTERN STDERR-PATTERN COMMAND...: patterns are extended regular expressions; '' = no output.
check() {
  local name=$1 code=$2 out=$3 err=$4 actual problem=''
  shift 4
  "$@" >out.txt 2>err.txt </dev/null
  actual=$?
  [ "$actual" -eq "$code" ] || problem="exit code $actual, not $code"
  if [ -z "$out" ]; then [ -s out.txt ] && problem="$problem; unexpected output"
  else grep -Eq -- "$out" out.txt || problem="$problem; output lacks '$out'"; fi
  if [ -z "$err" ]; then [ -s err.txt ] && problem="$problem; unexpected message"
  else grep -Eq -- "$err" err.txt || problem="$problem; message lacks '$err'"; fi
  if [ -z "$problem" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name: $problem" >&2
    head -n 5 out.txt err.txt >&2
  fi
}

# holds NAME PATTERN...: what was printed last has a line for each.
holds() {
  local name=$1 part
  shift
  for part; do grep -Eq -- "$part" out.txt || { failed=$((failed + 1)) && echo "FAILED: $name: no '$part'" >&2; }; done
}

# refuse CODE PATTERN ARGUMENTS...: exactly one line, on standard error, that starts as all errors do.
refuse() {
  local code=$1 pattern=$2
  shift 2
  check "refuses '$*'" "$code" '' "^dat_hpc: error: .*$pattern" "$program" "$@"
  [ "$(wc -l <err.txt)" -eq 1 ] || { failed=$((failed + 1)) && echo "FAILED: '$*' prints not one line" >&2; }
}

# Where this variable breaks MPI_Init, what passes under it does not call it: a process that no launcher has started.
export OMPI_MCA_pml=none_such
step=(train --max-steps 1 --network small_cnn --width 16 --batch 8 --attack fgsm --eval fgsm)
check 'a step without a launcher' 0 '^run folder alone' '' "$program" "${step[@]}" --out alone
holds 'a step' '^small_cnn width 16, 14746 parameters, 1 rank, .* \(built-in synthetic set; --data trains on yours\)$'
if "$program" --version | grep -q 'Open MPI'; then
  OMPI_COMM_WORLD_SIZE=1 "$program" "${step[@]}" --out launched >/dev/null 2>&1 && failed=$((failed + 1)) &&
    echo "FAILED: a process of a launcher ran without a working MPI" >&2
fi

# screen NAME LINES: what was printed last has so many lines at most, of at most 80 columns.
screen() {
  [ "$(wc -l <out.txt)" -le "$2" ] && [ "$(wc -L <out.txt)" -le 80 ] ||
    { failed=$((failed + 1)) && echo "FAILED: $1 does not fit on its screen" >&2; }
}

check 'the bare name' 0 '^Verbs' '' "$program"
screen 'the bare name' 45
cp out.txt first.txt
check 'help' 0 '^  --recipe NAME' '' "$program" --help
cmp -s out.txt first.txt || { failed=$((failed + 1)) && echo 'FAILED: --help is not what the bare name shows' >&2; }
if "$program" --version | grep -q 'Open MPI'; then  # where MPI_Init fails, whoever trains ends with 6 or is killed
  env OMPI_COMM_WORLD_SIZE=1 "$program" >out.txt 2>/dev/null
  grep -q '^Verbs' out.txt && failed=$((failed + 1)) && echo 'FAILED: the bare name under a launcher does not train' >&2
fi
check 'validate tells what differs' 0 '^  lr = 0.3 \(default 0.01\)$' '' "$program" validate --network small_cnn --width 16 --lr 0.3 \
  --out "$(printf 'x%.0s' {1..65})"
holds 'validate indents what it wraps' '^      \(default '
check 'slurm passes the recipe on' 0 '^dat_train --recipe madry --data set0.h5 --width 16$' '' sh -c "\"$program\" data synthetic \
  set0.h5 --train 12 --test 6 --size 16 >/dev/null && \"$program\" slurm --recipe madry --width 16 --data set0.h5"
check 'version' 0 '^oneDNN +[0-9]+\.' '' "$program" --version
check 'version names the commit' 0 '^commit +[0-9a-z]+' '' "$program" --version
check 'printed configuration' 0 '^eps = "4/255"$' '' "$program" --eps 4/255 --network small_cnn --print-config
cp out.txt run.toml
check 'validate' 0 'step' '' "$program" validate --config run.toml
grep -Eq 'warm start|^(added up|noise|generators|protocol) ' out.txt && failed=$((failed + 1)) &&
  echo "FAILED: validate speaks of a warm start, of sums, of noise, or of other ranks" >&2
check 'validate with a warm start' 0 '^warm start +0\.4 MB of host memory per rank \(0\.8 MB more on .*\), 0\.2 MB per step' '' env OMPI_COMM_WORLD_SIZE=2 \
  OMPI_COMM_WORLD_LOCAL_SIZE=2 "$program" validate --config run.toml --warm-start 5 --batch 256 --micro-batch 32 --mask per_worker:dense
holds 'validate' '^added up .* \(--node-sums window\), 0\.9 MB' ' 0\.9 MB per step on average, 0\.9 MB with all layers'
check 'validate with sums by MPI' 0 '^added up .* \(--node-sums mpi\)' '' env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
  "$program" validate --config run.toml --node-sums mpi --mask per_worker:union
holds 'validate' '^all-reduce {7}0\.8 MB per step on average, 0\.9 MB with all layers'  # 1 - (14/54)^2 of them are drawn by either
refuse 2 '--warm-start 5 has no perturbation' validate --warm-start 5 --attack none
# Convolutions of 995,328 multiply-adds and 320 others; an epoch, two, and one.
check 'validate with images that grow' 0 '^training images +8x8 \(0\.25 of .*\) up to epoch 1, then 12x12 \(0\.56 of .*\) up to epoch 3, then 16x16 \(1 of .*\); of the whole run 0\.59$' \
  '' "$program" validate --network small_cnn --width 16 --epochs 4 --warmup-epochs 0 --train-size 8,12@1,16@3
check 'validate with images of two sizes' 0 '; of the whole run 0\.62$' '' "$program" validate --network small_cnn --width 16 --epochs 4 \
  --warmup-epochs 0 --train-size 8,16@2
check 'validate with parts' 0 '^ranks +1, batch 32 each, 32 in all, micro-batch 32$' '' "$program" validate --network small_cnn --width 16 \
  --budget-unit bytes --noise 0.25 --noise-samples 2 --attack none,pgd@1 --batch 32,8@2
holds 'validate' '^parameters +14746 in 11 tensors, 11 layers \(granularity tensor\)$' '^part +ranks above, .* from epoch 0 on, the largest$' \
  '^forward pass +1\.0 million multiply-adds' '^attack +0 passes .* image$' '^  from epoch 1   eps 8/255; 10 passes .*, of 32 images at a time$' '^noise .* 0\.25, 2 copies of' \
  '^all-reduce .* 0\.1 MB with all' '^budget +8\.14815 of 11, .* bytes$' '^  conv1.weight +0\.3223$' '^  linear.bias +0\.0075$'
check 'validate with fewer ranks than krum is proven for' 0 '^warning +--aggregator krum .* 3 with f = 0 ' '' env \
  OMPI_COMM_WORLD_SIZE=2 "$program" validate --config run.toml --aggregator krum --faults 0
check 'validate with a budget in seconds' 0 '^budget .* seconds as measured now, without those of the sum over the ranks$' '' env \
  OMPI_COMM_WORLD_SIZE=2 "$program" validate --config run.toml --budget-unit seconds

# Without a GPU, whether a build has CUDA or not; that with it takes longer to start.
check 'doctor' 0 '^MPI .*, 1 rank; not started' '' "$program" doctor
memory=$(awk '/^MemTotal:/ { printf "%.1f GB", $2 * 1024 / 1e9 }' /proc/meminfo)
holds 'doctor' "^CPU .*, $(nproc) of its [0-9]+ cores" "^memory +$memory, [0-9.]+ GB of it free" '^disk +[0-9.]+ GB free'
mkdir tools
printf '#!/bin/sh\nprintf "MPI plugin types are...\\n\\tnone\\n\\t$KIND\\nspecific pmix plugin versions available: pmix_v4\\n"\n' >tools/srun
chmod +x tools/srun
if command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'; then
  check 'doctor with PMIx in Slurm' 0 '^launcher .*Open MPI.*; srun --mpi=list has none, pmix: srun --mpi=pmix starts' '' \
    env KIND=pmix PATH="$PWD/tools:$PATH" "$program" doctor
  check 'doctor without' 0 '^launcher .*; srun --mpi=list has none, pmi2, not pmix: in a job mpirun starts' '' \
    env KIND=pmi2 PATH="$PWD/tools:$PATH" "$program" doctor
  printf '#!/bin/sh\necho "$LAUNCHER"\necho "Report bugs"\n' >tools/mpirun
  chmod +x tools/mpirun
  check 'doctor with the launcher of another MPI' 0 '^launcher +HYDRA 4; warning: not that of Open MPI .* first; srun' '' \
    env KIND=pmix LAUNCHER='HYDRA 4' PATH="$PWD/tools:$PATH" "$program" doctor
  check 'doctor with its own by another name' 0 '^launcher +mpirun \(OpenRTE\) 4; srun' '' \
    env KIND=pmix LAUNCHER='mpirun (OpenRTE) 4' PATH="$PWD/tools:$PATH" "$program" doctor
fi
check 'doctor without gnuplot' 0 '^gnuplot +none: ' '' env PATH=/nowhere "$program" doctor
holds 'doctor without a path' '^launcher +no mpirun on the path$'
for build in "$program" ${DAT_HPC_CUDA:+"$DAT_HPC_CUDA"}; do
  "$build" doctor | grep -q ': usable$' ||
    check "no GPU for $build" 5 '' '--device cuda: (this machine has no NVIDIA driver|this dat_hpc was built without CUDA|no GPU|the NVIDIA driver)' \
      "$build" validate --device cuda
done

check 'bench' 0 '^images/s' '' "$program" bench --device cpu --network small_cnn --width 16 --batch 8 \
  --seconds 0.2
holds 'bench' '^checked: the attack raises the loss' '^FMA in registers' '^32-32 3x3/1 @16 ' '^step by the wall  '
check 'bench refuses a folder' 9 '' '^dat_hpc: error: cannot create the folder /dev/null/out' "$program" \
  bench --device cpu --network small_cnn --width 16 --batch 8 --out /dev/null/out

check 'forecast' 0 '^1gbit: 30\.0 us, 117\.7 MB/s' '' "$program" forecast --device cpu --network small_cnn \
  --width 16 --batch 8 --attack-steps 2 --seconds 0.2 --ranks 1,2,8 --bandwidth 1gbit,10gbit --out forecast
holds 'forecast' '^small_cnn, width 16, batch 8 a rank' '^codec float32 ' '^10gbit: ' '^      8 '
# Another question to the same calibration: the same answer where the question is the same, and no MPI.
sed -n '/^10gbit/,/^$/p' out.txt | head -n 5 >first.txt
cp forecast/calibration.json forecast.json  # by another name, in a folder where nothing is written
check 'forecast from a calibration' 0 '^10gbit: ' '' "$program" forecast --calibration forecast.json \
  --ranks 1,2,8 --bandwidth 10gbit
sed -n '/^10gbit/,/^$/p' out.txt | head -n 5 | cmp -s - first.txt ||
  { failed=$((failed + 1)) && echo 'FAILED: the same calibration gives another forecast' >&2; }
check 'forecast with everything' 0 '^2GB/s: 5\.0 us' '' "$program" forecast --calibration forecast/calibration.json --overlap \
  --ranks 6 --ranks-per-node 2 --bandwidth 2GB/s --latency 5 --algorithm tree --jitter 0.05 --stale-attack 1 --bucket 1000 \
  --budget 5,6 --budget-unit bytes --codec float32
refuse 2 "--bandwidth takes numbers with gbit" forecast --calibration forecast/calibration.json --bandwidth fast
refuse 2 "has measured no network" forecast --calibration forecast/calibration.json --bandwidth measured
refuse 9 'cannot create the folder /dev/null/out' forecast --calibration forecast/calibration.json --out /dev/null/out

refuse 2 'CHECKPOINT is required' export --out model.onnx
refuse 3 'none.h5' data inspect none.h5
refuse 3 'none.h5' validate --data none.h5
refuse 9 'no/such/folder' data synthetic no/such/folder/set.h5 --train 10 --test 10
help_to_full_disk() { "$program" --help >/dev/full; }
check 'a full disk' 9 '' 'standard output' help_to_full_disk

check 'other ranks fail silently' 2 '' '' env OMPI_COMM_WORLD_RANK=1 "$program" --ltr 0.1
check 'other ranks do not warn' 0 '' '' env OMPI_COMM_WORLD_RANK=1 "$program" --lr 0.1 --lr 0.2 --print-config
check 'other ranks print no help' 0 '' '' env OMPI_COMM_WORLD_RANK=1 "$program" --help

# Verbs without MPI do their work, and speak, whatever number a launcher or Slurm has given the process.
printf '\xef\xbb\xbfnetwork = "small_cnn"\nwidth = 16\n' >bom.toml
for rank in SLURM_PROCID PMI_RANK PMIX_RANK OMPI_COMM_WORLD_RANK MV2_COMM_WORLD_RANK; do
  check "validate with $rank" 0 '^network +small_cnn' '' env $rank=1 "$program" validate --config bom.toml
done
check 'data synthetic on rank 1' 0 '^wrote of.h5' '' env SLURM_PROCID=1 "$program" data synthetic of.h5 --train 12 --test 6 --size 16
check 'data inspect on rank 1' 0 '^file +.*h5$' '' env OMPI_COMM_WORLD_RANK=1 "$program" data inspect of.h5
check 'slurm on rank 1' 0 '^dat_train' '' env SLURM_PROCID=1 "$program" slurm --config bom.toml
check 'an error on rank 1' 3 '' 'none' env SLURM_PROCID=1 "$program" data convert none out.h5
check 'a wrong command line on rank 1' 2 '' 'OUTPUT is required' env OMPI_COMM_WORLD_RANK=1 "$program" data convert none
check 'one of two ranks validates' 0 '' '' env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$program" validate --config bom.toml
check 'tasks of Slurm that MPI does not know' 0 '^Final: ' '^dat_hpc: warning: 2 tasks are announced .* MPI knows of this one alone' \
  env SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$program" eval alone --eval fgsm --limit 16
check 'a batch script of Slurm without srun' 0 '^threads' '' env SLURM_NTASKS=8 SLURM_PROCID=0 "$program" doctor
check 'tasks of Slurm with a mistake' 2 '' "unknown option '--ltr'" env SLURM_NTASKS=4 SLURM_PROCID=3 "$program" --ltr 1

check 'doctor names the threads' 0 '^threads +3 of each rank: OMP_NUM_THREADS' '' env OMP_NUM_THREADS=3 "$program" doctor
env -u OMP_NUM_THREADS "$program" doctor | grep -Eq '^threads +1 of' ||
  check 'a step names who left it one thread' 0 ', 1 thread \(OMP_NUM_THREADS\); ' '' \
    env OMP_NUM_THREADS=1 "$program" "${step[@]}" --out left
check 'a total batch that is cut' 0 ', batch 24 each, 48 in all' '' env OMPI_COMM_WORLD_SIZE=2 "$program" validate \
  --config bom.toml --limit-train 48 --total-batch 1000
holds 'a total batch that is cut' '^warning .*--total-batch 1000 is more than the training images: it is cut to 48,' \
  '^added up +by MPI \(--node-sums mpi\)'
check 'a value that looks like an option' 0 '^out = "-data"$' '' "$program" train --out -data --print-config
check 'as many epochs as 32 bits do not hold' 0 '^length +3 of 412316861088 steps, 4294967303 epochs of 96 steps' '' \
  "$program" validate --config bom.toml --batch 8 --limit-train 768 --epochs 4294967302 --max-steps 3

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
