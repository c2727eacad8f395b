#!/usr/bin/env bash
# What needs a GPU, for machines that lend one in short slots (docs/testing.md); with a build there: `ctest -L gpu`.
# Usage: bash tests/gpu_slot.sh pack|rehearse|list|laws|speed|full|a1|a2|a3|b1|b2|b3|check|all|run NAME... [--help]
#   pack      where the project is built: all that a slot needs into one archive, build/gpu_slot.tar.xz
#   rehearse  there, too: all entries on the double of CUDA's libraries
#   others    slots, which end themselves, print a table, and leave an archive of results in --out DIR ($OUT, or here)
# DAT_PYTHON: the Python to take; by default the first of python3 and /usr/bin/python3 that has PyTorch.
# Exit status: 0 all is well, 1 something is wrong, 2 wrong usage, 3 nothing is wrong but not everything was run.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
for python in ${DAT_PYTHON:-python3 /usr/bin/python3} none; do
  "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' 2>/dev/null && break
done
[ "$python" != none ] || python=${DAT_PYTHON:-python3}
exec "$python" -B "$here/slot" "$@"
