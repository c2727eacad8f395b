#pragma once

#include <string>
#include <vector>

#include "dat/network.hpp"

namespace dat {

[[nodiscard]] Graph preact_resnet18(const NetworkOptions& options);
[[nodiscard]] Graph resnet18(const NetworkOptions& options);
[[nodiscard]] Graph small_cnn(const NetworkOptions& options);

/// The eight residual blocks of both ResNet-18s: four stages of two, with width, 2, 4 and 8 width channels. All stages
/// but the first begin with stride 2.
struct ResidualBlock {
  std::string name;  ///< PyTorch's, e.g. "layer2.0"
  int channels, stride;
};
[[nodiscard]] std::vector<ResidualBlock> resnet18_blocks(int width);

}  // namespace dat
