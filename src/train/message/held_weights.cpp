#include "train/message/held_weights.hpp"

#include <vector>

#include "copy_bits.hpp"
#include "optimizer.hpp"
#include "replica/model_state.hpp"
#include "train/message/stateful.hpp"

namespace dat {

HeldWeights::HeldWeights(Replica& replica, const char* what)
    : replica_(replica),
      model_(replica.model()),
      weights_(replica.backend().allocate_floats(floats(model_), what)),
      mean_(weights_ + model_.parameters.size),
      variance_(mean_ + model_.graph.statistics) {}

void HeldWeights::keep() {
  for_each_array([&](const float* network, float* held, std::int64_t count) {
    copy_bits(replica_.backend().device(), network, held, count);
  });
}

void HeldWeights::give() {
  for_each_array([&](float* network, const float* held, std::int64_t count) {
    copy_bits(replica_.backend().device(), held, network, count);
  });
  ++model_.parameters.version;
}

void HeldWeights::copy_to_host(float* to) const {
  replica_.backend().copy_to_host(to, weights_, static_cast<std::size_t>(memory(model_)));
}

void HeldWeights::copy_from_host(const float* from) {
  replica_.backend().copy_to_device(weights_, from, static_cast<std::size_t>(memory(model_)));
}

void HeldWeights::copy_network_to_host(const Model& model, float* to) {
  const auto copy = [&](const float* from, std::int64_t count) {
    model.backend.copy_to_host(to, from, static_cast<std::size_t>(count) * sizeof(float));
    to += count;
  };
  copy(model.parameters.values, model.parameters.size);
  copy(model.running_mean, model.graph.statistics);
  copy(model.running_variance, model.graph.statistics);
}

void HeldWeights::exchange() {
  for_each_array([&](float* network, float* held, std::int64_t count) {
    each(replica_.backend().device(), count, kernels::Exchange{network, held});
  });
  ++model_.parameters.version;
}

void HeldWeights::save(Checkpoint& checkpoint, const std::string& group) const {
  save_segments(model_, group, weights_, checkpoint);
  std::vector<float> all(static_cast<std::size_t>(floats(model_)));
  copy_to_host(all.data());
  save_statistics(model_, group, {all.begin() + model_.parameters.size, all.end()}, checkpoint);
}

void HeldWeights::restore(const Checkpoint& checkpoint, const std::string& group) {
  load_segments(checkpoint, group, model_, weights_);
  const std::vector<float> all = load_statistics(checkpoint, group, model_);
  replica_.backend().copy_to_device(mean_, all.data(), all.size() * sizeof(float));
}

void HeldWeights::share(Communicator& ranks) { share_floats(ranks, replica_.backend(), weights_, floats(model_)); }

}  // namespace dat
