// Pictures of several runs side by side.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "record/intervals.hpp"
#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

/// Runs that are drawn as one.
struct PlottedGroup {
  std::string name;
  std::vector<PlottedRun> runs;
};

/// Point of a line: mean over the runs of a group, and its interval, which one run does not have.
struct MeanPoint {
  EvaluationMoment moment;
  double epochs, seconds;
  Spread accuracy;
};

/// One line of a group: clean or under one attack, of the raw or the averaged weights.
struct MeanCurve {
  std::string name, look, colour;
  std::vector<MeanPoint> points{};
};

/// Lines of a group, in a colour of its own.
[[nodiscard]] std::vector<MeanCurve> mean_curves(const PlottedGroup& group, const AttackNames& names,
                                                 const std::string& colour) {
  struct Value {
    double epochs, seconds, accuracy;
  };
  std::vector<MeanCurve> means;
  std::vector<std::map<EvaluationMoment, std::vector<Value>>> values;
  for (const PlottedRun& run : group.runs)
    for (const Curve& curve : curves_of(run, names)) {
      const EvaluationRecord& first = *curve.records.front();
      if (first.split != "test") continue;
      const bool averaged = first.weights == "average";
      const std::string name =
          group.name + ": " + (averaged ? "average, " : "") + (curve.clean ? "clean" : names.name(first));
      auto known = std::ranges::find_if(means, [&](const MeanCurve& one) { return one.name == name; });
      const auto k = static_cast<std::size_t>(known - means.begin());
      if (known == means.end()) {
        // Clean: thin and dashed, with open circles; attacks: thick, each with a point of its own.
        constexpr std::array<int, 4> kPoints = {7, 5, 9, 13};
        const int point = curve.records.size() > 60 ? 0 : curve.clean ? 6 : kPoints[(k + 3) % kPoints.size()];
        const int dash = 1 + (curve.clean ? 1 : 0) + (averaged ? 2 : 0);
        means.push_back({name, line_style(colour, curve.clean ? 1.5 : 2.5, dash, point), colour});
        values.emplace_back();
      }
      for (const EvaluationRecord* record : curve.records)
        values[k][moment_of(*record)].push_back({run.epochs(*record), record->wall_time, curve.accuracy(*record)});
    }
  for (std::size_t k = 0; k < means.size(); ++k)
    for (const auto& [moment, all] : values[k]) {
      const auto mean = [&](double Value::*part) {
        std::vector<double> parts;
        for (const Value& one : all) parts.push_back(one.*part);
        return spread_of(parts);
      };
      means[k].points.push_back(
          {moment, mean(&Value::epochs).mean, mean(&Value::seconds).mean, mean(&Value::accuracy)});
    }
  return means;
}

/// Series of a curve whose columns begin with `column`, of a table whose `x` has the abscissas: its band, and its line.
void add_series(Panel& panel, const MeanCurve& curve, const std::string& x, std::size_t column, bool band,
                const std::string& name) {
  if (band)
    panel.series.push_back({"accuracy.csv", fmt::format("{}:{}:{}", x, column + 1, column + 2),
                            fmt::format("filledcurves fs transparent solid 0.15 noborder lc rgb '{}'", curve.colour)});
  panel.series.push_back({"accuracy.csv", fmt::format("{}:{}", x, column), curve.look, name});
}

constexpr std::size_t kMostInKey = 8;  ///< lines; more have their names at their ends

/// Accuracy on the test images of all groups, against epochs and against time.
void compare_accuracy(Plots& plots, const std::vector<PlottedGroup>& groups) {
  AttackNames names;
  std::vector<const PlottedRun*> runs;
  double seconds = 0, epochs = 0, top = 0;
  for (const PlottedGroup& group : groups)
    for (const PlottedRun& run : group.runs) {
      runs.push_back(&run);
      seconds = std::max(seconds, run.history.seconds());
      epochs = std::max(epochs, run.end());
      for (const EvaluationRecord& record : run.history.evaluations)
        if (record.split == "test") names.add(record);
    }
  std::vector<std::vector<MeanCurve>> curves;
  std::vector<std::string> columns = {"run", "epochs", "step", "seconds"};
  std::size_t lines = 0, longest = 0;
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (const MeanCurve& curve : curves.emplace_back(mean_curves(groups[i], names, colour_of(i)))) {
      ++lines;
      longest = std::max(longest, curve.name.size());
      columns.push_back(curve.name + " (%)");
      if (groups[i].runs.size() > 1)
        for (const char* end : {" low (%)", " high (%)"}) columns.push_back(curve.name + end);
      for (const MeanPoint& point : curve.points)
        for (const double value : {point.accuracy.mean, point.accuracy.interval.high})
          if (std::isfinite(value)) top = std::max(top, value);
    }
  if (lines == 0) return;
  const TimeUnit unit = time_unit(seconds);
  const bool key = lines <= kMostInKey;
  const int below = std::max(320, 16 * static_cast<int>(key ? 0 : lines));  // height of a panel
  const auto panel = [&](const std::string& label, double end, int above) {
    return Panel{.x = {label, fmt::format("0:{}", std::max(end, 1e-3) * kPastTheLast)},
                 .y = accuracy_axis(top),
                 .inside = {90, above, 960, above + below}};
  };
  Panel by_epoch = panel("epochs, warm-up included", epochs, 60),
        by_time = panel(fmt::format("training time ({})", unit.name), seconds / unit.seconds, below + 150);
  Csv csv(columns);
  std::vector<EndName> ends;
  std::size_t column = 3;  // without the run's name
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool band = groups[i].runs.size() > 1;
    std::map<EvaluationMoment, std::vector<double>> rows;
    for (const MeanCurve& curve : curves[i]) {
      for (const MeanPoint& point : curve.points) {
        std::vector<double>& row = rows[point.moment];
        row.resize(columns.size() - 1, std::numeric_limits<double>::quiet_NaN());
        row[0] = point.epochs;
        row[1] = static_cast<double>(point.moment.second);
        row[2] = point.seconds;
        row[column] = point.accuracy.mean;
        if (band) row[column + 1] = point.accuracy.interval.low, row[column + 2] = point.accuracy.interval.high;
      }
      ends.push_back(
          {curve.name, curve.colour, curve.points.back().accuracy.mean / std::stod(by_time.y.range.substr(2))});
      add_series(by_epoch, curve, "2", column + 2, band, "");
      add_series(by_time, curve, fmt::format("($4 / {})", unit.seconds), column + 2, band, key ? curve.name : "");
      column += band ? 3 : 1;
    }
    for (const auto& [moment, row] : rows) csv.row(row, groups[i].name);
  }
  if (!key) {
    by_epoch.settings = end_names(ends, 15.0 / below);
    by_time.settings = "unset label\n" + by_epoch.settings;
  }
  plots.write("accuracy.csv", csv.text());
  plots.add({.picture = "accuracy",
             .title = "accuracy on the test images",
             .facts = names.facts(evaluated_images(runs, {"test"})),
             .width = key ? 1000 : 990 + 8 * static_cast<int>(longest),
             .height = 2 * below + 235,
             .key = key ? Key::below : Key::none,
             .panels = {by_epoch, by_time}});
}

/// Seconds of an epoch by phase, mean over the ranks; zeros: no epoch is measured.
[[nodiscard]] std::array<double, kPhases> epoch_seconds(const PlottedRun& run) {
  const std::vector<std::array<double, kPhases>> seconds = run.history.phase_seconds();
  // The records of the ranks may end before the steps do.
  auto last = run.history.steps.rbegin();
  if (!run.history.ranks.empty())
    last = std::find_if(last, run.history.steps.rend(),
                        [&](const StepRecord& r) { return r.step == run.history.ranks.back().step; });
  const double epochs = last == run.history.steps.rend() ? 0 : PlottedRun::epochs(*last) - run.begin();
  std::array<double, kPhases> row{};
  if (!(epochs > 0)) return row;
  for (const auto& rank : seconds)
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      row[phase] += rank[phase] / static_cast<double>(seconds.size()) / epochs;
  return row;
}

/// Megabytes that a rank sends in a step: gradients, those of all layers, other messages.
[[nodiscard]] std::array<double, 3> megabytes_sent(const PlottedRun& run) {
  double gradients = 0, others = 0, all = 0;
  for (const StepRecord& r : run.history.steps) {
    gradients += static_cast<double>(r.bytes_sent);
    others += static_cast<double>(r.bytes_other);
  }
  for (const std::int64_t size : run.history.layer_sizes) all += static_cast<double>(size) * sizeof(float);
  const double megasteps = 1e6 * static_cast<double>(run.history.steps.size());
  return {gradients / megasteps, all * 1e-6, others / megasteps};
}

/// Means over the runs of a group.
template <class Numbers>
[[nodiscard]] Numbers mean_of(const PlottedGroup& group, Numbers (*of)(const PlottedRun& run)) {
  Numbers sum{};
  for (const PlottedRun& run : group.runs) {
    const Numbers one = of(run);
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += one[k] / static_cast<double>(group.runs.size());
  }
  return sum;
}

void compare_phases(Plots& plots, const std::vector<PlottedGroup>& groups) {
  std::vector<std::array<double, kPhases>> rows;
  std::vector<std::string> names;
  for (const PlottedGroup& group : groups) {
    rows.push_back(mean_of(group, epoch_seconds));
    names.push_back(group.name);
  }
  draw_phase_bars(plots, "time of one epoch, mean over the ranks", "", "time of one epoch (s)", names, rows, false);
}

void compare_communication(Plots& plots, const std::vector<PlottedGroup>& groups) {
  Csv csv({"run", "gradients sent", "gradients of all layers", "other messages"});
  std::vector<std::string> names;
  for (const PlottedGroup& group : groups) {
    const std::array<double, 3> row = mean_of(group, megabytes_sent);
    csv.row({row.begin(), row.end()}, group.name);
    names.push_back(group.name);
  }
  plots.write("communication.csv", csv.text());
  Panel panel{.x = {},
              .y = {"sent per step and rank (MB)", "0:*"},
              .settings = bar_settings("clustered gap 1"),
              .grid = "ytics"};
  if (const std::size_t letters = name_bars(panel, names); letters > 0)  // the last one goes past the last bar
    panel.settings += fmt::format("set rmargin {}\n", 2 + letters * 3 / 4);
  for (const auto& [name, colour] :
       {std::pair("gradients sent", kBlue), std::pair("gradients of all layers", "#bbbbbb"),
        std::pair("other messages", kOrange)})
    panel.series.push_back({"communication.csv", std::to_string(panel.series.size() + 2), bar_style(colour), name});
  plots.add({.picture = "communication", .title = "sent per step and rank", .height = 600, .panels = {panel}});
}

}  // namespace

std::vector<std::string> compare_runs(const std::vector<RunGroup>& groups, const std::string& out,
                                      const PictureFormat& format) {
  std::vector<PlottedGroup> all;
  std::set<std::string> names;
  std::size_t count = 0;
  for (const RunGroup& group : groups) {
    PlottedGroup& one = all.emplace_back();
    for (const std::string& folder : group.folders) one.runs.push_back(read_run(folder));
    count += one.runs.size();
    one.name = group.name.empty() ? one.runs.front().name : group.name;
    if (one.runs.size() > 1) one.name += fmt::format(" ({} runs)", one.runs.size());
    names.insert(one.name);
  }
  if (names.size() < all.size())  // "a/run" and "b/run"
    for (std::size_t i = 0; i < all.size(); ++i) all[i].name = groups[i].folders.front();
  Plots plots(out, std::to_string(count) + " runs", format);
  compare_accuracy(plots, all);
  compare_phases(plots, all);
  compare_communication(plots, all);
  return plots.draw();
}

}  // namespace dat
