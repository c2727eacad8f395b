// Pictures of numbers that the caller has: bench and forecast.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

#include "dat/report.hpp"
#include "record/pictures/drawing.hpp"

namespace dat {

std::string draw_bars(const std::string& folder, const std::string& picture, const BarChart& chart) {
  std::ostringstream csv, body;
  csv << "group";
  for (const std::string& bar : chart.bars) csv << ',' << csv_field(bar);
  csv << '\n';
  for (std::size_t group = 0; group < chart.groups.size(); ++group) {
    csv << csv_field(chart.groups[group]);
    for (std::size_t bar = 0; bar < chart.bars.size(); ++bar)
      csv << ',' << chart.values[group * chart.bars.size() + bar];
    csv << '\n';
  }
  body << "set style data histograms\nset style histogram clustered gap 1\nset style fill solid border rgb 'white'\n"
       << "set ylabel " << gnuplot_text(chart.unit) << "\nset yrange [0:*]\nset xtics rotate by -35\n"
       << "set grid ytics lc rgb '#dddddd' lt 1\nset key outside bottom center horizontal\nplot ";
  constexpr std::array<const char*, 4> kColours = {"#0072b2", "#56b4e9", "#d55e00", "#999999"};
  for (std::size_t bar = 0; bar < chart.bars.size(); ++bar)
    body << (bar == 0 ? "" : ", ") << gnuplot_text(picture + ".csv") << " every ::1 using " << bar + 2
         << ":xtic(1) lc rgb '" << kColours[bar % kColours.size()] << "' title " << gnuplot_text(chart.bars[bar]);
  if (chart.limit > 0)
    body << ", " << chart.limit << " with lines lw 2 lc rgb 'black' title " << gnuplot_text(chart.limit_name);
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
  double low = std::numeric_limits<double>::infinity(), high = 0;
  std::vector<double> last(lines, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t k = 0; k < chart.x.size(); ++k) {
    std::vector<double> row = {chart.x[k]};
    for (std::size_t line = 0; line < lines; ++line) {
      const double value = chart.values[k * lines + line];
      row.push_back(value);
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
      last[line] = value;
    }
    csv.row(row);
  }
  const bool logarithmic = chart.from == 0 && low > 0 && high > 10 * low;
  const double begin = logarithmic ? low / 1.1 : chart.from;
  const double end = logarithmic ? high * 1.1 : std::max(high + 0.05 * (high - begin), 1.1 * begin);
  const auto height_of = [&](double value) {
    return logarithmic ? std::log(value / begin) / std::log(end / begin) : (value - begin) / (end - begin);
  };
  // Names at the ends, from above to below, none on another one.
  std::vector<std::size_t> order;
  for (std::size_t line = 0; line < lines; ++line)
    if (std::isfinite(last[line])) order.push_back(line);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return last[a] > last[b]; });
  constexpr double kApart = 0.045;
  std::vector<double> heights;
  for (const std::size_t line : order)
    heights.push_back(heights.empty() ? height_of(last[line])
                                      : std::min(height_of(last[line]), heights.back() - kApart));
  for (std::size_t k = heights.size(); k-- > 0;)
    heights[k] = std::max(heights[k], k + 1 < heights.size() ? heights[k + 1] + kApart : 0.0);
  constexpr std::array<const char*, 7> kColours = {kBlue, kOrange, kGreen, kPink, kYellow, kSky, kGrey};
  std::size_t longest = 0;
  for (const std::string& line : chart.lines) longest = std::max(longest, line.size());
  constexpr std::size_t kWidth = 1000;
  std::ostringstream body;
  body << "set logscale x\nset xtics 2\nset mxtics 1\nset autoscale xfix\nset xlabel " << gnuplot_text(chart.x_label)
       << "\nset ylabel " << gnuplot_text(chart.y_label) << "\nset yrange [" << begin << ":" << end
       << "]\nset grid lc rgb '#dddddd' lt 1\nset key off\nset rmargin at screen "
       << 1 - (30 + 9.5 * static_cast<double>(longest)) / kWidth << "\n";
  if (logarithmic) body << "set logscale y\nset ytics (" << logarithmic_marks(begin, end) << ")\n";
  for (std::size_t k = 0; k < order.size(); ++k)
    body << "set label " << gnuplot_text(chart.lines[order[k]]) << " at graph 1.015," << heights[k]
         << " left font ',13' tc rgb '" << kColours[order[k] % kColours.size()] << "'\n";
  for (std::size_t line = 0; line < lines; ++line)
    body << (line == 0 ? "plot " : ", ") << gnuplot_text(picture + ".csv") << " every ::1 using 1:" << line + 2
         << " with linespoints pt 7 ps 0.5 lw 2.5 lc rgb '" << kColours[line % kColours.size()] << "'";
  body << "\n";
  Plots plots(folder, chart.name, "svg");
  plots.write(picture + ".csv", csv.text());
  plots.script(picture, chart.title, std::to_string(kWidth) + ",600", body.str());
  return plots.draw().front();
}

}  // namespace dat
