#include "verbs/results/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "dat/error.hpp"
#include "options/values/value.hpp"
#include "record/pictures/chart.hpp"

namespace dat {

namespace {

using Cells = std::vector<std::string>;

[[nodiscard]] std::string figure_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

/// Value of an option in a row: those of all its members have it, but of the seed.
[[nodiscard]] std::string option_in(const ComparedRow& row, const std::string& name) {
  const Settings& settings = row.subjects.front()->settings;
  const auto found = settings.find(name);
  return found == settings.end() ? "-" : found->second;
}

[[nodiscard]] Sheet options_sheet(const Comparison& all) {
  std::vector<Cells> table(1, Cells{"run"});
  table[0].insert(table[0].end(), all.options.begin(), all.options.end());
  for (const ComparedRow& row : all.rows)
    if (!row.subjects.front()->settings.empty() && !all.options.empty()) {
      Cells& cells = table.emplace_back(Cells{row.name});
      for (const std::string& name : all.options) cells.push_back(option_in(row, name));
    }
  if (table[0].size() > table.size()) {  // a row for each option
    table[0][0] = "option";
    std::vector<Cells> turned(table[0].size());
    for (const Cells& cells : table)
      for (std::size_t k = 0; k < cells.size(); ++k) turned[k].push_back(cells[k]);
    table = std::move(turned);
  }
  return {"Options that differ", table[0], {table.begin() + 1, table.end()}};
}

/// Facts of the runs of a row: means where it has several; of evaluations NaN, and no runs.
struct RunFigures {
  std::size_t runs = 0, done = 0;
  std::vector<double> means{};  ///< [kMeans]
};
constexpr std::array kMeans = {
    &Subject::batch,      &Subject::steps,     &Subject::seconds,   &Subject::images_per_second,
    &Subject::efficiency, &Subject::reduction, &Subject::megabytes, &Subject::training};

[[nodiscard]] RunFigures run_figures(const ComparedRow& row) {
  RunFigures figures{.runs = row.subjects.front()->evaluation ? 0 : row.subjects.size()};
  for (const Subject* one : row.subjects) figures.done += one->done;
  for (const auto part : kMeans) {
    std::vector<double> values;
    for (const Subject* one : row.subjects) values.push_back(one->*part);
    figures.means.push_back(spread_of(values).mean);
  }
  return figures;
}

[[nodiscard]] std::string state_text(const ComparedRow& row, const RunFigures& run) {
  const Subject& first = *row.subjects.front();
  if (!first.failure.empty()) return first.there ? "unreadable" : "missing";
  if (run.runs == 0) return "-";
  return run.runs == 1          ? first.state
         : run.done == run.runs ? fmt::format("{} done", run.runs)
                                : fmt::format("{} of {} done", run.done, run.runs);
}

[[nodiscard]] Sheet runs_sheet(const Comparison& all) {
  Sheet sheet{all.grouped ? "Runs, means over seeds" : "Runs",
              {"run", "state", "ranks", "batch", "steps", "seconds", "images/s", "efficiency", "reduction %", "MB/step",
               "train %"}};
  for (const ComparedRow& row : all.rows) {
    const RunFigures run = run_figures(row);
    if (run.runs == 0) continue;
    const int ranks = row.subjects.front()->ranks;
    Cells& cells =
        sheet.rows.emplace_back(Cells{row.name, state_text(row, run), ranks > 0 ? std::to_string(ranks) : "-"});
    constexpr std::array kDigits = {0, 0, 1, 1, 3, 1, 3, 2};
    for (std::size_t k = 0; k < kDigits.size(); ++k) cells.push_back(figure_text(run.means[k], kDigits[k]));
  }
  return sheet;
}

[[nodiscard]] std::string title_of(const Figure& about) {
  std::string text = about.set;
  for (const std::string* part : {&about.name, &about.ball, &about.rest})
    if (!part->empty()) text += (part == &about.name ? "; " : ", ") + *part;
  return text;
}

[[nodiscard]] Sheet block_sheet(const FigureBlock& block, bool grouped) {
  Sheet sheet{title_of(block.about) +
                  (grouped ? "; mean, deviation and Student's 95 % interval over seeds" : "; 95 % intervals of Wilson"),
              {"run", grouped ? "seeds" : "step"}};
  const bool attacked = !block.about.clean();
  const auto head = [&](const std::string& name) {
    sheet.header.push_back(name + " %");
    if (grouped) sheet.header.emplace_back("deviation");
    sheet.header.emplace_back("95 % interval");
  };
  head("clean");
  if (attacked) head(block.about.name);
  if (attacked) sheet.header.emplace_back("train - attacked");
  for (const RowFigures& entry : block.entries) {
    Cells& cells =
        sheet.rows.emplace_back(Cells{entry.name(), std::to_string(grouped ? std::ssize(entry.subjects) : entry.step)});
    const auto add = [&](const Accuracy& one) {
      cells.push_back(figure_text(one.percent.mean, 2));
      if (grouped) cells.push_back(figure_text(one.percent.deviation, 2));
      cells.push_back(interval_text(one.percent.interval));
    };
    add(entry.clean);
    if (attacked) add(entry.attacked);
    if (attacked) cells.push_back(figure_text(entry.gap, 2));
  }
  return sheet;
}

[[nodiscard]] std::string p_text(double p) { return p < 1e-4 ? fmt::format("{:.2e}", p) : fmt::format("{:.4f}", p); }

[[nodiscard]] std::string latex_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\textbackslash{}";
    else if (c == '~' || c == '^')
      out += std::string("\\") + c + "{}";
    else if (std::string("&%$#_{}").find(c) != std::string::npos)
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

/// Lines of a table as CSV: what a row is, its run, one figure.
class CsvLines {
 public:
  explicit CsvLines(const Comparison& all) : all_(all), text_("row") {
    for (const std::string& option : all.options) text_ += "," + csv_field("--" + option);
    text_ +=
        ",runs,seeds,state,ranks,total_batch,steps,seconds,images_per_second,efficiency,reduction_percent,"
        "megabytes_per_step,training_percent,weights,step,image_set,attack,ball,settings,images,right,percent,"
        "deviation,low,high,against,both_right,only_against,only_this,neither,mcnemar_p\n";
    columns_ = static_cast<std::size_t>(std::ranges::count(text_, ',')) + 1;
  }

  /// Figure: null where the row has none.
  void add(const ComparedRow& row, const RowFigures* entry, const Accuracy* accuracy) {
    const RunFigures run = run_figures(row);
    Cells cells = {row.name};
    for (const std::string& option : all_.options) cells.push_back(option_in(row, option));
    std::set<std::string> seeds;
    for (const Subject* one : entry != nullptr ? entry->subjects : row.subjects)
      if (const auto seed = one->settings.find("seed"); seed != one->settings.end()) seeds.insert(seed->second);
    cells.insert(cells.end(), {std::to_string(entry != nullptr ? entry->subjects.size() : row.subjects.size()),
                               joined({seeds.begin(), seeds.end()}, " "), state_text(row, run),
                               row.subjects.front()->ranks > 0 ? std::to_string(row.subjects.front()->ranks) : ""});
    for (const double value : run.means) cells.push_back(digits(value));
    if (accuracy != nullptr) {
      const Figure& about = *accuracy->figures.front();
      cells.insert(cells.end(),
                   {entry->weights, std::to_string(entry->step), about.set, about.name, about.ball, about.rest,
                    std::to_string(about.images), accuracy->figures.size() == 1 ? std::to_string(about.right) : ""});
      const Spread& percent = accuracy->percent;
      for (const double value : {percent.mean, percent.deviation, percent.interval.low, percent.interval.high})
        cells.push_back(digits(value));
      for (const ImagePair& pair : all_.pairs)
        if (accuracy->figures.size() == 1 && pair.other == entry->subjects.front() && pair.about.compares_with(about))
          cells.insert(cells.end(), {pair.first->name, std::to_string(pair.both), std::to_string(pair.only_first),
                                     std::to_string(pair.only_other), std::to_string(pair.neither), digits(pair.p)});
    }
    add(cells);
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  [[nodiscard]] static std::string digits(double value) {
    return std::isfinite(value) ? fmt::format("{:.10g}", value) : "";
  }

  void add(Cells cells) {
    cells.resize(columns_);
    for (std::size_t k = 0; k < cells.size(); ++k) text_ += (k == 0 ? "" : ",") + csv_field(cells[k]);
    text_ += "\n";
  }

  const Comparison& all_;
  std::string text_;
  std::size_t columns_;
};

}  // namespace

std::string interval_text(const ConfidenceInterval& interval) {
  return std::isfinite(interval.low) ? fmt::format("[{:.2f}, {:.2f}]", interval.low, interval.high) : "-";
}

std::vector<Sheet> sheets_of(const Comparison& all) {
  std::vector<Sheet> sheets = {options_sheet(all), runs_sheet(all)};
  for (const FigureBlock& block : all.blocks) sheets.push_back(block_sheet(block, all.grouped));
  Sheet pairs{"Image by image (p: exact, McNemar's)",
              {"A", "B", "after", "images", "both right", "only A", "only B", "neither", "p"}};
  for (const ImagePair& pair : all.pairs)
    pairs.rows.push_back({pair.first->name, pair.other->name, pair.about.name, std::to_string(pair.about.images),
                          std::to_string(pair.both), std::to_string(pair.only_first), std::to_string(pair.only_other),
                          std::to_string(pair.neither), p_text(pair.p)});
  sheets.push_back(pairs);
  std::erase_if(sheets, [](const Sheet& one) { return one.rows.empty(); });
  for (Sheet& sheet : sheets) {  // what files say, for readers of lines
    sheet.title = in_one_line(sheet.title);
    for (std::string& cell : sheet.header) cell = in_one_line(cell);
    for (Cells& cells : sheet.rows)
      for (std::string& cell : cells) cell = in_one_line(cell);
  }
  for (Sheet& sheet : sheets)  // columns of which nobody has a number
    for (std::size_t k = sheet.header.size() - 1; k > 0; --k)
      if (std::ranges::all_of(sheet.rows, [&](const Cells& cells) { return cells[k] == "-"; })) {
        sheet.header.erase(sheet.header.begin() + static_cast<std::ptrdiff_t>(k));
        for (Cells& cells : sheet.rows) cells.erase(cells.begin() + static_cast<std::ptrdiff_t>(k));
      }
  return sheets;
}

std::string text_of(const Comparison& comparison) {
  std::string text;
  for (const Sheet& sheet : sheets_of(comparison)) {
    std::vector<std::size_t> widths;
    for (std::size_t k = 0; k < sheet.header.size(); ++k) {
      widths.push_back(letters(sheet.header[k]));
      for (const Cells& cells : sheet.rows) widths[k] = std::max(widths[k], letters(cells[k]));
    }
    text += (text.empty() ? "" : "\n") + sheet.title + "\n";
    const auto add = [&](const Cells& cells) {
      for (std::size_t k = 0; k < cells.size(); ++k) {
        const std::string blanks(widths[k] - letters(cells[k]), ' ');
        text += k == 0 ? cells[k] + blanks : "  " + blanks + cells[k];
      }
      text += "\n";
    };
    add(sheet.header);
    for (const Cells& cells : sheet.rows) add(cells);
  }
  return text;
}

std::string latex_of(const Comparison& comparison) {
  std::string text;
  for (const Sheet& sheet : sheets_of(comparison)) {
    text += (text.empty() ? "% " : "\n% ") + latex_text(sheet.title) + "\n\\begin{tabular}{l" +
            std::string(sheet.header.size() - 1, 'r') + "}\n\\hline\n";
    const auto add = [&](const Cells& cells) {
      for (std::size_t k = 0; k < cells.size(); ++k) text += (k == 0 ? "" : " & ") + latex_text(cells[k]);
      text += " \\\\\n";
    };
    add(sheet.header);
    text += "\\hline\n";
    for (const Cells& cells : sheet.rows) add(cells);
    text += "\\hline\n\\end{tabular}\n";
  }
  return text;
}

std::string csv_of(const Comparison& comparison) {
  CsvLines lines(comparison);
  for (const ComparedRow& row : comparison.rows) {
    bool any = false;
    std::set<std::string> clean;  // clean figures are in each block of their images
    for (const FigureBlock& block : comparison.blocks)
      for (const RowFigures& entry : block.entries) {
        if (entry.row != &row) continue;
        any = true;
        if (!entry.clean.figures.empty() && clean.insert(entry.weights + entry.clean.figures.front()->set).second)
          lines.add(row, &entry, &entry.clean);
        if (!entry.attacked.figures.empty()) lines.add(row, &entry, &entry.attacked);
      }
    if (!any) lines.add(row, nullptr, nullptr);
  }
  return lines.text();
}

}  // namespace dat
