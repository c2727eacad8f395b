// Pictures of several runs side by side.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

/// Accuracy on the test images of all runs, against epochs and against time. A colour per run.
void compare_accuracy(Plots& plots, const std::vector<PlottedRun>& runs) {
  AttackNames names;
  for (const PlottedRun& run : runs)
    for (const EvaluationRecord& record : run.history.evaluations)
      if (record.split == "test") names.add(record);
  std::vector<std::vector<Curve>> curves;
  std::vector<std::string> columns = {"run", "epochs", "step", "seconds"};
  double seconds = 0, epochs = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<Curve>& mine = curves.emplace_back(curves_of(runs[i], names));
    std::erase_if(mine, [](const Curve& curve) { return curve.records.front()->split != "test"; });
    seconds = std::max(seconds, runs[i].seconds());
    epochs = std::max(epochs, runs[i].end());
    for (std::size_t k = 0; k < mine.size(); ++k) {
      // Clean: thin with open circles; attacks: thick, each with a point of its own. Averaged weights, and runs whose
      // colour another one has: dashed.
      constexpr std::array<int, 4> kPoints = {7, 5, 9, 13};
      const bool clean = mine[k].clean;
      const EvaluationRecord& first = *mine[k].records.front();
      const bool averaged = first.weights == "average";
      const int dash = 1 + (clean ? 1 : 0) + (averaged ? 2 : 0) + 4 * static_cast<int>(i / kColours.size());
      mine[k].look = line_style(colour_of(i), clean ? 1.5 : 2.5, dash,
                                mine[k].records.size() > 60 ? 0
                                : clean                     ? 6
                                                            : kPoints[(k - 1) % kPoints.size()]);
      mine[k].name = runs[i].name + ": " + (averaged ? "average, " : "") + (clean ? "clean" : names.name(first));
      columns.push_back(mine[k].name + " (%)");
    }
  }
  const TimeUnit unit = time_unit(seconds);
  const auto panel = [](const std::string& label, double end, int top) {
    return Panel{.x = {label, fmt::format("0:{}", std::max(end, 1e-3) * kPastTheLast)},
                 .y = {"accuracy (%)", "0:*<100"},
                 .inside = {90, top, 960, top + 320}};
  };
  Panel by_epoch = panel("epochs, warm-up included", epochs, 60),
        by_time = panel(fmt::format("training time ({})", unit.name), seconds / unit.seconds, 470);
  Csv csv(columns);
  std::size_t column = 3;  // without the run's name
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add_rows(csv, runs[i], curves[i], column, columns.size() - 1, runs[i].name, std::mem_fn(&Curve::accuracy));
    for (const Curve& curve : curves[i]) {
      ++column;
      by_epoch.series.push_back({"accuracy.csv", fmt::format("2:{}", column + 1), curve.look});
      by_time.series.push_back(
          {"accuracy.csv", fmt::format("($4 / {}):{}", unit.seconds, column + 1), curve.look, curve.name});
    }
  }
  plots.write("accuracy.csv", csv.text());
  if (by_time.series.empty()) return;
  plots.add({.picture = "accuracy",
             .title = "accuracy on the test images" + names.shared(),
             .height = 875,
             .panels = {by_epoch, by_time}});
}

/// Names under bars: turned where they would run into each other.
Axis name_axis(const std::vector<PlottedRun>& runs) {
  std::size_t longest = 0;
  for (const PlottedRun& run : runs) longest = std::max(longest, run.name.size());
  return {.marks = longest * runs.size() > 60 ? "rotate by -20" : ""};
}

/// Compares the cost of an epoch in each phase, as a mean over the ranks.
void compare_phases(Plots& plots, const std::vector<PlottedRun>& runs) {
  std::vector<std::array<double, kPhases>> rows;
  std::vector<std::string> names;
  for (const PlottedRun& run : runs) {
    const std::vector<std::array<double, kPhases>> seconds = run.history.phase_seconds();
    // The records of the ranks may end before the steps do.
    auto last = run.history.steps.rbegin();
    if (!run.history.ranks.empty())
      last = std::find_if(last, run.history.steps.rend(),
                          [&](const StepRecord& r) { return r.step == run.history.ranks.back().step; });
    const double epochs = last == run.history.steps.rend() ? 0 : PlottedRun::epochs(*last) - run.begin();
    std::array<double, kPhases>& row = rows.emplace_back();
    names.push_back(run.name);
    if (!(epochs > 0)) continue;
    for (const auto& rank : seconds)
      for (std::size_t phase = 0; phase < kPhases; ++phase)
        row[phase] += rank[phase] / static_cast<double>(seconds.size()) / epochs;
  }
  draw_phase_bars(plots, "time of one epoch, mean over the ranks", name_axis(runs), "time of one epoch (s)", names,
                  rows, false);
}

void compare_communication(Plots& plots, const std::vector<PlottedRun>& runs) {
  Csv csv({"run", "gradients sent", "gradients of all layers", "other messages"});
  for (const PlottedRun& run : runs) {
    double gradients = 0, others = 0, all = 0;
    for (const StepRecord& r : run.history.steps) {
      gradients += static_cast<double>(r.bytes_sent);
      others += static_cast<double>(r.bytes_other);
    }
    for (const std::int64_t size : run.history.layer_sizes) all += static_cast<double>(size) * sizeof(float);
    const double megasteps = 1e6 * static_cast<double>(run.history.steps.size());
    csv.row({gradients / megasteps, all * 1e-6, others / megasteps}, run.name);
  }
  plots.write("communication.csv", csv.text());
  Panel panel{.x = name_axis(runs),
              .y = {"sent per step and rank (MB)", "0:*"},
              .settings = bar_settings("clustered gap 1"),
              .grid = "ytics"};
  for (const auto& [name, colour] :
       {std::pair("gradients sent", kBlue), std::pair("gradients of all layers", "#bbbbbb"),
        std::pair("other messages", kOrange)})
    panel.series.push_back(
        {"communication.csv", fmt::format("{}:xtic(1)", panel.series.size() + 2), bar_style(colour), name});
  plots.add({.picture = "communication", .title = "sent per step and rank", .height = 600, .panels = {panel}});
}

}  // namespace

std::vector<std::string> compare_runs(const std::vector<std::string>& folders, const std::string& out,
                                      const std::string& format) {
  std::vector<PlottedRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  std::set<std::string> names;
  for (const PlottedRun& run : runs) names.insert(run.name);
  if (names.size() < runs.size())  // "a/run" and "b/run"
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = folders[i];
  Plots plots(out, std::to_string(runs.size()) + " runs", format);
  compare_accuracy(plots, runs);
  compare_phases(plots, runs);
  compare_communication(plots, runs);
  return plots.draw();
}

}  // namespace dat
