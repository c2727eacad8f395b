#include "record/pictures/plotted_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "dat/error.hpp"

namespace dat {

namespace {

constexpr std::array<const char*, kPhasesInSum> kPhaseColours = {
    kGrey, kOrange, kBlue, "#003f5c", kYellow, "#a00000", "#f0e442", "#cc79a7", kGreen, "#dddddd", kSky, "#8c6bb1"};

}  // namespace

double PlottedRun::epochs(const EvaluationRecord& r) const {
  const auto next = std::upper_bound(history.steps.begin(), history.steps.end(), r.wall_time,
                                     [](double time, const StepRecord& step) { return time < step.wall_time; });
  return next == history.steps.begin() ? static_cast<double>(r.epoch) : epochs(*(next - 1));
}

double PlottedRun::begin() const {
  if (history.steps.empty()) return 0;
  const StepRecord& first = history.steps.front();
  return static_cast<double>(first.step - 1) / static_cast<double>(first.steps_per_epoch);
}

double PlottedRun::end() const {
  double last = history.steps.empty() ? 0 : epochs(history.steps.back());
  for (const EvaluationRecord& r : history.evaluations) last = std::max(last, epochs(r));
  return last;
}

std::size_t PlottedRun::step_at(double done) const {
  const auto found = std::ranges::find_if(history.steps, [&](const StepRecord& r) { return epochs(r) >= done - 1e-9; });
  return static_cast<std::size_t>(found - history.steps.begin());
}

Panel epoch_panel(const PlottedRun& run, const Axis& y, const std::vector<Series>& series) {
  const double begin = run.begin(), end = std::max(run.end(), begin + 1e-3), distance = mark_distance(end - begin);
  const TimeUnit unit = time_unit(run.history.seconds());
  std::string times;
  for (int k = 0; k < 20; ++k) {  // marks of numbers that are too large to be added up would have no end
    const double mark = (std::ceil(begin / distance) + k) * distance;
    if (!(mark <= end + 1e-9)) break;
    const std::size_t step = run.step_at(mark);
    if (step == run.history.steps.size()) continue;
    const double time = mark > 0 ? run.history.steps[step].wall_time / unit.seconds : 0.0;
    times += fmt::format("{}'{:.3g}' {:.10g}", times.empty() ? "" : ", ", time, mark);
  }
  const std::string range = fmt::format("{:.10g}:{:.10g}", begin, end * kPastTheLast);
  Panel panel{.x = {"epochs, warm-up included", range, fmt::format("nomirror {}", distance)}, .y = y, .series = series};
  if (!times.empty()) panel.above = {fmt::format("training time ({})", unit.name), range, "nomirror (" + times + ")"};
  return panel;
}

PlottedRun read_run(const std::string& folder) {
  const std::filesystem::path inside = std::filesystem::absolute(folder + "/.").lexically_normal();
  PlottedRun run{inside.parent_path().filename(), read_history(folder)};  // of "." and "run/", too
  require(!run.history.steps.empty() || !run.history.evaluations.empty(), ExitCode::data, "the run in ", folder,
          " has made no step yet: there is nothing to draw");
  return run;
}

TimeUnit time_unit(double seconds) {
  return seconds < 600 ? TimeUnit{"s", 1} : seconds < 36000 ? TimeUnit{"min", 60} : TimeUnit{"h", 3600};
}

void AttackNames::add(const EvaluationRecord& record) {
  if (record.attack_steps == 0) return;
  const auto [ball, step, restarts] = attack_parts(record);
  const std::array all = {record.attack, ball, step, restarts};
  if (!any_) shared_ = all;
  any_ = true;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (shared_[i] != all[i]) shared_[i].clear();
}

std::string AttackNames::name(const EvaluationRecord& record) const {
  std::string own;
  if (record.attack_steps > 0)
    for (std::size_t i = 1; const std::string& part : attack_parts(record))
      if (shared_[i++].empty()) own += (own.empty() ? "" : ", ") + part;
  return record.attack + (own.empty() ? "" : " (" + own + ")");
}

std::string AttackNames::facts(const std::string& images) const {
  if (images.empty()) return "";
  std::string text = "evaluations: ", between;
  for (const std::string& part : shared_)
    if (any_ && !part.empty()) text += std::exchange(between, ", ") + part;
  return text + (between.empty() ? "" : "; ") + images;
}

std::string evaluated_images(const std::vector<const PlottedRun*>& runs, const std::vector<std::string>& splits) {
  std::string text;
  for (const std::string& split : splits) {
    std::set<std::int64_t> counts;
    for (const PlottedRun* run : runs) {
      const auto& all = run->history.evaluations;
      const auto last = std::find_if(all.rbegin(), all.rend(), [&](const auto& r) { return r.split == split; });
      if (last != all.rend()) counts.insert(last->images);
    }
    if (!counts.empty())
      text += (text.empty() ? "" : " and ") + fmt::format("{} ", fmt::join(counts, " or ")) + images_text(split);
  }
  return text;
}

std::vector<Curve> curves_of(const PlottedRun& run, const AttackNames& names) {
  std::vector<Curve> curves;
  std::vector<std::string> sets, attacks;
  const std::vector<EvaluationSeries> all = run.history.evaluation_series();
  const auto index_in = [](std::vector<std::string>& words, const std::string& word) {
    const auto found = std::ranges::find(words, word);
    const auto index = static_cast<std::size_t>(found - words.begin());
    if (found == words.end()) words.push_back(word);
    return index;
  };
  for (const EvaluationSeries& series : all) {
    const EvaluationRecord& first = *series.front();
    const bool averaged = first.weights == "average";
    const std::string title = std::string(first.split == "holdout" ? "held out"
                                          : first.split == "train" ? "training"
                                                                   : "test") +
                              (averaged ? " (average)" : "");
    const int dash = (first.split == "test" ? 1 : first.split == "holdout" ? 2 : 3) + (averaged ? 3 : 0);
    const int point = series.size() > 60 ? 0 : first.split == "test" ? 7 : first.split == "holdout" ? 6 : 4;
    const std::size_t known = sets.size();
    if (index_in(sets, title) == known) {
      Curve clean{title + ", clean", line_style(kBlue, 2.5, dash, point), {}, true};
      std::map<EvaluationMoment, const EvaluationRecord*> moments;  // moments of all attacks on this split
      for (const EvaluationSeries& other : all)
        if (other.front()->split == first.split && other.front()->weights == first.weights)
          for (const EvaluationRecord* r : other) moments.try_emplace(moment_of(*r), r);
      for (const auto& [moment, record] : moments) clean.records.push_back(record);
      curves.push_back(std::move(clean));
    }
    const std::string colour = colour_of(1 + index_in(attacks, first.attack + attack_text(first)));
    curves.push_back({title + ", " + names.name(first), line_style(colour, 2.5, dash, point), series, false});
  }
  return curves;
}

void draw_phase_bars(Plots& plots, const std::string& title, const std::string& x_label, const std::string& y,
                     const std::vector<std::string>& names, const std::vector<std::array<double, kPhases>>& rows,
                     bool shares) {
  std::vector<std::string> columns = {x_label.empty() ? "run" : x_label};
  for (const char* name : kPhaseNames) columns.push_back(name + std::string("_seconds"));
  columns.emplace_back("others_seconds");
  std::vector<double> sums;
  for (const auto& row : rows) sums.push_back(sum_of(row));
  std::vector<std::size_t> large, small;
  for (std::size_t phase = 0; phase < kPhasesInSum; ++phase) {
    bool any = false, seen = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      any = any || rows[i][phase] > 0;
      seen = seen || rows[i][phase] >= 0.01 * sums[i];
    }
    if (any) (seen ? large : small).push_back(phase);
  }
  if (small.size() == 1) {  // it would only lose its name
    large.push_back(small.front());
    small.clear();
  }
  std::ranges::sort(large);
  Csv csv(columns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> cells(rows[i].begin(), rows[i].end());
    cells.push_back(0);
    for (const std::size_t phase : small) cells.back() += rows[i][phase];
    csv.row(cells, names[i]);
  }
  plots.write("phases.csv", csv.text());
  if (large.empty()) return;

  const auto share = [&](const std::string& name, double seconds) {
    return shares ? fmt::format("{} ({:.1f} %)", name, 100 * seconds / sums[0]) : name;
  };
  // Few bars are not as wide as the picture.
  const double room = std::max(0.0, (5 - static_cast<double>(rows.size())) / 2);
  Panel panel{.x = {x_label, fmt::format("{}:{}", -0.6 - room, static_cast<double>(rows.size()) - 0.4 + room)},
              .y = {y, "0:*"},
              .series = {},
              .settings = bar_settings("rowstacked") + "set boxwidth 0.7\n",
              .grid = "ytics"};
  const bool turned = name_bars(panel, names) > 0;
  const auto draw = [&](std::size_t column, const char* colour, const std::string& key) {
    panel.series.push_back({"phases.csv", std::to_string(column), bar_style(colour), key});
  };
  for (const std::size_t phase : large)
    draw(phase + 2, kPhaseColours[phase], share(kPhaseNames[phase], rows[0][phase]));
  if (!small.empty()) {
    double others = 0;
    std::string note;
    for (const std::size_t phase : small) {
      others += rows[0][phase];
      note += (note.empty() ? "" : ", ") + share(kPhaseNames[phase], rows[0][phase]);
    }
    draw(columns.size(), "#444444", share("others, each < 1 %", others));
    panel.settings += (turned ? "set label " : "set bmargin 5\nset label ") + gnuplot_text("others: " + note) +
                      " at screen 0.02,0.03 font ',11' tc rgb '#444444'\n";
  }
  plots.add({.picture = "phases", .title = title, .height = 620, .key = Key::right, .panels = {panel}});
}

}  // namespace dat
