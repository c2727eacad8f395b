#pragma once

#include <string>
#include <vector>

namespace dat {

/// Options of `bench`. Rows and rules: src/verbs/bench.cpp.
struct BenchOptions {
  std::string network = "resnet18";
  int width = 0;                  ///< never 0 in a parsed command
  int batch = 64;                 ///< images per rank
  std::vector<std::string> data;  ///< files whose reading is measured; empty: none
  int size = 0;
  std::string augment = "resized", decode = "exact";
  int data_threads = 0, prefetch = 2;
  int attack_steps = 10;
  std::string attack_precision = "f32", precision = "f32";
  std::string device = "auto";
  int threads = 0;
  std::string math = "tf32";
  double seconds = 60;  ///< rough limit of the time
  std::string out;      ///< empty: nothing is written

  friend bool operator==(const BenchOptions&, const BenchOptions&) = default;
};

}  // namespace dat
