#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// A step that was skipped because of numbers that are not finite, catastrophic overfitting, or a rollback.
struct SetbackRecord {
  static constexpr const char* kKind = "setback";
  static constexpr bool kWarns = true;

  std::int64_t step = 0;     ///< the skipped step, or the last step before the setback
  std::string event;         ///< skipped | overfitting | rollback
  std::string cause;         ///< observation that caused it
  std::int64_t to_step = 0;  ///< rollback: the run goes on after this step
  double lr_factor = 1;      ///< factor of the learning rates from here on

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("event", self.event);
    field("cause", self.cause);
    if (self.event != "rollback") return;
    field("to_step", self.to_step);
    field("lr_factor", self.lr_factor);
  }

  /// A step that was skipped may be made again.
  [[nodiscard]] bool lasts() const { return event == "rollback"; }

  [[nodiscard]] std::string sentence() const {
    return event == "rollback" ? fmt::format("back to the checkpoint of step {}, with {:g} times the learning rate: {}",
                                             to_step, lr_factor, cause)
                               : cause + (event == "skipped" ? ": the step is skipped" : "");
  }

  [[nodiscard]] static std::string summary(const std::vector<SetbackRecord>& all) {
    std::string skipped, others;
    for (const SetbackRecord& r : all) {
      if (r.event == "skipped") skipped += (skipped.empty() ? "" : ", ") + std::to_string(r.step);
      if (r.event == "overfitting") others += fmt::format("{:<16}{}\n", "overfitting", r.cause);
      if (r.event == "rollback")
        others += fmt::format("{:<16}from step {} to {}, {:g} times the learning rate: {}\n", "rollback", r.step,
                              r.to_step, r.lr_factor, r.cause);
    }
    if (!skipped.empty()) skipped = fmt::format("{:<16}{}: numbers that are not finite\n", "skipped steps", skipped);
    return skipped + others;
  }
};

}  // namespace dat
