#pragma once

#include <chrono>
#include <cmath>
#include <string>

namespace dat::cuda {

/// The time that a process may still take for trials of plans (--planning-seconds). Nobody knows how many passes will
/// be planned: each may take an eighth of what the ones before it have left, so that late ones get something, too.
class PlanningTime {
 public:
  explicit PlanningTime(double seconds) : all_(seconds), left_(seconds) {}
  /// In all.
  [[nodiscard]] double seconds() const { return all_.count(); }

  /// What one pass may take, from its making to its end.
  class Share {
   public:
    explicit Share(PlanningTime& of) : of_(of), end_(begin_ + of.left_ / kPart) {}
    ~Share() { of_.left_ -= Clock::now() - begin_; }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    [[nodiscard]] bool over() const { return Clock::now() >= end_; }
    /// Why something is not tried.
    [[nodiscard]] std::string words() const {
      return "not tried: its share of --planning-seconds " + std::to_string(std::lround(of_.seconds())) + " is over";
    }

   private:
    using Clock = std::chrono::steady_clock;
    static constexpr int kPart = 8;
    PlanningTime& of_;
    const Clock::time_point begin_ = Clock::now();
    const std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
  };

 private:
  std::chrono::duration<double> all_, left_;
};

}  // namespace dat::cuda
