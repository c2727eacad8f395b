#!/usr/bin/env bash
# Installs the Debian packages that dat_hpc is built from, as far as they are missing.
# Usage: bash jobs/install.sh [tests|deb]     also what the tests need, or what makes a Debian package
set -euo pipefail

packages=(cmake ninja-build g++ git openmpi-bin libopenmpi-dev libdnnl-dev ocl-icd-opencl-dev libhdf5-dev catch2
  libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev libssl-dev zlib1g-dev libjpeg62-turbo-dev
  libpng-dev libarchive-dev gnuplot-nox)
case "${1-}" in
  '') ;;
  tests) packages+=(python3-numpy python3-h5py python3-pil python3-torch clang-16 universal-ctags zsh mandoc) ;;
  deb) packages+=(dpkg-dev file) ;;
  *) echo "install.sh: unknown argument '$1'; usage: bash jobs/install.sh [tests|deb]" >&2 && exit 2 ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  cat >&2 <<'TEXT'
install.sh: there is no apt-get here, so nothing was installed. These are needed: CMake 3.25, Ninja, a C++20 compiler
with OpenMP (g++ 12), an MPI 3 library, oneDNN 2.6 or newer (with its CMake files), HDF5 1.10 or newer, Catch2, CLI11
2.1, nlohmann-json 3, fmt 9, xxHash, OpenSSL, zlib, libjpeg-turbo 1.5, libpng 1.6, libarchive 3.4, gnuplot; for the tests
Python 3 with NumPy, h5py, Pillow and PyTorch, clang 16, zsh and mandoc. Going on as if they were there.
TEXT
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  dpkg -s "$package" 2>/dev/null | grep -q '^Status: .* installed$' || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install.sh: ${missing[*]} must be installed; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  root=(sudo)
fi
# Another installation may be running: wait for it.
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
echo "install.sh: installing ${missing[*]}"
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
