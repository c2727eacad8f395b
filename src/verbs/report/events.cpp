#include "dat/events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <type_traits>

#include "record/history.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEvents = 200, kMostLogLines = 300;

struct RunMoment {
  std::int64_t step = 0;
  std::string what, text;
};

/// Adds all events of a kind, in the words of the summary: "banned          rank 2, in step 5, ...".
template <class Event>
void add_moments(const History& history, std::vector<RunMoment>& moments) {
  if constexpr (requires { Event::summary({}); }) {
    for (const Event& event : history.all<Event>()) {
      std::istringstream lines(Event::summary({event}));
      for (std::string line; std::getline(lines, line);) {
        const std::string what = line.substr(0, 16);
        moments.push_back(
            {event.step, what.substr(0, what.find_last_not_of(' ') + 1), line.size() > 16 ? line.substr(16) : ""});
      }
      if constexpr (std::is_same_v<Event, StragglerRecord>)
        if (!event.slow)
          moments.push_back({event.step, "in time", fmt::format("rank {} keeps up with the others again", event.rank)});
    }
  }
}

/// Steps of the checkpoints that are there.
[[nodiscard]] std::set<std::int64_t> checkpoint_steps(const std::string& folder) {
  std::set<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder + "/ckpt", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with("step-") || !name.ends_with(".h5")) continue;
    if (std::from_chars(name.data() + 5, name.data() + name.size() - 3, step).ec == std::errc{}) steps.insert(step);
  }
  return steps;
}

/// The run as a line from its first to its last step, with marks.
[[nodiscard]] std::string time_strip(const std::vector<RunMoment>& moments, const std::set<std::int64_t>& evaluations,
                                     const std::set<std::int64_t>& checkpoints, std::int64_t last) {
  const auto at = [&](std::int64_t step) {
    return 20 + 960.0 * static_cast<double>(std::clamp<std::int64_t>(step, 0, last)) / static_cast<double>(last);
  };
  std::string text =
      "<svg class=\"strip\" role=\"img\" aria-label=\"time line\" viewBox=\"0 0 1000 70\" ><line x1=\"20\" y1=\"30\" "
      "x2=\"980\" y2=\"30\" stroke=\"currentColor\"/>\n";
  for (const std::int64_t step : evaluations)
    text +=
        fmt::format("<line x1=\"{0:.1f}\" y1=\"24\" x2=\"{0:.1f}\" y2=\"36\" stroke=\"currentColor\"/>\n", at(step));
  for (const std::int64_t step : checkpoints)
    text += fmt::format("<rect x=\"{:.1f}\" y=\"38\" width=\"8\" height=\"8\" fill=\"#009e73\"/>\n", at(step) - 4);
  for (std::size_t k = 0; k < moments.size() && k < kMostEvents; ++k)
    text += fmt::format("<circle cx=\"{:.1f}\" cy=\"16\" r=\"5\" fill=\"#d55e00\"><title>{}</title></circle>\n",
                        at(moments[k].step),
                        html_text(fmt::format("step {}: {} {}", moments[k].step, moments[k].what, moments[k].text)));
  return text + fmt::format(
                    "<text x=\"20\" y=\"64\" fill=\"currentColor\">0</text>"
                    "<text x=\"980\" y=\"64\" text-anchor=\"end\" fill=\"currentColor\">step {}</text></svg>\n",
                    last);
}

/// Lines of the run's log beside progress, evaluations and the summary: starts, restarts, warnings, stops.
[[nodiscard]] Sheet log_sheet(const std::string& folder) {
  Sheet sheet{"What the run has said", {"UTC", "line"}};
  std::ifstream file(folder + "/run.log");
  bool summary = false;
  for (std::string line; std::getline(file, line);) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos) continue;
    const std::string text = line.substr(blank + 1);
    if (text.starts_with("Run ")) summary = true;
    const bool last = summary && text.starts_with("Final:");
    if ((!summary || last) && !text.empty() && !text.starts_with("step ") && !text.starts_with("evaluation at "))
      sheet.rows.push_back({line.substr(0, blank), text});
    if (last) summary = false;
  }
  if (sheet.rows.size() > kMostLogLines) {
    sheet.title += fmt::format("; the last {} of {} lines", kMostLogLines, sheet.rows.size());
    sheet.rows.erase(sheet.rows.begin(), sheet.rows.end() - kMostLogLines);
  }
  return sheet;
}

}  // namespace

void add_events(Page& page, const Subject& run) {
  const History history = read_history(run.path);
  std::vector<RunMoment> moments;
#define EVENT(Event) add_moments<Event>(history, moments);
#include "dat/events.def"
#undef EVENT
  std::stable_sort(moments.begin(), moments.end(),
                   [](const RunMoment& a, const RunMoment& b) { return a.step < b.step; });
  std::set<std::int64_t> evaluations;
  for (const EvaluationRecord& one : history.evaluations) evaluations.insert(one.step);
  const std::set<std::int64_t> checkpoints = checkpoint_steps(run.path);
  page.heading(3, run.name);
  if (!history.steps.empty()) {
    page.html(time_strip(moments, evaluations, checkpoints, std::max<std::int64_t>(history.steps.back().step, 1)),
              "a time line");
    page.paragraph("Lines: evaluations. Squares: checkpoints that are there. Circles: the events below.", "faint");
  }
  Sheet sheet{
      moments.size() > kMostEvents ? fmt::format("The first {} of {} events", kMostEvents, moments.size()) : "Events",
      {"step", "event", "what"}};
  for (std::size_t k = 0; k < moments.size() && k < kMostEvents; ++k)
    sheet.rows.push_back({std::to_string(moments[k].step), moments[k].what, moments[k].text});
  if (moments.empty()) page.paragraph("No setback, no rank that was slow, left or was banned.");
  page.table(sheet);
  page.table(log_sheet(run.path));
}

}  // namespace dat
