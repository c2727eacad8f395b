#pragma once

#include <string>

namespace dat {

/// Network that is trained. Rows and rules: src/options/train/network.cpp.
struct NetworkSettings {
  std::string network = "preact_resnet18";
  int width = 0;                          ///< channels of the first stage; never 0 in a parsed command
  std::string activation = "auto";        ///< relu | silu; never auto in a parsed command
  std::string normalize = "none";         ///< see normalization_from()
  std::string bn_statistics = "average";  ///< average: running statistics are averaged over ranks each step | local

  friend bool operator==(const NetworkSettings&, const NetworkSettings&) = default;
};

}  // namespace dat
