#include <algorithm>

#include "dat/cheat.hpp"
#include "dat/number.hpp"

namespace dat {

std::unique_ptr<Cheat> make_alie(const CheatOptions&);
std::unique_ptr<Cheat> make_bit_flip(const CheatOptions&);
std::unique_ptr<Cheat> make_bn_poison(const CheatOptions&);
std::unique_ptr<Cheat> make_constant(const CheatOptions&);
std::unique_ptr<Cheat> make_delayed(const CheatOptions&);
std::unique_ptr<Cheat> make_equivocate(const CheatOptions&);
std::unique_ptr<Cheat> make_false_accuser(const CheatOptions&);
std::unique_ptr<Cheat> make_false_norm(const CheatOptions&);
std::unique_ptr<Cheat> make_false_product(const CheatOptions&);
std::unique_ptr<Cheat> make_free_rider(const CheatOptions&);
std::unique_ptr<Cheat> make_history(const CheatOptions&);
std::unique_ptr<Cheat> make_idle_validator(const CheatOptions&);
std::unique_ptr<Cheat> make_ipm01(const CheatOptions&);
std::unique_ptr<Cheat> make_ipm06(const CheatOptions&);
std::unique_ptr<Cheat> make_label_flip(const CheatOptions&);
std::unique_ptr<Cheat> make_leave(const CheatOptions&);
std::unique_ptr<Cheat> make_malformed(const CheatOptions&);
std::unique_ptr<Cheat> make_mimic(const CheatOptions&);
std::unique_ptr<Cheat> make_no_reveal(const CheatOptions&);
std::unique_ptr<Cheat> make_sign_flip(const CheatOptions&);
std::unique_ptr<Cheat> make_silent(const CheatOptions&);
std::unique_ptr<Cheat> make_weak(const CheatOptions&);
std::unique_ptr<Cheat> make_weak1(const CheatOptions&);
std::unique_ptr<Cheat> make_wrong_aggregate(const CheatOptions&);
std::unique_ptr<Cheat> make_wrong_digest(const CheatOptions&);

const Registry<std::unique_ptr<Cheat>(const CheatOptions&)>& cheats() {
  static const Registry<std::unique_ptr<Cheat>(const CheatOptions&)> all(
      "cheat", {{"alie", make_alie},
                {"bit_flip", make_bit_flip},
                {"bn_poison", make_bn_poison, {{"bn-statistics", "average"}}},
                {"constant", make_constant},
                {"delayed", make_delayed, {{"cheat:delay"}}},
                {"equivocate", make_equivocate},
                {"false_accuser", make_false_accuser},
                {"false_norm", make_false_norm},
                {"false_product", make_false_product},
                {"free_rider", make_free_rider},
                {"history", make_history},
                {"idle_validator", make_idle_validator},
                {"ipm01", make_ipm01},
                {"ipm06", make_ipm06},
                {"label_flip", make_label_flip},
                {"leave", make_leave},
                {"malformed", make_malformed},
                {"mimic", make_mimic},
                {"no_reveal", make_no_reveal},
                {"sign_flip", make_sign_flip},
                {"silent", make_silent},
                {"weak", make_weak},
                {"weak1", make_weak1},
                {"wrong_aggregate", make_wrong_aggregate},
                {"wrong_digest", make_wrong_digest}});
  return all;
}

std::optional<CheatWord> read_cheat_word(const std::string& word) {
  const std::size_t at = std::min(word.find('@'), word.size()), colon = std::min(word.find(':'), at);
  const std::size_t slash = std::min(word.find('/', at), word.size());
  CheatWord read{.name = word.substr(0, colon)};
  const auto number = [](const std::string& text, auto& value, std::int64_t low, std::int64_t high) {
    return read_number(text, value) && value >= low && value <= high;
  };
  constexpr int kMostDelay = 1'000'000;
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 60;
  const bool fits = !read.name.empty() &&
                    (colon == at || number(word.substr(colon + 1, at - colon - 1), read.delay, 1, kMostDelay)) &&
                    (at == word.size() || number(word.substr(at + 1, slash - at - 1), read.from, 0, kMostSteps)) &&
                    (slash == word.size() || number(word.substr(slash + 1), read.every, 1, 1 << 30));
  return fits ? std::optional(read) : std::nullopt;
}

}  // namespace dat
