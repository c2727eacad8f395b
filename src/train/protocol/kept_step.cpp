#include "train/protocol/kept_step.hpp"

#include "byzantine/copy_bits.hpp"
#include "optimizer.hpp"
#include "pointwise.hpp"
#include "replica/model_state.hpp"

namespace dat {

namespace {
const char* const kWeights = "optim/before";
const char* const kResult = "optim/before_result";
const char* const kLayers = "before_layers";
}  // namespace

KeptStep::KeptStep(Replica& replica)
    : replica_(replica),
      model_(replica.model()),
      weights_(replica.backend().allocate_floats(model_.parameters.size, "weights of the step before")),
      result_(replica.backend().allocate_floats(model_.parameters.size, "gradient of the step before")),
      mean_(replica.backend().allocate_floats(2 * statistics(), "statistics of the step before")),
      variance_(mean_ + statistics()),
      active_(ActiveSet::all(model_.parameters.layers())) {}

std::int64_t KeptStep::memory(const Model& model) {
  return 2 * (model.parameters.size + model.graph.statistics) * std::int64_t{sizeof(float)};
}

void KeptStep::keep(const ActiveSet& active, const float* result) {
  const auto copy = [&](const float* from, float* to, std::int64_t count) {
    copy_bits(replica_.backend().device(), from, to, count);
  };
  copy(model_.parameters.values, weights_, model_.parameters.size);
  // What stands in the place of other layers is none of the result.
  for (const Segment& tensor : model_.parameters.segments)
    if (active.active(tensor.layer))
      copy(result + tensor.begin, result_ + tensor.begin, tensor.size);
    else
      each(replica_.backend().device(), tensor.size,
           kernels::Scale{weights_ + tensor.begin, result_ + tensor.begin, 0.0F, false});
  copy(model_.running_mean, mean_, statistics());
  copy(model_.running_variance, variance_, statistics());
  active_ = active;
  there_ = true;
}

void KeptStep::exchange() {
  const auto swap = [&](float* a, float* b, std::int64_t count) {
    each(replica_.backend().device(), count, kernels::Exchange{a, b});
  };
  swap(model_.parameters.values, weights_, model_.parameters.size);
  swap(model_.running_mean, mean_, statistics());
  swap(model_.running_variance, variance_, statistics());
  ++model_.parameters.version;
}

void KeptStep::save(Checkpoint& checkpoint) {
  if (!there_) return;
  save_segments(model_, kWeights, weights_, checkpoint);
  save_segments(model_, kResult, result_, checkpoint);
  std::vector<float> statistics_before(2 * static_cast<std::size_t>(statistics()));
  replica_.backend().copy_to_host(statistics_before.data(), mean_, statistics_before.size() * sizeof(float));
  save_statistics(model_, kWeights, statistics_before, checkpoint);
  checkpoint.doubles[kLayers] = {active_.scale.begin(), active_.scale.end()};
}

void KeptStep::restore(const Checkpoint& checkpoint) {
  const auto layers = checkpoint.doubles.find(kLayers);
  there_ = layers != checkpoint.doubles.end() && layers->second.size() == active_.scale.size();
  if (!there_) return;
  load_segments(checkpoint, kWeights, model_, weights_);
  load_segments(checkpoint, kResult, model_, result_);
  const std::vector<float> all = load_statistics(checkpoint, kWeights, model_);
  replica_.backend().copy_to_device(mean_, all.data(), all.size() * sizeof(float));
  active_.scale.assign(layers->second.begin(), layers->second.end());
}

void KeptStep::share(Communicator& ranks) {
  ranks.broadcast(&there_, sizeof there_);
  if (!there_) return;
  share_floats(ranks, replica_.backend(), weights_, model_.parameters.size);
  share_floats(ranks, replica_.backend(), result_, model_.parameters.size);
  share_floats(ranks, replica_.backend(), mean_, 2 * statistics());
  ranks.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
}

}  // namespace dat
