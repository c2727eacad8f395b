#!/bin/bash
# Builds the program and runs bench/communication.py: bench/communication.sh [options of communication.py]
# DAT_BUILD: a build folder (default build/cpu)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${DAT_BUILD:-build/cpu}
[ -e "$build/CMakeCache.txt" ] || cmake -B "$build" -DCMAKE_BUILD_TYPE=Release >&2
cmake --build "$build" --target dat_hpc >&2
exec python3 bench/communication.py "$(realpath "$build")" "$@"
