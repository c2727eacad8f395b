// A run's status as people and programs read it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "dat/error.hpp"
#include "record/history.hpp"
#include "record/status/run_status.hpp"

namespace dat {

namespace {

constexpr std::size_t kPageWidth = 79;

/// The text, or its first characters and "...".
std::string cut(const std::string& text, std::size_t columns) {
  if (letters(text) <= columns) return text;
  std::string kept;
  for (std::size_t k = 0, seen = 0; k < text.size(); ++k) {
    seen += begins_letter(text[k]);
    if (seen > columns - 3) break;
    kept += text[k];
  }
  return kept + "...";
}

/// A path, or its end behind "...": there the paths of runs differ.
std::string path_end(const std::string& path, std::size_t columns) {
  std::string text = in_one_line(path);
  if (letters(text) <= columns) return text;
  std::size_t begin = text.size();
  for (std::size_t seen = 0; seen < columns - 3;) seen += begins_letter(text[--begin]);
  return "..." + text.substr(begin);
}

std::string line(const std::string& what, const std::string& text) {
  return cut(fmt::format("{:<16}{}", what, in_one_line(text)), kPageWidth) + "\n";
}

const char* cause_of(int code) {
  constexpr std::pair<ExitCode, const char*> kCauses[] = {{ExitCode::usage, "options"},
                                                          {ExitCode::data, "data"},
                                                          {ExitCode::checkpoint, "no usable checkpoint"},
                                                          {ExitCode::device, "device, library or memory"},
                                                          {ExitCode::communication, "MPI, or ranks that hang"},
                                                          {ExitCode::numerical, "numbers that are not finite"},
                                                          {ExitCode::integrity, "ranks disagree"},
                                                          {ExitCode::io, "disk full, or a file cannot be written"}};
  for (const auto& [known, cause] : kCauses)
    if (static_cast<int>(known) == code) return cause;
  return "see run.log";
}

std::string state_text(const RunStatus& s) {
  const std::string name = name_of(s.state);
  const std::string who = s.writer.host.empty() ? "" : fmt::format("{}, process {}", s.writer.host, s.writer.process);
  switch (s.state) {
    case RunState::running:
      if (who.empty()) return name + ", begins or ends at this moment";
      return name + " on " + who +
             (s.writer.evaluated >= 0 ? fmt::format(", evaluation {:.0f} % done", 100 * s.writer.evaluated)
              : s.epoch == 0          ? ", before its first step"
                                      : "");
    case RunState::stale:
      return name + ": no sign of life for " + duration_text(s.silent) + "; " + who;
    case RunState::stopped:
      return name + (s.writer.code == Writer::kNone ? " without a word (killed?)" : "") + "; the same command goes on";
    case RunState::failed:
      return fmt::format("{} with code {}: {}", name, s.writer.code, cause_of(s.writer.code));
    case RunState::done:
      break;
  }
  return name;
}

std::string of_all(std::int64_t number, std::int64_t all) {
  return all == 0 ? std::to_string(number) : fmt::format("{} of {}", number, all);
}

std::string shares_text(const std::array<double, kPhases>& seconds) {
  const double all = sum_of(seconds);
  std::array<std::size_t, kPhasesInSum> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return seconds[a] > seconds[b]; });
  std::string text;
  for (const std::size_t phase : order)
    if (const double share = 100 * seconds[phase] / all; share >= 0.5)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", kPhaseNames[phase], share);
  return text;
}

/// A line for each split and weights.
std::string evaluation_lines(std::string what, const std::vector<EvaluationRecord>& records) {
  std::string text;
  for (auto next = records.begin(); next != records.end();) {
    const EvaluationRecord& first = *next;
    std::string one = fmt::format("step {}, {}{}: clean {}", first.step, first.split, weights_text(first.weights),
                                  percent_text(first.clean_acc));
    for (; next != records.end() && next->split == first.split && next->weights == first.weights; ++next)
      one += ", " + next->attack + " " + percent_text(next->adv_acc);
    text += line(std::exchange(what, ""), one);
  }
  return text;
}

std::string setbacks_text(const RunStatus& s) {
  std::string text;
  const auto add = [&](std::int64_t count, const char* one, const char* several) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, count == 1 ? one : several);
  };
  add(s.writer.starts - 1, "restart", "restarts");
  add(s.rollbacks, "rollback", "rollbacks");
  add(s.skipped, "skipped step", "skipped steps");
  add(s.bans, "ban", "bans");
  add(s.left, "rank that has left", "ranks that have left");
  add(s.damaged, "line of metrics.jsonl is damaged", "lines of metrics.jsonl are damaged");
  return text.empty() ? "none" : text;
}

}  // namespace

std::string status_page(const RunStatus& s) {
  std::string text = path_end(s.folder, kPageWidth) + "\n" + line("state", state_text(s));
  if (s.epoch > 0) {
    text += line("step", of_all(s.step, s.steps) +
                             (s.steps == 0 ? ""
                                           : fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(s.step) /
                                                                            static_cast<double>(s.steps))) +
                             ", epoch " + of_all(s.epoch, s.epochs));
    text += line("time", duration_text(s.seconds) + fmt::format(", {:.3g} s a step", s.last.seconds) +
                             (std::isfinite(s.eta) ? ", ETA " + duration_text(s.eta) : ""));
    text += line(s.last.steps == 1 ? "last step" : fmt::format("last {} steps", s.last.steps),
                 fmt::format("loss {:.4f}, acc {}, {:.4g} images/s, lr {:.4g}", s.last.loss,
                             percent_text(s.last.accuracy), s.last.images_per_second, s.last.lr));
    text += line("shares", shares_text(s.phases));
  }
  text += evaluation_lines("evaluation", s.evaluated) + evaluation_lines("best", s.best);
  text +=
      line("checkpoint",
           s.checkpoint == -1 ? "none" : fmt::format("step {}, {} old", s.checkpoint, duration_text(s.checkpoint_age)));
  for (const StragglerRecord& one : s.slow)
    text += line("slow", fmt::format("rank {}, {:.1f} times as long as the others", one.rank, one.ratio));
  return text + line("setbacks", setbacks_text(s));
}

std::string status_table(const std::vector<RunStatus>& all) {
  constexpr std::size_t kName = 20;
  const auto row = [](const auto&... cells) {
    return fmt::format("{}{} {:<9}{:>16}{:>7}{:>7}{:>7}{:>12}\n", cells...);
  };
  const auto percent = [](double part) { return std::isfinite(part) ? fmt::format("{:.2f}", 100 * part) : "-"; };
  std::string text = row("run", std::string(kName - 3, ' '), "state", "step", "acc %", "clean", "robust", "ETA");
  for (const RunStatus& s : all) {
    const std::string name = path_end(s.folder, kName);
    const std::string state =
        name_of(s.state) + (s.state == RunState::failed ? fmt::format(" {}", s.writer.code) : std::string());
    const EvaluationRecord* const evaluated = s.evaluated.empty() ? nullptr : &s.evaluated.front();
    text += row(
        name, std::string(kName - letters(name), ' '), state,
        s.epoch == 0 ? "-" : cut(std::to_string(s.step) + (s.steps == 0 ? "" : fmt::format("/{}", s.steps)), 15),
        percent(s.last.accuracy), evaluated != nullptr ? percent(evaluated->clean_acc) : "-",
        evaluated != nullptr ? percent(evaluated->adv_acc) : "-", std::isfinite(s.eta) ? duration_text(s.eta) : "-");
  }
  return text;
}

std::string status_json(const RunStatus& s) {
  using Json = nlohmann::ordered_json;
  const auto known = [](auto value, bool is) { return is ? Json(value) : Json(); };
  const auto evaluations = [](const std::vector<EvaluationRecord>& records) {
    Json all = Json::array();
    for (const EvaluationRecord& record : records)
      for_each_evaluation_field(record, [&, &one = all.emplace_back()](const char* name, const auto& value,
                                                                       const char*) { one[name] = value; });
    return all;
  };
  Json shares = Json::object(), slow = Json::array();
  const double all = sum_of(s.phases);
  for (std::size_t phase = 0; phase < kPhasesInSum && all > 0; ++phase)
    shares[kPhaseNames[phase]] = s.phases[phase] / all;
  for (const StragglerRecord& one : s.slow)
    slow.push_back(Json::object({{"rank", one.rank}, {"ratio", one.ratio}, {"step", one.step}}));
  const Json json = {{"run", s.folder},
                     {"state", name_of(s.state)},
                     {"code", known(s.writer.code, s.writer.code != Writer::kNone)},
                     {"exit_code", s.exit_code()},
                     {"host", known(s.writer.host, !s.writer.host.empty())},
                     {"process", known(s.writer.process, !s.writer.host.empty())},
                     {"silent_seconds", s.silent},
                     {"step", s.step},
                     {"steps", known(s.steps, s.steps != 0)},
                     {"epoch", s.epoch},
                     {"epochs", known(s.epochs, s.epochs != 0)},
                     {"seconds", s.seconds},
                     {"eta_seconds", s.eta},
                     {"recent",
                      {{"steps", s.last.steps},
                       {"loss", s.last.loss},
                       {"accuracy", s.last.accuracy},
                       {"images_per_second", s.last.images_per_second},
                       {"lr", s.last.lr},
                       {"step_seconds", s.last.seconds}}},
                     {"shares", shares},
                     {"evaluating", known(s.writer.evaluated, s.writer.evaluated >= 0)},
                     {"evaluation", evaluations(s.evaluated)},
                     {"best", evaluations(s.best)},
                     {"checkpoint", known(s.checkpoint, s.checkpoint != -1)},
                     {"checkpoint_age_seconds", known(s.checkpoint_age, s.checkpoint != -1)},
                     {"restarts", std::max<std::int64_t>(s.writer.starts - 1, 0)},
                     {"rollbacks", s.rollbacks},
                     {"skipped", s.skipped},
                     {"bans", s.bans},
                     {"left", s.left},
                     {"slow", slow},
                     {"damaged_lines", s.damaged}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace dat
