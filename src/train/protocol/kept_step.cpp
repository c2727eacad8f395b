#include "train/protocol/kept_step.hpp"

#include "copy_bits.hpp"
#include "pointwise.hpp"
#include "replica/model_state.hpp"

namespace dat {

const char* const kWeights = "optim/before";
const char* const kResult = "optim/before_result";
const char* const kLayers = "before_layers";

KeptStep::KeptStep(Replica& replica)
    : replica_(replica),
      before_(replica, "weights of the step before"),
      result_(replica.backend().allocate_floats(replica.model().parameters.size, "gradient of the step before")),
      active_(ActiveSet::all(replica.model().parameters.layers())) {}

std::int64_t KeptStep::memory(const Model& model) {
  return HeldWeights::memory(model) + model.parameters.size * std::int64_t{sizeof(float)};
}

void KeptStep::keep(const ActiveSet& active, const float* result) {
  const Device& device = replica_.backend().device();
  before_.keep();
  // Numbers in place of other layers are no part of the result.
  for (const Segment& tensor : replica_.model().parameters.segments)
    if (active.active(tensor.layer))
      copy_bits(device, result + tensor.begin, result_ + tensor.begin, tensor.size);
    else
      each(device, tensor.size, kernels::Scale{before_.weights() + tensor.begin, result_ + tensor.begin, 0.0F, false});
  active_ = active;
  there_ = true;
}

void KeptStep::save(Checkpoint& checkpoint) {
  if (!there_) return;
  before_.save(checkpoint, kWeights);
  save_segments(replica_.model(), kResult, result_, checkpoint);
  checkpoint.doubles[kLayers] = {active_.scale.begin(), active_.scale.end()};
}

void KeptStep::restore(const Checkpoint& checkpoint) {
  const std::vector<double> layers = value_of(checkpoint.doubles, kLayers);
  there_ = layers.size() == active_.scale.size();
  if (!there_) return;
  before_.restore(checkpoint, kWeights);
  load_segments(checkpoint, kResult, replica_.model(), result_);
  active_.scale.assign(layers.begin(), layers.end());
}

void KeptStep::share(Communicator& ranks) {
  ranks.broadcast(&there_, sizeof there_);
  if (!there_) return;  // a run that begins has no step before
  before_.share(ranks);
  share_floats(ranks, replica_.backend(), result_, replica_.model().parameters.size);
  ranks.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
}

}  // namespace dat
