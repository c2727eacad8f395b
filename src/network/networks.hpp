#pragma once

#include "dat/network.hpp"

namespace dat {

[[nodiscard]] Graph preact_resnet18(const NetworkOptions& options);
[[nodiscard]] Graph resnet18(const NetworkOptions& options);
[[nodiscard]] Graph small_cnn(const NetworkOptions& options);

}  // namespace dat
