#pragma once

#include <cstdint>
#include <string>

namespace dat {

/// State that a codec or an aggregator remembers from step to step: floats on the device, which checkpoints hold.
struct DeviceState {
  std::string name;
  float* data;  ///< [count]
  std::int64_t count;
  bool own;  ///< every rank has its own; else all ranks have the same bits
};

}  // namespace dat
