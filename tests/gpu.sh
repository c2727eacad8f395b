#!/usr/bin/env bash
# Everything that needs a GPU: builds with CUDA, runs the tests on the GPU, a short training, compute-sanitizer, and the
# benchmarks; goes on after failures; ends with a table. Results and logs go into a folder.
# Usage: bash tests/gpu.sh [--out DIR] [--only PART,...] [--quick] [--deps DIR]
#        bash tests/gpu.sh --pack DIR
#   --out DIR    default docs/results/DATE-GPU
#   --only       some of: laws golden mpi train sanitizer bench (or single lines of the table, as bench-compare-compiled)
#   --quick      smaller benchmarks: minutes instead of an hour
#   --deps DIR   for a machine without network and packages: what --pack has made, carried there
#   --pack DIR   on a Debian machine with network on which jobs/install.sh has run: copies the libraries and headers that
#                the build needs into DIR, with an MPI that runs from any folder. Still needed where DIR is carried to: a
#                compiler, CMake, Ninja, the CUDA toolkit, cuDNN, Python with PyTorch and h5py, and as new a C library.
# DAT_GPU_BUILD: the build folder (default build/gpu). DAT_PYTHON: the Python with PyTorch. DAT_GPU_SH_DRY=1: print the
# commands instead of running them.
# Exit status: 0 passed, 1 something failed, 2 wrong usage, 77 there is no GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  echo "gpu.sh: $1" >&2
  sed -n 's/^# \(Usage: .*\)/\1/p' tests/gpu.sh >&2
  exit 2
}
out='' only='' quick=0 deps='' pack=''
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 ;;
    --out | --only | --deps | --pack)
      [ $# -gt 1 ] || usage "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    *) usage "unknown argument '$1'" ;;
  esac
  shift
done
groups=(laws golden mpi train sanitizer bench)
for name in ${only//,/ }; do
  [[ " ${groups[*]} " == *" ${name%%-*} "* ]] || usage "unknown part '$name'; known: ${groups[*]}"
done
dry=${DAT_GPU_SH_DRY:-0}
build=${DAT_GPU_BUILD:-build/gpu}

arch=$(uname -m)-linux-gnu

# make_pack: MPI is MPICH as the package index has it: unlike Debian's Open MPI it does not know the folder it was made for.
make_pack() {
  local packages=(libdnnl-dev libdnnl2 libhdf5-dev libhdf5-103-1 catch2 libcli11-dev nlohmann-json3-dev libxxhash-dev
    libssl-dev ocl-icd-opencl-dev opencl-c-headers opencl-clhpp-headers) package file libraries=$pack/usr/lib/$arch
  for package in "${packages[@]}"; do
    dpkg -s "$package" >/dev/null || return
    while read -r file; do
      case $file in
        *Catch2*.a) ;;
        *.a | */doc/* | */man/* | */bin/* | *fortran* | *_cpp.so* | *.mod) continue ;;
      esac
      if [ -f "$file" ]; then
        mkdir -p "$pack${file%/*}" && cp -d "$file" "$pack$file" || return
      fi
    done < <(dpkg -L "$package")
  done
  # CMake looks for HDF5 where nobody but Debian has it only by running h5cc, which knows other folders.
  cp "$pack"/usr/include/hdf5/serial/* "$pack/usr/include/" &&
    ln -sf "$arch/libhdf5_serial.so" "$pack/usr/lib/libhdf5.so" || return
  # What these libraries need, and links into other packages; but not at run time what every system has.
  for file in "$libraries"/*.so; do
    [ -e "$file" ] || { rm "$file" && cp -L "${file#"$pack"}" "$file"; } || return
  done
  while read -r file; do
    [ -e "$libraries/${file##*/}" ] || cp -L "$file" "$libraries/" || return
  done < <(ldd "$libraries"/*.so* 2>/dev/null | awk '/=> \// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libgomp|libcrypto|libssl|libz)\.so')
  python3 -m pip download --quiet --no-deps --dest "$pack/wheel" mpich &&
    python3 -m zipfile -e "$pack"/wheel/mpich-*.whl "$pack/wheel" &&
    rm -rf "$pack/mpi" && mv "$pack"/wheel/mpich-*.data/data "$pack/mpi" && rm -r "$pack/wheel" || return
  du -sh "$pack"
}
if [ -n "$pack" ]; then
  if ! mkdir -p "$pack" || ! pack=$(realpath "$pack") || ! make_pack; then
    echo "gpu.sh: --pack failed" >&2
    exit 1
  fi
  exit 0
fi
configuration=(-DCMAKE_BUILD_TYPE=Release -DDAT_CUDA=ON -DDAT_WERROR=ON)
if [ -n "$deps" ]; then
  deps=$(realpath "$deps") || exit 2
  export CMAKE_PREFIX_PATH=$deps/usr
  export LD_LIBRARY_PATH=$deps/usr/lib/$arch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PATH=$deps/mpi/bin:$PATH
  chmod +x "$deps"/mpi/bin/*
  configuration+=("-DHDF5_ROOT=$deps/usr" "-DMPI_CXX_COMPILER=$deps/mpi/bin/mpicxx"
    "-DMPIEXEC_EXECUTABLE=$deps/mpi/bin/mpiexec" "-DOPENSSL_ROOT_DIR=$deps/usr")
fi

# --- What is here ----------------------------------------------------------------------------------------------------

missing=()     # of what the build needs
declare -A has # gpu, build, torch, sanitizer: 1 or why not
# row NAME WHAT-IT-IS HOW-TO-GET-IT: no WHAT: it is missing
row() {
  if [ -n "$2" ]; then
    printf '  %-20s %s\n' "$1" "$2"
  else
    printf '  %-20s MISSING: %s\n' "$1" "$3"
  fi
}
# needed NAME WHAT HOW: the build cannot do without it
needed() {
  row "$@"
  [ -n "$2" ] || missing+=("$1")
}
# header NAME [g++ OPTION...]: its path, if it is found
header() {
  echo "#include <$1>" | g++ -std=c++20 -E -x c++ ${deps:+-I"$deps/usr/include"} "${@:2}" - 2>/dev/null |
    grep -m1 -oE "/[^\"]*/$1" | head -n1
}

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
toolkit=''
if [ -n "$nvcc" ]; then
  toolkit=$(realpath "$nvcc") && toolkit=${toolkit%/bin/nvcc}
  export CUDACXX=$nvcc
fi
python=${DAT_PYTHON-}
if [ -z "$python" ]; then
  for python in python3 /usr/bin/python3; do "$python" -c 'import torch' 2>/dev/null && break; done
fi
# Where a wheel keeps its include and lib folders: wheel MODULE...
wheel() {
  "$python" - "$@" 2>/dev/null <<'PY'
import importlib, sys
for name in sys.argv[1:]:
    try:
        print(list(importlib.import_module(name).__path__)[0])
        break
    except ImportError:
        pass
PY
}

gpu='' driver='' capability=''
smi=$(command -v nvidia-smi || true)
if [ -n "$smi" ]; then
  IFS=, read -r gpu driver capability _ < <(
    "$smi" --query-gpu=name,driver_version,compute_cap --format=csv,noheader 2>/dev/null
  )
  gpu=${gpu# } driver=${driver# } capability=${capability// /}
  [ -n "$driver" ] || gpu=''
fi
echo "On this machine:"
row GPU "${gpu:+$gpu, driver $driver, compute capability $capability}" 'no GPU answers to nvidia-smi'
needed nvcc "${nvcc:+$("$nvcc" --version | grep -oE 'release .*'), $nvcc}" \
  'the CUDA toolkit 12 or 13 (developer.nvidia.com/cuda-downloads)'
cublas=$(header cublas_v2.h ${toolkit:+-I"$toolkit/include"})
if [ -z "$cublas" ]; then
  root=$(wheel nvidia.cu13 nvidia.cublas)
  library=$(find "${root:-/none}/lib" -name 'libcublas.so.*' -print -quit 2>/dev/null)
  if [ -n "$library" ]; then
    cublas="$root/include/cublas_v2.h"
    configuration+=("-DCUDA_cublas_LIBRARY=$library" "-DCMAKE_CXX_FLAGS=-isystem $root/include")
  fi
fi
needed cuBLAS "$cublas" 'part of the CUDA toolkit; or pip install nvidia-cublas (nvidia-cublas-cu12 for CUDA 12)'
cudnn=$(header cudnn.h ${CUDNN_ROOT:+-I"$CUDNN_ROOT/include"} ${toolkit:+-I"$toolkit/include"})
if [ -z "$cudnn" ]; then
  root=$(wheel nvidia.cudnn)
  [ ! -e "${root:-/none}/include/cudnn.h" ] || { export CUDNN_ROOT=$root && cudnn=$root/include/cudnn.h; }
fi
needed cuDNN "$cudnn" 'pip install nvidia-cudnn-cu13 (nvidia-cudnn-cu12 for CUDA 12), or set CUDNN_ROOT'
needed CMake "$(cmake --version 2>/dev/null | head -n1)" '3.25 or newer: apt install cmake, or pip install cmake'
row Ninja "$(command -v ninja)" 'apt install ninja-build; make will do'
needed g++ "$(g++ --version 2>/dev/null | head -n1)" 'apt install g++'
mpicxx=$(command -v mpicxx)
needed MPI "${mpicxx:+$mpicxx, $(command -v mpiexec)}" 'apt install libopenmpi-dev openmpi-bin'
needed HDF5 "$(header hdf5.h -I/usr/include/hdf5/serial)" 'apt install libhdf5-dev'
needed oneDNN "$(header dnnl.hpp)" 'apt install libdnnl-dev'
needed CLI11 "$(header CLI/CLI.hpp)" 'apt install libcli11-dev'
needed nlohmann-json "$(header nlohmann/json.hpp)" 'apt install nlohmann-json3-dev'
needed xxHash "$(header xxhash.h)" 'apt install libxxhash-dev'
needed OpenSSL "$(header openssl/sha.h)" 'apt install libssl-dev'
needed Catch2 "$(header catch2/catch.hpp)$(header catch2/catch_all.hpp)" 'apt install catch2'
torch=$("$python" -c 'import torch; print(torch.__version__, "for CUDA", torch.version.cuda)' 2>/dev/null)
row PyTorch "${torch:+$torch, $python}" \
  'pip install torch, and name its Python with DAT_PYTHON; needed for golden and parts of bench'
row h5py "$("$python" -c 'import h5py; print(h5py.__version__)' 2>/dev/null)" \
  'pip install h5py; needed for golden'
sanitizer=$(command -v compute-sanitizer || ls "${toolkit:-/none}/bin/compute-sanitizer" 2>/dev/null)
row compute-sanitizer "$sanitizer" 'part of the CUDA toolkit; needed for sanitizer'
if [ ${#missing[@]} -gt 0 ]; then
  echo "Without ${missing[*]} nothing can be built. On Debian 12 'bash jobs/install.sh tests' installs what comes from"
  echo "packages; without a network run 'bash tests/gpu.sh --pack DIR' on such a machine, carry DIR here and name it with"
  echo "--deps DIR."
fi
if [ -z "$gpu" ]; then
  echo "gpu.sh: there is no GPU here"
  [ "$dry" = 1 ] || exit 77
  gpu=no-gpu capability=9.0
fi

# --- Parts -----------------------------------------------------------------------------------------------------------

[ -n "$out" ] || out=docs/results/$(date +%F)-$(echo "$gpu" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
[ "$dry" = 1 ] || mkdir -p "$out" || exit 1
scratch=$build/gpu-runs
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

table=() failed=0
has[torch]=${torch:+1}
[ -n "$torch" ] || has[torch]='no PyTorch'
has[h5py]=1
"$python" -c 'import h5py, torch' 2>/dev/null || has[h5py]='no PyTorch with h5py'
has[sanitizer]=1
[ -n "$sanitizer" ] || has[sanitizer]='no compute-sanitizer'
has[build]='it was not built'
if [ ${#missing[@]} -gt 0 ]; then has[build]="no ${missing[*]}"; fi
[ "$dry" != 1 ] || has=([torch]=1 [h5py]=1 [sanitizer]=1 [build]=1)

note() { # NAME RESULT SECONDS WHAT
  table+=("$(printf '%-32s %-8s %7s  %s' "$1" "$2" "$3" "$4")")
  echo "${table[-1]}"
}
# wanted NAME: whether --only lets it run
wanted() {
  local item
  [ -n "$only" ] || return 0
  for item in ${only//,/ }; do [[ $1 == "$item" || $1 == "$item"-* ]] && return 0; done
  return 1
}
# part NAME SECONDS "NEEDS" COMMAND...: the log goes to OUT/NAME.txt
part() {
  local name=$1 limit=$2 need log=$out/$1.txt begin status=0 seconds what
  wanted "$name" || return 0
  for need in $3; do
    [ "${has[$need]}" = 1 ] || { note "$name" 'not run' '' "${has[$need]}" && return 0; }
  done
  shift 3
  what=$(printf '%q ' "$@")
  if [ "$dry" = 1 ]; then
    echo "$name, at most $limit s: $what"
    return 0
  fi
  printf '$ %s\n' "$what" >"$log"
  begin=$SECONDS
  timeout --kill-after=20 "$limit" "$@" >>"$log" 2>&1 </dev/null || status=$?
  seconds=$((SECONDS - begin))
  case $status in
    0) note "$name" passed $seconds "$log" ;;
    77) note "$name" 'not run' $seconds "$(tail -n1 "$log")" ;;
    124 | 137) failed=1 && note "$name" FAILED $seconds "time limit of $limit s, or killed: $log" ;;
    *)
      if grep -q 'Device not supported' "$log"; then
        note "$name" 'not run' $seconds "this tool does not support the device: $log"
      else
        failed=1 && note "$name" FAILED $seconds "exit code $status: $log"
      fi
      ;;
  esac
  return $status
}

# The build is no part that --only can leave out, but where it is not needed.
needs_build=0
for name in ${only//,/ }; do [ "$name" = bench-ceilings ] || needs_build=1; done
[ -n "$only" ] || needs_build=1
if [ $needs_build = 1 ] && [ "${has[build]}" != "no ${missing[*]}" ]; then
  chosen=$only only=''
  generator=()
  command -v ninja >/dev/null && [ ! -e "$build/CMakeCache.txt" ] && generator=(-G Ninja)
  has[tools]=1
  configuration+=("-DCMAKE_CUDA_ARCHITECTURES=${capability/./}")
  if part configure 300 tools cmake -S . -B "$build" "${generator[@]}" "${configuration[@]}" &&
    part build 1800 tools cmake --build "$build" --parallel "$(nproc)"; then
    has[build]=1
  fi
  only=$chosen
fi
tests=(ctest --test-dir "$build" --output-on-failure --no-tests=error --tests-regex)
hpc=$build/dat_hpc

part laws-doctor 60 build "$hpc" doctor
part laws-gpu 900 build env DAT_REQUIRE_CUDA=1 "${tests[@]}" '^gpu_laws$'
part laws-unit 1200 build "${tests[@]}" '^(test_.*|double_laws)$'

for network in resnet18 preact_resnet18; do
  part "golden-$network" 600 'build h5py' \
    "$python" tests/golden/full_size.py "$build/tests/dat_probe" "$network" --device cuda
done

part mpi-2 300 build env DAT_TEST_DEVICE=cuda OMP_NUM_THREADS=1 mpiexec -n 2 "$build/tests/dat_mpi_tests"

[ "$dry" = 1 ] || { rm -rf "$scratch" && mkdir -p "$scratch"; }
epochs=6
[ $quick = 0 ] || epochs=2
train=("$hpc" train --device cuda --data "$scratch/synthetic.h5" --network preact_resnet18 --width 64 --attack-steps 5
  --optimizer lamb --lr 0.02 --schedule linear --warmup-epochs 1 --epochs "$epochs" --eval-every 0)
for name in train-1 train-2 train-f16; do
  if wanted $name; then
    chosen=$only only=''
    part train-data 60 build "$hpc" data synthetic "$scratch/synthetic.h5" --size 32 --train 4000 --test 1000
    only=$chosen
    break
  fi
done
part train-1 600 build "${train[@]}" --batch 64 --out "$scratch/1"
part train-2 600 build mpiexec -n 2 "${train[@]}" --batch 32 --out "$scratch/2"
part train-f16 600 build "${train[@]}" --batch 64 --attack-precision f16 --out "$scratch/f16"
part train-laws 600 'build h5py' "$python" tests/e2e/cuda.py "$hpc"
part train-eval 300 build "$hpc" eval --device cuda --checkpoint "$scratch/f16"

small=("$hpc" train --device cuda --network small_cnn --width 16 --limit-train 96 --limit-test 32 --batch 32 --attack-steps 2
  --eval-attack-steps 2 --max-steps 3 --resume never)
for tool in memcheck racecheck initcheck; do
  for precision in f32 f16; do
    part "sanitizer-$tool-$precision" 600 'build sanitizer' \
      "${sanitizer:-compute-sanitizer}" --tool "$tool" --error-exitcode 9 "${small[@]}" \
      --attack-precision "$precision" --out "$scratch/$tool-$precision"
  done
done

batches=(128 512 2048) batch=512 pairs=5 repeat=10
forms=(eager_f32 eager_tf32 eager_tf32_channels_last bf16_autocast_channels_last folded_f16_channels_last compiled
  compiled_graph)
if [ $quick = 1 ]; then
  batches=(128) batch=128 pairs=3 repeat=5
  forms=(eager_f32 eager_tf32_channels_last folded_f16_channels_last)
fi
part bench-ceilings 300 torch "$python" bench/peers/ceilings.py
# ceiling NAME: the median that was measured
ceiling() { sed -n "s/.*\"gemm_$1_[0-9]*\", \"median\": \([0-9.]*\).*/\1/p" "$out/bench-ceilings.txt" 2>/dev/null | tail -n1; }
for precision in f32 tf32 f16 bf16; do
  gemm=$(ceiling $precision)
  part "bench-layers-$precision" 600 build "$build/bench/bench_layers" --device cuda --batch $batch --precision $precision \
    ${gemm:+--gemm-tflops "$gemm"} --json "$out/bench-layers-$precision.jsonl"
done
for size in "${batches[@]}"; do
  for precision in f32/f32 tf32/f32 tf32/f16; do
    part "bench-step-$size-${precision/\//-}" 300 build "$build/bench/bench_step" --device cuda --batch "$size" \
      --math "${precision%/*}" --attack-precision "${precision#*/}" --repeat $repeat
  done
done
for form in "${forms[@]}"; do
  part "bench-compare-$form" 1200 'build torch' "$python" bench/compare.py "$build/bench/bench_step" --python "$python" \
    --device cuda --batch $batch --pairs $pairs --form "$form" --json "$out/bench-pairs.jsonl"
done
[ "$dry" != 1 ] || exit 0

{
  echo "tests/gpu.sh, $(date -u '+%F %H:%M') UTC"
  echo "commit    $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', with changes')"
  echo "GPU       $gpu, compute capability $capability, driver $driver"
  limits=memory.total,clocks.max.sm,clocks.max.mem,power.limit
  [ -z "$smi" ] || echo "limits    $("$smi" --query-gpu=$limits --format=csv,noheader | head -n1)"
  echo "CPU       $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n1), $(nproc) cores"
  echo "nvcc      ${nvcc:+$("$nvcc" --version | grep -oE 'release .*')}"
  echo "cuDNN     $cudnn"
  echo "PyTorch   $torch"
  echo
  printf '%-32s %-8s %7s  %s\n' part result seconds what
  printf '%s\n' "${table[@]}"
} | tee -a "$out/summary.txt"
grep -h -A3 'PyTorch / ours' "$out"/bench-compare-*.txt 2>/dev/null | grep -v '^--' | awk '!seen[$0]++' || true
exit $failed
