#!/usr/bin/env bash
# What takes too long for tests/run.sh, after it and with its build. Each part says what it is; docs/testing.md tells
# more. About four hours on two cores, and 2 GB of disk for a while.
# Usage: [DAT_IMAGES=TAR] bash tests/nightly.sh   TAR: many images in folders of their classes, such as Tiny ImageNet's
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=build/cpu/dat_hpc
[ -x build/cpu/tests/dat_tests ] || { echo "tests/nightly.sh: no tests in build/cpu; run bash tests/run.sh first" >&2 && exit 2; }
python=$(command -v python3)
"$python" -c "import h5py, numpy, torch" 2>/dev/null || python=/usr/bin/python3
# Before mpirun: a thread a rank, more ranks than cores, root.
ranks=(env OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1)
export DAT_SEED=${DAT_SEED:-$(date +%Y%m%d)}  # where a part of a table is drawn, another one each night
echo "DAT_SEED=$DAT_SEED"
failed=()
part() {
  local begin=$SECONDS
  echo "== $*"
  "$@" || { [ $? -eq 77 ] && echo "== not everything could be checked here"; } || failed+=("$*")
  echo "== $((SECONDS - begin)) s"
}
part cmake --build build/cpu --parallel "$(nproc)"  # benches
part "${ranks[@]}" DAT_GENERATOR_STEPS=10000 mpirun -np 3 build/cpu/tests/dat_mpi_tests "With delays*"
part "$python" tests/campaign/bans.py "$program"
part env DAT_ALL_CASES=1 build/cpu/tests/dat_tests "[byzantine],[reducer]"
part "${ranks[@]}" DAT_ALL_CASES=1 mpirun -np 3 build/cpu/tests/dat_planted_tests
part env DAT_KILLS=300 "$python" tests/e2e/best.py "$program" Best.test_random_kills_with_changing_numbers_of_ranks
part "$python" tests/campaign/soak.py "$program" 100000
part python3 tests/campaign/hangs.py "$program" build/cpu/tests/dat_hang_case --count 24
part "${ranks[@]}" DAT_FLIPS=1000 DAT_CLEAN_STEPS=100000 mpirun -np 3 build/cpu/tests/dat_mpi_tests "[corruption]"
part "$python" tests/outside/step.py "$program"
for network in resnet18 preact_resnet18 preact_resnet50 wrn_28_10 dm_wrn_28_10 imagenet_resnet18 imagenet_resnet50; do
  part "$python" tests/golden/full_size.py build/cpu/tests/dat_probe $network
done
part "$python" tests/golden/full_size.py build/cpu/tests/dat_probe imagenet_resnet50 --size 224 --width 16
part env DAT_SEQUENCE=aa-standard "$python" tests/e2e/autoattack.py "$program" Sequence.test_ranks_batches_and_kills
part bash tests/sanitize.sh
part bash tests/campaign/threads.sh
part bash tests/house/p100.sh
part python3 tests/house/packages.py . "$program"
part env DAT_STREAM_IMAGES=550000 "$python" tests/e2e/streaming.py "$program"
part python3 tests/campaign/slurm_cycles.py "$program" . 10
part env DAT_ALL_CASES=1 python3 tests/cli/slurm.py "$program" . Studies
part "$python" tests/cli/forecast.py "$program" --full
part python3 tests/house/adding_a_part.py .
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  part bash tests/gpu_slot.sh rehearse
fi
part env DAT_TEST_FLIPS=10000 build/cpu/tests/dat_tests "Truncation at any*"
part env DAT_LARGE_IMAGES=50000000 DAT_LARGE_INDEX=1280000 build/cpu/tests/dat_tests "A start on*"
for file in interrupted restart setbacks leaving byzantine generators hang starts record same_weights files autoattack certify export report; do
  part env DAT_ALL_CASES=1 "$python" tests/e2e/$file.py "$program"
done
part env DAT_ALL_CASES=1 "$python" tests/e2e/fine_tuning.py "$program" FineTuning Table
part env DAT_ALL_CASES=1 "$python" tests/e2e/data.py "$program" ManyClasses
if [ -x build/cpu/tests/dat_mpi_tests_double ]; then
  part env DAT_ALL_CASES=1 "$python" tests/e2e/cuda.py build/cpu/tests/dat_hpc_double
  part "$python" tests/outside/sixteen_bits.py build/cpu/tests/dat_hpc_double --width 64
  part "${ranks[@]}" DAT_TEST_DEVICE=cuda DAT_ALL_CASES=1 mpirun -np 2 build/cpu/tests/dat_mpi_tests_double \
    "~[communicator]~[message]~[reducer]~[.]"
  part "${ranks[@]}" DAT_TEST_DEVICE=cuda DAT_ALL_CASES=1 mpirun -np 1 build/cpu/tests/dat_mpi_tests_double "[steps]~[cpu]"
  part env DAT_TEST_DEVICE=cuda DAT_ALL_CASES=1 build/cpu/tests/dat_tests_double \
    "[backend]~[cpu],[network]~[cpu],[golden]~[cpu],[optimizer]~[cpu],[attack]~[cpu],[codec]~[cpu],[trainer]~[cpu],[double],[long]~[cpu]"
fi
part env DAT_MUTANTS=1500 "$python" tests/e2e/files.py "$program" Outside
part env DAT_ALL_CASES=1 "$python" tests/e2e/images.py "$program" Images.test_a_thousand_damaged_images Images.test_many_images_killed_at_any_moment
part env DAT_FUZZ_MUTANTS=3000 build/asan/tests/dat_tests "Whatever bytes*"
part bash tests/campaign/fuzz.sh 10000000
part /usr/bin/python3 tests/campaign/mutate.py
echo
[ ${#failed[@]} -eq 0 ] && echo "all passed" && exit 0
printf 'FAILED: %s\n' "${failed[@]}"
exit 1
