#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Silent corruption that the run has gone on from.
struct CorruptionRecord {
  static constexpr const char* kKind = "corruption";
  static constexpr bool kWarns = true;

  std::int64_t step = 0;
  int rank = -1;     ///< the guilty rank; -1: nobody can say
  std::string what;  ///< parts that were wrong: "weights, running means", "gradient of micro-batch 3 of rank 1"
  std::string done;  ///< reaction
  std::string text;  ///< the whole record as a sentence, for people

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("what", self.what);
    field("done", self.done);
  }

  [[nodiscard]] std::string sentence() const { return text; }

  [[nodiscard]] static std::string summary(const std::vector<CorruptionRecord>& all) {
    std::string lines;
    for (std::size_t k = 0; k < all.size(); ++k)
      lines += fmt::format("{:<16}{} of {}: step {}, {}{}; {}\n", "corruption", k + 1, all.size(), all[k].step,
                           all[k].rank >= 0 ? fmt::format("rank {}, ", all[k].rank) : "", all[k].what, all[k].done);
    return lines;
  }
};

}  // namespace dat
