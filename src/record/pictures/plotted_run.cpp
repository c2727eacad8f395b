#include "record/pictures/plotted_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "dat/error.hpp"

namespace dat {

namespace {

constexpr std::array<const char*, kPhasesInSum> kPhaseColours = {
    kGrey, kOrange, kBlue, "#003f5c", kYellow, "#a00000", "#f0e442", kPink, kGreen, "#dddddd", kSky, "#8c6bb1"};

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

double PlottedRun::seconds() const {
  double last = history.steps.empty() ? 0 : history.steps.back().wall_time;
  for (const EvaluationRecord& r : history.evaluations) last = std::max(last, r.wall_time);
  return last;
}

std::size_t PlottedRun::step_at(double done) const {
  const auto found = std::find_if(history.steps.begin(), history.steps.end(),
                                  [&](const StepRecord& r) { return epochs(r) >= done - 1e-9; });
  return static_cast<std::size_t>(found - history.steps.begin());
}

std::vector<std::size_t> bins(std::size_t steps, std::size_t most) {
  const std::size_t length = (steps + most - 1) / most;
  std::vector<std::size_t> edges;
  for (std::size_t edge = 0; edge < steps; edge += length) edges.push_back(edge);
  edges.push_back(steps);
  return edges;
}

std::string epoch_axis(const PlottedRun& run) {
  const double begin = run.begin(), end = std::max(run.end(), begin + 1e-3), distance = mark_distance(end - begin);
  const double edge = end * kPastTheLast;
  const TimeUnit unit = time_unit(run.seconds());
  std::ostringstream text, times;
  text.precision(10);
  for (double mark = std::ceil(begin / distance) * distance; mark <= end + 1e-9; mark += distance) {
    const std::size_t step = run.step_at(mark);
    if (step == run.history.steps.size()) continue;
    const double time = mark > 0 ? run.history.steps[step].wall_time / unit.seconds : 0.0;
    times << (times.tellp() > 0 ? ", " : "") << fmt::format("'{:.3g}' ", time) << mark;
  }
  text << "set xlabel 'epochs, warm-up included'\nset xrange [" << begin << ":" << edge << "]\nset x2range [" << begin
       << ":" << edge << "]\nset xtics nomirror " << distance << "\n";
  if (times.tellp() > 0)
    text << "set x2label 'training time (" << unit.name << ")'\nset x2tics nomirror (" << times.str() << ")\n";
  return text.str();
}

PlottedRun read_run(const std::string& folder) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();
  PlottedRun run{path.filename(), read_history(folder)};
  require(!run.history.steps.empty() || !run.history.evaluations.empty(), ExitCode::data, "the run in ", folder,
          " has made no step yet: there is nothing to draw");
  return run;
}

TimeUnit time_unit(double seconds) {
  return seconds < 600 ? TimeUnit{"s", 1} : seconds < 36000 ? TimeUnit{"min", 60} : TimeUnit{"h", 3600};
}

void AttackNames::add(const EvaluationRecord& record) {
  if (record.attack_steps == 0) return;
  const auto all = attack_parts(record);
  if (!any_) shared_ = all;
  any_ = true;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (shared_[i] != all[i]) shared_[i].clear();
}

std::string AttackNames::name(const EvaluationRecord& record) const {
  const std::string own = record.attack_steps == 0 ? "" : parts(attack_parts(record), true);
  return record.attack + (own.empty() ? "" : " (" + own + ")");
}

std::string AttackNames::shared() const {
  const std::string all = any_ ? parts(shared_, false) : "";
  return all.empty() ? "" : " (evaluations: " + all + ")";
}

std::string AttackNames::parts(const std::array<std::string, 3>& parts, bool differing) const {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (shared_[i].empty() == differing) text += (text.empty() ? "" : ", ") + parts[i];
  return text;
}

std::vector<Curve> curves_of(const PlottedRun& run, const AttackNames& names) {
  constexpr std::array<const char*, 5> kColours = {kOrange, kGreen, kPink, kYellow, kSky};
  std::vector<Curve> curves;
  std::vector<std::string> sets, attacks;
  const std::vector<EvaluationSeries> all = run.history.evaluation_series();
  const auto index_in = [](std::vector<std::string>& words, const std::string& word) {
    const auto found = std::find(words.begin(), words.end(), word);
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
    const int point = first.split == "test" ? 7 : first.split == "holdout" ? 6 : 4;
    const bool points = series.size() <= 60;
    const std::size_t known = sets.size();
    if (index_in(sets, title) == known) {
      Curve clean{title + ", clean", look_of(kBlue, 2.5, dash, point, points), {}, true};
      std::map<EvaluationMoment, const EvaluationRecord*> moments;  // of all attacks on this split
      for (const EvaluationSeries& other : all)
        if (other.front()->split == first.split && other.front()->weights == first.weights)
          for (const EvaluationRecord* r : other) moments.try_emplace(moment_of(*r), r);
      for (const auto& [moment, record] : moments) clean.records.push_back(record);
      curves.push_back(std::move(clean));
    }
    const char* colour = kColours[index_in(attacks, first.attack + attack_text(first)) % kColours.size()];
    curves.push_back({title + ", " + names.name(first), look_of(colour, 2.5, dash, point, points), series, false});
  }
  return curves;
}

void draw_phase_bars(Plots& plots, const PhaseBars& bars) {
  std::vector<std::string> columns = {bars.bar};
  for (const char* name : kPhaseNames) columns.push_back(name + std::string("_seconds"));
  columns.emplace_back("others_seconds");
  std::vector<double> sums;
  for (const auto& row : bars.rows) sums.push_back(std::accumulate(row.begin(), row.begin() + kPhasesInSum, 0.0));
  std::vector<std::size_t> large, small;
  for (std::size_t phase = 0; phase < kPhasesInSum; ++phase) {
    bool any = false, seen = false;
    for (std::size_t i = 0; i < bars.rows.size(); ++i) {
      any = any || bars.rows[i][phase] > 0;
      seen = seen || bars.rows[i][phase] >= 0.01 * sums[i];
    }
    if (any) (seen ? large : small).push_back(phase);
  }
  if (small.size() == 1) {  // it would only lose its name
    large.push_back(small.front());
    small.clear();
  }
  std::sort(large.begin(), large.end());
  Csv csv(columns);
  for (std::size_t i = 0; i < bars.rows.size(); ++i) {
    const auto& row = bars.rows[i];
    std::vector<double> cells(row.begin(), row.end());
    cells.push_back(0);
    for (const std::size_t phase : small) cells.back() += row[phase];
    csv.row(cells, bars.names[i]);
  }
  plots.write("phases.csv", csv.text());
  if (large.empty()) return;

  const auto share = [&](const std::string& name, double seconds) {
    return bars.shares ? fmt::format("{} ({:.1f} %)", name, 100 * seconds / sums[0]) : name;
  };
  const std::size_t every = (bars.rows.size() + 15) / 16;  // more names have no place
  const std::string marks =
      every > 1 ? "xtic(int($0) % " + std::to_string(every) + " == 0 ? strcol(1) : '')" : "xtic(1)";
  std::vector<std::string> drawn;
  const auto draw = [&](std::size_t column, const char* colour, const std::string& key) {
    drawn.push_back("'phases.csv' every ::1 using " + std::to_string(column) + ":" + marks + " lc rgb '" + colour +
                    "' title " + gnuplot_text(key));
  };
  for (const std::size_t phase : large)
    draw(phase + 2, kPhaseColours[phase], share(kPhaseNames[phase], bars.rows[0][phase]));
  std::string note;
  if (!small.empty()) {
    double others = 0;
    for (const std::size_t phase : small) {
      others += bars.rows[0][phase];
      note += (note.empty() ? "" : ", ") + share(kPhaseNames[phase], bars.rows[0][phase]);
    }
    draw(columns.size(), "#444444", share("others, each < 1 %", others));
    note = "set bmargin 5\nset label " + gnuplot_text("others: " + note) +
           " at screen 0.02,0.03 font ',11' tc rgb '#444444'\n";
  }
  // Few bars are not as wide as the picture.
  const double room = std::max(0.0, (5 - static_cast<double>(bars.rows.size())) / 2);
  std::ostringstream range;
  range << "set xrange [" << -0.6 - room << ":" << static_cast<double>(bars.rows.size()) - 0.4 + room << "]\n";
  plots.script("phases", bars.title, "1000,620",
               "set style data histograms\nset style histogram rowstacked\nset style fill solid border rgb 'white'\n"
               "set boxwidth 0.7\nset yrange [0:*]\nset grid ytics lc rgb '#dddddd' lt 1\n"
               "set key outside right invert Left reverse\n" +
                   range.str() + bars.axes + note + "plot " + joined(drawn) + "\n");
}

}  // namespace dat
