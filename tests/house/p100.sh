#!/usr/bin/env bash
# Does the CUDA code build for a P100 (sm_60)? CUDA 13 and cuDNN 9.11 no longer know that GPU, so the sources must also
# compile with CUDA 12 and cuDNN <= 9.10. Needs no GPU, driver or CUDA toolkit: headers and ptxas come from NVIDIA's
# wheels on the package index (22 MB; see p100_fetch.py), device code is compiled by clang. What only nvcc 12 or a P100
# could tell stays open: nvcc's own front end, linking, and whether the results are right.
# Usage: bash tests/house/p100.sh      DAT_P100_CACHE: where the downloads are kept (default build/p100); DAT_CLANG: clang++
# Exit status: 0 passed, 1 failed, 77 something could not be checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cache=${DAT_P100_CACHE:-build/p100}
mkdir -p "$cache/have"
cache=$(cd "$cache" && pwd)
log=$cache/log.txt

passed=0 failed=0 not_run=0
# report STATUS WHAT: one line per check; the log where it failed
report() {
  if [ "$1" -eq 0 ]; then
    passed=$((passed + 1)) && echo "passed   $2"
  else
    failed=$((failed + 1)) && echo "FAILED   $2" && sed -n 's/^/         /;1,30p' "$log"
  fi
}
skip() { not_run=$((not_run + 1)) && echo "not run  $1"; }

# get WHEEL SHA256 FOLDER PREFIX...: once
get() {
  local wheel=$1
  [ -e "$cache/have/$wheel" ] && return
  [ -e "$cache/python/remotezip.py" ] || python3 -m pip install --quiet --target "$cache/python" remotezip || return 77
  PYTHONPATH=$cache/python python3 tests/house/p100_fetch.py "$wheel" "$2" "$cache/$3" "${@:4}" || return
  touch "$cache/have/$wheel"
}

linux=manylinux2014_x86_64.manylinux_2_17_x86_64.whl
# nv/target comes from 12.3: the older wheels of CCCL lack it.
get_12_1() {
  get nvidia_cuda_runtime_cu12-12.1.105-py3-none-manylinux1_x86_64.whl \
    6e258468ddf5796e25f1dc591a31029fa317d97a0a94ed93468fc86301d61e40 cuda-12.1 include/ &&
    get nvidia_cuda_nvcc_cu12-12.1.105-py3-none-manylinux1_x86_64.whl \
      a0712a05ffd57d9f017580ffcc808b207f7f4ef7a5ca8ac1312318b153739a18 cuda-12.1 include/ bin/ptxas nvvm/libdevice/ &&
    get nvidia_cublas_cu12-12.1.3.1-py3-none-manylinux1_x86_64.whl \
      ee53ccca76a6fc08fb9701aa95b6ceb242cdaab118c3bb152af4e579af792728 cuda-12.1 include/ &&
    get nvidia_cuda_cccl_cu12-12.3.101.post1-py3-none-manylinux2014_x86_64.whl \
      8b92908843ea1c14257f096499dfd27a1055027f94679146e9f0f78025a0f69d cuda-12.1 include/nv/ &&
    get nvidia_cudnn_cu12-8.9.7.29-py3-none-manylinux1_x86_64.whl \
      adf4f59ed7a1341103822ed8df6e144f4d47ea8b10d9bf0ea0047ba738fd7b02 cudnn-8.9 include/
}
get_12_9() {
  get nvidia_cuda_runtime_cu12-12.9.79-py3-none-$linux \
    25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3 cuda-12.9 include/ &&
    get nvidia_cuda_nvcc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl \
      5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0 cuda-12.9 include/ bin/ptxas nvvm/libdevice/ &&
    get nvidia_cublas_cu12-12.9.1.4-py3-none-manylinux_2_27_x86_64.whl \
      453611eb21a7c1f2c2156ed9f3a45b691deda0440ec550860290dc901af5b4c2 cuda-12.9 include/ &&
    get nvidia_cuda_cccl_cu12-12.9.27-py3-none-$linux \
      37869e17ce2e1ecec6eddf1927cca0f8c34e64fd848d40453df559091e2d7117 cuda-12.9 include/nv/ &&
    get nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.whl \
      949452be657fa16687d0930933f032835951ef0892b37d2d53824d1a84dc97a8 cudnn-9.10 include/
}

# What the build warns of, as an error.
mapfile -t warnings < <(sed -n '/target_compile_options(dat_options/,/)$/p' CMakeLists.txt | grep -oE -- '-W[a-z-]+')
clang=${DAT_CLANG:-$(command -v clang++-16 || command -v clang++-19 || true)}

# expect CUDA CUDNN: where the headers are. Another toolkit may be installed here, so each file is compiled after a check
# that it sees the versions it should.
expect() {
  headers=(-isystem "$cache/cudnn-$2/include" -isystem "$cache/cuda-$1/include" -include "$cache/expect.h")
  cat >"$cache/expect.h" <<TEXT
#include <cuda_runtime_api.h>
#include <cudnn_version.h>
static_assert(CUDART_VERSION == ${1%.*} * 1000 + ${1#*.} * 10, "not the headers of CUDA $1");
static_assert(CUDNN_MAJOR == ${2%.*} && CUDNN_MINOR == ${2#*.}, "not the headers of cuDNN $2");
TEXT
}

# check_sources CUDA CUDNN
check_sources() {
  local source status
  for source in src/backend/cuda/*.cpp; do
    status=0
    g++ -std=c++20 -fsyntax-only "${warnings[@]}" -Werror "${headers[@]}" -Iinclude -Ikernels -Isrc "$source" \
      >"$log" 2>&1 || status=1
    report $status "$source with CUDA $1, cuDNN $2"
  done
}

# What ptxas -v says of all kernels together.
summary() {
  awk '/Compiling entry function/ { ++kernels }
       /Used [0-9]+ registers/ { sub(/.*Used /, ""); if ($1 + 0 > most) most = $1 + 0 }
       /bytes spill stores/ { spills += $5 + $9 }
       END { printf "%d kernels, at most %d registers, %d bytes of spills", kernels, most, spills }' "$log"
}

# check_kernels CUDA
check_kernels() {
  local what="kernels/cuda.cu for sm_60 with CUDA $1" cuda=$cache/cuda-$1 status=0 ptx=$cache/cuda-$1.ptx
  if [ -z "$clang" ]; then
    skip "$what: there is no clang++-16 or clang++-19"
    return
  fi
  "$clang" -std=c++20 -O3 -x cuda --cuda-path="$cuda" -Wno-unknown-cuda-version --cuda-device-only \
    --cuda-gpu-arch=sm_60 -S "${headers[@]}" -Iinclude -Ikernels kernels/cuda.cu -o "$ptx" >"$log" 2>&1 || status=1
  report $status "$what: $(basename "$clang"), PTX"
  [ $status -eq 0 ] || return 0
  if "$cuda/bin/ptxas" -arch=sm_60 -v "$ptx" -o "${ptx%.ptx}.cubin" >"$log" 2>&1; then
    report 0 "$what: ptxas, $(summary)"
  else
    report 1 "$what: ptxas"
  fi
}

for pair in "12.1 8.9" "12.9 9.10"; do
  read -r cuda cudnn <<<"$pair"
  status=0
  "get_${cuda/./_}" || status=$?
  if [ $status -eq 77 ]; then
    skip "everything with CUDA $cuda, cuDNN $cudnn: its headers cannot be downloaded"
  elif [ $status -ne 0 ]; then
    failed=$((failed + 1)) && echo "FAILED   to get CUDA $cuda, cuDNN $cudnn"
  else
    expect "$cuda" "$cudnn"
    check_sources "$cuda" "$cudnn"
    check_kernels "$cuda"
  fi
done

echo "p100.sh: $passed passed, $failed failed, $not_run not run"
[ $failed -eq 0 ] || exit 1
[ $not_run -eq 0 ] || exit 77
