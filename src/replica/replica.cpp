#include "replica/replica.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "replica/attack_stop.hpp"

namespace dat {

int choose_threads(int wanted, int ranks_on_node) {
  if (wanted > 0) return wanted;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int mine = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  const int all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  // Bound to some cores: they are this rank's alone. Not bound: all ranks of the node share what there is.
  return std::max(1, mine < all ? mine : all / std::max(1, ranks_on_node));
}

namespace {

/// Images in a pass of the attack.
[[nodiscard]] int attack_batch_of(const ReplicaOptions& options) {
  return options.attack_batch > 0 ? std::min(options.attack_batch, options.micro_batch) : options.micro_batch;
}

/// Room for the passes of the attack over a micro-batch: a program may compute its empty places, too.
[[nodiscard]] int room_for_passes(const ReplicaOptions& options) {
  const int pass = attack_batch_of(options);
  return (options.micro_batch + pass - 1) / pass * pass;
}

}  // namespace

Replica::Replica(const ReplicaOptions& options)
    : backend_(make_backend(options.backend)),
      model_(*backend_,
             networks().at(options.network)({.width = options.width,
                                             .size = options.images.size,
                                             .channels = options.images.channels,
                                             .classes = options.images.classes,
                                             .activation = activation_from(options.activation),
                                             .normalization = normalization_from(options.normalize)}),
             options.granularity),
      images_(*backend_, options.images, room_for_passes(options), options.scratch_images, options.start_kept) {
  const int attack_batch = attack_batch_of(options);
  frozen_ =
      FrozenProgram::of_sizes(model_, options.attack_stop ? attack_stop_sizes(attack_batch) : std::vector{attack_batch},
                              options.attack_storage);
  if (options.attack_storage != DType::f32) frozen_f32_ = std::make_unique<FrozenProgram>(model_, images_.capacity);
  for (const int n : options.training_batches)
    if (!training_.contains(n)) training_[n] = std::make_unique<TrainingProgram>(model_, n);
  if (options.attack_stop)
    attacked_ = std::make_unique<AttackStopObjective>(images_, frozen_);
  else
    attacked_ = std::make_unique<FrozenObjective>(images_, *frozen_.front());
  if (options.attack_reference) attacked_->allow_reference();
  if (frozen_f32_) evaluated_ = std::make_unique<FrozenObjective>(images_, *frozen_f32_);
}

std::vector<int> Replica::attack_sizes() const {
  std::vector<int> sizes;
  for (const auto& program : frozen_) sizes.push_back(program->n());
  return sizes;
}

}  // namespace dat
