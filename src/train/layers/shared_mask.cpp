#include "train/layers/shared_mask.hpp"

#include "dat/error.hpp"

namespace dat {

const ActiveSet& SharedMask::draw(std::int64_t step) {
  if (begin(step)) draw_all(step);
  if (const std::vector<double>* rates = selector_->rates())
    for (std::size_t d = 0; d < rates->size(); ++d)
      updated_.scale[d] = static_cast<float>(active_.scale[d] * (*rates)[d]);
  return active_;
}

void SharedMask::draw_all(std::int64_t step) {
  const auto number = static_cast<std::uint64_t>(step);
  if (alone_ || ranks_.root()) {
    p_ = selector_->probabilities();
    draw_layers(seed_, number, p_, active_);
  }
  if (alone_) return;
  const CallLabel label("active layers");
  ranks_.broadcast(p_.data(), p_.size() * sizeof(double));
  ranks_.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
  if (ranks_.root()) return;
  // The others repeat the draw. The step's second message brings what they find to all.
  wrong_ = !(probability_of_any(p_) > 0);
  if (wrong_) return;
  draw_layers(seed_, number, p_, repeated_);
  wrong_ = repeated_.scale != active_.scale;
}

void SharedMask::require_agreement() const {
  require(wrong_ranks_ == 0, ExitCode::integrity, "in step ", step_ + 1, ", ", wrong_ranks_, " of the ", ranks_.size(),
          " ranks draw other layers than rank 0 from its probabilities; the weights are those of the step before, and "
          "the last checkpoint is good: start all ranks with the same options, and suspect a node");
}

void SharedMask::save(Checkpoint& checkpoint) {
  checkpoint.doubles["selector"] = selector_->state();
  checkpoint.doubles["p"] = p_;
  checkpoint.doubles["active_scale"] = {active_.scale.begin(), active_.scale.end()};
  save_costs(checkpoint);
}

void SharedMask::share(Communicator& ranks) {
  ranks.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
  share_doubles(ranks, p_);
  std::vector<double> state = selector_->state();
  share_doubles(ranks, state);
  if (!ranks.root()) selector_->restore(state);
}

void SharedMask::replicated(ReplicatedState& state) {
  state.host("probabilities of the layers", p_.data(), p_.size() * sizeof(double));
  state.host("active layers", active_.scale.data(), active_.scale.size() * sizeof(float));
}

}  // namespace dat
