#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dat/events/rank_or_all.hpp"

namespace dat {

/// A rank that has been banned.
struct BanRecord {
  static constexpr const char *kKind = "ban", *kTable = "bans";

  std::int64_t step = 0;
  int rank = 0;
  RankOrAll by;
  std::string rule;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("by", self.by);
    field("rule", self.rule);
  }

  [[nodiscard]] bool lasts() const { return true; }

  [[nodiscard]] static std::string summary(const std::vector<BanRecord>& all) {
    std::string text;
    for (const BanRecord& r : all)
      text += fmt::format("{:<16}rank {}, in step {}, by {}: {}\n", "banned", r.rank, r.step,
                          r.by < 0 ? "all" : fmt::format("rank {}", r.by.number), r.rule);
    return text;
  }
};

}  // namespace dat
