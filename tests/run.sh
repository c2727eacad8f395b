#!/usr/bin/env bash
# Builds what jobs/local.sh has left to build, the tests and, where there is a CUDA toolkit, the program with CUDA, in
# build/cpu, and runs every test. docs/testing.md says what takes how long, and what tests/nightly.sh runs besides:
# sanitizers, for one.
# Usage: bash tests/run.sh [--isa avx2]
#   --isa avx2   Every test with no more than AVX2: the kernels are compiled for x86-64-v3 (DAT_ARCH), oneDNN and the
#                backend obey DNNL_MAX_CPU_ISA=AVX2. In a build folder of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n 's/^# \(Usage: .*\)/\1/p' tests/run.sh >&2
  exit 2
}
case $# in
  0) isa=best ;;
  2) [ "$1 $2" = '--isa avx2' ] || usage && isa=avx2 ;;
  *) usage ;;
esac

bash jobs/install.sh tests
# With these, e2e_export loads what the program has written; without them it says what it leaves out.
python=python3
"$python" -c 'import h5py' 2>/dev/null || python=/usr/bin/python3
[ -e build/python/onnxruntime ] ||
  "$python" -m pip install --quiet --no-deps --target build/python -r tests/requirements.txt ||
  echo "run.sh: no ONNX Runtime and no safetensors from PyPI: e2e_export will skip a part" >&2
eval "$(python3 tests/mpi_environment.py)"

# configure FOLDER ARGUMENTS...
configure() {
  local folder=$1 generator=()
  shift
  [ -e "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
  cmake -B "$folder" "${generator[@]}" "$@"
}
cores=$(nproc)
# Where there is a CUDA toolkit, one architecture: tests/house/p100.sh compiles for another one, and nvcc checks the code
# for one as for all.
options=(--preset cpu -DBUILD_TESTING=ON -DCMAKE_CUDA_ARCHITECTURES=75-real)
build=cpu
if [ "$isa" = avx2 ]; then
  build=test-avx2
  options+=(-DDAT_ARCH=x86-64-v3)
  export DNNL_MAX_CPU_ISA=AVX2
fi
configure "build/$build" "${options[@]}"
cmake --build "build/$build" --target dat_suite --parallel "$cores"
# PROCESSORS of the tests are halves of a core; half as many again use the time in which tests wait.
failed=0
# What needs a GPU is run alone, one at a time where it is timed: ctest -L gpu.
ctest --test-dir "build/$build" --label-exclude gpu --parallel $((3 * cores)) --output-on-failure --no-tests=error | tee "build/$build/ctest.txt" ||
  failed=1

echo
echo "build/$build:"
sed -n '/tests passed/,$p' "build/$build/ctest.txt"
echo
if [ "$isa" = best ] && grep -qw avx512f /proc/cpuinfo; then
  echo "Instructions: the processor's best, AVX-512"
else
  echo "Instructions: no more than AVX2"
fi
echo
echo "NOT RUN: what needs a GPU. Where there is one: cmake --preset cuda && cmake --build build/cuda && ctest --test-dir build/cuda -L gpu"
exit "$failed"
