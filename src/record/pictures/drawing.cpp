#include "record/pictures/drawing.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

std::string gnuplot_text(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += c;
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "'";
}

std::string gnuplot_tic(std::string text) {
  for (std::size_t at = 0; (at = text.find('%', at)) != std::string::npos; at += 2) text.insert(at, 1, '%');
  return gnuplot_text(text);
}

std::string csv_field(const std::string& text) {
  if (std::all_of(text.begin(), text.end(),
                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; }))
    return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  return out + "\"";
}

Plots::Plots(const std::string& folder, const std::string& name, const std::string& format)
    : folder_(folder), format_(format), name_(name) {
  require(format == "svg" || format == "png", ExitCode::usage, "unknown picture format '", format,
          "'; known: png, svg");
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  require(!error, ExitCode::io, "cannot create the folder ", folder_, ": ", error.message());
}

void Plots::write(const std::string& file, const std::string& text) const {
  std::ofstream out(folder_ + "/" + file, std::ios::binary);
  out << text;
  out.close();
  require(out.good(), ExitCode::io, "cannot write ", folder_, "/", file, ": ", system_reason(errno));
}

void Plots::script(const std::string& picture, const std::string& title, const std::string& size,
                   const std::string& body) {
  const std::string terminal = format_ == "svg" ? "svg size " + size + " font 'Helvetica,16' background 'white'"
                                                : "pngcairo size " + size + " font 'Sans,13'";
  write(picture + ".gp", "set encoding utf8\nset terminal " + terminal + " noenhanced\nset output '" + picture + "." +
                             format_ + "'\nset datafile separator comma\nname = " + gnuplot_text(name_ + ": " + title) +
                             "\nset title name\n" + body);
  pictures_.push_back(picture);
}

std::vector<std::string> Plots::draw() const {
  std::vector<std::string> paths;
  for (const std::string& picture : pictures_) {
    const int status = gnuplot(picture + ".gp");
    require(status != 127, ExitCode::device, "gnuplot was not found; install it (Debian: gnuplot-nox) and run gnuplot ",
            picture, ".gp in ", folder_);
    require(status == 0, ExitCode::device, "gnuplot failed on ", folder_, "/", picture,
            ".gp; its own message says why");
    paths.push_back(folder_ + "/" + picture + "." + format_);
  }
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
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
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

double mark_distance(double range) {
  double distance = std::pow(10, std::floor(std::log10(std::max(range, 1e-6) / 8)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (range / distance <= 8) break;
    distance *= factor;
  }
  return distance;
}

std::string logarithmic_marks(double low, double high) {
  std::ostringstream marks;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double mark : {power, 2 * power, 5 * power})
      if (mark >= low && mark <= high) marks << (marks.tellp() > 0 ? ", " : "") << mark;
  return marks.str();
}

std::string line_of(const std::string& file, std::size_t x, std::size_t y, const std::string& look,
                    const std::string& title) {
  return "'" + file + "' every ::1 using " + std::to_string(x) + ":" + std::to_string(y) + " with " + look + " title " +
         gnuplot_text(title);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", \\\n     ") + part;
  return all;
}

std::string look_of(const char* colour, double width, int dash, int point, bool points) {
  std::ostringstream text;
  text << (points ? "linespoints pt " + std::to_string(point) + " ps 0.7" : "lines") << " lw " << width << " dt "
       << dash << " lc rgb '" << colour << "'";
  return text.str();
}

std::size_t key_rows(std::size_t lines, std::size_t letters) {
  const std::size_t columns = std::clamp<std::size_t>(1000 / (8 * letters + 80), 1, 4);
  return (lines + columns - 1) / columns;
}

std::string key_below(std::size_t lines, std::size_t letters) {
  return "set key outside bottom center vertical maxrows " + std::to_string(key_rows(lines, letters)) +
         " Left reverse font ',11' samplen 4 height 1\n";
}

}  // namespace dat
