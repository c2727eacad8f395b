#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Evaluation of the network while it is trained, and at the end. Rows and rules: src/options/train/evaluation.cpp.
struct EvaluationSettings {
  std::vector<std::string> eval = {"pgd"};  ///< attacks, as read_attack_word takes them; parsed: with their steps
  double eval_eps = 0;                      ///< 0: eps; never 0 in a parsed command
  double eval_alpha = 0;                    ///< step size; 0: the attack's own
  int eval_every = 10;                      ///< epochs; 0: only at the end
  std::int64_t patience = 0;                ///< evaluations without a better one on what is held out; 0: any number

  friend bool operator==(const EvaluationSettings&, const EvaluationSettings&) = default;
};

}  // namespace dat
