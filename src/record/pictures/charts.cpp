// Pictures of numbers that the caller has: bench and forecast.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "dat/report.hpp"
#include "record/pictures/chart.hpp"

namespace dat {

std::string draw_bars(const std::string& folder, const std::string& picture, const BarChart& chart) {
  constexpr std::array<const char*, 4> kBars = {kBlue, kSky, kOrange, kGrey};
  std::vector<std::string> columns = {"group"};
  columns.insert(columns.end(), chart.bars.begin(), chart.bars.end());
  Csv csv(columns);
  for (std::size_t group = 0; group < chart.groups.size(); ++group) {
    const auto begin = chart.values.begin() + static_cast<std::ptrdiff_t>(group * chart.bars.size());
    csv.row({begin, begin + std::ssize(chart.bars)}, chart.groups[group]);
  }
  Panel panel{.x = {.marks = "rotate by -35"},
              .y = {chart.unit, "0:*"},
              .settings = bar_settings("clustered gap 1"),
              .grid = "ytics"};
  for (std::size_t bar = 0; bar < chart.bars.size(); ++bar)
    panel.series.push_back(
        {picture + ".csv", fmt::format("{}:xtic(1)", bar + 2), bar_style(kBars[bar % kBars.size()]), chart.bars[bar]});
  if (chart.limit > 0)
    panel.series.push_back({"", fmt::format("{}", chart.limit), line_style("black", 2), chart.limit_name});
  Plots plots(folder, chart.name, "svg");
  plots.write(picture + ".csv", csv.text());
  plots.add({.picture = picture, .title = chart.title, .width = 1200, .height = 600, .panels = {panel}});
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
  std::vector<EndName> names;
  for (std::size_t line = 0; line < lines; ++line)
    if (std::isfinite(last[line])) names.push_back({chart.lines[line], colour_of(line), height_of(last[line])});
  std::size_t longest = 0;
  for (const std::string& line : chart.lines) longest = std::max(longest, line.size());
  Panel panel{.x = {chart.x_label, fmt::format("{}:{}", chart.x.front(), chart.x.back() * kPastTheLast), "2", true},
              .y = {chart.y_label, fmt::format("{}:{}", begin, end), logarithmic ? logarithmic_marks(begin, end) : "",
                    logarithmic},
              .settings = fmt::format("set mxtics 1\nset rmargin at screen {}\n",
                                      1 - (30 + 9.5 * static_cast<double>(longest)) / 1000) +
                          end_names(names, 0.045)};
  for (std::size_t line = 0; line < lines; ++line)
    panel.series.push_back({picture + ".csv", fmt::format("1:{}", line + 2), line_style(colour_of(line), 2.5, 1, 7)});
  Plots plots(folder, chart.name, "svg");
  plots.write(picture + ".csv", csv.text());
  plots.add({.picture = picture, .title = chart.title, .height = 600, .key = Key::none, .panels = {panel}});
  return plots.draw().front();
}

}  // namespace dat
