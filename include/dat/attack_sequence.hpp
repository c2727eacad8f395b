#pragma once

#include <string>
#include <vector>

namespace dat {

/// Attacks that run one after the other, each on the images that all before it have left right. The flags are those of
/// the worst case of all of them; the order matters for the cost only.
struct AttackSequence {
  struct Member {
    std::string attack;  ///< a word as in --eval: "apgd-ce", "pgd20"
    int restarts = 1;    ///< independent runs of the attack, for each of its targets
  };
  std::string name;    ///< its name in --eval: "aa-standard", or its words: "pgd20+fgsm"
  std::string title;   ///< "AutoAttack, version standard"; empty: this is not AutoAttack
  std::string remark;  ///< difference between the sequence and what its title promises; empty: none
  std::vector<Member> members;
};

/// The names of the sequences that have one, all of which begin with "aa-".
[[nodiscard]] std::vector<std::string> sequence_names();

/// Returns whether a word of --eval is a sequence: its name begins with "aa-", or there is a '+' in it.
[[nodiscard]] bool names_sequence(const std::string& word);

/// The sequence of this name. Names that begin with "aa-" are the versions of AutoAttack (Croce and Hein, "Reliable
/// evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks", ICML 2020; the authors'
/// code, github.com/fra31/auto-attack, autoattack.py, set_version), and aa-quick, the first two attacks of the standard
/// version. Other sequences are words of --eval with a '+' between them.
/// Error(usage): no such sequence or attack, or one that is named twice.
[[nodiscard]] AttackSequence read_attack_sequence(const std::string& word);

/// Refuses AutoAttack on a GPU whose products of f32 numbers are not f32. Error(usage).
void require_f32(const AttackSequence& sequence, bool gpu, const std::string& math);

}  // namespace dat
