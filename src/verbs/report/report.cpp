// The verb report: runs and evaluations as one page for a browser.

#include "verbs/report/report.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "options/train/table.hpp"
#include "verbs/report/sections.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;  ///< runs, evaluations, folders of them
  std::string by, out;
};

void add_options(TableOf<ReportOptions>& table) {
  using O = ReportOptions;
  table.add("RUNS", &O::runs,
            "folders of runs (--out of train), JSON or folders of evaluations (--out of eval), folders that have any "
            "of these in them");
  table.add("--by", &O::by, "rows as those of compare --by: means over seeds, with Student's 95 % interval",
            {.label = "OPTION"});
  table.add("--out", &O::out, "the page; none: report.html, in the folder of the run if one is named",
            {.label = "FILE"});
}

/// The paths, and behind each run the evaluations in its folder.
[[nodiscard]] std::vector<std::string> with_evaluations(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    all.push_back(path);
    if (!holds_run(path)) continue;
    std::error_code ignored;
    for (const std::string& inside : entries_in(path))
      if (fs::is_directory(inside, ignored) && !evaluation_in(inside).empty() &&
          std::ranges::none_of(paths, [&](const std::string& other) { return fs::equivalent(other, inside, ignored); }))
        all.push_back(inside);
  }
  return all;
}

/// Error(usage): a file is there that is no page.
void require_page_place(const std::string& out) {
  std::error_code ignored;
  require(!fs::is_directory(out, ignored), ExitCode::usage, "--out ", out, ": is a folder; name a file in it");
  require(!fs::exists(out, ignored) || fs::is_regular_file(out, ignored), ExitCode::usage, "--out ", out,
          ": is no plain file; give the report another name");
  std::ifstream file(out, std::ios::binary);
  std::string begin(15, '\0');
  const bool page = file.read(begin.data(), std::ssize(begin)) && begin == "<!DOCTYPE html>";
  require(page || !fs::exists(out, ignored), ExitCode::usage, "--out ", out,
          ": is there already, and is no page; give the report another name");
}

/// Options of one run that are not the program's own.
[[nodiscard]] Sheet own_options(const Subject& run) {
  Sheet sheet{"Options of " + run.name + " beside the program's own", {"option", "value", "without it"}};
  TrainOptions defaults;
  const Bound bound(train_table(), defaults);
  for (const OptionRow& row : train_table().rows())
    if (const auto found = run.settings.find(row.name); found != run.settings.end())
      if (const std::string usual = bound.text(row); usual != found->second)
        sheet.rows.push_back({row.name, found->second.empty() ? "(empty)" : found->second, usual});
  return sheet;
}

[[nodiscard]] std::string page_of(const std::vector<Subject>& subjects, const std::string& by) {
  const Comparison comparison = compare(subjects, by);
  std::vector<const Subject*> readable, runs;
  for (const Subject& one : subjects) {
    if (!one.failure.empty()) continue;
    readable.push_back(&one);
    if (!one.evaluation) runs.push_back(&one);
  }
  const std::size_t count = runs.empty() ? subjects.size() : runs.size();
  Page page(count == 1 ? (runs.empty() ? subjects.front() : *runs.front()).name
                       : std::to_string(count) + (runs.empty() ? " evaluations" : " runs"));
  add_headline(page, comparison);
  for (const std::string& warning : comparison.warnings) page.paragraph("Warning: " + warning, "alarm");
  page.heading(2, "Figures");
  for (const Sheet& sheet : sheets_of(comparison)) page.table(sheet);
  if (runs.size() == 1) page.table(own_options(*runs.front()));
  add_curves(page, comparison);
  if (!runs.empty()) page.heading(2, "Time line");
  for (const Subject* run : runs) add_events(page, *run);
  if (runs.size() < readable.size()) page.heading(2, "Classes and images");
  for (const Subject* one : readable)
    if (one->evaluation) add_evaluation_pictures(page, *one);
  add_provenance(page, readable);
  return page.text();
}

int run_report(const ReportOptions& options, int, char**) {
  return write_report(options.runs, options.by, options.out);
}

std::optional<ReportOptions> parse_report(CommandLine& line) {
  auto o = read_options<ReportOptions>(
      line,
      "Writes a page about runs and evaluations, for a browser or a printer: figures, curves, events, classes, "
      "images, provenance. The page is one file that loads nothing; a training leaves one in its folder.",
      add_options);
  if (o && o->out.empty())
    o->out = o->runs.size() == 1 && holds_run(o->runs.front()) ? o->runs.front() + "/report.html" : "report.html";
  return o;
}

}  // namespace

int write_report(const std::vector<std::string>& paths, const std::string& by, const std::string& out) {
  require_page_place(out);
  const std::vector<Subject> subjects = read_subjects(with_evaluations(paths));
  require_readable(subjects);
  write_text_atomically(out, page_of(subjects, by));
  return tell_left_out(subjects);
}

Verb report_verb() { return make_verb("report", "a page about runs, for a browser", parse_report, run_report); }

}  // namespace dat
