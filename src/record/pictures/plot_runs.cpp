// Pictures of several runs side by side.

#include <algorithm>
#include <set>

#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

/// Accuracy on the test images of all runs, against epochs and against time. A colour per run.
void compare_accuracy(Plots& plots, const std::vector<PlottedRun>& runs) {
  constexpr std::array<const char*, 8> kColours = {kBlue, kOrange, kGreen, kPink, kYellow, kSky, "black", kGrey};
  AttackNames names;
  for (const PlottedRun& run : runs)
    for (const EvaluationRecord& record : run.history.evaluations)
      if (record.split == "test") names.add(record);
  std::vector<std::vector<Curve>> curves;
  std::vector<std::string> columns = {"run", "epochs", "step", "seconds"};
  std::vector<std::string> by_epoch, by_time;
  double seconds = 0, epochs = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<Curve>& mine = curves.emplace_back(curves_of(runs[i], names));
    std::erase_if(mine, [](const Curve& curve) { return curve.records.front()->split != "test"; });
    seconds = std::max(seconds, runs[i].seconds());
    epochs = std::max(epochs, runs[i].end());
    for (std::size_t k = 0; k < mine.size(); ++k) {
      // Clean: dashed with open circles; attacks: solid, each with a point of its own.
      constexpr std::array<int, 4> kPoints = {7, 5, 9, 13};
      const bool clean = mine[k].clean;
      mine[k].look = look_of(kColours[i % kColours.size()], clean ? 1.5 : 2.5, clean ? 2 : 1,
                             clean ? 6 : kPoints[(k - 1) % kPoints.size()], mine[k].records.size() <= 60);
      const EvaluationRecord& first = *mine[k].records.front();
      mine[k].name =
          runs[i].name + ": " + (first.weights == "average" ? "average, " : "") + (clean ? "clean" : names.name(first));
      columns.push_back(mine[k].name + " (%)");
    }
  }
  const TimeUnit unit = time_unit(seconds);
  const auto mark = [](double end) { return std::to_string(std::max(end, 1e-3) * kPastTheLast); };
  Csv csv(columns);
  std::size_t column = 3;  // without the run's name
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add_rows(csv, runs[i], curves[i], column, columns.size() - 1, runs[i].name,
             [](const Curve& curve, const EvaluationRecord& r) { return curve.accuracy(r); });
    for (const Curve& curve : curves[i]) {
      const std::string y = std::to_string(++column + 1);
      const auto line = [&](const std::string& x, const std::string& title) {
        return "'accuracy.csv' every ::1 using " + x + ":" + y + " with " + curve.look + " " + title;
      };
      by_epoch.push_back(line("2", "notitle"));
      by_time.push_back(line("($4 / " + std::to_string(unit.seconds) + ")", "title " + gnuplot_text(curve.name)));
    }
  }
  plots.write("accuracy.csv", csv.text());
  if (by_time.empty()) return;
  // The lower half is as high as the upper one, and has the key below it.
  std::size_t longest = 0;
  for (const std::string& name : columns) longest = std::max(longest, name.size());
  constexpr std::size_t kWidth = 1000, kHalf = 410, kLine = 21;  // pixels
  const std::size_t keys_in_a_line = std::max<std::size_t>(1, kWidth / (9 * longest + 90));
  const std::size_t height = 2 * kHalf + kLine * ((by_time.size() + keys_in_a_line - 1) / keys_in_a_line + 1);
  const double half = static_cast<double>(kHalf) / static_cast<double>(height);
  plots.script(
      "accuracy", "accuracy on the test images" + names.shared(), std::to_string(kWidth) + "," + std::to_string(height),
      "set multiplot\nset lmargin 10\nset rmargin 4\nset ylabel 'accuracy (%)'\nset yrange [0:*]\n" +
          std::string(kFrame) + "set origin 0," + std::to_string(1 - half) + "\nset size 1," + std::to_string(half) +
          "\nset xlabel 'epochs, warm-up included'\nset xrange [0:" + mark(epochs) + "]\nplot " + joined(by_epoch) +
          "\nunset title\nset origin 0,0\nset size 1," + std::to_string(1 - half) + "\nset xlabel 'training time (" +
          unit.name + ")'\nset xrange [0:" + mark(seconds / unit.seconds) + "]\n" + kKeyBelow + "plot " +
          joined(by_time) + "\nunset multiplot\n");
}

/// Names under bars: turned where they would run into each other.
std::string name_axis(const std::vector<PlottedRun>& runs) {
  std::size_t longest = 0;
  for (const PlottedRun& run : runs) longest = std::max(longest, run.name.size());
  return longest * runs.size() > 60 ? "set xtics rotate by -20\n" : "";
}

/// What an epoch costs in each phase, as a mean over the ranks.
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
  draw_phase_bars(plots, {.title = "time of one epoch, mean over the ranks",
                          .bar = "run",
                          .names = names,
                          .rows = rows,
                          .axes = "set ylabel 'time of one epoch (s)'\n" + name_axis(runs)});
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
  std::vector<std::string> bars;
  const std::array<std::pair<const char*, const char*>, 3> kBars = {
      {{"gradients sent", kBlue}, {"gradients of all layers", "#bbbbbb"}, {"other messages", kOrange}}};
  for (std::size_t i = 0; i < kBars.size(); ++i)
    bars.push_back("'communication.csv' every ::1 using " + std::to_string(i + 2) + ":xtic(1) lc rgb '" +
                   kBars[i].second + "' title " + gnuplot_text(kBars[i].first));
  plots.script("communication", "sent per step and rank", "1000,620",
               "set style data histograms\nset style histogram clustered gap 1\nset style fill solid border rgb "
               "'white'\nset ylabel 'sent per step and rank (MB)'\nset yrange [0:*]\n"
               "set grid ytics lc rgb '#dddddd' lt 1\n" +
                   name_axis(runs) + kKeyBelow + "plot " + joined(bars) + "\n");
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
