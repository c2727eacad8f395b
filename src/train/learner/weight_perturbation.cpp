#include "train/learner/weight_perturbation.hpp"

#include <utility>

#include "move_weights.hpp"
#include "optimizer.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// Of so many floats, in whole groups: what lies behind them is aligned as kernels expect it of images.
[[nodiscard]] std::int64_t whole_groups(std::int64_t floats) { return kernels::groups(floats) * kernels::kGroup; }

}  // namespace

WeightPerturbation::WeightPerturbation(Communicator& ranks, const TrainOptions& options, const Plan& plan,
                                       const Loss& loss, Replica& replica, std::unique_ptr<ExampleSource> source,
                                       const LayerSampling& layers, float* gradients, std::unique_ptr<Reducer> reducer,
                                       const SummationTree* order, PhaseTimer& timer)
    : WrappedExamples(std::move(source)),
      plan_(plan),
      replica_(replica),
      layers_(layers),
      gamma_(options.awp_gamma),
      from_(options.awp_from),
      reducer_(std::move(reducer)),
      statistics_(ranks, replica.model(), static_cast<int>(loss.passes().size()), true, order),
      learner_(replica, loss, plan.batch, statistics_, 0, timer,
               [this](int segment) {
                 if (reducer_) reducer_->ready(segment);
               }),
      table_(replica.backend(), replica.model().parameters),
      gradients_(gradients) {
  Backend& backend = replica.backend();
  const Parameters& parameters = replica.model().parameters;
  const char* const purpose = "weight perturbation";
  const auto segments = std::ssize(parameters.segments);
  std::vector<std::uint8_t> perturbed;
  for (const Segment& segment : parameters.segments) perturbed.push_back(segment.shape.size() > 1 ? 1 : 0);
  perturbed_ = static_cast<std::uint8_t*>(backend.allocate(perturbed.size(), purpose));
  backend.copy_to_device(perturbed_, perturbed.data(), perturbed.size());
  factors_ = backend.allocate_floats(segments, purpose);
  const auto sums = [&](std::int64_t count) {
    return static_cast<double*>(backend.allocate(static_cast<std::size_t>(count * kSums) * sizeof(double), purpose));
  };
  partial_ = sums(table_.largest());
  sums_ = sums(segments);
  weights_ = backend.allocate_floats(parameters.size, purpose);
  const std::int64_t floats =
      plan.batch / plan.micro_batch * whole_groups(plan.micro_batch * replica.images().layout.elements());
  attacked_ = backend.allocate_floats(floats, purpose);
  clean_ = backend.allocate_floats(floats, purpose);
  labels_ = static_cast<std::int32_t*>(
      backend.allocate(static_cast<std::size_t>(plan.batch) * sizeof(std::int32_t), purpose));
  ids_ = static_cast<std::int64_t*>(
      backend.allocate(static_cast<std::size_t>(plan.batch) * sizeof(std::int64_t), purpose));
  kept_.reserve(static_cast<std::size_t>(plan.batch / plan.micro_batch));
}

void WeightPerturbation::begin(std::int64_t step) {
  WrappedExamples::begin(step);
  in_force_ = plan_.epoch_of(step) >= from_;
  if (!in_force_) return;
  keep_examples();
  perturb(step);
}

const Examples* WeightPerturbation::next() {
  if (!in_force_) return WrappedExamples::next();
  if (given_ < kept_.size()) return &kept_[given_++];
  move_to(weights_);
  return nullptr;
}

std::int64_t WeightPerturbation::bytes_sent() const {
  return WrappedExamples::bytes_sent() + (at_perturbed() ? reducer_->bytes_sent() : 0);
}

/// All of the step's examples, in memory of their own.
void WeightPerturbation::keep_examples() {
  const Device device = replica_.backend().device();
  const std::int64_t image = replica_.images().layout.elements();
  kept_.clear();
  given_ = 0;
  std::int64_t at = 0;
  while (const Examples* examples = WrappedExamples::next()) {
    Examples& kept = kept_.emplace_back(*examples);
    const std::int64_t floats = kept.count * image;
    const auto copy = [&](const float* from, float* to) {
      each(device, kernels::groups(floats), kernels::Add<float>{from, nullptr, to, floats});
      return to;
    };
    kept.attacked = copy(examples->attacked, attacked_ + at);
    kept.clean = copy(examples->clean, clean_ + at);
    at += whole_groups(floats);
    kept.labels = labels_ + kept.first;
    each(device, kept.count, kernels::CopyWords{examples->labels, labels_ + kept.first});
    if (examples->ids == nullptr) continue;
    kept.ids = ids_ + kept.first;
    each(device, 2 * std::int64_t{kept.count},
         kernels::CopyWords{reinterpret_cast<const std::int32_t*>(examples->ids),
                            reinterpret_cast<std::int32_t*>(ids_ + kept.first)});
  }
}

void WeightPerturbation::perturb(std::int64_t step) {
  Parameters& parameters = replica_.model().parameters;
  const ActiveSet& active = layers_.active();
  if (reducer_) reducer_->begin(layers_.brought(), step);
  for (const Examples& examples : kept_)
    learner_.train(examples, active, reducer_ ? reducer_->place(examples.unit) : gradients_);
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

void WeightPerturbation::enter() {
  if (at_perturbed()) move_to(gradients_);
}

void WeightPerturbation::leave() {
  if (!at_perturbed()) return;
  Parameters& parameters = replica_.model().parameters;
  each(replica_.backend().device(), chunks_, kernels::ReturnWeights{parameters.values, weights_, gradients_, factors_});
  ++parameters.version;
}

}  // namespace dat
