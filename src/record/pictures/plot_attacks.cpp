// Who did what when, where ranks attack for others.

#include <algorithm>

#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

/// Of the first steps of the last process, in the order of their ends.
std::vector<AttackSpan> spans_of(const History& history) {
  std::vector<AttackSpan> spans;
  for (const AttacksRecord& r : history.all<AttacksRecord>()) {
    if (r.first) spans.clear();
    spans.insert(spans.end(), r.spans.begin(), r.spans.end());
  }
  return spans;
}

/// Where rank 0 did not wait, from its first wait to its last.
std::string training_csv(const std::vector<AttackSpan>& spans, double origin) {
  Csv csv({"begin", "end"});
  double since = -1;
  for (const AttackSpan& one : spans) {
    if (one.rank != 0) continue;
    if (since >= 0) csv.row({since - origin, one.begin - origin});
    since = one.end;
  }
  return csv.text();
}

/// A part of a plot command: bars from column 1 to column 2, at the height of `rank`.
std::string bars(const std::string& file, const std::string& rank, const std::string& where, const char* colour,
                 const std::string& title) {
  return "'" + file + "' skip 1 using (" + where + " ? 0.5 * ($1 + $2) : NaN):(" + rank + "):1:2:(" + rank +
         " - 0.38):(" + rank + " + 0.38) with boxxyerror fs solid 0.8 border lc rgb 'white' lc rgb '" + colour +
         "' title " + gnuplot_text(title);
}

}  // namespace

void draw_attacks(Plots& plots, const PlottedRun& run) {
  const std::vector<AttackSpan> spans = spans_of(run.history);
  if (spans.empty()) return;
  double origin = spans.front().begin;
  int first = spans.front().rank, last = 0;
  for (const AttackSpan& one : spans) {
    origin = std::min(origin, one.begin);
    last = std::max(last, one.rank);
    if (one.rank > 0) first = first == 0 ? one.rank : std::min(first, one.rank);
  }
  Csv csv({"begin", "end", "rank", "step", "micro-batch"});
  for (const AttackSpan& one : spans)
    csv.row({one.begin - origin, one.end - origin, static_cast<double>(one.rank), static_cast<double>(one.step),
             static_cast<double>(one.unit)});
  plots.write("attacks.csv", csv.text());
  plots.write("attacks-training.csv", training_csv(spans, origin));
  // Rank 0 above, the generators below it without a gap.
  const std::string height = "($3 == 0 ? 0 : $3 - " + std::to_string(first - 1) + ")";
  std::string names = "'rank 0' 0";
  for (int rank = std::max(first, 1); rank <= last; ++rank)
    names += ", 'rank " + std::to_string(rank) + "' " + std::to_string(rank - first + 1);
  const int lanes = last - first + 2;
  plots.script("attacks", "who did what when", "1200," + std::to_string(200 + 40 * lanes),
               "set xlabel 'seconds'\nset yrange [" + std::to_string(lanes) + " - 0.5:-0.5]\nset ytics (" + names +
                   ")\n" + kKeyBelow + "plot " +
                   joined({bars("attacks-training.csv", "0", "1", kGreen, "trains"),
                           bars("attacks.csv", height, "$3 == 0", kGrey, "waits"),
                           bars("attacks.csv", height, "$3 > 0 && int($4) % 2 == 1", kBlue, "attacks for an odd step"),
                           bars("attacks.csv", height, "$3 > 0 && int($4) % 2 == 0", kYellow, "for an even one")}) +
                   "\n");
}

}  // namespace dat
