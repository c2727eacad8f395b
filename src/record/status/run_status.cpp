#include "record/status/run_status.hpp"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "record/history.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// Time of a file's last change, in seconds since 1970; NaN: there is no such file.
double changed(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0
             ? static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec)
             : kNotKnown;
}

/// Means over the last steps but the first: in the first one of a process much is made.
StepMeans means_of(const std::vector<StepRecord>& all) {
  constexpr std::size_t kMost = RunStatus::kRecentSteps;
  const std::span<const StepRecord> steps =
      std::span(all).subspan(all.size() > kMost ? all.size() - kMost : all.size() > 1);
  double images = 0, seconds = 0, finite = 0, loss = 0, right = 0, lr = 0;
  for (const StepRecord& step : steps) {
    const auto count = static_cast<double>(step.images);
    images += count;
    seconds += sum_of(step.seconds, kPhasesOfSteps);
    lr += step.lr;
    if (!std::isfinite(step.loss_adv)) continue;  // a step that was skipped
    finite += count;
    loss += count * step.loss_adv;
    right += count * step.acc_adv;
  }
  const auto n = static_cast<double>(steps.size());
  const auto mean = [](double sum, double of) { return of > 0 ? sum / of : kNotKnown; };
  return {static_cast<std::int64_t>(steps.size()),
          mean(loss, finite),
          mean(right, finite),
          mean(images, seconds),
          mean(lr, n),
          mean(seconds, n)};
}

/// Evaluations, each with the records of one moment.
void read_evaluations(const std::vector<EvaluationRecord>& records, RunStatus& status) {
  if (records.empty()) return;
  const EvaluationMoment last = moment_of(records.back());
  for (const EvaluationRecord& record : records)
    if (moment_of(record) == last) status.evaluated.push_back(record);
  const auto any = [&](auto has) { return std::ranges::any_of(status.evaluated, has); };
  const bool held_out = any([](const EvaluationRecord&r) { return r.split == "holdout"; }),
             averaged = any([](const EvaluationRecord&r) { return r.weights == "average"; });
  double best = -1;
  for (auto next = records.begin(); next != records.end();) {
    std::vector<EvaluationRecord> one;
    for (const EvaluationMoment moment = moment_of(*next); next != records.end() && moment_of(*next) == moment; ++next)
      if (next->split == (held_out ? "holdout" : "test") && next->weights == (averaged ? "average" : "raw"))
        one.push_back(*next);
    double worst = one.empty() ? -1 : 1;
    for (const EvaluationRecord& record : one)
      if (!std::isnan(worst) && !(worst <= record.adv_acc)) worst = record.adv_acc;
    if (worst > best) {
      best = worst;
      status.best = one;
    }
  }
}

void read_events(const History& history, RunStatus& status) {
  for (const StragglerRecord& record : history.all<StragglerRecord>()) {
    std::erase_if(status.slow, [&](const StragglerRecord& one) { return one.rank == record.rank; });
    if (record.slow) status.slow.push_back(record);
  }
  for (const SetbackRecord& record : history.all<SetbackRecord>()) {
    status.skipped += record.event == "skipped";
    status.rollbacks += record.event == "rollback";
  }
  status.skipped += std::ssize(history.all<OverflowRecord>());
  status.bans = std::ssize(history.all<BanRecord>());
  status.left = std::ssize(history.all<LeftRecord>());
}

void read_checkpoints(const std::string& folder, double now, RunStatus& status) {
  const auto all = kept_checkpoints(folder);
  if (all.empty()) return;
  status.checkpoint = all.rbegin()->first;
  status.checkpoint_age = std::max(0.0, now - changed(folder + "/ckpt/" + all.rbegin()->second));
}

/// Steps that there will be, and the time until then, evaluations and checkpoints as they have come so far.
void read_length(const History& history, const RunLength& length, RunStatus& status) {
  status.eta = kNotKnown;
  if (!history.steps.empty()) status.epoch = history.steps.back().epoch + 1;
  status.epochs = length.epochs > 0 ? std::max(length.epochs, status.epoch) : 0;
  if (history.steps.empty()) return;
  const StepRecord& last = history.steps.back();
  status.step = last.step;
  if (length.epochs <= 0 || __builtin_mul_overflow(length.epochs, last.steps_per_epoch, &status.steps))
    status.steps = 0;
  if (length.most_steps > 0 && (status.steps == 0 || length.most_steps < status.steps))
    status.steps = length.most_steps;
  if (status.steps == 0) return;
  status.steps = std::max(status.steps, status.step);
  const double share = sum_of(status.phases) / sum_of(status.phases, kPhasesOfSteps);
  status.eta = static_cast<double>(status.steps - status.step) * status.last.seconds * share;
}

/// Seconds without a sign of life after which a run that holds its lock is stale. Between two steps that is five of
/// them, but a moment at least; a start, an evaluation and a checkpoint leave no lines, and take as long as the longest
/// evaluation so far, or minutes.
double patience(const History& history, const RunStatus& status) {
  constexpr double kMoment = 5, kMinutes = 120;
  const double steps = std::max(kMoment, 5 * status.last.seconds);  // without a step NaN: a moment
  if (history.ends_in_step && status.writer.evaluated < 0) return steps;
  double longest = kMinutes;
  for (const RankRecord& record : history.ranks)
    if (!record.bytes.empty() && std::isfinite(record.seconds[static_cast<std::size_t>(Phase::evaluate)]))
      longest = std::max(longest, record.seconds[static_cast<std::size_t>(Phase::evaluate)]);
  return std::max(steps, longest);
}

/// The state of a run whose signs of life are fresh, or are not. Locks may not reach this host: who is said to hold one
/// on another host, and gives fresh signs, runs.
RunState state_of(const LockSeen& lock, int code, bool fresh, bool has_results, const std::string& here) {
  using Held = LockSeen::Held;
  const RunState alive = fresh ? RunState::running : RunState::stale;
  if (lock.held == Held::yes) return alive;
  if (code > 0) return code == static_cast<int>(ExitCode::stopped) ? RunState::stopped : RunState::failed;
  if (code == 0 || has_results) return RunState::done;
  if (lock.held == Held::unknown) return alive;
  const bool elsewhere = !lock.writer.host.empty() && lock.writer.host != here;
  return elsewhere && fresh ? RunState::running : RunState::stopped;
}

}  // namespace

const char* name_of(RunState state) {
  constexpr std::array<const char*, 5> kNames = {"RUNNING", "STALE", "STOPPED", "DONE", "FAILED"};
  return kNames[static_cast<std::size_t>(state)];
}

int RunStatus::exit_code() const {
  return state == RunState::done     ? static_cast<int>(ExitCode::done)
         : state == RunState::failed ? writer.code
                                     : static_cast<int>(ExitCode::stopped);
}

bool is_run(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder + "/metrics.jsonl", error)) return true;
  bool lock = false, checkpoints = false, other = false;  // what a start makes before its record
  for (const fs::path path : entries_in(folder))
    (path.filename() == ".lock" ? lock : path.filename() == "ckpt" ? checkpoints : other) = true;
  // An evaluation signs at once.
  return lock && !other && (checkpoints || look_at_lock(folder).writer.host.empty());
}

std::map<std::int64_t, std::string> kept_checkpoints(const std::string& folder) {
  const std::string series = "step-";
  std::map<std::int64_t, std::string> found;
  for (const fs::path path : entries_in(folder + "/ckpt")) {
    const std::string name = path.filename().string();
    std::int64_t step = -1;
    if (!name.starts_with(series)) continue;
    const char* const end = std::from_chars(name.data() + series.size(), name.data() + name.size(), step).ptr;
    if (std::string_view(end) == ".h5" && step >= 0) found[step] = name;
  }
  return found;
}

RunStatus status_of(const std::string& folder, const RunLength& length, const std::string& here, double now,
                    const History* record) {
  RunStatus status;
  status.folder = folder;
  const LockSeen lock = look_at_lock(folder);
  require(is_run(folder), ExitCode::data, "no run in ", folder, ": --out of train names the folder of one");
  RecentHistory recent;
  if (record == nullptr) recent = read_recent(folder, RunStatus::kRecentSteps + 1);
  const History& history = record != nullptr ? *record : recent.history;
  status.writer = lock.writer;
  status.damaged = recent.damaged;
  status.last = means_of(history.steps);
  if (!history.steps.empty()) status.seconds = history.steps.back().wall_time;
  status.phases = history.phase_seconds().front();
  read_length(history, length, status);
  read_evaluations(history.evaluations, status);
  read_events(history, status);
  read_checkpoints(folder, now, status);

  const double signed_at = changed(folder + "/.lock");
  status.silent = std::max(0.0, now - std::fmax(changed(folder + "/metrics.jsonl"), signed_at));
  int& code = status.writer.code;
  bool fresh = status.silent <= patience(history, status);
  if (lock.held == LockSeen::Held::yes) {
    // Who holds it has signed off, or has not signed yet: then there is nothing, or the word of a process that is gone.
    const bool gone =
        status.writer.host == here && kill(static_cast<pid_t>(status.writer.process), 0) == -1 && errno == ESRCH;
    if (status.writer.host.empty() || code != Writer::kNone || gone) {
      status.writer.host.clear();
      code = Writer::kNone;
      status.writer.evaluated = Writer::kNone;
      fresh = true;
    }
  } else if (code == Writer::kNone) {
    // Ranks that hang, or lose MPI, end without a word there, but each leaves what it has called.
    for (const std::string& path : entries_in(folder))
      if (fs::path(path).filename().string().starts_with("hang-rank-") && changed(path) >= signed_at)
        code = static_cast<int>(ExitCode::communication);
  }
  std::error_code error;
  status.state = state_of(lock, code, fresh, fs::exists(folder + "/results.h5", error), here);
  if (status.state == RunState::done) code = static_cast<int>(ExitCode::done);
  if (status.state == RunState::done || status.state == RunState::failed) status.eta = kNotKnown;
  return status;
}

}  // namespace dat
