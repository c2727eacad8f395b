#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Measurement of `forecast` where it has no calibration.
struct CalibrationOptions {
  std::string network = "preact_resnet18";
  int width = 0;        ///< never 0 in a parsed command
  int train_size = 32;  ///< height = width of the images
  int batch = 64;       ///< images per rank
  std::string attack = "pgd";
  int attack_steps = 10;
  double lambda = -1;  ///< weight of the clean loss; -1: 1 with pgd, else 0
  std::string attack_precision = "f32", precision = "f32";
  std::string device = "auto";
  int threads = 0;
  std::string math = "tf32";
  double seconds = 60;  ///< rough limit of the time

  friend bool operator==(const CalibrationOptions&, const CalibrationOptions&) = default;
};

/// Options of `forecast`. Rows and rules: src/verbs/forecast.cpp.
struct ForecastOptions : CalibrationOptions {
  std::string calibration{};  ///< file; empty: measured now
  std::vector<int> ranks = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  int ranks_per_node = 1;
  std::vector<std::string> bandwidth{};  ///< networks; empty: 1, 10, 25 and 100 Gbit/s, and what was measured
  std::vector<double> latency{};         ///< microseconds, one for all or one each; empty: as measured, or 30
  std::vector<std::string> codec{};      ///< empty: all of the calibration
  std::vector<double> budget{};          ///< empty: 40/54 of the layers
  std::string budget_unit = "layers";    ///< layers | bytes
  double p_min = 0.1;
  std::string algorithm = "ring";  ///< ring | tree
  bool overlap = false;
  std::int64_t bucket = 0;                ///< elements of one message; 0: as train; never 0 in a parsed command
  int stale_attack = 0;                   ///< iterations
  int generators = 0;                     ///< ranks that only attack; 0: as many as pay best
  int micro_batch = 0;                    ///< images that a generator is given at once; 0: the calibration's batch
  int staleness = 1;                      ///< staleness of the generators' attacks
  std::string generator_weights = "f32";  ///< weights on their way to generators: see train
  double generator_speed = 1;             ///< speed of a generator, relative to a rank of the calibration
  double jitter = 0;                      ///< standard deviation of computing times, as a part of them
  std::string out{};                      ///< empty: nothing is written

  friend bool operator==(const ForecastOptions&, const ForecastOptions&) = default;
};

}  // namespace dat
