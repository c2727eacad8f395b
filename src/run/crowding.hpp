#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dat/communicator.hpp"

namespace dat {

/// Share of their time for which the threads of this process that wanted a core have waited for one, since the last
/// call of begin(): on a machine of one's own next to nothing. The kernel counts it, thread by thread
/// (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat), so it holds in containers, too.
class CoreWait {
 public:
  virtual ~CoreWait() = default;
  virtual void begin() { begun_ = count(); }
  /// Share in [0, 1]; 0 where the kernel does not say, or the threads have not been at work for kLeastSeconds together.
  [[nodiscard]] virtual double share() const;

  static constexpr double kLeastSeconds = 0.5;

 private:
  struct Seconds {
    double running = 0, waiting = 0;
  };
  [[nodiscard]] static Seconds count();

  Seconds begun_;
};

/// Sees, once, where threads of a rank wait for cores that others use.
class Crowding {
 public:
  /// cores: times of this process.
  explicit Crowding(std::unique_ptr<CoreWait> cores = std::make_unique<CoreWait>()) : cores_(std::move(cores)) {}

  /// Compares the ranks' shares of waiting time now and then: after 10, 20, 40 ... steps, until it is much on one of
  /// them. Called after each step of this process. Then rank 0 gets a sentence about it; else it is empty. hosts [ranks
  /// of the launch], on rank 0. **Collective.**
  [[nodiscard]] std::string after_step(Communicator& ranks, const std::vector<std::string>& hosts);

 private:
  std::unique_ptr<CoreWait> cores_;
  std::int64_t steps_ = 0;
  bool told_ = false;
};

}  // namespace dat
