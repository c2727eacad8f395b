#!/usr/bin/env bash
# Builds everything with warnings as errors and runs every test; then the unit tests once more under AddressSanitizer and
# UndefinedBehaviorSanitizer; and, where there is a CUDA toolkit, the CPU's tests on a build with CUDA.
# Usage: bash tests/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash jobs/install.sh tests
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# The tests start more ranks than small machines have cores: waiting ranks must not take the time of working ones.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
# Containers often forbid reading another process's memory, and Open MPI then complains with each message.
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# configure FOLDER ARGUMENTS...
configure() {
  local folder=$1 generator=()
  shift
  [ -e "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
  cmake "${generator[@]}" "$@"
}

configure build/test -S . -B build/test -DCMAKE_BUILD_TYPE=Release -DDAT_WERROR=ON
cmake --build build/test --parallel "$(nproc)"
failed=0
ctest --test-dir build/test --output-on-failure --no-tests=error | tee build/test/ctest.txt || failed=1

echo
echo "Unit tests under AddressSanitizer and UndefinedBehaviorSanitizer"
configure build/asan --preset asan -DDAT_BENCH=OFF
cmake --build build/asan --target dat_tests --parallel "$(nproc)"
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir build/asan --tests-regex '^test_' --output-on-failure --no-tests=error | tee build/asan/ctest.txt ||
  failed=1

builds=(test asan)
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -n "$nvcc" ]; then
  echo
  echo "With CUDA"
  builds+=(cuda)
  configure build/cuda --preset cuda -DDAT_BENCH=OFF
  cmake --build build/cuda --target dat_hpc dat_tests --parallel "$(nproc)"
  ctest --test-dir build/cuda --tests-regex '^(test_.*|gpu_laws|cli)$' --output-on-failure --no-tests=error |
    tee build/cuda/ctest.txt || failed=1
fi

for build in "${builds[@]}"; do
  echo
  echo "build/$build:"
  sed -n '/tests passed/,$p' "build/$build/ctest.txt"
done
if grep -q 'gpu_laws (Skipped)' build/test/ctest.txt; then
  echo
  ctest --test-dir build/test --tests-regex '^gpu_laws$' --verbose | sed -n '/NOT RUN/,/^$/s/^[0-9]*: //p'
fi
exit "$failed"
