// The verb status: how far runs are, by what stands in their folders.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>

#include "dat/communicator.hpp"
#include "dat/file.hpp"
#include "options/ranges.hpp"
#include "options/train/table.hpp"
#include "printed.hpp"
#include "record/status/run_status.hpp"
#include "run/begin/folder.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

struct StatusOptions {
  std::vector<std::string> runs;
  bool follow = false, json = false;
};

void add_options(TableOf<StatusOptions>& table) {
  using O = StatusOptions;
  table.add("RUNS,--runs", &O::runs, "folders of runs (--out of train), or folders of such folders; none: runs",
            kPaths);
  table.add("--follow", &O::follow, "look again and again until no run is under way; at a terminal, in place");
  table.add("--json", &O::json, "a JSON object for each run, in a line");
}

std::optional<StatusOptions> parse_status(CommandLine& line) {
  auto o = read_options<StatusOptions>(
      line,
      "Says how far runs are: a page about one, a line for each of several. It may be typed on any machine that "
      "sees the folder, needs no MPI, and changes nothing. Exit code: 0 done, 75 under way or stopped (the same "
      "command goes on), else the run's own; of several runs the first that failed, else 75 where any is not done.",
      add_options);
  if (o && o->runs.empty()) o->runs = {"runs"};
  return o;
}

/// What the run's options say; nothing where they are not there yet, or are of another version.
RunLength planned_length(const std::string& folder) {
  const std::optional<std::string> text = small_file(config_in(folder));
  if (!text) return {};
  try {
    const TrainOptions options = read_written(*text, config_in(folder)).options;
    return {std::llround(options.warmup_epochs + options.epochs), options.max_steps};
  } catch (const Error&) {
    return {};
  }
}

/// The runs at a path: itself, or those right in it.
void add_runs(const std::string& path, std::vector<std::string>& runs) {
  if (is_run(path)) return runs.push_back(path);
  std::vector<std::string> found = entries_in(path);
  std::erase_if(found, [](const std::string& entry) { return !is_run(entry); });
  require(!found.empty(), ExitCode::data, "no run in ", path, ": --out of train names the folder of one");
  runs.insert(runs.end(), found.begin(), found.end());
}

struct Look {
  std::string text;
  std::vector<RunStatus> runs;
  bool complete = true;  ///< false: one could not be read
};

Look look_at(const StatusOptions& options, bool page) {
  std::vector<std::string> folders;
  for (const std::string& path : options.runs) add_runs(path, folders);
  Look look;
  for (const std::string& folder : folders) try {
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      look.runs.push_back(status_of(folder, planned_length(folder), host_name(), now));
    } catch (const Error& error) {  // of several, the others are told
      if (look.runs.empty() && folder == folders.back()) throw;
      say(std::string("warning: ") + error.what());
      look.complete = false;
    }
  if (!options.json)
    look.text = page && folders.size() == 1 ? status_page(look.runs.front()) : status_table(look.runs);
  else
    for (const RunStatus& run : look.runs) look.text += status_json(run);
  return look;
}

int exit_code_of(const Look& look) {
  int code = static_cast<int>(look.complete ? ExitCode::done : ExitCode::data);
  for (const RunStatus& run : look.runs) {
    if (run.state == RunState::failed) return run.exit_code();
    code = std::max(code, run.exit_code());
  }
  return code;
}

/// Puts the text in the place of the one before; back: the way to its first line. Returns the way back to this one's.
/// What the terminal has no room for is left out.
std::string redraw(const std::string& text, const std::string& back, std::size_t room) {
  // A line that is too long for the terminal ends at its border.
  std::string drawn = "\033[?7l" + back;
  std::istringstream all(text);
  std::size_t lines = 0;
  for (std::string line; lines + 1 < room && std::getline(all, line); ++lines)
    drawn += "\r" + without_controls(line) + "\033[K\n";
  write_bytes(STDOUT_FILENO, drawn + "\033[J\033[?7h", "standard output");
  return "\033[" + std::to_string(lines) + "A";  // without a line the terminal has no room to go up, either
}

int run_status(const StatusOptions& options, int, char**) {
  using Clock = std::chrono::steady_clock;
  for (std::string back;;) {
    const bool in_place = options.follow && !options.json && terminal_size().ws_row > 0;
    const Clock::time_point begin = Clock::now();
    const Look look = look_at(options, !options.follow || in_place);
    if (in_place)
      back = redraw(look.text, back, terminal_size().ws_row);
    else
      static_cast<void>(print_result([&] { return look.text; }));
    const bool under_way = std::ranges::any_of(
        look.runs, [](const RunStatus& run) { return run.state == RunState::running || run.state == RunState::stale; });
    if (!options.follow || !under_way) return exit_code_of(look);
    // Large records are not read all the time.
    std::this_thread::sleep_for(
        std::max<Clock::duration>(std::chrono::seconds(in_place ? 1 : 10), 20 * (Clock::now() - begin)));
  }
}

}  // namespace

Verb status_verb() {
  return make_verb("status", "how far runs are: state, speed, time to the end", parse_status, run_status);
}

}  // namespace dat
