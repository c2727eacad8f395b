#!/usr/bin/env bash
# What takes too long for tests/run.sh, after it and with its build: double starts at random moments, every step of the
# outside reference, the memory of ranks with 550,000 images (2 GB of disk for a while), jobs that Slurm interrupts where
# there is one, parts added to a copy that is built as a whole, the rehearsal of the slots on a GPU where there is a CUDA
# toolkit, mutated files and ten million fuzzed inputs, the mutations. Some hours on two cores.
# Usage: bash tests/nightly.sh
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=build/test/tests/dat_hpc_plain
[ -x "$program" ] || program=build/test/dat_hpc
[ -x "$program" ] || { echo "tests/nightly.sh: no program in build/test; run bash tests/run.sh first" >&2 && exit 2; }
python=$(command -v python3)
"$python" -c "import h5py, numpy, torch" 2>/dev/null || python=/usr/bin/python3
failed=()
part() {
  local begin=$SECONDS
  echo "== $*"
  "$@" || failed+=("$*")
  echo "== $((SECONDS - begin)) s"
}
# 77: there is no libFuzzer here, and it has said so.
fuzzed() {
  bash tests/fuzz.sh 10000000 || [ $? -eq 77 ]
}
part python3 tests/double_starts.py "$program" 30
part "$python" tests/outside/step.py "$program"
part env DAT_STREAM_IMAGES=550000 "$python" tests/e2e/streaming.py "$program"
if command -v sinfo >/dev/null && sinfo >/dev/null 2>&1; then
  part python3 tests/slurm_cycles.py "$program" . 10
else
  echo "== no Slurm here: tests/slurm_cycles.py is not run"
fi
part "$python" tests/forecast.py "$program" --full
part python3 tests/adding_a_part.py .
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  part bash tests/gpu_slot.sh rehearse
fi
part env DAT_TEST_FLIPS=10000 build/test/tests/dat_tests "Truncation at any*"
part env DAT_MUTANTS=1500 "$python" tests/e2e/files.py "$program" Outside
part fuzzed
part bash tests/mutations.sh
echo
[ ${#failed[@]} -eq 0 ] && echo "all passed" && exit 0
printf 'FAILED: %s\n' "${failed[@]}"
exit 1
