#include "train/message/held_weights.hpp"

#include <vector>

#include "copy_bits.hpp"
#include "optimizer.hpp"
#include "pointwise.hpp"
#include "replica/model_state.hpp"
#include "train/message/stateful.hpp"

namespace dat {

HeldWeights::HeldWeights(Replica& replica, const char* what)
    : replica_(replica),
      model_(replica.model()),
      weights_(replica.backend().allocate_floats(model_.parameters.size, what)),
      mean_(replica.backend().allocate_floats(2 * statistics(), what)),
      variance_(mean_ + statistics()) {}

std::int64_t HeldWeights::memory(const Model& model) { return floats(model) * std::int64_t{sizeof(float)}; }

void HeldWeights::keep() {
  const auto copy = [&](const float* from, float* to, std::int64_t count) {
    copy_bits(replica_.backend().device(), from, to, count);
  };
  copy(model_.parameters.values, weights_, model_.parameters.size);
  copy(model_.running_mean, mean_, statistics());
  copy(model_.running_variance, variance_, statistics());
}

void HeldWeights::give() {
  const auto copy = [&](const float* from, float* to, std::int64_t count) {
    copy_bits(replica_.backend().device(), from, to, count);
  };
  copy(weights_, model_.parameters.values, model_.parameters.size);
  copy(mean_, model_.running_mean, statistics());
  copy(variance_, model_.running_variance, statistics());
  ++model_.parameters.version;
}

void HeldWeights::copy_to_host(float* to) const {
  const auto count = static_cast<std::size_t>(model_.parameters.size), others = static_cast<std::size_t>(statistics());
  replica_.backend().copy_to_host(to, weights_, count * sizeof(float));
  replica_.backend().copy_to_host(to + count, mean_, 2 * others * sizeof(float));
}

void HeldWeights::copy_network_to_host(Replica& replica, float* to) {
  const Model& model = replica.model();
  const auto count = static_cast<std::size_t>(model.parameters.size),
             others = static_cast<std::size_t>(model.graph.statistics);
  Backend& backend = replica.backend();
  backend.copy_to_host(to, model.parameters.values, count * sizeof(float));
  backend.copy_to_host(to + count, model.running_mean, others * sizeof(float));
  backend.copy_to_host(to + count + others, model.running_variance, others * sizeof(float));
}

void HeldWeights::copy_from_host(const float* from) {
  const auto count = static_cast<std::size_t>(model_.parameters.size), others = static_cast<std::size_t>(statistics());
  replica_.backend().copy_to_device(weights_, from, count * sizeof(float));
  replica_.backend().copy_to_device(mean_, from + count, 2 * others * sizeof(float));
}

void HeldWeights::exchange() {
  const auto swap = [&](float* a, float* b, std::int64_t count) {
    each(replica_.backend().device(), count, kernels::Exchange{a, b});
  };
  swap(model_.parameters.values, weights_, model_.parameters.size);
  swap(model_.running_mean, mean_, statistics());
  swap(model_.running_variance, variance_, statistics());
  ++model_.parameters.version;
}

void HeldWeights::save(Checkpoint& checkpoint, const std::string& group) const {
  save_segments(model_, group, weights_, checkpoint);
  std::vector<float> all(2 * static_cast<std::size_t>(statistics()));
  replica_.backend().copy_to_host(all.data(), mean_, all.size() * sizeof(float));
  save_statistics(model_, group, all, checkpoint);
}

void HeldWeights::restore(const Checkpoint& checkpoint, const std::string& group) {
  load_segments(checkpoint, group, model_, weights_);
  const std::vector<float> all = load_statistics(checkpoint, group, model_);
  replica_.backend().copy_to_device(mean_, all.data(), all.size() * sizeof(float));
}

void HeldWeights::share(Communicator& ranks) {
  share_floats(ranks, replica_.backend(), weights_, model_.parameters.size);
  share_floats(ranks, replica_.backend(), mean_, 2 * statistics());
}

}  // namespace dat
