#!/usr/bin/env bash
# Everything that needs a GPU, for machines that lend one in short slots: one command for each slot, and one that makes
# ready for it. docs/testing.md tells more.
# Usage: bash tests/gpu_slot.sh pack [--out FILE] [--architectures LIST]
#        bash tests/gpu_slot.sh smoke|laws|speed|graph|full|table [--out DIR] [--seconds N] [--only PART,...]
#                                                           [--archive FILE] [--data FILE]
#        bash tests/gpu_slot.sh check [the same options]
#        bash tests/gpu_slot.sh rehearse [--keep]
#   pack       where the project is built: one archive, build/gpu_slot.tar.xz, of prebuilt programs, the libraries that
#              they need but CUDA's, cuDNN's and the C library's, an MPI launcher, test data, and scripts
#   smoke      on the machine with the GPU, in the unpacked archive or where build/gpu_slot.tar.xz is: does it run, how
#              fast is each convolution, with which kernels
#   laws       is everything right
#   speed      whole steps, and PyTorch's in turns with them
#   graph      the convolutions planned with cuDNN's graph API beside those of its legacy calls
#   full       recipes at full size (jobs/full/), trained and evaluated one after the other; --data: CIFAR-10, made by
#              `dat_hpc data convert`
#   table      fast adversarial training and what is said to help it, narrow networks, three seeds; --data as for full
#   check      without a GPU: does everything start here
#   rehearse   where the project is built: all of these on the double of CUDA's libraries, in an empty root and without
#              a network
# A slot ends itself within 9 minutes, leaves one archive of results (DIR, by default $OUT or the current folder), and
# prints a table last.
# DAT_PYTHON: the Python to take; by default the first of python3 and /usr/bin/python3 that has PyTorch.
# Exit status: 0 all is well, 1 something is wrong, 2 wrong usage, 3 nothing is wrong but not everything was run.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
found=''
for python in ${DAT_PYTHON:-python3 /usr/bin/python3}; do
  command -v "$python" >/dev/null || continue
  [ -n "$found" ] || found=$python
  if "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'; then
    found=$python
    break
  fi
done
[ -n "$found" ] || { echo "gpu_slot.sh: there is no Python 3; name one with DAT_PYTHON" >&2 && exit 1; }
exec "$found" -B "$here/slot" "$@"
