#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

constexpr std::int64_t kMostEpochs = 1'000'000'000'000;

/// How long is trained, in what batches, and how the learning rate goes. Rows and rules:
/// src/options/train/schedule.cpp.
struct ScheduleSettings {
  std::string schedule = "step";
  std::vector<int> milestones = {75, 90, 95};  ///< epochs after the warm-up, increasing
  double lr_decay = 0.1;
  double epochs = -1;         ///< after the warm-up; never -1 in a parsed command
  double warmup_epochs = -1;  ///< never -1 in a parsed command; with `epochs` a whole number
  int batch = 0;              ///< images per rank and step; in a parsed command 0 where there is a total_batch
  int total_batch = 0;        ///< images of all ranks and step; 0: batch times the ranks
  int micro_batch = 0;        ///< divides batch, or total_batch; in a parsed command 0: a rank's share of total_batch

  friend bool operator==(const ScheduleSettings&, const ScheduleSettings&) = default;
};

}  // namespace dat
