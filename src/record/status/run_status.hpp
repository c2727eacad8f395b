#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dat/events.hpp"
#include "dat/report.hpp"
#include "dat/run_lock.hpp"

namespace dat {

/// Length of a run, as its options say.
struct RunLength {
  std::int64_t epochs = 0;      ///< warm-up included; 0 or less: not known
  std::int64_t most_steps = 0;  ///< --max-steps; 0: no limit
};

enum class RunState : std::uint8_t {
  running,
  stale,    ///< the lock is held, and there is no sign of life for too long
  stopped,  ///< the same command goes on
  done,
  failed
};
[[nodiscard]] const char* name_of(RunState state);  ///< "RUNNING"

/// Means over a run's last steps but its first one, evaluations and checkpoints left out.
struct StepMeans {
  std::int64_t steps = 0;  ///< 0: there are none, and the means are NaN
  double loss = 0, accuracy = 0, images_per_second = 0, lr = 0, seconds = 0;  ///< seconds: of a step
};

/// What a run's folder tells of it at one moment.
struct RunStatus {
  std::string folder;
  RunState state = RunState::stopped;
  Writer writer;           ///< code: that of the end, also where nobody has noted it; kNone: none is known
  double silent = 0;       ///< seconds since the last sign of life
  std::int64_t step = 0;   ///< steps made
  std::int64_t steps = 0;  ///< steps of the run; 0: not known
  std::int64_t epoch = 0;  ///< the epoch of the last step, counted from 1; 0: there is no step
  std::int64_t epochs = 0;
  double seconds = 0;                    ///< of training so far
  double eta = 0;                        ///< seconds to the end; NaN: not known, or none
  StepMeans last;                        ///< the last kRecentSteps steps
  std::array<double, kPhases> phases{};  ///< seconds of rank 0 so far
  /// The last evaluation: a record for each split, weights and attack; and the one that was most robust on what is held
  /// out, or else on the test images, under the worst of its attacks, of the averaged weights where there are any.
  std::vector<EvaluationRecord> evaluated, best;
  std::vector<StragglerRecord> slow;  ///< ranks that are slow now
  std::int64_t skipped = 0, rollbacks = 0, bans = 0, left = 0;
  std::int64_t checkpoint = -1;  ///< step of the newest checkpoint; -1: there is none
  double checkpoint_age = 0;     ///< seconds
  std::int64_t damaged = 0;      ///< lines of the record that cannot be read

  static constexpr std::size_t kRecentSteps = 100;

  /// 0: done; 75: it runs, or the same command goes on; else the run's own.
  [[nodiscard]] int exit_code() const;
};

/// Returns whether a folder is that of a run, or of one that has just begun.
[[nodiscard]] bool is_run(const std::string& folder);

/// The checkpoints of a run that are there, but the best one: the file's name by its step.
[[nodiscard]] std::map<std::int64_t, std::string> kept_checkpoints(const std::string& folder);

struct History;
/// Looks at a run from any host, here: its name, and changes nothing. now: seconds since 1970. A run may write
/// meanwhile. record: its record, where that was read before. Error(data): no run there, or one of another format.
[[nodiscard]] RunStatus status_of(const std::string& folder, const RunLength& length, const std::string& here,
                                  double now, const History* record = nullptr);

/// A page about a run, a table of several ones, of at most 79 columns.
[[nodiscard]] std::string status_page(const RunStatus& status);
[[nodiscard]] std::string status_table(const std::vector<RunStatus>& all);
/// One JSON object in a line.
[[nodiscard]] std::string status_json(const RunStatus& status);

}  // namespace dat
