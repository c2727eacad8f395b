#include "dat/attack_sequence.hpp"

#include <algorithm>
#include <set>

#include "dat/attack.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

[[nodiscard]] const std::vector<AttackSequence>& known_sequences() {
  static const std::vector<AttackSequence> all = {
      {"aa-standard", "AutoAttack, version standard", "", {{"apgd-ce"}, {"apgd-t"}, {"fab-t"}, {"square"}}},
      {"aa-plus",
       "AutoAttack, version plus",
       "",
       {{"apgd-ce", 5}, {"apgd-dlr", 5}, {"fab", 5}, {"square"}, {"apgd-t"}, {"fab-t"}}},
      {"aa-rand",
       "AutoAttack, version rand",
       "the network is a function of its images, so the 20 gradients that this version averages are equal, and one is "
       "computed",
       {{"apgd-ce"}, {"apgd-dlr"}}},
      {"aa-quick", "", "", {{"apgd-ce"}, {"apgd-t"}}},
  };
  return all;
}

}  // namespace

std::vector<std::string> sequence_names() {
  std::vector<std::string> names;
  for (const AttackSequence& sequence : known_sequences()) names.push_back(sequence.name);
  return names;
}

bool names_sequence(const std::string& word) { return word.starts_with("aa-") || word.find('+') != std::string::npos; }

AttackSequence read_attack_sequence(const std::string& word) {
  if (word.starts_with("aa-")) {
    std::string known;
    for (const AttackSequence& sequence : known_sequences()) {
      if (sequence.name == word) return sequence;
      known += (known.empty() ? "" : ", ") + sequence.name;
    }
    fail(ExitCode::usage, "unknown sequence of attacks '", word, "'; known: ", known);
  }
  AttackSequence sequence;
  std::set<std::string> seen;
  for (std::size_t begin = 0; begin <= word.size();) {
    const std::size_t end = std::min(word.find('+', begin), word.size());
    const AttackWord attack = read_attack_word(word.substr(begin, end - begin));
    sequence.members.push_back({attack.text(), attack.restarts});
    require(seen.insert(attack.text()).second, ExitCode::usage, "'", word, "' names ", attack.text(), " twice");
    sequence.name += (sequence.name.empty() ? "" : "+") + attack.text();
    begin = end + 1;
  }
  return sequence;
}

void require_f32(const AttackSequence& sequence, bool gpu, const std::string& math) {
  require(sequence.title.empty() || (gpu ? math == "f32" : !math.starts_with("bf16")), ExitCode::usage, "--eval ",
          sequence.name, " is for f32 alone, and --math is ", math, "; add --math f32, or take aa-quick");
}

}  // namespace dat
