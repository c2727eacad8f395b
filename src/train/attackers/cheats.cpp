#include "dat/cheat.hpp"

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
                {"delayed", make_delayed, {{"cheat-delay"}}},
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

}  // namespace dat
