#!/usr/bin/env bash
# Makes the table of a study of submit.sh, which submits it after the study's tasks: DAT_STUDY is the study's folder.
# One row for each line of its tasks.tsv, whatever has become of it, into table.txt and table.csv; finished runs are
# drawn beside each other into plots/. The exit code is 3 where a task has left no run.
. "${DAT_ROOT:-.}/jobs/slurm/common.sh" || exit 2
dat_prepare
runs=()
finished=()
while IFS=$'\t' read -r name _; do
  runs+=("$DAT_STUDY/$name")
  if [ -e "$DAT_STUDY/$name/SUMMARY.txt" ]; then finished+=("$DAT_STUDY/$name"); fi
done <"$DAT_STUDY/tasks.tsv"
"$dat_program" compare "${runs[@]}" >"$DAT_STUDY/table.txt"
code=$?
"$dat_program" compare --csv "${runs[@]}" >"$DAT_STUDY/table.csv" 2>/dev/null
cat "$DAT_STUDY/table.txt"
if [ "${#finished[@]}" -gt 1 ]; then
  "$dat_program" plot "${finished[@]}" --out "$DAT_STUDY/plots" >/dev/null || dat_say 'no pictures'
fi
exit "$code"
