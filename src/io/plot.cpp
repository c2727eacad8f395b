#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "io/history.hpp"

namespace dat {
namespace {

/// Text as a gnuplot string.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += c;
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "'";
}

/// Text as a CSV field: quoted where it is not plain.
std::string field(const std::string& text) {
  if (std::all_of(text.begin(), text.end(),
                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; }))
    return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

/// A folder of pictures: writes data and scripts there and runs gnuplot in it, so that no path is in a script. `name`
/// begins every title.
class Plots {
 public:
  Plots(const std::string& folder, const std::string& name, const std::string& format)
      : folder_(folder), format_(format), name_(name) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    require(!error, ExitCode::io, "cannot create the folder ", folder_, ": ", error.message());
  }

  void write(const std::string& file, const std::string& text) const {
    std::ofstream out(folder_ + "/" + file, std::ios::binary);
    out << text;
    out.close();
    require(out.good(), ExitCode::io, "cannot write ", folder_, "/", file, ": ", system_reason(errno));
  }

  /// Writes the script of a picture; `size` in pixels, "W,H".
  void script(const std::string& picture, const std::string& title, const std::string& size, const std::string& body) {
    const std::string terminal = format_ == "svg" ? "svg size " + size + " font 'Helvetica,16' background 'white'"
                                                  : "pngcairo size " + size + " font 'Sans,13'";
    write(picture + ".gp", "set terminal " + terminal + " noenhanced\nset output '" + picture + "." + format_ +
                               "'\nset datafile separator comma\nset title " + quoted(name_ + ": " + title) + "\n" +
                               body);
    pictures_.push_back(picture);
  }

  /// Runs gnuplot on all scripts and returns the pictures' paths.
  [[nodiscard]] std::vector<std::string> draw() const {
    std::vector<std::string> paths;
    for (const std::string& picture : pictures_) {
      const int status = gnuplot(picture + ".gp");
      require(status != 127, ExitCode::device,
              "gnuplot was not found; install it (Debian: gnuplot-nox) and run gnuplot ", picture, ".gp in ", folder_);
      require(status == 0, ExitCode::device, "gnuplot failed on ", folder_, "/", picture,
              ".gp; its own message says why");
      paths.push_back(folder_ + "/" + picture + "." + format_);
    }
    return paths;
  }

 private:
  /// Exit status of gnuplot; 127: there is none.
  [[nodiscard]] int gnuplot(const std::string& file) const {
    const pid_t child = fork();
    require(child >= 0, ExitCode::device, "cannot start gnuplot: ", system_reason(errno));
    if (child == 0) {
      if (chdir(folder_.c_str()) == 0)
        execlp("gnuplot", "gnuplot", "--default-settings", file.c_str(), static_cast<char*>(nullptr));
      _exit(errno == ENOENT ? 127 : 126);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
  }

  std::string folder_, format_, name_;
  std::vector<std::string> pictures_;
};

/// Steps in bins of equal length, at most `most`: the first step of each bin, and one past the last.
std::vector<std::size_t> bins(std::size_t steps, std::size_t most) {
  const std::size_t length = (steps + most - 1) / most;
  std::vector<std::size_t> edges;
  for (std::size_t edge = 0; edge < steps; edge += length) edges.push_back(edge);
  edges.push_back(steps);
  return edges;
}

/// A table as CSV. NaN is an empty cell, which gnuplot's lines pass over.
class Csv {
 public:
  explicit Csv(const std::vector<std::string>& columns) {
    for (const std::string& column : columns) text_ += (text_.empty() ? "" : ",") + field(column);
    text_ += "\n";
  }
  /// `name`: a first cell that is no number, where there is one.
  void row(const std::vector<double>& cells, const std::string& name = "") {
    std::string line = name.empty() ? "" : field(name);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      char number[32] = "";
      if (std::isfinite(cells[i])) std::snprintf(number, sizeof number, "%.8g", cells[i]);
      line += (i > 0 || !name.empty() ? "," : "") + std::string(number);
    }
    text_ += line + "\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// A run to draw.
struct Run {
  std::string name;
  History history;

  [[nodiscard]] static double epochs(const StepRecord& r) {
    return static_cast<double>(r.step) / static_cast<double>(r.steps_per_epoch);
  }
  /// Epochs done when an evaluation was made. By time, which orders everything.
  [[nodiscard]] double epochs(const EvaluationRecord& r) const {
    const auto next = std::upper_bound(history.steps.begin(), history.steps.end(), r.wall_time,
                                       [](double time, const StepRecord& step) { return time < step.wall_time; });
    return next == history.steps.begin() ? r.epoch : epochs(*(next - 1));
  }
  /// Epochs done before the first step, and after the last one.
  [[nodiscard]] double begin() const {
    if (history.steps.empty()) return 0;
    const StepRecord& first = history.steps.front();
    return static_cast<double>(first.step - 1) / static_cast<double>(first.steps_per_epoch);
  }
  [[nodiscard]] double end() const {
    double last = history.steps.empty() ? 0 : epochs(history.steps.back());
    for (const EvaluationRecord& r : history.evaluations) last = std::max(last, epochs(r));
    return last;
  }
  [[nodiscard]] double seconds() const {
    double last = history.steps.empty() ? 0 : history.steps.back().wall_time;
    for (const EvaluationRecord& r : history.evaluations) last = std::max(last, r.wall_time);
    return last;
  }
  /// The index of the first step after which so many epochs were done, or the number of steps.
  [[nodiscard]] std::size_t step_at(double done) const {
    const auto found = std::find_if(history.steps.begin(), history.steps.end(),
                                    [&](const StepRecord& r) { return epochs(r) >= done - 1e-9; });
    return static_cast<std::size_t>(found - history.steps.begin());
  }
};

Run read_run(const std::string& folder) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();
  Run run{path.filename(), read_history(folder)};
  require(!run.history.steps.empty() || !run.history.evaluations.empty(), ExitCode::data, "the run in ", folder,
          " has made no step yet: there is nothing to draw");
  return run;
}

/// 1, 2 or 5 times a power of ten: the distance of at most eight marks.
double mark_distance(double range) {
  double distance = std::pow(10, std::floor(std::log10(std::max(range, 1e-6) / 8)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (range / distance <= 8) break;
    distance *= factor;
  }
  return distance;
}

/// A unit in which a time is a number of few digits.
struct TimeUnit {
  const char* name;
  double seconds;
};
TimeUnit time_unit(double seconds) {
  return seconds < 600 ? TimeUnit{"s", 1} : seconds < 36000 ? TimeUnit{"min", 60} : TimeUnit{"h", 3600};
}

constexpr const char* kFrame = "set grid lc rgb '#dddddd' lt 1\nset offsets 0,0,graph 0.05,0\n";
constexpr const char* kKeyBelow = "set key outside bottom center horizontal Left reverse height 1.5\n";

constexpr double kPastTheLast = 1 + 1e-5;  // the end of an axis: the last point is not lost by rounding

/// The axis of epochs below, and above it the time at which each mark was reached.
std::string epoch_axis(const Run& run) {
  const double begin = run.begin(), end = std::max(run.end(), begin + 1e-3), distance = mark_distance(end - begin);
  const double edge = end * kPastTheLast;
  const TimeUnit unit = time_unit(run.seconds());
  std::ostringstream text, times;
  text.precision(10);
  for (double mark = std::ceil(begin / distance) * distance; mark <= end + 1e-9; mark += distance) {
    const std::size_t step = run.step_at(mark);
    if (step == run.history.steps.size()) continue;
    char label[32];
    std::snprintf(label, sizeof label, "%.3g", mark > 0 ? run.history.steps[step].wall_time / unit.seconds : 0.0);
    times << (times.tellp() > 0 ? ", " : "") << "'" << label << "' " << mark;
  }
  text << "set xlabel 'epochs, warm-up included'\nset xrange [" << begin << ":" << edge << "]\nset x2range [" << begin
       << ":" << edge << "]\nset xtics nomirror " << distance << "\n";
  if (times.tellp() > 0)
    text << "set x2label 'training time (" << unit.name << ")'\nset x2tics nomirror (" << times.str() << ")\n";
  return text.str();
}

/// One line of a picture of evaluations.
struct Curve {
  std::string name, look;
  EvaluationSeries records;
  bool clean = false;

  [[nodiscard]] double accuracy(const EvaluationRecord& r) const { return 100 * (clean ? r.clean_acc : r.adv_acc); }
  [[nodiscard]] double loss(const EvaluationRecord& r) const { return clean ? r.clean_loss : r.adv_loss; }
};

// Okabe and Ito's colours: told apart by all readers.
constexpr const char *kBlue = "#0072b2", *kOrange = "#d55e00", *kGreen = "#009e73", *kPink = "#cc79a7",
                     *kYellow = "#e69f00", *kSky = "#56b4e9", *kGrey = "#999999";

/// Names attacks by what tells them apart; what they share is for the title.
class AttackNames {
 public:
  void add(const EvaluationRecord& record) {
    if (record.attack_steps == 0) return;
    const auto parts = attack_parts(record);
    if (!any_) shared_ = parts;
    any_ = true;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (shared_[i] != parts[i]) shared_[i].clear();
  }
  [[nodiscard]] std::string name(const EvaluationRecord& record) const {
    return record.attack + (record.attack_steps == 0 ? "" : braces(attack_parts(record), true));
  }
  [[nodiscard]] std::string shared() const { return any_ ? braces(shared_, false) : ""; }

 private:
  [[nodiscard]] std::string braces(const std::array<std::string, 3>& parts, bool differing) const {
    std::string text;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (shared_[i].empty() == differing) text += (text.empty() ? " (" : ", ") + parts[i];
    return text.empty() ? "" : text + ")";
  }

  std::array<std::string, 3> shared_;
  bool any_ = false;
};

std::string look(const char* colour, double width, int dash, int point, bool points) {
  std::ostringstream text;
  text << (points ? "linespoints pt " + std::to_string(point) + " ps 0.7" : "lines") << " lw " << width << " dt "
       << dash << " lc rgb '" << colour << "'";
  return text.str();
}

/// Accuracy on clean images first, then one curve per attack, split after split, of the raw and of the averaged
/// weights. A colour per attack, a dash per split and weights.
std::vector<Curve> curves_of(const Run& run, const AttackNames& names) {
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
      Curve clean{title + ", clean", look(kBlue, 2.5, dash, point, points), {}, true};
      std::map<EvaluationMoment, const EvaluationRecord*> moments;  // of all attacks on this split
      for (const EvaluationSeries& other : all)
        if (other.front()->split == first.split && other.front()->weights == first.weights)
          for (const EvaluationRecord* r : other) moments.try_emplace(moment_of(*r), r);
      for (const auto& [moment, record] : moments) clean.records.push_back(record);
      curves.push_back(std::move(clean));
    }
    const char* colour = kColours[index_in(attacks, first.attack + attack_text(first)) % kColours.size()];
    curves.push_back({title + ", " + names.name(first), look(colour, 2.5, dash, point, points), series, false});
  }
  return curves;
}

/// Rows of a table with a column per curve from `column` on, of `columns`. `value`: of a curve and a record.
template <class Value>
void add_rows(Csv& csv, const Run& run, const std::vector<Curve>& curves, std::size_t column, std::size_t columns,
              const std::string& name, const Value& value) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::map<EvaluationMoment, std::vector<double>> rows;
  for (std::size_t i = 0; i < curves.size(); ++i)
    for (const EvaluationRecord* record : curves[i].records) {
      std::vector<double>& row = rows[moment_of(*record)];
      row.resize(columns, kNone);
      row[0] = run.epochs(*record);
      row[1] = static_cast<double>(record->step);
      row[2] = record->wall_time;
      row[column + i] = value(curves[i], *record);
    }
  for (const auto& [moment, row] : rows) csv.row(row, name);
}

/// A part of a plot command. Columns count from 1.
std::string line_of(const std::string& file, std::size_t x, std::size_t y, const std::string& look,
                    const std::string& title) {
  return "'" + file + "' every ::1 using " + std::to_string(x) + ":" + std::to_string(y) + " with " + look + " title " +
         quoted(title);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", \\\n     ") + part;
  return all;
}

/// Evaluations of one quantity as file; the parts of the plot command.
template <class Value>
std::vector<std::string> evaluation_lines(const Plots& plots, const std::string& file, const Run& run,
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

/// training.csv: means over the images of some steps, at the last of them. Returns which columns hold numbers.
std::array<bool, kTraining.size()> write_training(const Plots& plots, const Run& run) {
  const std::vector<StepRecord>& steps = run.history.steps;
  std::vector<std::string> columns = {"epochs", "step", "seconds"};
  for (const TrainingColumn& column : kTraining) columns.emplace_back(column.name);
  Csv csv(columns);
  std::array<bool, kTraining.size()> any{};
  const std::vector<std::size_t> edges = bins(steps.size(), 150);
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    const StepRecord& last = steps[edges[bin + 1] - 1];
    std::vector<double> row = {Run::epochs(last), static_cast<double>(last.step), last.wall_time};
    for (std::size_t i = 0; i < kTraining.size(); ++i) {
      double sum = 0, images = 0;
      for (std::size_t step = edges[bin]; step < edges[bin + 1]; ++step) {
        const auto n = static_cast<double>(steps[step].images);
        sum += n * steps[step].*kTraining[i].value;
        images += n;
      }
      row.push_back(kTraining[i].factor * sum / images);
      any[i] |= std::isfinite(row.back());
    }
    csv.row(row);
  }
  plots.write("training.csv", csv.text());
  return any;
}

/// Accuracies, and losses with the learning rate.
void draw_progress(Plots& plots, const Run& run) {
  AttackNames names;
  for (const EvaluationRecord& record : run.history.evaluations) names.add(record);
  const std::vector<Curve> curves = curves_of(run, names);
  const auto trained = write_training(plots, run);
  const auto training = [](std::size_t column, const char* colour, const char* title) {
    return line_of("training.csv", 1, 4 + column, "lines lw 1.5 lc rgb '" + std::string(colour) + "'", title);
  };
  std::vector<std::string> accuracy, loss;
  if (trained[kAdvAccuracy]) accuracy.push_back(training(kAdvAccuracy, "#aaaaaa", "training batches, attacked"));
  if (trained[kCleanLoss]) loss.push_back(training(kCleanLoss, "#9fc5e8", "training batches, clean"));
  if (trained[kAdvLoss]) loss.push_back(training(kAdvLoss, "#aaaaaa", "training batches, attacked"));
  const auto append = [](std::vector<std::string>& all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(accuracy, evaluation_lines(plots, "accuracy.csv", run, curves, " (%)",
                                    [](const Curve& curve, const EvaluationRecord& r) { return curve.accuracy(r); }));
  append(loss, evaluation_lines(plots, "losses.csv", run, curves, "",
                                [](const Curve& curve, const EvaluationRecord& r) { return curve.loss(r); }));
  const std::string axis = epoch_axis(run);
  if (!accuracy.empty())
    plots.script("accuracy", "accuracy" + names.shared(), "1000,660",
                 axis + "set ylabel 'accuracy (%)'\nset yrange [0:*]\n" + kFrame + kKeyBelow + "plot " +
                     joined(accuracy) + "\n");
  if (loss.empty()) return;
  plots.script(
      "losses", "losses and learning rate" + names.shared(), "1000,820",
      "set multiplot\nset lmargin 11\nset rmargin 4\n" + axis + kFrame +
          "set ylabel 'learning rate'\nset yrange [0:*]\nset origin 0,0.68\nset size 1,0.32\nset bmargin 1\n"
          "unset key\nunset xlabel\nset format x ''\nplot " +
          training(kLr, "black", "") +
          "\nunset title\nunset x2label\nunset x2tics\nset xlabel 'epochs, warm-up included'\nset format x\n"
          "set ylabel 'loss (cross-entropy)'\nset origin 0,0\nset size 1,0.68\nset tmargin 1\nunset bmargin\n" +
          kKeyBelow + "plot " + joined(loss) + "\nunset multiplot\n");
}

constexpr std::array<const char*, kPhasesInSum> kPhaseColours = {
    kGrey, kOrange, kBlue, "#003f5c", kYellow, "#a00000", "#f0e442", kPink, kGreen, "#dddddd", kSky, "#8c6bb1"};

/// Stacked bars of rows of seconds by phase, with those names; `axes`: more of the script. What is hidden has no place
/// in a bar, but one in the table beside it.
void draw_phase_bars(Plots& plots, const std::string& title, const std::vector<std::array<double, kPhases>>& rows,
                     const std::vector<std::string>& names, const std::string& bar,
                     const std::array<std::string, kPhases>& keys, const std::string& axes) {
  std::vector<std::string> columns = {bar};
  for (const char* name : kPhaseNames) columns.push_back(name + std::string("_seconds"));
  Csv csv(columns);
  for (std::size_t i = 0; i < rows.size(); ++i) csv.row({rows[i].begin(), rows[i].end()}, names[i]);
  plots.write("phases.csv", csv.text());
  std::vector<std::string> bars;
  const std::size_t every = (rows.size() + 15) / 16;  // more names have no place
  const std::string marks =
      every > 1 ? "xtic(int($0) % " + std::to_string(every) + " == 0 ? strcol(1) : '')" : "xtic(1)";
  for (std::size_t phase = 0; phase < kPhasesInSum; ++phase)
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[phase] > 0; }))
      bars.push_back("'phases.csv' every ::1 using " + std::to_string(phase + 2) + ":" + marks + " lc rgb '" +
                     kPhaseColours[phase] + "' title " + quoted(keys[phase]));
  if (bars.empty()) return;
  plots.script("phases", title, "1000,620",
               "set style data histograms\nset style histogram rowstacked\nset style fill solid border rgb 'white'\n"
               "set boxwidth 0.7\nset yrange [0:*]\nset grid ytics lc rgb '#dddddd' lt 1\n"
               "set key outside right invert Left reverse\n" +
                   axes + "plot " + joined(bars) + "\n");
}

void draw_phases(Plots& plots, const Run& run) {
  const std::vector<std::array<double, kPhases>> seconds = run.history.phase_seconds();
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) names.push_back(std::to_string(rank));
  // The shares are those of the summary.
  const double total = std::accumulate(seconds[0].begin(), seconds[0].begin() + kPhasesInSum, 0.0);
  std::array<std::string, kPhases> keys;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    char share[64];
    std::snprintf(share, sizeof share, "%s (%.1f %%)", kPhaseNames[phase], 100 * seconds[0][phase] / total);
    keys[phase] = share;
  }
  draw_phase_bars(plots, "where the time goes (shares: rank 0)", seconds, names, "rank", keys,
                  "set xlabel 'rank'\nset ylabel 'time (s)'\n");
}

void draw_layers(Plots& plots, const Run& run) {
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
    body << (layer == 0 ? "" : ", ") << quoted(history.layer_names[layer]) << ' ' << layer;
  body << ")\nplot 'layers.csv' skip 1 matrix every 1::1 using 2:($1 - 1):3 with image pixels notitle\n";
  plots.script("layers", "inclusion probability of each layer",
               "1100," + std::to_string(160 + 17 * std::max<std::size_t>(layers, 20)), body.str());
}

void require_format(const std::string& format) {
  require(format == "svg" || format == "png", ExitCode::usage, "unknown picture format '", format,
          "'; known: png, svg");
}

/// Accuracy on the test images of all runs, against epochs and against time. A colour per run.
void compare_accuracy(Plots& plots, const std::vector<Run>& runs) {
  constexpr std::array<const char*, 8> kColours = {kBlue, kOrange, kGreen, kPink, kYellow, kSky, "black", kGrey};
  AttackNames names;
  for (const Run& run : runs)
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
      mine[k].look = look(kColours[i % kColours.size()], clean ? 1.5 : 2.5, clean ? 2 : 1,
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
      by_time.push_back(line("($4 / " + std::to_string(unit.seconds) + ")", "title " + quoted(curve.name)));
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
std::string name_axis(const std::vector<Run>& runs) {
  std::size_t longest = 0;
  for (const Run& run : runs) longest = std::max(longest, run.name.size());
  return longest * runs.size() > 60 ? "set xtics rotate by -20\n" : "";
}

/// What an epoch costs in each phase, as a mean over the ranks.
void compare_phases(Plots& plots, const std::vector<Run>& runs) {
  std::vector<std::array<double, kPhases>> rows;
  std::vector<std::string> names;
  for (const Run& run : runs) {
    const std::vector<std::array<double, kPhases>> seconds = run.history.phase_seconds();
    // The records of the ranks may end before the steps do.
    auto last = run.history.steps.rbegin();
    if (!run.history.ranks.empty())
      last = std::find_if(last, run.history.steps.rend(),
                          [&](const StepRecord& r) { return r.step == run.history.ranks.back().step; });
    const double epochs = last == run.history.steps.rend() ? 0 : Run::epochs(*last) - run.begin();
    std::array<double, kPhases>& row = rows.emplace_back();
    names.push_back(run.name);
    if (!(epochs > 0)) continue;
    for (const auto& rank : seconds)
      for (std::size_t phase = 0; phase < kPhases; ++phase)
        row[phase] += rank[phase] / static_cast<double>(seconds.size()) / epochs;
  }
  std::array<std::string, kPhases> keys;
  std::copy(kPhaseNames.begin(), kPhaseNames.end(), keys.begin());
  draw_phase_bars(plots, "time of one epoch, mean over the ranks", rows, names, "run", keys,
                  "set ylabel 'time of one epoch (s)'\n" + name_axis(runs));
}

void compare_communication(Plots& plots, const std::vector<Run>& runs) {
  Csv csv({"run", "gradients sent", "gradients of all layers", "other messages"});
  for (const Run& run : runs) {
    double gradients = 0, others = 0, all = 0;
    for (const StepRecord& r : run.history.steps) {
      gradients += static_cast<double>(r.bytes_sent);
      others += static_cast<double>(r.bytes_statistics);
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
                   kBars[i].second + "' title " + quoted(kBars[i].first));
  plots.script("communication", "sent per step and rank", "1000,620",
               "set style data histograms\nset style histogram clustered gap 1\nset style fill solid border rgb "
               "'white'\nset ylabel 'sent per step and rank (MB)'\nset yrange [0:*]\n"
               "set grid ytics lc rgb '#dddddd' lt 1\n" +
                   name_axis(runs) + kKeyBelow + "plot " + joined(bars) + "\n");
}

}  // namespace

std::vector<std::string> plot_run(const std::string& folder, const std::string& format) {
  require_format(format);
  const Run run = read_run(folder);
  Plots plots(folder + "/plots", run.name, format);
  draw_progress(plots, run);
  draw_phases(plots, run);
  draw_layers(plots, run);
  return plots.draw();
}

std::vector<std::string> compare_runs(const std::vector<std::string>& folders, const std::string& out,
                                      const std::string& format) {
  require_format(format);
  std::vector<Run> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  std::set<std::string> names;
  for (const Run& run : runs) names.insert(run.name);
  if (names.size() < runs.size())  // "a/run" and "b/run"
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = folders[i];
  Plots plots(out, std::to_string(runs.size()) + " runs", format);
  compare_accuracy(plots, runs);
  compare_phases(plots, runs);
  compare_communication(plots, runs);
  return plots.draw();
}

std::string draw_bars(const std::string& folder, const std::string& picture, const BarChart& chart) {
  std::ostringstream csv, body;
  csv << "group";
  for (const std::string& bar : chart.bars) csv << ',' << field(bar);
  csv << '\n';
  for (std::size_t group = 0; group < chart.groups.size(); ++group) {
    csv << field(chart.groups[group]);
    for (std::size_t bar = 0; bar < chart.bars.size(); ++bar)
      csv << ',' << chart.values[group * chart.bars.size() + bar];
    csv << '\n';
  }
  body << "set style data histograms\nset style histogram clustered gap 1\nset style fill solid border rgb 'white'\n"
       << "set ylabel " << quoted(chart.unit) << "\nset yrange [0:*]\nset xtics rotate by -35\n"
       << "set grid ytics lc rgb '#dddddd' lt 1\nset key outside bottom center horizontal\nplot ";
  constexpr std::array<const char*, 4> kColours = {"#0072b2", "#56b4e9", "#d55e00", "#999999"};
  for (std::size_t bar = 0; bar < chart.bars.size(); ++bar)
    body << (bar == 0 ? "" : ", ") << quoted(picture + ".csv") << " every ::1 using " << bar + 2 << ":xtic(1) lc rgb '"
         << kColours[bar % kColours.size()] << "' title " << quoted(chart.bars[bar]);
  if (chart.limit > 0)
    body << ", " << chart.limit << " with lines lw 2 lc rgb 'black' title " << quoted(chart.limit_name);
  body << "\n";
  Plots plots(folder, chart.name, "svg");
  plots.write(picture + ".csv", csv.str());
  plots.script(picture, chart.title, "1200,620", body.str());
  return plots.draw().front();
}

std::string draw_lines(const std::string& folder, const std::string& picture, const LineChart& chart) {
  std::vector<std::string> columns = {"x"};
  columns.insert(columns.end(), chart.lines.begin(), chart.lines.end());
  Csv csv(columns);
  const std::size_t lines = chart.lines.size();
  for (std::size_t k = 0; k < chart.x.size(); ++k) {
    std::vector<double> row = {chart.x[k]};
    for (std::size_t line = 0; line < lines; ++line) row.push_back(chart.values[k * lines + line]);
    csv.row(row);
  }
  std::ostringstream body;
  body << "set logscale xy\nset autoscale xfix\nset xtics 2\nset ytics 2\nset xlabel " << quoted(chart.x_label)
       << "\nset ylabel " << quoted(chart.y_label)
       << "\nset grid lc rgb '#dddddd' lt 1\nset key outside bottom center vertical maxrows 4\nplot ";
  // A pair of lines to a colour: what is compared, dashed, and the best of it.
  constexpr std::array<const char*, 6> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
  for (std::size_t line = 0; line < lines; ++line)
    body << (line == 0 ? "" : ", ") << quoted(picture + ".csv") << " every ::1 using 1:" << line + 2
         << " with linespoints pt 7 ps 0.5 lw 2 " << (line % 2 == 0 ? "dt 2" : "dt 1") << " lc rgb '"
         << kColours[line / 2 % kColours.size()] << "' title " << quoted(chart.lines[line]);
  body << "\n";
  Plots plots(folder, chart.name, "svg");
  plots.write(picture + ".csv", csv.text());
  plots.script(picture, chart.title, "1000,760", body.str());
  return plots.draw().front();
}

}  // namespace dat
