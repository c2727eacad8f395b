#pragma once

#include <filesystem>

namespace dat {

/// Share of their time for which the threads of this process that wanted a core have waited for one, since the last
/// call of begin(): on a machine of one's own next to nothing. The kernel counts it, thread by thread
/// (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat), so it holds in containers, too.
class CoreWait {
 public:
  /// `tasks`: a folder with a folder for each thread.
  explicit CoreWait(std::filesystem::path tasks = "/proc/self/task") : tasks_(std::move(tasks)) {}
  void begin() { begun_ = count(); }
  /// Share in [0, 1]; 0 where the kernel does not say, or the threads have not been at work for kLeastSeconds together.
  [[nodiscard]] double share() const;

  static constexpr double kLeastSeconds = 0.5;

 private:
  struct Seconds {
    double running = 0, waiting = 0;
  };
  [[nodiscard]] Seconds count() const;

  std::filesystem::path tasks_;
  Seconds begun_;
};

}  // namespace dat
