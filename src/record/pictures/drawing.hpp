#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace dat {

/// Text as a gnuplot string.
[[nodiscard]] std::string gnuplot_text(const std::string& text);
/// The same beside an axis, where gnuplot takes a text for a format.
[[nodiscard]] std::string gnuplot_tic(std::string text);
/// Text as a CSV field: quoted where it is not plain, in one line.
[[nodiscard]] std::string csv_field(const std::string& text);

/// A folder of pictures: writes data and scripts there and runs gnuplot in it, so that no path is in a script. `name`
/// begins every title; format: svg or png. Error(usage): another format. Error(io).
class Plots {
 public:
  Plots(const std::string& folder, const std::string& name, const std::string& format);

  void write(const std::string& file, const std::string& text) const;
  /// Writes the script of a picture; `size` in pixels, "W,H". The title is gnuplot's variable `name`, too.
  void script(const std::string& picture, const std::string& title, const std::string& size, const std::string& body);
  /// Runs gnuplot on all scripts and returns the pictures' paths. Error(device): gnuplot is missing or fails.
  [[nodiscard]] std::vector<std::string> draw() const;

 private:
  /// Exit status of gnuplot; 127: there is no gnuplot.
  [[nodiscard]] int gnuplot(const std::string& file) const;

  std::string folder_, format_, name_;
  std::vector<std::string> pictures_;
};

/// A table as CSV. NaN is an empty cell, which gnuplot's lines pass over.
class Csv {
 public:
  explicit Csv(const std::vector<std::string>& columns);
  /// `name`: a first cell that is no number, where there is one.
  void row(const std::vector<double>& cells, const std::string& name = "");
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// 1, 2 or 5 times a power of ten: the distance of at most eight marks.
[[nodiscard]] double mark_distance(double range);

/// Marks of a logarithmic axis, at 1, 2 and 5 times each power of ten between two bounds: "0.5, 1, 2".
[[nodiscard]] std::string logarithmic_marks(double low, double high);

/// A part of a plot command. Columns count from 1.
[[nodiscard]] std::string line_of(const std::string& file, std::size_t x, std::size_t y, const std::string& look,
                                  const std::string& title);
/// All parts of a plot command.
[[nodiscard]] std::string joined(const std::vector<std::string>& parts);
/// How a line looks, in gnuplot's words.
[[nodiscard]] std::string look_of(const char* colour, double width, int dash, int point, bool points);

// Okabe and Ito's colours: told apart by all readers.
constexpr const char *kBlue = "#0072b2", *kOrange = "#d55e00", *kGreen = "#009e73", *kPink = "#cc79a7",
                     *kYellow = "#e69f00", *kSky = "#56b4e9", *kGrey = "#999999";

constexpr const char* kFrame = "set grid lc rgb '#dddddd' lt 1\nset offsets 0,0,graph 0.05,0\n";
constexpr const char* kKeyBelow = "set key outside bottom center horizontal Left reverse height 1.5\n";
/// gnuplot's words for a key below a picture of 1000 pixels, of `lines` lines with names of at most `letters` letters;
/// and the number of its rows.
[[nodiscard]] std::string key_below(std::size_t lines, std::size_t letters);
[[nodiscard]] std::size_t key_rows(std::size_t lines, std::size_t letters);
constexpr double kPastTheLast = 1 + 1e-5;  // the end of an axis: the last point is not lost by rounding

}  // namespace dat
