#pragma once

#include <string>
#include <vector>

namespace dat {

/// Ranks that are made to cheat, to try defences on. Rows and rules: src/options/train/attackers.cpp.
struct AttackerSettings {
  std::vector<int> attackers;      ///< ranks of the launch; none: all are honest
  std::vector<std::string> cheat;  ///< what they do: one name for all, or one for each
  std::vector<int> cheat_from;     ///< after so many steps: one number for all, or one for each; none: 0
  int cheat_every = 1;             ///< steps from one cheating to the next
  int cheat_delay = 1000;          ///< steps by which a gradient is late

  friend bool operator==(const AttackerSettings&, const AttackerSettings&) = default;
};

}  // namespace dat
