#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "assess/sequence.hpp"

namespace dat {

/// Lines on standard error that say how far an evaluation is, and how long it will take.
class ProgressLines {
 public:
  using Clock = std::chrono::steady_clock;
  /// interval: seconds between lines, of which the first one is due so long after `begin`. images: of rank 0, where
  /// they are told.
  explicit ProgressLines(double interval, std::int64_t images = 0, Clock::time_point begin = Clock::now())
      : images_(images), interval_(interval), begin_(begin) {}

  /// Reports that `done` images are done.
  void operator()(std::int64_t done);
  /// Reports progress, in words, and as a part of all; what was done before the first call took no time.
  void operator()(const std::string& what, double part);
  /// Reports the progress of an attack of a sequence, as if it broke no more images.
  void operator()(const SequenceEvaluator::Progress& now);

 private:
  [[nodiscard]] bool due();

  std::int64_t images_;
  double interval_, last_ = 0;  ///< seconds
  double first_part_ = -1;      ///< part that was done at the first call; -1: there was none
  Clock::time_point begin_;
};

}  // namespace dat
