#include "record/pictures/chart.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace {

std::string axis_lines(const char* name, const Axis& axis) {
  return fmt::format("set {0}label {1}\nset {0}range [{2}]\n{3} logscale {0}\nset {0}tics {4}\n", name,
                     gnuplot_text(axis.label), axis.range, axis.logarithmic ? "set" : "unset",
                     axis.marks.empty() ? "autofreq" : axis.marks);
}

/// Rows of the key below a picture; 0: it has none there.
int key_rows(const Chart& chart) {
  if (chart.key != Key::below) return 0;
  std::size_t lines = 0, letters = 0;
  for (const Series& one : chart.panels.back().series) {
    lines += one.name.empty() ? 0 : 1;
    letters = std::max(letters, one.name.size());
  }
  const std::size_t columns = std::clamp<std::size_t>(std::size_t(chart.width) / (8 * letters + 80), 1, 4);
  return static_cast<int>((lines + columns - 1) / columns);
}

std::string panel_lines(const Panel& panel, int width, int height) {
  std::string text = axis_lines("x", panel.x) + axis_lines("y", panel.y);
  if (!panel.above.marks.empty()) text += axis_lines("x2", panel.above);
  text += panel.grid.empty() ? "unset grid\n" : "set grid " + panel.grid + " lc rgb '#dddddd' lt 1\n";
  text += panel.y.range.ends_with("*") && !panel.y.logarithmic ? "set offsets 0,0,graph 0.05,0\n" : "unset offsets\n";
  const auto [left, top, right, bottom] = panel.inside;
  if (right > 0)
    text += fmt::format(
        "set lmargin at screen {}\nset rmargin at screen {}\nset tmargin at screen {}\n"
        "set bmargin at screen {}\n",
        1.0 * left / width, 1.0 * right / width, 1 - 1.0 * top / height, 1 - 1.0 * bottom / height);
  text += panel.settings;
  std::string parts;
  for (const Series& one : panel.series) {
    parts += parts.empty() ? "plot " : ", \\\n     ";
    parts += one.file.empty() ? one.columns : "'" + one.file + "' skip 1 using " + one.columns;
    parts += " with " + one.style + (one.name.empty() ? " notitle" : " title " + gnuplot_text(one.name));
  }
  return text + parts + "\n";
}

}  // namespace

std::string gnuplot_text(const std::string& text) {
  std::string out = "'";
  for (const char c : in_one_line(text)) out.append(c == '\'' ? 2 : 1, c);
  return out + "'";
}

std::string csv_field(const std::string& text) {
  if (std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; }))
    return text;
  std::string out = "\"";
  for (const char c : in_one_line(text)) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

Csv::Csv(const std::vector<std::string>& columns) {
  for (const std::string& column : columns) text_ += (text_.empty() ? "" : ",") + csv_field(column);
  text_ += "\n";
}

void Csv::row(const std::vector<double>& cells, const std::string& name) {
  std::string line = name.empty() ? "" : csv_field(name);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0 || !name.empty()) line += ',';
    if (std::isfinite(cells[i])) line += fmt::format("{:.8g}", cells[i]);
  }
  text_ += line + "\n";
}

Plots::Plots(const std::string& folder, const std::string& name, const PictureFormat& format)
    : folder_(folder), name_(name), format_(format) {
  const std::string& kind = format_.kind;
  require(kind == "pdf" || kind == "png" || kind == "svg", ExitCode::usage, "unknown picture format '", kind,
          "'; known: pdf, png, svg");
  make_folder(folder_);
}

std::string Plots::terminal(int width, int height) const {
  if (format_.kind == "pdf")
    return fmt::format("pdfcairo size {:.2f},{:.2f} font 'Sans,9'", width / 100.0, height / 100.0);
  if (format_.kind == "svg")
    return fmt::format("svg size {},{} font 'Helvetica,12' fontscale 1.33 background 'white'", width, height);
  const double scale = format_.dpi / 100.0;
  return fmt::format("pngcairo size {0:.0f},{1:.0f} font 'Sans,13' fontscale {2} linewidth {2} pointscale {2}",
                     width * scale, height * scale, scale);
}

void Plots::write(const std::string& file, const std::string& text) const {
  std::ofstream out(folder_ + "/" + file, std::ios::binary);
  out << text;
  out.close();
  require(out.good(), ExitCode::io, "cannot write ", folder_, "/", file, ": ", system_reason(errno));
}

void Plots::add(const Chart& chart) {
  const bool several = chart.panels.size() > 1, facts = !chart.facts.empty();
  const int shift = facts ? 22 : 0;  // room for the title's second line
  const int rows = key_rows(chart), width = chart.width, height = chart.height + shift + 18 * rows;
  std::string text = "set encoding utf8\nset terminal " + terminal(width, height) + " noenhanced\nset output '" +
                     chart.picture + "." + format_.kind + "'\nset datafile separator comma\nset key off\n";
  const std::string title =
      gnuplot_text(name_ + ": " + chart.title) + (facts ? ".\"\\n\"." + gnuplot_text(chart.facts) : "");
  text += several ? fmt::format("set multiplot\nset label 100 {} at screen 0.5,{} center\n", title, 1 - 24.0 / height)
                  : "set title " + title + "\n";
  for (std::size_t k = 0; k < chart.panels.size(); ++k) {
    const bool last = k + 1 == chart.panels.size();
    Panel panel = chart.panels[k];
    for (const std::size_t edge : {1, 3}) panel.inside[edge] += shift;
    if (several) text += "set title " + gnuplot_text(panel.title) + "\n";
    if (last && chart.key == Key::below)
      text += fmt::format(
          "set key outside bottom center vertical maxrows {} Left reverse font ',11' samplen 4 height 1\n", rows);
    if (last && chart.key == Key::right) text += "set key on outside right invert Left reverse\n";
    text += panel_lines(panel, width, height);
    if (several) text += last ? "unset multiplot\n" : "unset label 100\nunset x2tics\nset x2label\n";
  }
  write(chart.picture + ".gp", text);
  pictures_.push_back(chart.picture);
}

std::vector<std::string> Plots::draw() const {
  std::vector<std::string> paths, failed;
  for (const std::string& picture : pictures_) {
    const int status = gnuplot(picture + ".gp");
    require(status != 127, ExitCode::device, "gnuplot was not found; install it (Debian: gnuplot-nox) and run gnuplot ",
            picture, ".gp in ", folder_);
    if (status == 0)
      paths.push_back(folder_ + "/" + picture + "." + format_.kind);
    else
      failed.push_back(folder_ + "/" + picture + ".gp");
  }
  require(failed.empty(), ExitCode::device, "gnuplot failed on ", fmt::format("{}", fmt::join(failed, ", ")),
          "; its own messages say why");
  return paths;
}

int Plots::gnuplot(const std::string& file) const {
  const pid_t child = fork();
  require(child >= 0, ExitCode::device, "cannot start gnuplot: ", system_reason(errno));
  if (child == 0) {
    // In a locale without UTF-8 gnuplot complains about each script. env's code is 127, too, where there is no gnuplot.
    if (chdir(folder_.c_str()) == 0)
      execlp("env", "env", "LC_ALL=C.UTF-8", "gnuplot", "--default-settings", file.c_str(),
             static_cast<char*>(nullptr));
    _exit(errno == ENOENT ? 127 : 126);
  }
  int status = 0;
  static_cast<void>(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

double mark_distance(double range) {
  double distance = std::pow(10, std::floor(std::log10(std::max(range, 1e-6) / 8)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (range / distance <= 8) break;
    distance *= factor;
  }
  return distance;
}

std::string logarithmic_marks(double low, double high) {
  std::string marks;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high && std::isfinite(power); power *= 10)
    for (const double mark : {power, 2 * power, 5 * power})
      if (mark >= low && mark <= high) marks += fmt::format("{}{:g}", marks.empty() ? "" : ", ", mark);
  return "(" + marks + ")";
}

std::string shortened(const std::string& name, std::size_t most) {
  std::vector<std::size_t> letters;  // where they begin, in UTF-8
  for (std::size_t at = 0; at < name.size(); ++at)
    if ((static_cast<unsigned char>(name[at]) & 0xC0) != 0x80) letters.push_back(at);
  if (letters.size() <= most) return name;
  const std::size_t before = (most - 2) / 2, after = most - 3 - before;
  return name.substr(0, letters[before]) + "..." + name.substr(letters[letters.size() - after]);
}

std::size_t name_bars(Panel& panel, const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 30, kRoom = 60;  // letters: of a name that is turned, of all beside each other
  std::vector<std::string> shown;
  std::size_t longest = 0;
  for (const std::string& name : names) {
    shown.push_back(shortened(in_one_line(name), kMost));
    longest = std::max(longest, shown.back().size());
  }
  const bool turned = longest * names.size() > kRoom && longest > 4;
  const std::size_t marks = turned ? 24 : 16, step = (names.size() + marks - 1) / marks;
  for (std::size_t k = 0; k < shown.size(); ++k)
    if (k % step != 0) shown[k].clear();
  panel.x.marks = (turned ? "rotate by -35 font ',11' " : "") + named_marks(shown);
  return turned ? longest : 0;
}

std::string named_marks(const std::vector<std::string>& names) {
  std::string marks;
  for (std::size_t k = 0; k < names.size(); ++k) {
    std::string name = names[k];  // gnuplot takes it for a format
    for (std::size_t at = 0; (at = name.find('%', at)) != std::string::npos; at += 2) name.insert(at, 1, '%');
    marks += fmt::format("{}{} {}", marks.empty() ? "" : ", ", gnuplot_text(name), k);
  }
  return "(" + marks + ")";
}

Axis accuracy_axis(double highest) {
  const double distance = mark_distance(std::max(highest, 1.0));
  return {"accuracy (%)",
          fmt::format("0:{:.10g}", std::min(100.0, distance * std::max(1.0, std::ceil(1.02 * highest / distance))))};
}

std::string colour_of(std::size_t k) {
  if (k < kColours.size()) return kColours[k];
  // Hue, saturation and lightness as colours of the screen; lightness differs between neighbours, too.
  const auto j = static_cast<double>(k - kColours.size());
  const double hue = std::fmod(20 + 137.508 * j, 360) / 30, saturation = 0.75;
  const double light = 0.32 + 0.14 * std::fmod(j, 3);
  const auto byte = [&](double n) {
    const double at = std::fmod(n + hue, 12);
    const double value =
        light - saturation * std::min(light, 1 - light) * std::max(-1.0, std::min({at - 3, 9 - at, 1.0}));
    return static_cast<int>(std::lround(255 * value));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", byte(0), byte(8), byte(4));
}

std::string line_style(const std::string& colour, double width, int dash, int point) {
  return fmt::format("{} lw {} dt {} lc rgb '{}'",
                     point > 0 ? fmt::format("linespoints pt {} ps 0.7", point) : std::string("lines"), width, dash,
                     colour);
}

std::string end_names(std::vector<EndName> names, double apart) {
  std::ranges::stable_sort(names, [](const EndName& a, const EndName& b) { return a.height > b.height; });
  for (std::size_t k = 1; k < names.size(); ++k)
    names[k].height = std::min(names[k].height, names[k - 1].height - apart);
  std::string text;
  double below = 0;
  for (std::size_t k = names.size(); k-- > 0; below = names[k].height + apart) {
    names[k].height = std::max(names[k].height, below);
    text += fmt::format("set label {} at graph 1.015,{} left font ',12' tc rgb '{}'\n", gnuplot_text(names[k].name),
                        names[k].height, names[k].colour);
  }
  return text;
}

std::string bar_style(const char* colour) { return fmt::format("histograms lc rgb '{}'", colour); }

std::string bar_settings(const std::string& kind) {
  return "set style histogram " + kind + "\nset style fill solid border rgb 'white'\n";
}

}  // namespace dat
