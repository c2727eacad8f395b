#!/usr/bin/env bash
# Unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, in build/asan; then what ranks send each other, on 1, 3
# and 5 ranks: every codec by every transport, every aggregator.
# Usage: bash tests/sanitize.sh [FILES]   FILES: a regular expression of names such as test_data.cpp; all unless given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
generator=()
[ -e build/asan/CMakeCache.txt ] || generator=(-G Ninja)
cmake -B build/asan "${generator[@]}" --preset asan -DDAT_BENCH=OFF -DDAT_TEST_FILES="${1:-}" -DDAT_SANITIZE=address,undefined
cmake --build build/asan --target dat_tests dat_mpi_tests --parallel "$(nproc)"
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1
# PROCESSORS of the tests are halves of a core.
ctest --test-dir build/asan --parallel $((2 * $(nproc))) --output-on-failure --no-tests=error --tests-regex '^test_' |
  tee build/asan/ctest.txt
eval "$(python3 tests/mpi_environment.py)"
# MPI's own libraries leave memory behind.
for ranks in 1 3 5; do
  ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 mpirun -np "$ranks" build/asan/tests/dat_mpi_tests "[codec],[reducer]~[cpu],[steps]~[cpu]"
done
