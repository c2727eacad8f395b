#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// A rank that has become persistently slower than the others, or keeps up again.
struct StragglerRecord {
  static constexpr const char* kKind = "straggler";

  std::int64_t step = 0;
  int rank = 0;
  bool slow = false;
  double ratio = 1;    ///< the rank's time for a step, waits not counted, over the median of the others
  std::string host{};  ///< name of the host, for the sentence alone

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("slow", self.slow);
    field("ratio", self.ratio);
  }

  [[nodiscard]] std::string sentence() const {
    const std::string who = "rank " + std::to_string(rank) + " on " + host;
    return slow ? who + fmt::format(
                            " is slow: its part of a step takes {:.1f} times as long as the others', in the last steps "
                            "up to {}",
                            ratio, step)
                : who + fmt::format(" keeps up with the others again, at step {}", step);
  }

  [[nodiscard]] static std::string summary(const std::vector<StragglerRecord>& all) {
    std::string text;
    for (auto r = all.begin(); r != all.end(); ++r) {
      if (!r->slow) continue;
      const auto end = std::find_if(r, all.end(),
                                    [&](const StragglerRecord& later) { return !later.slow && later.rank == r->rank; });
      text += fmt::format("{:<16}rank {}, {:.1f} times as long as the others, from about step {}", "slow", r->rank,
                          r->ratio, r->step);
      text += end == all.end() ? "\n" : fmt::format(" to {}\n", end->step);
    }
    return text;
  }
};

}  // namespace dat
