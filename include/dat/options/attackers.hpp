#pragma once

#include <string>
#include <vector>

namespace dat {

/// Ranks that are made to cheat, to try defences on. Rows and rules: src/options/train/attackers.cpp.
struct AttackerSettings {
  std::vector<int> attackers;      ///< ranks of the launch; none: all are honest
  std::vector<std::string> cheat;  ///< cheats, as read_cheat_word() takes them: one for all, or one for each

  friend bool operator==(const AttackerSettings&, const AttackerSettings&) = default;
};

}  // namespace dat
