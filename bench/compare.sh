#!/bin/bash
# Builds bench_step and compares it with PyTorch, pair by pair: bench/compare.sh [options of compare.py]
# DAT_BUILD: a build folder, for a GPU one with DAT_CUDA=ON (default build/cpu)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${DAT_BUILD:-build/cpu}
[ -e "$build/CMakeCache.txt" ] || cmake -B "$build" -DCMAKE_BUILD_TYPE=Release >&2
cmake --build "$build" --target bench_step >&2
exec python3 bench/compare.py "$build/bench/bench_step" "$@"
