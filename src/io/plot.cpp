#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
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

/// Text as a CSV field.
std::string field(const std::string& text) {
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

void draw_accuracy(Plots& plots, const History& history) {
  std::ostringstream evaluations, batches;
  evaluations << "seconds,epoch,step,clean_percent,pgd_percent,attack_steps\n";
  for (const EvaluationRecord& r : history.evaluations)
    evaluations << r.wall_time << ',' << r.epoch << ',' << r.step << ',' << 100 * r.clean_acc << ',' << 100 * r.adv_acc
                << ',' << r.attack_steps << '\n';
  batches << "seconds,step,training_percent\n";
  const std::vector<std::size_t> edges = bins(history.steps.size(), 150);
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    double correct = 0, images = 0;
    for (std::size_t i = edges[bin]; i < edges[bin + 1]; ++i) {
      correct += history.steps[i].acc_adv * static_cast<double>(history.steps[i].images);
      images += static_cast<double>(history.steps[i].images);
    }
    const StepRecord& last = history.steps[edges[bin + 1] - 1];
    batches << last.wall_time << ',' << last.step << ',' << 100 * correct / images << '\n';
  }
  plots.write("accuracy.csv", evaluations.str());
  plots.write("training.csv", batches.str());

  std::string curves;
  if (std::any_of(history.steps.begin(), history.steps.end(),
                  [](const StepRecord& r) { return std::isfinite(r.acc_adv); }))
    curves = "'training.csv' every ::1 using 1:3 with lines lw 1 lc rgb '#999999' title 'training batches, attacked'";
  if (!history.evaluations.empty()) {
    if (!curves.empty()) curves += ", ";
    const std::string style =
        history.evaluations.size() > 60 ? "with lines lw 2.5" : "with linespoints lw 2.5 pt 7 ps 0.7";
    curves += "'accuracy.csv' every ::1 using 1:4 " + style + " lc rgb '#0072b2' title 'test, clean', " +
              "'accuracy.csv' every ::1 using 1:5 " + style + " lc rgb '#d55e00' title 'test, PGD-" +
              std::to_string(history.evaluations.back().attack_steps) + "'";
  }
  if (curves.empty()) return;
  plots.script("accuracy", "accuracy against training time", "1000,620",
               "set xlabel 'training time (s)'\nset ylabel 'accuracy (%)'\nset xrange [0:*]\nset yrange [0:*]\n"
               "set grid lc rgb '#dddddd' lt 1\nset key bottom right box lc rgb '#dddddd' opaque\nplot " +
                   curves + "\n");
}

void draw_phases(Plots& plots, const History& history) {
  const std::vector<std::array<double, kPhases>> seconds = history.phase_seconds();
  std::ostringstream csv;
  csv << "rank";
  for (const char* name : kPhaseNames) csv << ',' << name << "_seconds";
  csv << '\n';
  std::array<double, kPhases> sums{};
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    csv << rank;
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      csv << ',' << seconds[rank][phase];
      sums[phase] += seconds[rank][phase];
    }
    csv << '\n';
  }
  plots.write("phases.csv", csv.str());

  // Okabe and Ito's colours: told apart by all readers.
  constexpr std::array<const char*, kPhases> kColours = {"#999999", "#d55e00", "#0072b2", "#f0e442",
                                                         "#cc79a7", "#009e73", "#56b4e9", "#e69f00"};
  // The shares are those of the summary.
  const double total = std::accumulate(seconds[0].begin(), seconds[0].end(), 0.0);
  std::string bars;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    if (!(sums[phase] > 0)) continue;
    char title[64];
    std::snprintf(title, sizeof title, "%s (%.1f %%)", kPhaseNames[phase], 100 * seconds[0][phase] / total);
    bars += std::string(bars.empty() ? "" : ", ") + "'phases.csv' every ::1 using " + std::to_string(phase + 2) +
            ":xtic(1) lc rgb '" + kColours[phase] + "' title " + quoted(title);
  }
  if (bars.empty()) return;
  plots.script("phases", "where the time goes (shares: rank 0)", "1000,620",
               "set style data histograms\nset style histogram rowstacked\nset style fill solid border rgb 'white'\n"
               "set boxwidth 0.7\nset xlabel 'rank'\nset ylabel 'time (s)'\nset yrange [0:*]\n"
               "set grid ytics lc rgb '#dddddd' lt 1\nset key outside right invert Left reverse\nplot " +
                   bars + "\n");
}

void draw_layers(Plots& plots, const History& history) {
  const std::size_t layers = history.layers();
  if (history.steps.size() < 2 || layers < 2) return;  // gnuplot's smallest image
  if (std::all_of(history.p.begin(), history.p.end(), [](float p) { return p == 1.0F; })) return;
  std::ostringstream csv;
  csv << "step";
  for (const std::string& name : history.layer_names) csv << ',' << field(name);
  csv << '\n';
  const std::vector<std::size_t> edges = bins(history.steps.size(), 200);
  for (std::size_t bin = 0; bin + 1 < edges.size(); ++bin) {
    csv << history.steps[edges[bin]].step;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      double sum = 0;
      for (std::size_t i = edges[bin]; i < edges[bin + 1]; ++i)
        sum += static_cast<double>(history.p[i * layers + layer]);
      csv << ',' << sum / static_cast<double>(edges[bin + 1] - edges[bin]);
    }
    csv << '\n';
  }
  plots.write("layers.csv", csv.str());

  std::ostringstream body;
  const auto width = static_cast<double>(edges[1] - edges[0]);
  const double first = static_cast<double>(history.steps.front().step) + (width - 1) / 2;
  body << "set xlabel 'step'\nset cblabel 'probability p of taking part in a step'\nset cbrange [0:1]\n"
       << "set palette defined (0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', 4 '#fde725')\nset tics out "
          "nomirror\n"
       << "set yrange [" << static_cast<double>(layers) - 0.5 << ":-0.5]\nset xrange [" << first - width / 2 << ":"
       << first + width * (static_cast<double>(edges.size()) - 1.5) << "]\nset ytics font ',10' (";
  for (std::size_t layer = 0; layer < layers; ++layer)
    body << (layer == 0 ? "" : ", ") << quoted(history.layer_names[layer]) << ' ' << layer;
  body << ")\nplot 'layers.csv' skip 1 matrix every 1::1 using (" << first << " + " << width
       << " * $2):($1 - 1):3 with image pixels notitle\n";
  plots.script("layers", "inclusion probability of each layer",
               "1100," + std::to_string(160 + 17 * std::max<std::size_t>(layers, 20)), body.str());
}

}  // namespace

std::vector<std::string> plot_run(const std::string& folder, const std::string& format) {
  require(format == "svg" || format == "png", ExitCode::usage, "unknown picture format '", format,
          "'; known: png, svg");
  const History history = read_history(folder);
  require(!history.steps.empty() || !history.evaluations.empty(), ExitCode::data, "the run in ", folder,
          " has made no step yet: there is nothing to draw");
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();
  Plots plots(folder + "/plots", path.filename(), format);
  draw_accuracy(plots, history);
  draw_phases(plots, history);
  draw_layers(plots, history);
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

}  // namespace dat
