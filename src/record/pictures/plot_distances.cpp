// How far the gradients of ranks were from what was made of them.

#include <cmath>
#include <map>

#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

constexpr std::array<const char*, 6> kColoursOfRanks = {kOrange, kBlue, kGreen, kPink, kYellow, kSky};

/// What became of ranks that are not there at the end: "banned in step 121 (gradient)".
std::map<int, std::string> ends_of(const History& history) {
  std::map<int, std::string> ends;
  for (const LeftRecord& left : history.all<LeftRecord>())
    ends[left.rank] = "left behind step " + std::to_string(left.step);
  for (const BanRecord& ban : history.all<BanRecord>())
    ends[ban.rank] = "banned in step " + std::to_string(ban.step) + " (" + ban.rule + ")";
  return ends;
}

/// distances.csv: means over some steps, at the last of them. Returns the last point of each rank.
std::vector<std::array<double, 2>> write_distances(const Plots& plots, const PlottedRun& run, std::size_t ranks) {
  const History& history = run.history;
  std::vector<std::string> columns = {"epochs", "step"};
  for (std::size_t rank = 0; rank < ranks; ++rank) columns.push_back("rank " + std::to_string(rank));
  Csv csv(columns);
  std::vector<std::array<double, 2>> last(ranks, {std::nan(""), std::nan("")});
  const std::vector<std::size_t> edges = bins(history.steps.size(), 150);
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    const StepRecord& step = history.steps[edges[bin + 1] - 1];
    std::vector<double> row = {PlottedRun::epochs(step), static_cast<double>(step.step)};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      double sum = 0, count = 0;
      for (std::size_t i = edges[bin]; i < edges[bin + 1]; ++i) {
        const std::vector<double>& all = history.distances[i];
        if (rank >= all.size() || !std::isfinite(all[rank])) continue;
        sum += all[rank];
        ++count;
      }
      row.push_back(sum / count);  // NaN where there is none
      if (count > 0) last[rank] = {row[0], row.back()};
    }
    csv.row(row);
  }
  plots.write("distances.csv", csv.text());
  return last;
}

}  // namespace

void draw_distances(Plots& plots, const PlottedRun& run) {
  const std::size_t ranks = run.history.ranks_with_distances();
  if (ranks == 0) return;
  const auto last = write_distances(plots, run, ranks);
  const std::map<int, std::string> ends = ends_of(run.history);
  std::vector<std::string> lines, named;
  const char* others = ends.empty() ? "ranks" : "ranks that stay";
  std::size_t longest = 0;
  Csv marks({"epochs", "distance"});
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto end = ends.find(static_cast<int>(rank));
    if (end == ends.end()) {
      lines.push_back(line_of("distances.csv", 1, 3 + rank, "lines lw 1 lc rgb '#aaaaaa'", others));
      others = "";
      continue;
    }
    const std::string name = "rank " + std::to_string(rank) + ": " + end->second;
    const std::size_t number = named.size();
    longest = std::max(longest, name.size());
    named.push_back(line_of("distances.csv", 1, 3 + rank,
                            look_of(kColoursOfRanks[number % kColoursOfRanks.size()], 1.5,
                                    1 + static_cast<int>(number / kColoursOfRanks.size()), 0, false),
                            name));
    if (std::isfinite(last[rank][1])) marks.row({last[rank][0], last[rank][1]});
  }
  lines.insert(lines.end(), named.begin(), named.end());
  if (!named.empty()) {
    plots.write("distances-ends.csv", marks.text());
    lines.push_back(line_of("distances-ends.csv", 1, 2, "points pt 7 ps 0.7 lc rgb 'black'", "last step of these"));
  }
  const std::size_t rows = named.size() + 2;
  plots.script("distances", "distance of each rank's gradient from the result",
               "1000," + std::to_string(540 + 18 * key_rows(rows, longest)),
               epoch_axis(run) + "set ylabel 'L2 distance'\nset logscale y\nset format y '%g'\n" + kFrame +
                   key_below(rows, longest) + "plot " + joined(lines) + "\n");
}

}  // namespace dat
