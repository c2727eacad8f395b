#include "train/plan/replica_of.hpp"

#include <algorithm>

#include "dat/error.hpp"
#include "replica/gpus.hpp"
#include "train/plan/frozen.hpp"
#include "train/plan/parts.hpp"

namespace dat {

namespace {

/// Returns whether training passes see whole images: of some epoch, or of measurements that take all epochs for alike.
[[nodiscard]] bool trains_on_whole(const TrainOptions& options, const DatasetInfo& images) {
  const std::vector<int> sizes = sizes_in_part(options);
  return std::ranges::any_of(sizes, [&](int size) { return size == 0 || size == images.size; }) ||
         measures_whole_images(options);
}

}  // namespace

int ranks_on_node(Communicator& ranks, const TrainOptions& options) {
  return options.generators > 0 ? ranks.launch().node_size() : ranks.node_size();
}

BackendOptions backend_of(const MachineSettings& options, int on_node, const Communicator& ranks) {
  return {.device = options.device,
          .threads = choose_threads(options.threads, on_node),
          .node_rank = ranks.launch_node_rank(),
          .gpu = choose_gpu(ranks, options.device),
          .math = options.math,
          .deterministic = options.deterministic,
          .planning_seconds = options.planning_seconds,
          .plans = plans_file()};
}

int data_threads(const TrainOptions& options, const Backend& backend) {
  if (options.data_threads > 0) return options.data_threads;
  return backend.device().kind == DeviceKind::cpu ? 1 : backend.host_threads;
}

ReplicaOptions replica_of(const TrainOptions& options, const Plan& plan, const DatasetInfo& images, Communicator& ranks,
                          const StepMethod& method, Role role) {
  const bool attacks = role == Role::generator || options.generators == 0;
  const bool rounded = attacks && method.attack_passes == 0 && precision_without_effect(options).empty();
  const std::vector<int> batches{plan.micro_batch, plan.last_micro_batch};
  BackendOptions backend = backend_of(options, ranks_on_node(ranks, options), ranks);
  backend.graphs = options.graphs == "on";
  require(options.new_head == 0 || options.new_head == images.classes, ExitCode::usage, "--new-head ", options.new_head,
          " begins a last layer of as many classes, and the images have ", images.classes, "; give --new-head ",
          images.classes);
  ReplicaOptions all{.backend = backend,
                     .network = options.network,
                     .width = options.width,
                     .activation = options.activation,
                     .normalize = options.normalize,
                     .granularity = granularity_from(options.granularity),
                     .images = images,
                     .smaller = smaller_sizes(options, images),
                     .micro_batch = plan.micro_batch,
                     .attack_batch = options.attack_batch,
                     .attack_storage = rounded ? storage_from(options.attack_precision) : DType::f32,
                     .training_storage = storage_from(options.precision),
                     .recompute = options.recompute == "norms",
                     .trains_on_whole = trains_on_whole(options, images),
                     .needs = method.needs(),
                     .training_batches = role == Role::trainer ? batches : std::vector<int>{},
                     .noise = options.noise,
                     .noise_samples = options.noise_samples};
  all.freezing = {.segments = frozen_segments(graph_of(all, images.size), all.granularity, options.frozen()),
                  .always = options.freezes() && options.frozen_epochs() == 0 && method.attack_passes == 0};
  return all;
}

std::string precision_without_effect(const TrainOptions& options) {
  if (options.attack_precision == "f32") return "";
  const std::string what = "--attack-precision " + options.attack_precision + " has no effect: ";
  if (options.attack_bn == "train")
    return what + "attacks on batch statistics (--attack-bn train) are made on the network that is trained, in " +
           "--precision " + options.precision + "; " +
           (options.precision == options.attack_precision ? "leave it out"
                                                          : "give --precision, or add --attack-bn eval");
  const auto& parts = options.attack.parts();
  const bool none = std::ranges::all_of(parts, [](const auto& part) { return part.value == "none"; });
  return none ? what + "nothing is attacked in training; leave it out" : "";
}

std::vector<int> smaller_sizes(const TrainOptions& options, const DatasetInfo& images) {
  for (const auto& part : options.train_size.parts())
    require(part.value <= images.size, ExitCode::usage, "--train-size cuts ", part.value, " x ", part.value,
            " pixels out of images of ", images.size, " x ", images.size, "; choose at most ", images.size);
  const int last = options.train_size.last();
  require(last == 0 || last == images.size, ExitCode::usage, "--train-size ends with ", last,
          " pixels, and the network is evaluated on images of ", images.size, "; add ,", images.size, "@EPOCH to it");
  std::vector<int> smaller = sizes_in_part(options);
  std::erase_if(smaller, [&](int size) { return size == 0 || size == images.size; });
  return smaller;
}

}  // namespace dat
