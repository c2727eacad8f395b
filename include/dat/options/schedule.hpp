#pragma once

#include <cstdint>
#include <string>

#include "dat/optimizer.hpp"

namespace dat {

constexpr std::int64_t kMostEpochs = 1'000'000'000'000;

/// How long is trained, in what batches, and how the learning rate goes. Rows and rules:
/// src/options/train/schedule.cpp.
struct ScheduleSettings : RateSettings {
  /// -1 is never there in a parsed command, where both together are a whole number.
  ScheduleSettings() { epochs = warmup_epochs = -1; }

  std::string schedule = "step";
  int batch = 0;        ///< images per rank and step; in a parsed command 0 where there is a total_batch
  int total_batch = 0;  ///< images of all ranks and step; 0: batch times the ranks
  int micro_batch = 0;  ///< divides batch, or total_batch; in a parsed command 0: a rank's share of total_batch

  friend bool operator==(const ScheduleSettings&, const ScheduleSettings&) = default;
};

}  // namespace dat
