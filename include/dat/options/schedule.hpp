#pragma once

#include <cstdint>
#include <string>

#include "dat/by_epoch.hpp"
#include "dat/optimizer.hpp"

namespace dat {

constexpr std::int64_t kMostEpochs = 1'000'000'000'000;

/// Length of the training, batches, and course of the learning rate. Rows and rules: src/options/train/schedule.cpp.
struct ScheduleSettings : RateSettings {
  /// -1 is never there in a parsed command, where both together are a whole number.
  ScheduleSettings() { epochs = warmup_epochs = -1; }

  std::string schedule = "step";
  ByEpoch<int> batch = 0;        ///< images per rank and step; in a parsed command 0 where there is a total_batch
  ByEpoch<int> total_batch = 0;  ///< images of all ranks and step; 0: batch times the ranks
  /// Divides batch, or total_batch; in a parsed command 0: the batch that changes by epoch, or a rank's share of
  /// total_batch.
  int micro_batch = 0;

  friend bool operator==(const ScheduleSettings&, const ScheduleSettings&) = default;
};

}  // namespace dat
