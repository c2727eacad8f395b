#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "dat/report.hpp"

namespace dat {

/// Text as a gnuplot string.
[[nodiscard]] std::string gnuplot_text(const std::string& text);

/// Text as a field of a table as CSV: quoted where it is not plain, in one line.
[[nodiscard]] std::string csv_field(const std::string& text);

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

/// An axis in gnuplot's words.
struct Axis {
  std::string label = {};
  std::string range = "*:*";  ///< a range whose end is "*" has room above its highest point
  std::string marks = {};     ///< text after "set xtics"; empty: gnuplot's own choice, or no axis above
  bool logarithmic = false;
};

/// A line, points, bars or cells of one column.
struct Series {
  std::string file;       ///< a table beside the script; empty: `columns` is a function
  std::string columns;    ///< text after "using"; columns count from 1
  std::string style;      ///< text after "with"
  std::string name = {};  ///< name in the key; empty: not there
};

/// A frame with axes. `settings`: more of gnuplot's lines.
struct Panel {
  Axis x, y, above = {};
  std::vector<Series> series = {};
  std::string settings = {};
  std::string grid = "xtics ytics";  ///< empty: none
  std::string title = {};            ///< title of one among several
  std::array<int, 4> inside = {};    ///< left, top, right, bottom in pixels; zeros: gnuplot's own choice
};

enum class Key { none, below, right };

/// A picture: PICTURE.gp and what gnuplot makes of it.
struct Chart {
  std::string picture, title;
  std::string facts = {};          ///< second line of the title: what the figures are of; empty: none
  int width = 1000, height = 540;  ///< pixels, without a key below
  Key key = Key::below;            ///< names of the last panel's series
  std::vector<Panel> panels = {};
};

/// A folder of pictures: writes data and scripts there and runs gnuplot in it, so that no path is in a script. `name`
/// begins every title. Error(usage): another format than pdf, png or svg. Error(io).
class Plots {
 public:
  Plots(const std::string& folder, const std::string& name, const PictureFormat& format);

  void write(const std::string& file, const std::string& text) const;
  /// Writes the chart's script.
  void add(const Chart& chart);
  /// Runs gnuplot on all scripts and returns the pictures' paths. Error(device): gnuplot is missing or fails.
  [[nodiscard]] std::vector<std::string> draw() const;
  /// Style of a grid of cells, two at least in each direction, as readers of the format show without seams. SVG's
  /// viewers blur what is enlarged, and draw polygons with sharp edges; cairo does the opposite.
  [[nodiscard]] std::string cells() const {
    return format_.kind == "svg" && !format_.sharp_images ? "image pixels" : "image";
  }

 private:
  /// Exit status of gnuplot; 127: there is no gnuplot.
  [[nodiscard]] int gnuplot(const std::string& file) const;

  [[nodiscard]] std::string terminal(int width, int height) const;

  std::string folder_, name_;
  PictureFormat format_;
  std::vector<std::string> pictures_;
};

/// 1, 2 or 5 times a power of ten: the distance of at most eight marks.
[[nodiscard]] double mark_distance(double range);
/// Marks of a logarithmic axis, at 1, 2 and 5 times each power of ten between two bounds: "(0.5, 1, 2)".
[[nodiscard]] std::string logarithmic_marks(double low, double high);
/// A name as a picture has room for it: one of more than `most` letters is without its middle, "beginn...ending".
[[nodiscard]] std::string shortened(const std::string& name, std::size_t most);
/// Puts names under bars at 0, 1, 2, ...: of many every second, third, ... one; where they would run into each other
/// they are turned, and long ones shortened. Returns how many bytes the longest of those that are turned has; 0: none
/// is.
[[nodiscard]] std::size_t name_bars(Panel& panel, const std::vector<std::string>& names);
/// Marks with names at 0, 1, 2, ...: "('a' 0, 'b' 1)".
[[nodiscard]] std::string named_marks(const std::vector<std::string>& names);

/// Axis of accuracies, from 0 to at most 100 %. highest: the largest one.
[[nodiscard]] Axis accuracy_axis(double highest);

/// Okabe and Ito's colours, told apart by all readers.
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "black",   "#999999"};
constexpr const char *kBlue = kColours[0], *kOrange = kColours[1], *kGreen = kColours[2], *kYellow = kColours[4],
                     *kSky = kColours[5], *kGrey = kColours[7];
/// Colour of the k-th line, another one for each: after those eight, hues that the golden angle keeps apart.
[[nodiscard]] std::string colour_of(std::size_t k);
/// The style of a line. point 0: none.
[[nodiscard]] std::string line_style(const std::string& colour, double width, int dash = 1, int point = 0);

/// Name of a line at its end. height: of the end, as a part of the panel's.
struct EndName {
  std::string name, colour;
  double height;
};
/// gnuplot's lines for names beside the right border, from above to below, none on another one. apart: height of a
/// line of text, as a part of the panel's.
[[nodiscard]] std::string end_names(std::vector<EndName> names, double apart);

/// The style of bars, and what a panel of bars has among its settings. kind: "clustered gap 1" or "rowstacked".
[[nodiscard]] std::string bar_style(const char* colour);
[[nodiscard]] std::string bar_settings(const std::string& kind);

constexpr double kPastTheLast = 1 + 1e-5;  // the end of an axis: the last point is not lost by rounding

}  // namespace dat
