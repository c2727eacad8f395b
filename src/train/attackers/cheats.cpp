#include <algorithm>

#include "dat/cheat.hpp"
#include "dat/number.hpp"

namespace dat {

using Maker = std::unique_ptr<Cheat>(const CheatOptions&);
Maker make_alie, make_bit_flip, make_bn_poison, make_constant, make_delayed, make_equivocate, make_false_accuser,
    make_false_norm, make_false_product, make_free_rider, make_history, make_idle_validator, make_ipm01, make_ipm06,
    make_label_flip, make_leave, make_malformed, make_mimic, make_no_reveal, make_sign_flip, make_silent, make_weak,
    make_weak1, make_wrong_aggregate, make_wrong_digest;

const Registry<Maker>& cheats() {
  static const Registry<Maker> all("cheat", {{"alie", make_alie},
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
