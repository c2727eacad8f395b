#include "train/watch/loss_scale.hpp"

#include <cmath>

#include "dat/error.hpp"

namespace dat {

constexpr const char* kName = "loss_scale";

void LossScale::set(double scale) {
  changed_ = changed_ || scale != scale_;
  scale_ = scale;
  replica_.set_gradient_scale(static_cast<float>(scale));
}

void LossScale::good_step() {
  if (++good_steps_ < kSteps || scale_ >= kMost) return;
  good_steps_ = 0;
  set(2 * scale_);
}

bool LossScale::overflow() {
  good_steps_ = 0;
  if (scale_ <= 1) return false;
  set(scale_ / 2);
  return true;
}

void LossScale::save(Checkpoint& checkpoint) { checkpoint.doubles[kName] = {scale_, static_cast<double>(good_steps_)}; }

void LossScale::restore(const Checkpoint& checkpoint) {
  const auto found = checkpoint.doubles.find(kName);
  if (found == checkpoint.doubles.end()) return;  // a run that was not in f16
  const std::vector<double>& values = found->second;
  int exponent{};
  require(values.size() == 2 && values[0] >= 1 && values[0] <= kMost && std::frexp(values[0], &exponent) == 0.5 &&
              values[1] >= 0 && values[1] < 0x1p53,
          ExitCode::checkpoint, "the checkpoint's loss scale is damaged");
  scale_ = values[0];  // the network has it from share(), before anything is queued
  good_steps_ = static_cast<std::int64_t>(values[1]);
}

void LossScale::share(Communicator& ranks) {
  ranks.broadcast(&scale_, sizeof scale_);
  ranks.broadcast(&good_steps_, sizeof good_steps_);
  set(scale_);
}

void LossScale::replicated(ReplicatedState& state) {
  state.host("loss scale", &scale_, sizeof scale_);
  state.host("good steps at this loss scale", &good_steps_, sizeof good_steps_);
  if (state.writes()) set(scale_);
}

}  // namespace dat
