#!/bin/bash
# Builds the program and runs bench/scaling.py: bench/scaling.sh [options of scaling.py]
# DAT_BUILD: a build folder (default build/cpu)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${DAT_BUILD:-build/cpu}
[ -e "$build/CMakeCache.txt" ] || cmake -B "$build" -DCMAKE_BUILD_TYPE=Release >&2
cmake --build "$build" --target dat_hpc bench_scaling >&2
exec python3 bench/scaling.py "$(realpath "$build")" "$@"
