#pragma once

#include <cstdint>
#include <string>

#include "dat/events/rank_or_all.hpp"

namespace dat {

/// Accusation of a rank (--byzantine). Ranks are numbered as in the launch.
struct AccusationRecord {
  static constexpr const char *kKind = "accusation", *kTable = "accusations";

  std::int64_t step = 0;
  RankOrAll by;  ///< all: all have seen it
  int rank = 0;
  std::string rule;
  bool upheld = false;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("by", self.by);
    field("rank", self.rank);
    field("rule", self.rule);
    field("upheld", self.upheld);
  }

  [[nodiscard]] bool lasts() const { return true; }
};

}  // namespace dat
