#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// A rank that has left the run, which goes on without it.
struct LeftRecord {
  static constexpr const char* kKind = "left";

  int rank = 0;
  std::int64_t step = 0;  ///< steps that were done before
  std::string why;
  // For the sentence alone: where the rank ran, and how many of how many ranks go on.
  std::string host{};
  int staying = 0, ranks = 0;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("why", self.why);
  }

  [[nodiscard]] bool lasts() const { return true; }

  [[nodiscard]] std::string sentence() const {
    return fmt::format("rank {} on {} has left after step {}: {}; the run goes on with {} of {} ranks", rank, host,
                       step, why, staying, ranks);
  }

  [[nodiscard]] static std::string summary(const std::vector<LeftRecord>& all) {
    std::string text;
    for (const LeftRecord& r : all)
      text += fmt::format("{:<16}rank {}, after step {}: {}\n", "left", r.rank, r.step, r.why);
    return text;
  }

  friend bool operator==(const LeftRecord&, const LeftRecord&) = default;
};

}  // namespace dat
