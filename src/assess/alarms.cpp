#include "assess/alarms.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "dat/attack.hpp"

namespace dat {

namespace {

constexpr double kSquareGain = 0.002, kStepsGain = 0.02;
constexpr int kMoreSteps = 5;

[[nodiscard]] std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * part);
  return text;
}

[[nodiscard]] Alarm square_alarm(const std::vector<AttackFigure>& figures, const SequenceResult* sequence) {
  std::optional<double> apgd, gain;
  const auto see = [&](const std::string& attack, double accuracy, double apgd_before) {
    if (attack == "square" && apgd) gain = std::max(gain.value_or(-1), apgd_before - accuracy);
  };
  for (const AttackFigure& figure : figures)
    if (figure.attack.starts_with("apgd")) apgd = std::min(apgd.value_or(1), figure.accuracy);
  for (const AttackFigure& figure : figures) see(figure.attack, figure.accuracy, apgd.value_or(1));
  apgd.reset();
  if (sequence != nullptr)
    for (std::size_t k = 1; k < sequence->rows.size(); ++k) {
      const SequenceResult::Row& row = sequence->rows[k];
      if (row.attack.starts_with("apgd")) apgd = row.accuracy;
      see(row.attack, row.accuracy, sequence->rows[k - 1].accuracy);
    }
  Alarm alarm{"Square beats APGD", Alarm::State::quiet, ""};
  if (!gain) return {alarm.name, Alarm::State::not_tested, "needs apgd-ce and square in --eval, or aa-standard"};
  if (*gain <= kSquareGain) return alarm;
  return {alarm.name, Alarm::State::raised,
          "Square, which asks for no gradient, breaks " + percent(*gain) +
              " of the images more than APGD: gradients mislead the attacks, and the network is less robust than "
              "measured; attack it in a way of its own"};
}

[[nodiscard]] Alarm gradient_alarm(const SequenceResult* sequence) {
  Alarm alarm{"zero gradients", Alarm::State::quiet, ""};
  if (sequence == nullptr)
    return {alarm.name, Alarm::State::not_tested, "needs a sequence in --eval, such as aa-quick"};
  for (const SequenceResult::Row& row : sequence->rows) {
    if (row.zero_gradients == 0) continue;
    alarm.state = Alarm::State::raised;
    alarm.text += (alarm.text.empty() ? "" : ", ") +
                  (&row == &sequence->rows.front() ? "the cross-entropy" : "the loss of " + row.attack) +
                  " has none at " + std::to_string(row.zero_gradients) + " of " + std::to_string(row.images) +
                  " images";
  }
  if (!alarm.text.empty())
    alarm.text += ": attacks that follow it leave these as they are, and the network is less robust than measured";
  return alarm;
}

[[nodiscard]] Alarm steps_alarm(const std::vector<AttackFigure>& figures) {
  Alarm alarm{"more steps of PGD", Alarm::State::not_tested, "needs pgd10 and pgd50 in --eval, for instance"};
  double most = kStepsGain;
  for (const AttackFigure& few : figures)
    for (const AttackFigure& many : figures) {
      const AttackWord one = read_attack_word(few.attack, 0), other = read_attack_word(many.attack, 0);
      if (!one.name.starts_with("pgd") || one.name != other.name || one.loss != other.loss ||
          other.steps < kMoreSteps * one.steps)
        continue;
      if (alarm.state == Alarm::State::not_tested) alarm = {alarm.name, Alarm::State::quiet, ""};
      if (few.accuracy - many.accuracy <= most) continue;
      most = few.accuracy - many.accuracy;
      alarm = {alarm.name, Alarm::State::raised,
               many.attack + " leaves " + percent(most) + " less than " + few.attack +
                   ": so few steps do not come to an end, and the figure of " + few.attack + " flatters the network"};
    }
  return alarm;
}

}  // namespace

std::vector<Alarm> masking_alarms(const std::vector<AttackFigure>& figures, const SequenceResult* sequence) {
  return {square_alarm(figures, sequence), gradient_alarm(sequence), steps_alarm(figures)};
}

std::string alarms_text(const std::vector<Alarm>& alarms) {
  std::string text;
  for (const Alarm& alarm : alarms) {
    const char* state = alarm.state == Alarm::State::raised  ? "YES"
                        : alarm.state == Alarm::State::quiet ? "no"
                                                             : "not tested";
    text += (text.empty() ? "" : "; ") + alarm.name + ": " + state;
  }
  return text;
}

}  // namespace dat
