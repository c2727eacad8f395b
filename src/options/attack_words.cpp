#include "options/attack_words.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "dat/attack.hpp"
#include "dat/attack_sequence.hpp"
#include "dat/error.hpp"
#include "dat/options/attack.hpp"
#include "options/values/hints.hpp"
#include "options/values/value.hpp"

namespace dat {

namespace {

/// The characters that are of this kind, in small letters.
std::string only(int (*is)(int), const std::string& word) {
  std::string all = lower_case(word);
  std::erase_if(all, [&](char c) { return is(static_cast<unsigned char>(c)) == 0; });
  return all;
}

/// "AutoAttack", "auto-attack", "aa", "autoattack_standard".
bool means_autoattack(const std::string& word) {
  const std::string letters = only(std::isalpha, word);
  return letters == "aa" || letters.starts_with("autoattack");
}

bool can_be_read(const std::string& word) {
  try {
    (void)read_attack_word(word);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The word of --eval that is meant: in small letters, the number of steps at the attack's name, the name the nearest
/// one. Empty: nobody knows.
std::string meant_by(const std::string& word) {
  if (const std::size_t plus = word.find('+'); plus != std::string::npos) {
    const std::string first = meant_by(word.substr(0, plus)), rest = meant_by(word.substr(plus + 1));
    return first.empty() || rest.empty() ? "" : first + "+" + rest;
  }
  std::string text = lower_case(word), plain;
  std::ranges::replace(text, '_', '-');
  for (std::size_t i = 0; i < text.size(); ++i)  // a string ends with a zero
    if (text[i] != '-' || std::isdigit(static_cast<unsigned char>(text[i + 1])) == 0) plain += text[i];
  if (is_one_of(plain, sequence_names()) || can_be_read(plain)) return plain;
  const std::size_t digits = std::min(plain.find_first_of("0123456789"), plain.size());
  const std::string other = nearest(plain.substr(0, digits), attacks().names()) + plain.substr(digits);
  return other.starts_with("none") || !can_be_read(other) ? "" : other;
}

/// A training looks at its network again and again; a sequence takes hours.
[[noreturn]] void refuse_sequence(const std::string& word, const std::string& sequence) {
  fail(ExitCode::usage, "--eval ", word,
       " is a sequence of attacks, which the verb eval runs on a finished network: ", "dat_hpc eval RUN --eval ",
       sequence, "; take single attacks here, such as pgd20 or apgd-ce");
}

/// Says what is known of a word that cannot be read, beside `reason`.
[[noreturn]] void refuse(const std::string& word, AttackUse use, const std::string& reason) {
  const bool autoattack = means_autoattack(word);
  const std::string meant = autoattack ? "aa-standard" : meant_by(word);
  if (use == AttackUse::training && names_sequence(meant)) refuse_sequence(word, meant);
  require(!autoattack, ExitCode::usage, "--eval has no attack '", word,
          "'; AutoAttack is called aa-standard here; there are ", joined(sequence_names(), ", "),
          ", of which aa-quick is the first two attacks");
  const std::string guess = meant.empty() ? "" : "; did you mean '" + meant + "'?";
  require(guess.empty() || only(std::isalnum, meant) != only(std::isalnum, word), ExitCode::usage,
          "--eval has no attack '", word, "'", guess);
  fail(ExitCode::usage, "--eval: ", reason, guess);
}

}  // namespace

std::vector<std::string> single_attacks() {
  std::vector<std::string> names = attacks().names();
  std::erase(names, "none");
  return names;
}

std::vector<std::string> attacks_and_sequences() {
  std::vector<std::string> names = single_attacks();
  for (const std::string& sequence : sequence_names()) names.push_back(sequence);
  return names;
}

void require_attacks(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    require(lower_case(word) != "none", ExitCode::usage, "--eval ", word,
            " would attack nothing; the accuracy on clean ",
            "images is told in any case, so name an attack: pgd20, for instance, or fgsm, which is quick");
}

void name_steps(std::vector<std::string>& words, AttackUse use) {
  require(!words.empty(), ExitCode::usage, "--eval names no attack; take pgd10, for instance");
  std::set<std::string> seen;
  int sequences = 0;
  for (std::string& word : words) {
    try {
      if (!names_sequence(word))
        word = read_attack_word(word).text();
      else if (use == AttackUse::evaluation)
        word = read_attack_sequence(word).name;
    } catch (const Error& error) {
      refuse(word, use, error.what());
    }
    if (names_sequence(word)) {
      if (use == AttackUse::training) refuse_sequence(word, word);
      require(
          ++sequences <= 1, ExitCode::usage,
          "--eval names two sequences of attacks; evaluate them one after the other, each with an --out of its own");
    }
    require(seen.insert(word).second, ExitCode::usage, "--eval names ", word, " twice");
  }
}

bool may_be_attack(const std::string& word) { return means_autoattack(word) || !meant_by(word).empty(); }

std::string attack_advice(const std::string& word) {
  const std::string meant = meant_by(word);
  const std::size_t digits = std::min(meant.find_first_of("0123456789"), meant.size());
  if (digits == meant.size() || !meant.starts_with("pgd") ||
      meant.find_first_not_of("0123456789", digits) != std::string::npos)
    return "";
  return "; did you mean '--attack " + meant.substr(0, digits) + " --attack-steps " + meant.substr(digits) + "'?";
}

AttackSettings AttackSettings::in_epoch(std::int64_t epoch) const {
  AttackSettings now = *this;
  now.attack = attack.at(epoch);
  now.attack_steps = attack_steps.at(epoch);
  now.eps = eps.at(epoch);
  now.alpha = alpha.at(epoch);
  return now;
}

std::vector<int> AttackSettings::epochs_of_change() const {
  std::set<int> epochs{0};
  attack.add_changes(epochs);
  attack_steps.add_changes(epochs);
  eps.add_changes(epochs);
  alpha.add_changes(epochs);
  return {epochs.begin(), epochs.end()};
}

}  // namespace dat
