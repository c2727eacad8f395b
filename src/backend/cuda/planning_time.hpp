#pragma once

#include <chrono>
#include <cmath>
#include <string>

namespace dat::cuda {

/// The time that a backend may still take for trials of plans (DAT_PLANNING_SECONDS). Nobody knows how many passes will
/// be planned: each may take an eighth of what the ones before it have left, so that late ones get something, too. A
/// third of all is not for building engines, which takes longest, and is kept for passes that have none, such as
/// training's.
class PlanningTime {
 public:
  explicit PlanningTime(double seconds) : all_(seconds), left_(seconds) {}
  /// Seconds in all.
  [[nodiscard]] double seconds() const { return all_.count(); }

  /// Share of the time that one pass may take, from its making to its end.
  class Share {
   public:
    explicit Share(PlanningTime& of) : of_(of) {}
    ~Share() { of_.left_ -= taken(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    [[nodiscard]] bool over() const { return taken() >= of_.left_ / kPart; }
    [[nodiscard]] bool over_for_engines() const { return taken() >= (of_.left_ - of_.all_ / kKept) / kPart; }
    /// Excludes the time taken so far, which was no trial.
    void forgive() { begin_ = Clock::now(); }
    /// Reason why a plan is not tried.
    [[nodiscard]] std::string words() const {
      return "not tried: its share of DAT_PLANNING_SECONDS " + std::to_string(std::lround(of_.seconds())) + " is over";
    }

   private:
    using Clock = std::chrono::steady_clock;
    static constexpr int kPart = 8, kKept = 3;
    [[nodiscard]] std::chrono::duration<double> taken() const { return Clock::now() - begin_; }
    PlanningTime& of_;
    Clock::time_point begin_ = Clock::now();
  };

 private:
  std::chrono::duration<double> all_, left_;
};

}  // namespace dat::cuda
