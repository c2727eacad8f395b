// Pictures of one run.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <tuple>
#include <utility>

#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

/// Evaluations of one quantity as file; the parts of the plot command.
template <class Value>
std::vector<std::string> evaluation_lines(const Plots& plots, const std::string& file, const PlottedRun& run,
                                          const std::vector<Curve>& curves, const std::string& unit,
                                          const Value& value) {
  std::vector<std::string> columns = {"epochs", "step", "seconds"}, lines;
  for (const Curve& curve : curves) {
    columns.push_back(curve.name + unit);
    if (std::any_of(curve.records.begin(), curve.records.end(),
                    [&](const EvaluationRecord* r) { return std::isfinite(value(curve, *r)); }))
      lines.push_back(line_of(file, 1, columns.size(), curve.look, curve.name));
  }
  Csv csv(columns);
  add_rows(csv, run, curves, 3, columns.size(), "", value);
  plots.write(file, csv.text());
  return lines;
}

struct TrainingColumn {
  const char* name;
  double StepRecord::*value;
  double factor;
};
constexpr std::array<TrainingColumn, 5> kTraining = {{{"adversarial accuracy (%)", &StepRecord::acc_adv, 100},
                                                      {"clean accuracy (%)", &StepRecord::acc_clean, 100},
                                                      {"adversarial loss", &StepRecord::loss_adv, 1},
                                                      {"clean loss", &StepRecord::loss_clean, 1},
                                                      {"lr", &StepRecord::lr, 1}}};
enum : std::uint8_t { kAdvAccuracy, kCleanAccuracy, kAdvLoss, kCleanLoss, kLr };

/// What a curve is drawn from: where, and how high. No NaN.
using Points = std::vector<std::pair<double, double>>;

/// training.csv: means over the images of some steps, at the last of them. Returns the columns' points.
std::array<Points, kTraining.size()> write_training(const Plots& plots, const PlottedRun& run) {
  const std::vector<StepRecord>& steps = run.history.steps;
  std::vector<std::string> columns = {"epochs", "step", "seconds"};
  for (const TrainingColumn& column : kTraining) columns.emplace_back(column.name);
  Csv csv(columns);
  std::array<Points, kTraining.size()> all;
  const std::vector<std::size_t> edges = bins(steps.size(), 150);
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    const StepRecord& last = steps[edges[bin + 1] - 1];
    std::vector<double> row = {PlottedRun::epochs(last), static_cast<double>(last.step), last.wall_time};
    for (std::size_t i = 0; i < kTraining.size(); ++i) {
      double sum = 0, images = 0;
      for (std::size_t step = edges[bin]; step < edges[bin + 1]; ++step) {
        const auto n = static_cast<double>(steps[step].images);
        sum += n * steps[step].*kTraining[i].value;
        images += n;
      }
      row.push_back(kTraining[i].factor * sum / images);
      if (std::isfinite(row.back())) all[i].emplace_back(row[0], row.back());
    }
    csv.row(row);
  }
  plots.write("training.csv", csv.text());
  return all;
}

/// The axis of several curves, from `begin` to `end`. What is far above all that comes behind the first tenth of the
/// run is cut off, and a note says so; high and low values that are left have a logarithmic axis.
std::string axis_of(const std::vector<Points>& curves, double begin, double end) {
  double low = std::numeric_limits<double>::infinity(), high = -low, late = -low;
  for (const Points& curve : curves)
    for (const auto& [x, y] : curve) {
      low = std::min(low, y);
      high = std::max(high, y);
      if (x >= begin + 0.1 * (end - begin)) late = std::max(late, y);
    }
  std::ostringstream text;
  double top = high;
  if (high > 1.5 * late && high - low > 2 * (late - low)) {
    top = late + 0.15 * (late - low);
    text << "set label 2 'cut off: values up to " << std::setprecision(3) << high
         << "' at graph 0.99,0.95 right font ',11' tc rgb '#777777'\n"
         << std::setprecision(6);
  }
  if (low > 0 && top > 10 * low) {
    const double bottom = std::max(low, top / 1000) / 1.1;
    text << "set logscale y\nset offsets 0,0,0,0\nset yrange [" << bottom << ":" << 1.1 * top << "]\nset ytics ("
         << logarithmic_marks(bottom, 1.1 * top) << ")\n";
  } else if (top < high) {
    text << "set yrange [*:" << top << "]\n";
  } else {
    text << "set yrange [*:*]\n";
  }
  return text.str();
}

/// What marks the warm-up; empty: there was none.
std::string warmup_mark(const PlottedRun& run) {
  const double begin = run.begin(), end = std::min<double>(run.history.warmup_epochs, run.end());
  if (begin >= end) return "";
  std::ostringstream text;
  text << "set object 1 rectangle from first " << begin << ", graph 0 to first " << end
       << ", graph 1 behind fc rgb '#f0f0f0' fs solid noborder\nset label 1 'warm-up' at first " << begin
       << ", graph 0.96 offset 0.5,0 font ',11' tc rgb '#777777'\n";
  return text.str();
}

/// Accuracies, and losses with the learning rate.
void draw_progress(Plots& plots, const PlottedRun& run) {
  AttackNames names;
  for (const EvaluationRecord& record : run.history.evaluations) names.add(record);
  const std::vector<Curve> curves = curves_of(run, names);
  const auto trained = write_training(plots, run);
  const auto training = [](std::size_t column, const char* colour, const char* title) {
    return line_of("training.csv", 1, 4 + column, "lines lw 1.5 lc rgb '" + std::string(colour) + "'", title);
  };
  constexpr const char *kClean = "training batches, clean", *kAttacked = "training batches, own attack";
  std::vector<std::string> accuracy, loss;
  std::vector<Points> losses;  // of the curves that are drawn
  if (!trained[kAdvAccuracy].empty()) accuracy.push_back(training(kAdvAccuracy, "#aaaaaa", kAttacked));
  for (const auto& [column, colour, title] :
       {std::tuple(kCleanLoss, "#9fc5e8", kClean), std::tuple(kAdvLoss, "#aaaaaa", kAttacked)}) {
    if (trained[column].empty()) continue;
    loss.push_back(training(column, colour, title));
    losses.push_back(trained[column]);
  }
  const auto append = [](std::vector<std::string>& all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(accuracy, evaluation_lines(plots, "accuracy.csv", run, curves, " (%)",
                                    [](const Curve& curve, const EvaluationRecord& r) { return curve.accuracy(r); }));
  append(loss, evaluation_lines(plots, "losses.csv", run, curves, "",
                                [](const Curve& curve, const EvaluationRecord& r) { return curve.loss(r); }));
  std::size_t longest = std::string(kAttacked).size();
  for (const Curve& curve : curves) {
    longest = std::max(longest, curve.name.size());
    Points& points = losses.emplace_back();
    for (const EvaluationRecord* record : curve.records)
      if (std::isfinite(curve.loss(*record))) points.emplace_back(run.epochs(*record), curve.loss(*record));
  }
  const std::string axis = epoch_axis(run), warmup = warmup_mark(run);
  if (!accuracy.empty())
    plots.script("accuracy", "accuracy" + names.shared(),
                 "1000," + std::to_string(540 + 18 * key_rows(accuracy.size(), longest)),
                 axis + "set ylabel 'accuracy (%)'\nset yrange [0:*]\n" + kFrame + key_below(accuracy.size(), longest) +
                     warmup + "plot " + joined(accuracy) + "\n");
  if (loss.empty()) return;
  plots.script("losses", "losses and learning rate" + names.shared(),
               "1000," + std::to_string(720 + 18 * key_rows(loss.size(), longest)),
               "set multiplot\nset lmargin 11\nset rmargin 4\n" + axis + kFrame + warmup +
                   "set ylabel 'learning rate'\nset yrange [0:*]\nset origin 0,0.68\nset size 1,0.32\nset bmargin 1\n"
                   "unset key\nunset xlabel\nset format x ''\nplot " +
                   training(kLr, "black", "") +
                   "\nunset title\nunset x2label\nunset x2tics\nset xlabel 'epochs, warm-up included'\nset format x\n"
                   "set ylabel 'loss'\nset origin 0,0\nset size 1,0.68\nset tmargin 1\nunset bmargin\n"
                   "unset label 1\n" +
                   axis_of(losses, run.begin(), run.end()) + key_below(loss.size(), longest) + "plot " + joined(loss) +
                   "\nunset multiplot\n");
}

void draw_phases(Plots& plots, const PlottedRun& run) {
  PhaseBars bars{.title = "where the time goes (shares: rank 0)",
                 .bar = "rank",
                 .names = {},
                 .rows = run.history.phase_seconds(),
                 .axes = "set xlabel 'rank'\nset ylabel 'time (s)'\n",
                 .shares = true};  // those of the summary
  for (std::size_t rank = 0; rank < bars.rows.size(); ++rank) bars.names.push_back(std::to_string(rank));
  draw_phase_bars(plots, bars);
}

void draw_layers(Plots& plots, const PlottedRun& run) {
  const History& history = run.history;
  const std::size_t layers = history.layers();
  if (history.steps.size() < 2 || layers < 2) return;  // gnuplot's smallest image
  if (std::all_of(history.p.begin(), history.p.end(), [](float p) { return p == 1.0F; })) return;
  std::vector<std::string> columns = {"step"};
  columns.insert(columns.end(), history.layer_names.begin(), history.layer_names.end());
  Csv csv(columns);
  const std::vector<std::size_t> edges = bins(history.steps.size(), 200);
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    std::vector<double> row = {static_cast<double>(history.steps[edges[bin]].step)};
    for (std::size_t layer = 0; layer < layers; ++layer) {
      double sum = 0;
      for (std::size_t i = edges[bin]; i < edges[bin + 1]; ++i)
        sum += static_cast<double>(history.p[i * layers + layer]);
      row.push_back(sum / static_cast<double>(edges[bin + 1] - edges[bin]));
    }
    csv.row(row);
  }
  plots.write("layers.csv", csv.text());

  // Cell b has its middle at x = b and holds `width` steps.
  const auto width = static_cast<double>(edges[1] - edges[0]);
  std::ostringstream body, marks;
  const double distance = mark_distance(run.end() - run.begin());
  for (double mark = std::ceil(run.begin() / distance) * distance; mark <= run.end() + 1e-9; mark += distance) {
    const std::size_t step = run.step_at(mark);
    if (step == history.steps.size()) continue;
    const double x = mark <= run.begin() ? -0.5 : (static_cast<double>(step) + 1) / width - 0.5;
    marks << (marks.tellp() > 0 ? ", " : "") << "'" << mark << "' " << x;
  }
  body << "set xlabel 'epochs, warm-up included'\nset cblabel 'probability p of taking part in a step'\n"
       << "set cbrange [0:1]\n"
       << "set palette defined (0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', 4 '#fde725')\nset tics out "
          "nomirror\n"
       << "set yrange [" << static_cast<double>(layers) - 0.5
       << ":-0.5]\nset xrange [-0.5:" << static_cast<double>(edges.size()) - 1.5 << "]\nset xtics (" << marks.str()
       << ")\nset ytics font ',10' (";
  for (std::size_t layer = 0; layer < layers; ++layer)
    body << (layer == 0 ? "" : ", ") << gnuplot_text(history.layer_names[layer]) << ' ' << layer;
  body << ")\nplot 'layers.csv' skip 1 matrix every 1::1 using 2:($1 - 1):3 with image pixels notitle\n";
  plots.script("layers", "inclusion probability of each layer",
               "1100," + std::to_string(160 + 17 * std::max<std::size_t>(layers, 20)), body.str());
}

}  // namespace

std::vector<std::string> plot_run(const std::string& folder, const std::string& format) {
  const PlottedRun run = read_run(folder);
  Plots plots(folder + "/plots", run.name, format);
  draw_progress(plots, run);
  draw_phases(plots, run);
  draw_layers(plots, run);
  draw_distances(plots, run);
  draw_attacks(plots, run);
  return plots.draw();
}

}  // namespace dat
