#!/usr/bin/env bash
# Runs the targets of tests/fuzz under libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, from the committed
# corpus on, in build/fuzz. Needs clang with libFuzzer and OpenMP (Debian: clang libomp-dev). The exit code is 1 where an
# input crashes, takes more than ten seconds, or more memory than three times its 64 KiB and 64 MiB at once; it is then in
# build/fuzz/findings. What one finds is mended and kept in the corpus.
# Usage: bash tests/fuzz.sh [EXECUTIONS]   of all targets together; 10,000,000 unless said otherwise
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
executions=${1:-10000000}

clang=
for candidate in clang++ clang++-14 clang++-16; do
  if echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    "$candidate" -x c++ -fsanitize=fuzzer,address -fopenmp - -o /dev/null 2>/dev/null; then
    clang=$candidate && break
  fi
done
[ -n "$clang" ] || { echo "tests/fuzz.sh: no clang with libFuzzer and OpenMP here: nothing is run" >&2 && exit 77; }

cmake -G Ninja -S . -B build/fuzz -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/++/}" -DDAT_FUZZ=ON \
  -DDAT_BENCH=OFF -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build/fuzz --target dat_fuzzers --parallel "$(nproc)"

# Shares in thousandths: a command line takes a millisecond, a number of NumPy's microseconds.
declare -A share=([toml]=150 [options]=30 [records]=170 [npz]=170 [npy]=180 [pickle]=180 [checkpoint]=60 [data_file]=60)
mkdir -p build/fuzz/findings
failed=0
export ASAN_OPTIONS=quarantine_size_mb=16:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
for target in "${!share[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  log=build/fuzz/$target.log
  echo "== $target: $((executions * share[$target] / 1000)) executions"
  "build/fuzz/tests/dat_fuzz_$target" -runs=$((executions * share[$target] / 1000)) -max_len=65536 -timeout=10 \
    -malloc_limit_mb=65 -rss_limit_mb=1024 -seed=1 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$target-" \
    "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1 || { failed=1 && tail -40 "$log"; }
  grep -E 'stat::(number_of_executed_units|peak_rss_mb|slowest_unit_time_sec)' "$log" || true
done
exit "$failed"
