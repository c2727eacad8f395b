#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// A step in f16 that was skipped because its numbers were not finite, and the loss scale was lowered for it.
struct OverflowRecord {
  static constexpr const char* kKind = "overflow";

  std::int64_t step = 0;  ///< the skipped step
  double scale = 1;       ///< loss scale from this step on
  std::string cause;      ///< observation that caused it

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("scale", self.scale);
    field("cause", self.cause);
  }

  [[nodiscard]] std::string sentence() const {
    return fmt::format("{}: the step is skipped, and the loss scale is {:g} from here on", cause, scale);
  }

  [[nodiscard]] static std::string summary(const std::vector<OverflowRecord>& all) {
    if (all.empty()) return "";
    return fmt::format("{:<16}{} in f16, the last one in step {}; the loss scale was {:g} from there on\n", "overflows",
                       all.size(), all.back().step, all.back().scale);
  }
};

}  // namespace dat
