#!/usr/bin/env bash
# What needs a GPU, for machines that lend one in short slots; where the project is built, `ctest -L gpu` runs the same
# entries. docs/testing.md tells more.
# Usage: bash tests/gpu_slot.sh pack [--out FILE] [--architectures LIST]
#        bash tests/gpu_slot.sh laws|speed|full|check|a1|a2|a3|all|run NAME... [--out DIR] [--seconds N] [--data FILE...]
#                                                        [--archive FILE | --build DIR]
#        bash tests/gpu_slot.sh list
#        bash tests/gpu_slot.sh rehearse [--keep]
#   pack       where the project is built: one archive, build/gpu_slot.tar.xz, of programs and all that they need but the
#              libraries of CUDA, cuDNN and C; it is unpacked once, where a slot finds it
#   laws       is everything right; speed: how fast is it, and PyTorch; full: recipes at full size, which need --data
#   a1 a2 a3   three calls of one slot of 15 minutes; check: without a GPU, does everything start; run: entries by name
#   list       the entries that need no data, their seconds for ctest, whether they run alone
#   rehearse   where the project is built: all entries on the double of CUDA's libraries, without network and libraries
# A slot ends itself, prints a table, and leaves one archive of results (DIR, by default $OUT or this folder). DAT_PYTHON:
# the Python to take; by default the first of python3 and /usr/bin/python3 that has PyTorch.
# Exit status: 0 all is well, 1 something is wrong or the usage, 3 nothing is wrong but not everything was run; with --build 77
# where this machine cannot.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
found=''
for python in ${DAT_PYTHON:-python3 /usr/bin/python3}; do
  command -v "$python" >/dev/null || continue
  [ -n "$found" ] || found=$python
  "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' && found=$python && break
done
[ -n "$found" ] || { echo "gpu_slot.sh: there is no Python 3; name one with DAT_PYTHON" >&2 && exit 1; }
exec "$found" -B "$here/slot" "$@"
