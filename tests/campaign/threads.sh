#!/usr/bin/env bash
# ThreadSanitizer, in build/tsan: the unit tests of what has threads (loader, checkpoints, reports), the laws of messages on
# 2 ranks, and whole runs with every thread that there is: loader, progress thread of --overlap, hang watch, writer of
# DAT_CHECKPOINT_ASYNC.
# One OpenMP thread: it does not see the barriers of OpenMP's runtime. What the libraries do among themselves is theirs
# (tsan.supp says which, and why). The exit code is 1 where a race is found.
# Usage: bash tests/campaign/threads.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
generator=()
[ -e build/tsan/CMakeCache.txt ] || generator=(-G Ninja)
cmake -B build/tsan "${generator[@]}" --preset asan -DDAT_SANITIZE=thread -DDAT_BENCH=OFF \
  "-DDAT_TEST_FILES=test_(canary|checkpoint|data|report)\.cpp$"
cmake --build build/tsan --target dat_tests dat_mpi_tests dat_hpc --parallel "$(nproc)"

export DAT_RESIDENT=off DAT_CHECKPOINT_ASYNC=on TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp second_deadlock_stack=1" OMP_NUM_THREADS=1
eval "$(python3 tests/mpi_environment.py)"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
failed=0
generations=0
part() {
  local begin=$SECONDS
  echo "== $*"
  "$@" >"$runs/log" 2>&1 || { failed=1 && { grep -A60 "WARNING: ThreadSanitizer" "$runs/log" || tail -60 "$runs/log"; }; }
  echo "== $((SECONDS - begin)) s"
}
# It sees a race where there is one.
echo 'int n; int main() { std::thread other([] { ++n; }); ++n; other.join(); }' |
  c++ -x c++ -include thread -fsanitize=thread - -o "$runs/race"
if "$runs/race" >"$runs/log" 2>&1 || ! grep -q "ThreadSanitizer: data race" "$runs/log"; then
  echo "tests/campaign/threads.sh: a planted race was not seen" >&2 && exit 1
fi
part build/tsan/tests/dat_tests "~[.]"
part mpirun -np 2 build/tsan/tests/dat_mpi_tests "[progress],[stale],[steps],[communicator],[reducer],[codec],[generators]"
small=(--network small_cnn --width 16 --limit-train 256 --limit-test 32 --attack-steps 2 --warmup-epochs 0 --quiet)
batch=(--batch 16)
threads=(--overlap --checkpoint-every 3 --comm-timeout 60 --check-every 2 --holdout 32)
for epochs in 2 3; do  # the second goes on from the first one's checkpoint
  part mpirun -np 2 build/tsan/dat_hpc train "${small[@]}" "${batch[@]}" "${threads[@]}" --stale-attack 1 --out "$runs/stale" --epochs "$epochs"
done
part mpirun -np 3 build/tsan/dat_hpc train "${small[@]}" "${batch[@]}" "${threads[@]}" --verify 3 --out "$runs/verify" --epochs 2
part mpirun -np 3 build/tsan/dat_hpc train "${small[@]}" "${batch[@]}" --codec int8 --selector exp3 --budget 5 --out "$runs/codec" --epochs 2
for split in "3 1" "2 1" "3 2"; do  # ranks and generators: the later ones go on from the checkpoint before
  part mpirun -np "${split% *}" build/tsan/dat_hpc train "${small[@]}" "${threads[@]:1}" --generators "${split#* }" --staleness 2 \
    --deterministic --total-batch 32 --micro-batch 8 --attack-steps 4 --out "$runs/generators" --epochs $((++generations))
done
part mpirun -np 3 build/tsan/dat_hpc train "${small[@]}" "${batch[@]}" --overlap --generators 1 --staleness 3 --out "$runs/newest" --epochs 2
part mpirun -np 2 build/tsan/dat_hpc eval --checkpoint "$runs/stale" --eval pgd2 --limit 32
exit "$failed"
