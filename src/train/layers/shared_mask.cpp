#include "train/layers/shared_mask.hpp"

#include "dat/error.hpp"

namespace dat {

const ActiveSet& SharedMask::draw(std::int64_t step) {
  if (begin(step)) {
    const CallLabel label("active layers");
    p_ = selector_->probabilities();
    if (!alone_) ranks_.broadcast(p_.data(), p_.size() * sizeof(double));
    wrong_ = !draw_layers(seed_, static_cast<std::uint64_t>(step), p_, drawn_);
    active_ = drawn_;
    // The step's second message brings what the ranks find to all.
    if (!alone_) ranks_.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
    wrong_ |= drawn_.scale != active_.scale;
  }
  if (const std::vector<double>* rates = selector_->rates())
    for (std::size_t d = 0; d < rates->size(); ++d)
      updated_.scale[d] = static_cast<float>(active_.scale[d] * (*rates)[d]);
  return active_;
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
  selector_->restore(state);
}

void SharedMask::replicated(ReplicatedState& state) {
  state.host("probabilities of the layers", p_.data(), p_.size() * sizeof(double));
  state.host("active layers", active_.scale.data(), active_.scale.size() * sizeof(float));
}

}  // namespace dat
