#pragma once

#include <string>
#include <vector>

#include "assess/sequence.hpp"

namespace dat {

/// A sign that gradients mislead the attacks that follow them, so that the robust accuracy is not what was measured
/// (Athalye, Carlini, Wagner, "Obfuscated Gradients Give a False Sense of Security", ICML 2018, section 3.1).
struct Alarm {
  enum class State : std::uint8_t { not_tested, quiet, raised };
  std::string name;
  State state = State::not_tested;
  std::string text;      ///< raised: what was seen, and what to do; not tested: what would test it
  bool matters = false;  ///< true: not tested, though an attack was run whose figure it would put in doubt
};

/// Accuracy under one attack, on all images.
struct AttackFigure {
  std::string attack;
  double accuracy = 0;
};

/// - "Square beats APGD": Square breaks more than 0.2 % of all images that APGD, before it in the sequence, has left;
///   or, where each of the two attacks all images, the accuracy under Square is lower by more than 0.2 %. The limit is
///   that of the authors' code of AutoAttack (checks.py, check_square_sr).
/// - "zero gradients": the gradient of the cross-entropy, or of another loss that APGD climbs, is zero at a clean image
///   that is classified right (check_zero_gradients there). Only a sequence looks for this.
/// - "more steps of PGD": five times the steps or more leave an accuracy that is lower by more than 2 points, so the
///   shorter attack had not come to its end. The limit of 2 points is our own.
///
/// @param figures   Accuracies under attacks that were run on all images.
/// @param sequence  Result of a sequence; null: none was run.
[[nodiscard]] std::vector<Alarm> masking_alarms(const std::vector<AttackFigure>& figures,
                                                const SequenceResult* sequence);

/// "Square beats APGD: not tested; zero gradients: no; ...", for people: what was tested, and what is missing beside
/// it. Empty: nothing is to be said.
[[nodiscard]] std::string alarms_text(const std::vector<Alarm>& alarms);

}  // namespace dat
