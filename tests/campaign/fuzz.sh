#!/usr/bin/env bash
# Runs the targets of tests/fuzz under libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, from the committed
# corpus on, in build/fuzz. Needs clang with libFuzzer and OpenMP (Debian: clang libomp-dev). The exit code is 1 where an
# input crashes, takes more than a minute (of a machine that may be busy), or more memory than three times its 64 KiB and
# 64 MiB at once; it is then in build/fuzz/findings. What one finds is mended and kept in the corpus.
# Usage: bash tests/campaign/fuzz.sh [EXECUTIONS]   of all targets together; 10,000,000 unless said otherwise
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
executions=${1:-10000000}

clang=
for candidate in clang++ clang++-14 clang++-16; do
  if echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    "$candidate" -x c++ -fsanitize=fuzzer,address -fopenmp - -o /dev/null 2>/dev/null; then
    clang=$candidate && break
  fi
done
[ -n "$clang" ] || { echo "tests/campaign/fuzz.sh: no clang with libFuzzer and OpenMP here: nothing is run" >&2 && exit 77; }

cmake -G Ninja -S . -B build/fuzz -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/++/}" -DDAT_FUZZ=ON \
  -DDAT_BENCH=OFF -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build/fuzz --target dat_fuzzers --parallel "$(nproc)"

# Shares in thousandths: options and TOML files cost 5 and 16 ms, arrays and records microseconds. Dear targets begin.
shares=(toml:5 options:10 checkpoint:40 pickle:130 npz:160 safetensors:90 data_file:40 image_index:20 tar:30 image:60 npy:140 idx:60
  mat:65 records:150)
mkdir -p build/fuzz/findings
export ASAN_OPTIONS=quarantine_size_mb=16:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0

# fuzz TARGET EXECUTIONS
fuzz() {
  local target=$1 log=build/fuzz/$1.log code=0
  mkdir -p "build/fuzz/corpus/$target"
  "build/fuzz/tests/dat_fuzz_$target" -runs="$2" -max_len=65536 -timeout=60 -malloc_limit_mb=65 -rss_limit_mb=1024 \
    -seed=1 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$target-" "build/fuzz/corpus/$target" \
    "tests/fuzz/corpus/$target" >"$log" 2>&1 || code=1
  {
    echo "$2 executions"
    [ "$code" -eq 0 ] || tail -40 "$log"
    grep -E 'stat::(number_of_executed_units|peak_rss_mb|slowest_unit_time_sec)' "$log" || true
  } | sed "s/^/$target  /"
  return "$code"
}
export -f fuzz
for share in "${shares[@]}"; do
  echo "${share%:*} $((executions * ${share#*:} / 1000))"
done | xargs -P "$(nproc)" -L 1 bash -c 'fuzz "$@"' fuzz || exit 1
