#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dat/half.hpp"

namespace dat {

/// The numbers of a version of the weights in a message: as they are, or rounded to bfloat16 (--generator-weights).
class VersionNumbers {
 public:
  VersionNumbers(std::int64_t count, bool rounded)
      : count_(static_cast<std::size_t>(count)), rounded_(rounded), scratch_(rounded ? count_ : 0) {}

  /// Bytes of the numbers in a message.
  [[nodiscard]] std::size_t bytes() const { return count_ * (rounded_ ? sizeof(BFloat16) : sizeof(float)); }
  /// Place where the numbers are to be written before pack(). message: as long as the message is used.
  [[nodiscard]] float* room(std::byte* message) {
    return rounded_ ? scratch_.data() : reinterpret_cast<float*>(message);
  }
  void pack(std::byte* message) const {
    if (rounded_) std::ranges::transform(scratch_, reinterpret_cast<BFloat16*>(message), Stored<BFloat16>::from);
  }
  /// The numbers [count] of a message, until the next call.
  [[nodiscard]] const float* unpack(const std::byte* message) {
    if (!rounded_) return reinterpret_cast<const float*>(message);
    const auto* const from = reinterpret_cast<const BFloat16*>(message);
    std::transform(from, from + count_, scratch_.begin(), [](BFloat16 x) { return to_float(x); });
    return scratch_.data();
  }

 private:
  std::size_t count_;
  bool rounded_;
  std::vector<float> scratch_;  ///< [count], or none
};

}  // namespace dat
