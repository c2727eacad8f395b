#include "replica/replica.hpp"

#include <algorithm>
#include <cassert>

#include "batch/view/early_stop.hpp"
#include "batch/view/smoothed.hpp"

namespace dat {

namespace {

/// Images in a pass of the attack.
[[nodiscard]] int attack_batch_of(const ReplicaOptions& options) {
  return options.attack_batch != 0 ? std::min(options.attack_batch, options.micro_batch) : options.micro_batch;
}

/// Room for the passes of the attack over a micro-batch: a program may compute its empty places, too.
[[nodiscard]] int room_for_passes(const ReplicaOptions& options) {
  const int pass = attack_batch_of(options);
  return (options.micro_batch + pass - 1) / pass * pass;
}

}  // namespace

Graph graph_of(const ReplicaOptions& options, int size) {
  const bool own = options.activation == "auto";
  return networks().at(options.network)(
      {.width = options.width,
       .size = size,
       .channels = options.images.channels,
       .classes = options.images.classes,
       .activation = activation_from(own ? default_activation(options.network) : options.activation),
       .normalization = normalization_from(options.normalize)});
}

Replica::Replica(const ReplicaOptions& options)
    : backend_(make_backend(options.backend)),
      graph_of_size_([options](int size) { return graph_of(options, size); }),
      model_(*backend_, graph_of(options, options.images.size), options.granularity, options.freezing),
      images_(*backend_, options.images, room_for_passes(options), options.needs) {
  if (options.noise > 0) {
    // Without training and evaluations of another type there are the passes of attacks alone.
    const bool passes_alone =
        options.training_batches.empty() && (options.attack_storage == DType::f32 || !options.evaluations);
    images_.add_noise(options.noise, options.noise_samples, passes_alone ? attack_batch_of(options) : images_.capacity);
  }
  if (options.training_storage == DType::f16 && !options.training_batches.empty())
    gradient_scale_ = backend_->allocate_floats(2, "gradient scale");
  plan(options, options.images.size);
  if (options.attack_storage != DType::f32 && options.evaluations) {
    frozen_f32_ = std::make_unique<FrozenProgram>(model_, images_.capacity * copies());
    evaluated_ = objective(*frozen_f32_);
  }
  for (const int size : options.smaller) {
    images_.cut(size);
    plan(options, size);
  }
  images_.cut(0);
}

/// Programs and objective for images of the size at hand.
void Replica::plan(const ReplicaOptions& options, int size) {
  OfSize& all = *sizes_.emplace_back(std::make_unique<OfSize>());
  all.size = size;
  if (size != options.images.size) all.graph = graph_of(options, size);
  const Graph* const of = all.graph.nodes.empty() ? nullptr : &all.graph;
  const int attack_batch = attack_batch_of(options) * copies();
  all.frozen = FrozenProgram::of_sizes(
      model_, options.needs.early_stop ? early_stop_sizes(attack_batch) : std::vector{attack_batch},
      options.attack_storage, of);
  const auto add_training = [&](int n) {
    if (!all.training.contains(n))
      all.training[n] = std::make_unique<TrainingProgram>(model_, n, of, options.training_storage, gradient_scale_,
                                                          options.recompute);
  };
  const bool trained = options.trains_on_whole || size != options.images.size;
  for (const int n : trained ? options.training_batches : std::vector<int>{}) {
    add_training(n * copies());
    if (options.needs.clean_passes) add_training(n);
  }
  if (options.needs.early_stop)
    all.attacked = std::make_unique<EarlyStopView>(images_, all.frozen);
  else
    all.attacked = objective(*all.frozen.front());
  if (options.needs.clean_logits) all.attacked->allow_reference();
}

void Replica::set_gradient_scale(float scale) {
  assert(gradient_scale_ != nullptr);
  const float both[] = {scale, 1 / scale};
  backend_->copy_to_device(gradient_scale_, both, sizeof both);
}

std::unique_ptr<FrozenView> Replica::objective(FrozenProgram& program) {
  if (images_.noisy()) return std::make_unique<SmoothedView>(images_, program);
  return std::make_unique<FrozenView>(images_, program);
}

Replica::OfSize& Replica::at_hand() {
  const auto found = std::ranges::find_if(sizes_, [this](const auto& one) { return one->size == images_.layout.h; });
  require(found != sizes_.end(), ExitCode::integrity, "there is no program for images of ", images_.layout.h,
          " pixels");
  return **found;
}

double Replica::macs(int size) const { return graph_of_size_(size).macs(); }

std::vector<std::int64_t> Replica::image_floats() const {
  std::vector<std::int64_t> floats;
  for (const auto& one : sizes_)
    floats.push_back(backend_->image_layout(images_.layout.c, one->size, one->size).elements());
  return floats;
}

std::vector<int> Replica::attack_sizes() const {
  std::vector<int> sizes;
  for (const auto& program : sizes_.front()->frozen) sizes.push_back(program->n() / copies());
  return sizes;
}

}  // namespace dat
