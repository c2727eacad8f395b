#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Use of attacks: for a training's evaluations, or for the verb `eval`, which runs sequences, too.
enum class AttackUse : std::uint8_t { training, evaluation };

/// The names that words of --eval begin with.
[[nodiscard]] std::vector<std::string> single_attacks();
/// And those of sequences.
[[nodiscard]] std::vector<std::string> attacks_and_sequences();

/// Error(usage): a word of --eval that attacks nothing. For what is typed: what an earlier run has written is read.
void require_attacks(const std::vector<std::string>& words);

/// "pgd" -> "pgd10". Error(usage): an attack that is none, one named twice, or no attack at all; more sequences of
/// attacks than there may be. The message names what is meant, where that can be told.
void name_steps(std::vector<std::string>& words, AttackUse use);

/// Returns whether a word of --eval names an attack or a sequence, perhaps misspelt.
[[nodiscard]] bool may_be_attack(const std::string& word);

/// "; did you mean '--attack pgd --attack-steps 20'?" for a value of the training's --attack such as "pgd-20"; empty:
/// it is no attack with its steps.
[[nodiscard]] std::string attack_advice(const std::string& word);

}  // namespace dat
