#include "dat/events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "record/history.hpp"
#include "record/status/run_status.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEvents = 200, kMostLogLines = 300;
constexpr const char* kRestart = "restart";

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
        moments.push_back({event.step, what.substr(0, what.find_last_not_of(' ') + 1), line.substr(what.size())});
      }
      if constexpr (std::is_same_v<Event, StragglerRecord>)
        if (!event.slow)
          moments.push_back({event.step, "in time", fmt::format("rank {} keeps up with the others again", event.rank)});
    }
  }
}

[[nodiscard]] std::string titled_mark(const std::string& shape, const RunMoment& moment) {
  return "<" + shape + "><title>" + html_text(fmt::format("step {}: {} {}", moment.step, moment.what, moment.text)) +
         "</title></" + shape.substr(0, shape.find(' ')) + ">\n";
}

/// The run as a line from 20 to 980, from its first to its last step, with marks: of evaluations and of checkpoints one
/// for all steps that fall on a place.
[[nodiscard]] std::string time_strip(const std::vector<RunMoment>& moments, const std::set<std::int64_t>& evaluations,
                                     const std::set<std::int64_t>& checkpoints, std::int64_t last) {
  const auto place = [last](std::int64_t step) {
    return std::lround(20 + 960 * (static_cast<double>(std::min(step, last)) / static_cast<double>(last)));
  };
  const auto places = [&](const std::set<std::int64_t>& steps) {
    std::set<long> all;
    for (const std::int64_t step : steps) all.insert(place(step));
    return all;
  };
  std::string text =
      "<div class=\"wide\"><svg class=\"strip\" role=\"img\" aria-label=\"time line\" viewBox=\"0 0 1000 90\">\n"
      "<line x1=\"20\" y1=\"30\" x2=\"980\" y2=\"30\" stroke=\"currentColor\"/>\n";
  for (const long x : places(evaluations))
    text += fmt::format("<line x1=\"{0}\" y1=\"24\" x2=\"{0}\" y2=\"36\" stroke=\"currentColor\"/>\n", x);
  for (const long x : places(checkpoints))
    text += fmt::format("<rect x=\"{}\" y=\"38\" width=\"8\" height=\"8\" fill=\"#009e73\"/>\n", x - 4);
  std::size_t circles = 0, triangles = 0;
  for (const RunMoment& moment : moments) {
    const bool restart = moment.what == kRestart;
    if ((restart ? triangles : circles)++ >= kMostEvents) continue;
    const long x = place(moment.step);
    text += titled_mark(restart ? fmt::format("path d=\"M{} 50 l6 12 h-12 z\" fill=\"#0072b2\"", x)
                                : fmt::format("circle cx=\"{}\" cy=\"16\" r=\"5\" fill=\"#d55e00\"", x),
                        moment);
  }
  return text + fmt::format(
                    "<text x=\"20\" y=\"82\" fill=\"currentColor\">0</text><text x=\"980\" y=\"82\" "
                    "text-anchor=\"end\" fill=\"currentColor\">step {}</text></svg></div>\n",
                    last);
}

/// What a run's log says.
struct RunLog {
  /// Lines beside progress, evaluations and the summary: starts, restarts, warnings, stops.
  Sheet sheet{"What the run has said", {"UTC", "line"}};
  std::vector<RunMoment> restarts{};  ///< each at the step after which the run went on
};

/// Calls each(line) for the lines of a text file, of very long ones with their beginning.
template <class Each>
void for_each_line(const std::string& path, const Each& each) {
  constexpr std::size_t kLongest = 4096;
  std::error_code unreadable;
  if (!fs::is_regular_file(path, unreadable)) return;  // a pipe would wait
  std::ifstream file(path, std::ios::binary);
  std::string line;
  for (char c; file.get(c);) {
    if (c != '\n') {
      if (line.size() < kLongest) line += c;
      continue;
    }
    each(line);
    line.clear();
  }
  if (!line.empty()) each(line);  // the last word of a run that was killed
}

/// "run folder a, ..., going on after step 20": the step; -1: the line says no such thing, or of another folder's run
/// (run/begin/beginning.cpp).
[[nodiscard]] std::int64_t step_gone_on_from(const std::string& line) {
  const std::string words = ", going on after step ";
  const std::size_t at = line.starts_with("run folder ") ? line.rfind(words) : std::string::npos;
  if (at == std::string::npos) return -1;
  std::int64_t step{};
  const char* const end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(line.data() + at + words.size(), end, step);
  return error == std::errc{} && !std::string_view(rest, end).starts_with(" of ") ? step : -1;
}

[[nodiscard]] RunLog read_log(const std::string& folder) {
  RunLog log;
  std::deque<std::vector<std::string>> last;
  std::size_t lines = 0;
  bool summary = false;
  for_each_line(folder + "/run.log", [&](const std::string& line) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos) return;
    const std::string time = line.substr(0, blank), text = line.substr(blank + 1);
    if (const std::int64_t step = step_gone_on_from(text); step >= 0)
      log.restarts.push_back({step, kRestart, "gone on from here at " + time});
    if (text.starts_with("Run ")) summary = true;
    const bool final_line = summary && text.starts_with("Final:");
    if ((!summary || final_line) && !text.empty() && !text.starts_with("step ") &&
        !text.starts_with("evaluation at ")) {
      last.push_back({time, text});
      if (++lines > kMostLogLines) last.pop_front();
    }
    if (final_line) summary = false;
  });
  if (lines > kMostLogLines) log.sheet.title += fmt::format("; the last {} of {} lines", kMostLogLines, lines);
  log.sheet.rows.assign(last.begin(), last.end());
  return log;
}

}  // namespace

void add_events(Page& page, const Subject& run) {
  const History& history = run.record;
  const RunLog log = read_log(run.path);
  std::vector<RunMoment> moments = log.restarts;
#define EVENT(Event) add_moments<Event>(history, moments);
#include "dat/events.def"
#undef EVENT
  std::ranges::stable_sort(moments, {}, &RunMoment::step);
  std::set<std::int64_t> evaluations, checkpoints;
  for (const EvaluationRecord& one : history.evaluations) evaluations.insert(one.step);
  for (const auto& [step, name] : kept_checkpoints(run.path)) checkpoints.insert(step);
  page.heading(3, run.name);
  if (!history.steps.empty()) {
    page.html(time_strip(moments, evaluations, checkpoints, std::max<std::int64_t>(history.steps.back().step, 1)),
              "a time line");
    page.paragraph(
        "Lines: evaluations. Squares: checkpoints that are there. Triangles: restarts. Circles: the other events "
        "below.",
        "faint");
  }
  Sheet sheet{
      moments.size() > kMostEvents ? fmt::format("The first {} of {} events", kMostEvents, moments.size()) : "Events",
      {"step", "event", "what"}};
  for (std::size_t k = 0; k < std::min(moments.size(), kMostEvents); ++k)
    sheet.rows.push_back({std::to_string(moments[k].step), moments[k].what, moments[k].text});
  if (moments.empty()) page.paragraph("No restart, no setback, no rank that was slow, left or was banned.");
  page.table(sheet);
  page.table(log.sheet);
}

}  // namespace dat
