// Pictures of one run.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "record/pictures/plotted_run.hpp"

namespace dat {

namespace {

/// Writes evaluations of one quantity, and returns their lines.
template <class Value>
std::vector<Series> evaluation_lines(const Plots& plots, const std::string& file, const PlottedRun& run,
                                     const std::vector<Curve>& curves, const std::string& unit, const Value& value) {
  std::vector<std::string> columns = {"epochs", "step", "seconds"};
  std::vector<Series> lines;
  for (const Curve& curve : curves) {
    columns.push_back(curve.name + unit);
    if (std::ranges::any_of(curve.records, [&](const EvaluationRecord* r) { return std::isfinite(value(curve, *r)); }))
      lines.push_back({file, fmt::format("1:{}", columns.size()), curve.look, curve.name});
  }
  Csv csv(columns);
  std::map<EvaluationMoment, std::vector<double>> rows;
  for (std::size_t i = 0; i < curves.size(); ++i)
    for (const EvaluationRecord* record : curves[i].records) {
      std::vector<double>& row = rows[moment_of(*record)];
      row.resize(columns.size(), std::numeric_limits<double>::quiet_NaN());
      row[0] = run.epochs(*record);
      row[1] = static_cast<double>(record->step);
      row[2] = record->wall_time;
      row[3 + i] = value(curves[i], *record);
    }
  for (const auto& [moment, row] : rows) csv.row(row);
  plots.write(file, csv.text());
  return lines;
}

/// Largest accuracy of curves, in percent; 0: there is none.
double highest(const std::vector<Curve>& curves) {
  double most = 0;
  for (const Curve& curve : curves)
    for (const EvaluationRecord* record : curve.records)
      if (std::isfinite(curve.accuracy(*record))) most = std::max(most, curve.accuracy(*record));
  return most;
}

/// Points of a curve: abscissa and height. No NaN.
using Points = std::vector<std::pair<double, double>>;

/// Writes a table of value(step, column): the mean over the images of some steps, at the last of them, in `most` rows
/// at most. Each row has as many images as the largest batch, at least: the small batch at an epoch's end is none of
/// its own. Returns the columns' points; columns have numbers in the table from kMeans on.
constexpr std::size_t kMeans = 5;
template <class Value>
std::vector<Points> write_means(const Plots& plots, const std::string& file, const PlottedRun& run, std::int64_t most,
                                const std::vector<std::string>& names, const Value& value) {
  const std::vector<StepRecord>& steps = run.history.steps;
  std::vector<std::string> columns = {"epochs", "step", "seconds", "from"};
  columns.insert(columns.end(), names.begin(), names.end());
  Csv csv(columns);
  std::vector<Points> points(names.size());
  std::int64_t left = 0, least = 1;
  for (const StepRecord& step : steps) {
    left += step.images;
    least = std::max(least, step.images);
  }
  least = std::max(least, (left + most - 1) / most);
  for (std::size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
    std::int64_t here = 0;
    while (end < steps.size() && (here < least || left < least)) {
      here += steps[end].images;
      left -= steps[end++].images;
    }
    const StepRecord &first = steps[begin], &last = steps[end - 1];
    std::vector<double> row = {PlottedRun::epochs(last), static_cast<double>(last.step), last.wall_time,
                               PlottedRun::epochs(first) - 1 / static_cast<double>(first.steps_per_epoch)};
    for (std::size_t column = 0; column < names.size(); ++column) {
      double sum = 0, images = 0;
      for (std::size_t step = begin; step < end; ++step) {
        const double one = value(step, column), n = static_cast<double>(steps[step].images);
        if (!std::isfinite(one)) continue;
        sum += n * one;
        images += n;
      }
      row.push_back(sum / images);  // NaN where there is none
      if (images > 0 && std::isfinite(row.back())) points[column].emplace_back(row[0], row.back());
    }
    csv.row(row);
  }
  plots.write(file, csv.text());
  return points;
}

/// Sets the axis of several curves, from `begin` to `end`. What is far above all that comes after the first tenth of
/// the run is cut off, and a note says so; high and low values that are left have a logarithmic axis.
void set_axis(Panel& panel, const std::vector<Points>& curves, double begin, double end) {
  double low = std::numeric_limits<double>::infinity(), high = -low, late = -low, last = low;
  for (const Points& curve : curves) {
    if (!curve.empty()) last = std::min(last, curve.back().second);
    for (const auto& [x, y] : curve) {
      low = std::min(low, y);
      high = std::max(high, y);
      if (x >= begin + 0.1 * (end - begin)) late = std::max(late, y);
    }
  }
  double top = high;
  if (high > 1.5 * late && high - low > 2 * (late - low)) {
    top = late + 0.15 * (late - low);
    panel.settings += fmt::format(
        "set label 2 'cut off: values up to {:.3g}' at graph 0.99,0.95 right font ',11' tc rgb '#777777'\n", high);
  }
  if (low > 0 && top > 10 * low) {
    const double bottom = std::max(low, std::min(top, last) / 1000) / 1.1;  // not a batch that was easy
    panel.y = {panel.y.label, fmt::format("{}:{}", bottom, 1.1 * top), logarithmic_marks(bottom, 1.1 * top), true};
  } else if (top < high) {
    panel.y.range = fmt::format("*:{}", top);
  }
}

/// Mark of the warm-up; empty: there was none.
std::string warmup_mark(const PlottedRun& run) {
  const double begin = run.begin(), end = std::min<double>(run.history.warmup_epochs, run.end());
  if (begin >= end) return "";
  return fmt::format(
      "set object 1 rectangle from first {0}, graph 0 to first {1}, graph 1 behind fc rgb '#f0f0f0' fs solid "
      "noborder\nset label 1 'warm-up' at first {0}, graph 0.96 offset 0.5,0 font ',11' tc rgb '#777777'\n",
      begin, end);
}

/// Accuracies, and losses with the learning rate.
void draw_progress(Plots& plots, const PlottedRun& run) {
  AttackNames names;
  for (const EvaluationRecord& record : run.history.evaluations) names.add(record);
  const std::vector<Curve> curves = curves_of(run, names);
  enum : std::uint8_t { kAdvAccuracy, kCleanAccuracy, kAdvLoss, kCleanLoss, kLr };
  const auto trained =
      write_means(plots, "training.csv", run, 150,
                  {"adversarial accuracy (%)", "clean accuracy (%)", "adversarial loss", "clean loss", "lr"},
                  [&](std::size_t step, std::size_t column) {
                    const StepRecord& r = run.history.steps[step];
                    return std::array{100 * r.acc_adv, 100 * r.acc_clean, r.loss_adv, r.loss_clean, r.lr}[column];
                  });
  const auto training = [](std::size_t column, const char* colour, const char* title) {
    return Series{"training.csv", fmt::format("1:{}", kMeans + column), line_style(colour, 1.5), title};
  };
  constexpr const char *kClean = "training batches, clean", *kAttacked = "training batches, own attack";
  double top = highest(curves);
  for (const auto& [x, y] : trained[kAdvAccuracy]) top = std::max(top, y);
  Panel accuracy = epoch_panel(run, accuracy_axis(top)), rate = epoch_panel(run, {"learning rate", "0:*"}),
        loss = epoch_panel(run, {"loss"});
  std::vector<Points> losses;  // points of the curves that are drawn
  if (!trained[kAdvAccuracy].empty()) accuracy.series.push_back(training(kAdvAccuracy, "#aaaaaa", kAttacked));
  for (const auto& [column, colour, title] :
       {std::tuple(kCleanLoss, "#9fc5e8", kClean), std::tuple(kAdvLoss, "#aaaaaa", kAttacked)}) {
    if (trained[column].empty()) continue;
    loss.series.push_back(training(column, colour, title));
    losses.push_back(trained[column]);
  }
  std::ranges::move(evaluation_lines(plots, "accuracy.csv", run, curves, " (%)", std::mem_fn(&Curve::accuracy)),
                    std::back_inserter(accuracy.series));
  std::ranges::move(evaluation_lines(plots, "losses.csv", run, curves, "", std::mem_fn(&Curve::loss)),
                    std::back_inserter(loss.series));
  for (const Curve& curve : curves) {
    Points& points = losses.emplace_back();
    for (const EvaluationRecord* record : curve.records)
      if (std::isfinite(curve.loss(*record))) points.emplace_back(run.epochs(*record), curve.loss(*record));
  }
  accuracy.settings = rate.settings = warmup_mark(run);
  const std::string facts = names.facts(evaluated_images({&run}, {"test", "holdout", "train"}));
  if (!accuracy.series.empty())
    plots.add({.picture = "accuracy", .title = "accuracy", .facts = facts, .panels = {accuracy}});
  if (loss.series.empty()) return;
  rate.series = {training(kLr, "black", "")};
  rate.x.label = "";
  rate.settings += "set format x ''\n";
  rate.inside = {120, 120, 960, 245};
  loss.above = {};
  loss.settings = "set format x\nunset label 1\n";
  loss.inside = {120, 275, 960, 675};
  set_axis(loss, losses, run.begin(), run.end());
  plots.add({.picture = "losses",
             .title = "losses and learning rate",
             .facts = facts,
             .height = 770,
             .panels = {rate, loss}});
}

void draw_phases(Plots& plots, const PlottedRun& run) {
  const auto rows = run.history.phase_seconds();
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) names.push_back(std::to_string(rank));
  draw_phase_bars(plots, "where the time goes (shares: rank 0)", "rank", "time (s)", names, rows, true);
}

void draw_layers(Plots& plots, const PlottedRun& run) {
  const History& history = run.history;
  const std::size_t layers = history.layers();
  if (std::ranges::all_of(history.p, [](float p) { return p == 1.0F; })) return;
  const std::vector<Points> points = write_means(
      plots, "layers.csv", run, 200, history.layer_names,
      [&](std::size_t step, std::size_t layer) { return static_cast<double>(history.p[step * layers + layer]); });
  // Cells of one width each, so that they are one picture: what holds in the middle of a cell.
  const double begin = run.begin(), end = run.history.steps.empty() ? begin : PlottedRun::epochs(history.steps.back());
  const std::size_t columns = std::max<std::size_t>(points[0].size(), 2);
  Csv cells({"epochs", "layer", "p"});
  for (std::size_t layer = 0; layer < layers; ++layer)
    for (std::size_t k = 0; k < columns; ++k) {
      const double middle = begin + (end - begin) * (static_cast<double>(k) + 0.5) / static_cast<double>(columns);
      double p = std::numeric_limits<double>::quiet_NaN();  // a cell of every layer, or gnuplot shifts the others
      if (!points[layer].empty()) {
        const auto at = std::find_if(points[layer].begin(), points[layer].end() - 1,
                                     [&](const auto& point) { return point.first >= middle; });
        p = at->second;
      }
      cells.row({middle, static_cast<double>(layer), p});
    }
  plots.write("layers-cells.csv", cells.text());
  Panel panel = epoch_panel(run,
                            {.range = fmt::format("{}:-0.5", static_cast<double>(layers) - 0.5),
                             .marks = "font ',10' " + named_marks(history.layer_names)},
                            {{"layers-cells.csv", "1:2:3", plots.cells()}});
  panel.grid = "";
  panel.settings =
      "set cblabel 'probability p of taking part in a step'\nset cbrange [0:1]\n"
      "set palette defined (0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', 4 '#fde725')\n"
      "set tics out nomirror\n";
  plots.add({.picture = "layers",
             .title = "inclusion probability of each layer",
             .width = 1100,
             .height = 190 + 17 * static_cast<int>(std::max<std::size_t>(layers, 20)),
             .key = Key::none,
             .panels = {panel}});
}

/// Fate of ranks that are not there at the end: "banned in step 121 (gradient)".
std::map<int, std::string> ends_of(const History& history) {
  std::map<int, std::string> ends;
  for (const LeftRecord& left : history.all<LeftRecord>())
    ends[left.rank] = "left after step " + std::to_string(left.step);
  for (const BanRecord& ban : history.all<BanRecord>())
    ends[ban.rank] = "banned in step " + std::to_string(ban.step) + " (" + ban.rule + ")";
  return ends;
}

/// Draws the distance of each rank's gradient from the result, and the bans; nothing where nobody has measured it.
void draw_distances(Plots& plots, const PlottedRun& run) {
  const std::size_t ranks = run.history.ranks_with_distances();
  if (ranks == 0) return;
  std::vector<std::string> columns;
  for (std::size_t rank = 0; rank < ranks; ++rank) columns.push_back(fmt::format("rank {}", rank));
  const std::vector<Points> points =
      write_means(plots, "distances.csv", run, 150, columns, [&](std::size_t step, std::size_t rank) {
        const std::vector<double>& all = run.history.distances[step];
        return rank < all.size() ? all[rank] : std::nan("");
      });
  const std::map<int, std::string> ends = ends_of(run.history);
  std::vector<Series> lines, named;
  Csv marks({"epochs", "distance"});
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string at = fmt::format("1:{}", kMeans + rank);
    const auto end = ends.find(static_cast<int>(rank));
    if (end == ends.end()) {
      const std::string name = !lines.empty() ? "" : ends.empty() ? "ranks" : "ranks that stay";
      lines.push_back({"distances.csv", at, line_style("#aaaaaa", 1), name});
      continue;
    }
    named.push_back(
        {"distances.csv", at, line_style(colour_of(named.size() + 1), 1.5), columns[rank] + ": " + end->second});
    if (!points[rank].empty()) marks.row({points[rank].back().first, points[rank].back().second});
  }
  lines.insert(lines.end(), named.begin(), named.end());
  if (!named.empty()) {
    plots.write("distances-ends.csv", marks.text());
    lines.push_back({"distances-ends.csv", "1:2", "points pt 7 ps 0.7 lc rgb 'black'", "last step of these"});
  }
  Panel panel = epoch_panel(run, {.label = "L2 distance", .logarithmic = true}, lines);
  panel.settings = "set format y '%g'\n";
  plots.add({.picture = "distances", .title = "distance of each rank's gradient from the result", .panels = {panel}});
}

/// Spans of the first steps of the last process, in the order of their ends, of as many ranks as have a lane each.
std::vector<AttackSpan> spans_of(const History& history) {
  constexpr int kMostRanks = 1000;
  std::vector<AttackSpan> spans;
  for (const AttacksRecord& r : history.all<AttacksRecord>()) {
    if (r.first) spans.clear();
    std::ranges::copy_if(r.spans, std::back_inserter(spans),
                         [](const AttackSpan& one) { return one.rank >= 0 && one.rank < kMostRanks; });
  }
  return spans;
}

/// Times in which rank 0 did not wait, from its first wait to its last.
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

/// Bars from column 1 to column 2, at the height of `rank`.
Series bars(const std::string& file, const std::string& rank, const std::string& where, const char* colour,
            const std::string& name) {
  return {file, fmt::format("({1} ? 0.5 * ($1 + $2) : NaN):({0}):1:2:({0} - 0.38):({0} + 0.38)", rank, where),
          fmt::format("boxxyerror fs solid 0.8 border lc rgb 'white' lc rgb '{}'", colour), name};
}

/// Draws the times of the generators' attacks, and of rank 0's waiting; nothing where there were none.
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
  const std::string height = fmt::format("($3 == 0 ? 0 : $3 - {})", first - 1);
  std::vector<std::string> names = {"rank 0"};
  for (int rank = std::max(first, 1); rank <= last; ++rank) names.push_back(fmt::format("rank {}", rank));
  const int lanes = last - first + 2;
  plots.add(
      {.picture = "attacks",
       .title = "who did what when",
       .width = 1200,
       .height = 160 + 40 * lanes,
       .panels = {
           {.x = {"seconds"},
            .y = {.range = fmt::format("{}:-0.5", lanes - 0.5), .marks = named_marks(names)},
            .series = {bars("attacks-training.csv", "0", "1", kGreen, "trains"),
                       bars("attacks.csv", height, "$3 == 0", kGrey, "waits"),
                       bars("attacks.csv", height, "$3 > 0 && int($4) % 2 == 1", kBlue, "attacks for an odd step"),
                       bars("attacks.csv", height, "$3 > 0 && int($4) % 2 == 0", kYellow, "for an even one")},
            .grid = ""}}});
}

}  // namespace

std::vector<std::string> plot_run(const std::string& folder, const PictureFormat& format, const std::string& out) {
  const PlottedRun run = read_run(folder);
  Plots plots(out.empty() ? folder + "/plots" : out, run.name, format);
  draw_progress(plots, run);
  draw_phases(plots, run);
  draw_layers(plots, run);
  draw_distances(plots, run);
  draw_attacks(plots, run);
  return plots.draw();
}

}  // namespace dat
