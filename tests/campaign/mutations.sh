#!/usr/bin/env bash
# One fault after the other in the program, and which test sees it: tests/campaign/mutations.py. Not part of tests/run.sh.
# Usage: bash tests/campaign/mutations.sh [--check] [--only NAME...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_C_COMPILER_LAUNCHER=ccache
fi
python=$(command -v python3)
"$python" -c "import h5py, numpy, torch" 2>/dev/null || python=/usr/bin/python3
exec "$python" tests/campaign/mutations.py "$@"
