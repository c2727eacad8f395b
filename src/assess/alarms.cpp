#include "assess/alarms.hpp"

#include <algorithm>
#include <optional>

#include "dat/attack.hpp"
#include "dat/report.hpp"

namespace dat {

namespace {

constexpr double kSquareGain = 0.002, kStepsGain = 0.02;
constexpr int kMoreSteps = 5;

/// Returns whether a word names Square, with however many restarts.
[[nodiscard]] bool is_square(const std::string& word) { return read_attack_word(word).name == "square"; }

[[nodiscard]] Alarm square_alarm(const std::vector<AttackFigure>& figures, const SequenceResult* sequence) {
  // Figures of all attacks that climb a gradient alike; in a sequence after others, which makes them no worse than they
  // are alone.
  std::optional<double> apgd, gain;
  const auto see = [&](double before, double square) { gain = std::max(gain, std::optional(before - square)); };
  if (sequence != nullptr)
    for (std::size_t k = 1; k < sequence->rows.size(); ++k) {
      const SequenceResult::Row& row = sequence->rows[k];
      if (row.attack.starts_with("apgd")) apgd = row.accuracy;
      if (is_square(row.attack) && apgd) see(sequence->rows[k - 1].accuracy, row.accuracy);
    }
  for (const AttackFigure& figure : figures)
    if (figure.attack.starts_with("apgd")) apgd = std::min(apgd.value_or(figure.accuracy), figure.accuracy);
  for (const AttackFigure& figure : figures)
    if (is_square(figure.attack) && apgd) see(*apgd, figure.accuracy);
  Alarm alarm{"Square beats APGD", Alarm::State::quiet, ""};
  if (!gain)
    return {alarm.name, Alarm::State::not_tested, "needs apgd-ce and square in --eval, or aa-standard",
            apgd.has_value()};
  if (*gain <= kSquareGain) return alarm;
  return {alarm.name, Alarm::State::raised,
          "Square, which asks for no gradient, breaks " + percent_text(*gain) +
              " of the images more than APGD: gradients mislead the attacks, and the network is less robust than "
              "measured; attack it in a way of its own"};
}

[[nodiscard]] Alarm gradient_alarm(const SequenceResult* sequence) {
  const std::string name = "zero gradients";
  if (sequence == nullptr) return {name, Alarm::State::not_tested, "needs a sequence in --eval, such as aa-quick"};
  std::string there;
  for (const SequenceResult::Row& row : sequence->rows)
    if (row.zero_gradients != 0)
      there += (there.empty() ? "" : ", ") +
               (&row == &sequence->rows.front() ? "the cross-entropy" : "the loss of " + row.attack) + " has none at " +
               std::to_string(row.zero_gradients) + " of " + std::to_string(row.images) + " images";
  if (there.empty()) return {name, Alarm::State::quiet, ""};
  return {name, Alarm::State::raised,
          there + ": attacks that follow it leave these as they are, and the network is less robust than measured"};
}

/// Returns whether these are the same attack, the second with many more steps and no more restarts.
[[nodiscard]] bool more_steps(const std::string& few, const std::string& many) {
  const AttackWord one = read_attack_word(few), other = read_attack_word(many);
  return one.name.starts_with("pgd") && one.name == other.name && one.loss == other.loss &&
         one.restarts >= other.restarts && other.steps >= kMoreSteps * one.steps;
}

[[nodiscard]] Alarm steps_alarm(const std::vector<AttackFigure>& figures, const SequenceResult* sequence) {
  Alarm alarm{"more steps of PGD", Alarm::State::not_tested, "needs pgd10 and pgd50 in --eval, for instance"};
  double most = kStepsGain;
  const auto see = [&](const std::string& few, const std::string& many, double gain) {
    if (alarm.state == Alarm::State::not_tested) alarm = {alarm.name, Alarm::State::quiet, ""};
    if (gain <= most) return;
    most = gain;
    alarm = {alarm.name, Alarm::State::raised,
             many + " leaves " + percent_text(most) + " less than " + few +
                 ": so few steps do not come to an end, and the figure of " + few + " flatters the network"};
  };
  for (const AttackFigure& few : figures)
    for (const AttackFigure& many : figures)
      if (more_steps(few.attack, many.attack)) see(few.attack, many.attack, few.accuracy - many.accuracy);
  // Lower bound of the difference: the images that the longer one breaks after the shorter one.
  if (sequence != nullptr)
    for (std::size_t k = 2; k < sequence->rows.size(); ++k)
      for (std::size_t j = 1; j < k; ++j) {
        const SequenceResult::Row &few = sequence->rows[j], &many = sequence->rows[k];
        if (more_steps(few.attack, many.attack))
          see(few.attack, many.attack, sequence->rows[k - 1].accuracy - many.accuracy);
      }
  return alarm;
}

}  // namespace

std::vector<Alarm> masking_alarms(const std::vector<AttackFigure>& figures, const SequenceResult* sequence) {
  return {square_alarm(figures, sequence), gradient_alarm(sequence), steps_alarm(figures, sequence)};
}

std::string alarms_text(const std::vector<Alarm>& alarms) {
  std::string text;
  for (const Alarm& alarm : alarms) {
    if (alarm.state == Alarm::State::not_tested && !alarm.matters) continue;
    const char* state = alarm.state == Alarm::State::raised  ? "YES"
                        : alarm.state == Alarm::State::quiet ? "no"
                                                             : "not tested";
    text += (text.empty() ? "" : "; ") + alarm.name + ": " + state;
  }
  return text;
}

}  // namespace dat
