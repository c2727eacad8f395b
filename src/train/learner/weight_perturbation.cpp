#include "train/learner/weight_perturbation.hpp"

#include <utility>

#include "copy_bits.hpp"
#include "optimizer.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

const char* const kPurpose = "weight perturbation";

/// Floats rounded up to whole groups.
[[nodiscard]] std::int64_t whole_groups(std::int64_t floats) { return kernels::groups(floats) * kernels::kGroup; }

}  // namespace

KeptBatches::KeptBatches(const Buffers& buffers, int count, int images) {
  Backend& backend = buffers.backend;
  const std::int64_t floats = count * whole_groups(images * buffers.layout.elements());
  const std::int64_t numbers = std::int64_t{count} * images;
  x_adv_ = backend.allocate_floats(floats, kPurpose);
  clean_ = backend.allocate_floats(floats, kPurpose);
  labels_ = backend.allocate_array<std::int32_t>(numbers, kPurpose);
  sample_ids_ = backend.allocate_array<std::int64_t>(numbers, kPurpose);
  all_.reserve(static_cast<std::size_t>(count));
}

void KeptBatches::keep(const Batch& batch) {
  Batch& kept = all_.emplace_back(batch);
  const std::int64_t floats = batch.n * batch.layout.elements();
  const auto copy = [&](const float* from, float* to) {
    copy_bits(batch.device, from, to, floats);
    return to;
  };
  kept.x_adv = copy(batch.x_adv, x_adv_ + floats_);
  kept.clean = copy(batch.clean, clean_ + floats_);
  floats_ += whole_groups(floats);
  kept.labels = labels_ + batch.begins_at;
  each(batch.device, batch.n, kernels::CopyWords{batch.labels, labels_ + batch.begins_at});
  kept.sample_ids = sample_ids_ + batch.begins_at;
  constexpr std::int64_t kWords = sizeof(std::int64_t) / sizeof(std::int32_t);
  each(batch.device, kWords * batch.n,
       kernels::CopyWords{reinterpret_cast<const std::int32_t*>(batch.sample_ids),
                          reinterpret_cast<std::int32_t*>(sample_ids_ + batch.begins_at)});
}

WeightPerturbation::WeightPerturbation(Communicator& ranks, const TrainOptions& options, const Plan& plan,
                                       const StepMethod& method, Replica& replica,
                                       std::unique_ptr<ExampleSource> source, const LayerSampling& layers,
                                       float* gradients, std::unique_ptr<Reducer> reducer, const SummationTree* order,
                                       PhaseTimer& timer)
    : WrappedExamples(std::move(source)),
      plan_(plan),
      replica_(replica),
      layers_(layers),
      of_epoch_(options.awp_gamma),
      reducer_(std::move(reducer)),
      statistics_(ranks, replica.model(), method.entering_statistics(), order),
      learner_(
          replica, *method.loss, plan.batch, statistics_, method.attack_passes, timer,
          [this](int segment) {
            if (reducer_) reducer_->ready(segment);
          },
          false, passes_are_alike(options)),
      table_(replica.backend(), replica.model().parameters),
      gradients_(gradients),
      kept_(replica.images(), plan.micro_batches_of(ranks.rank()), plan.micro_batch) {
  Backend& backend = replica.backend();
  const Parameters& parameters = replica.model().parameters;
  const auto segments = std::ssize(parameters.segments);
  std::vector<std::uint8_t> perturbed;
  for (const Segment& segment : parameters.segments) perturbed.push_back(segment.shape.size() > 1);
  perturbed_ = backend.allocate_array<std::uint8_t>(segments, kPurpose);
  backend.copy_to_device(perturbed_, perturbed.data(), perturbed.size());
  factors_ = backend.allocate_floats(segments, kPurpose);
  partial_ = backend.allocate_array<double>(table_.largest() * kSums, kPurpose);
  sums_ = backend.allocate_array<double>(segments * kSums, kPurpose);
  weights_ = backend.allocate_floats(parameters.size, kPurpose);
}

void WeightPerturbation::begin(std::int64_t step) {
  WrappedExamples::begin(step);
  gamma_ = of_epoch_.at(plan_.epoch_of(step));
  if (!in_force()) return;
  kept_.clear();
  given_ = 0;
  while (const Batch* batch = WrappedExamples::next()) kept_.keep(*batch);
  perturb(step);
}

const Batch* WeightPerturbation::next() {
  if (!in_force()) return WrappedExamples::next();
  if (given_ < kept_.all().size()) return &kept_.all()[given_++];
  move_to(weights_);
  return nullptr;
}

std::int64_t WeightPerturbation::bytes_sent() const {
  return WrappedExamples::bytes_sent() + (at_perturbed() ? reducer_->bytes_sent() : 0);
}

void WeightPerturbation::perturb(std::int64_t step) {
  Parameters& parameters = replica_.model().parameters;
  const ActiveSet& active = layers_.active();
  if (reducer_) reducer_->begin(layers_.brought(), step);
  for (const Batch& batch : kept_.all())
    learner_.train(batch, active, reducer_ ? reducer_->place(batch.key.unit) : gradients_);
  if (reducer_) reducer_->finish();

  const Device device = replica_.backend().device();
  chunks_ = table_.select(active);
  sum(device, chunks_, kernels::LarsSgdNorms{parameters.values, gradients_, nullptr}, partial_, sums_);
  each(device, std::ssize(parameters.segments), kernels::PerturbationFactor{sums_, perturbed_, factors_, gamma_});
  each(device, chunks_, kernels::PerturbWeights{parameters.values, gradients_, weights_, factors_});
  ++parameters.version;
}

void WeightPerturbation::move_to(const float* weights) {
  Parameters& parameters = replica_.model().parameters;
  each(replica_.backend().device(), chunks_, kernels::MoveWeights{parameters.values, weights, factors_});
  ++parameters.version;
}

void WeightPerturbation::leave() {
  if (!at_perturbed()) return;
  Parameters& parameters = replica_.model().parameters;
  each(replica_.backend().device(), chunks_, kernels::ReturnWeights{parameters.values, weights_, gradients_, factors_});
  ++parameters.version;
}

}  // namespace dat
