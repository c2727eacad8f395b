#!/usr/bin/env bash
# From nothing to a robust network on this machine: installs what is missing, builds, makes a synthetic data set, trains on
# two MPI ranks for about a minute, draws the result. Usage: bash jobs/local.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$PWD
program=$here/build/cpu/dat_hpc

bash jobs/install.sh
# Tests are built here, too, by tests/run.sh; where it has been, they stay.
fresh=()
[ -e build/cpu/CMakeCache.txt ] || fresh=(-G Ninja -DBUILD_TESTING=OFF)
cmake --preset cpu "${fresh[@]}"
cmake --build build/cpu --target dat_hpc --parallel "$(nproc)"

if [ "$(id -u)" -eq 0 ]; then  # Open MPI wants to be told twice
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Open MPI counts cores, and two hardware threads may be one core.
export OMPI_MCA_rmaps_base_oversubscribe=1
# Containers often forbid reading another process's memory, and Open MPI then complains with each message.
export OMPI_MCA_btl_vader_single_copy_mechanism=none

mkdir -p runs
run=$here/runs/local-$(date -u +%Y%m%dT%H%M%SZ)
"$program" data synthetic runs/synthetic.h5 --size 16 --train 2000 --test 500
mpirun --quiet -np 2 "$program" train --data "$here/runs/synthetic.h5" --out "$run" \
  --network preact_resnet18 --width 16 --attack pgd --attack-steps 5 --lambda 1 \
  --optimizer lamb --lr 0.02 --schedule linear --warmup-epochs 1 --epochs 15 --batch 32 --eval-every 4

echo
echo "Pictures:"
"$program" plot "$run"
