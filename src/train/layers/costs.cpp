#include "train/layers/costs.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "dat/random.hpp"

namespace dat {

namespace {

/// Loads images that are drawn, as many as the program takes.
const Batch& load_noise(Replica& replica, int count, const DatasetInfo& info) {
  HostBatch batch;
  batch.count = count;
  batch.make_room(count, static_cast<std::int64_t>(info.image_bytes()));
  for (std::size_t i = 0; i < batch.pixels.size(); ++i)
    batch.pixels[i] = static_cast<std::uint8_t>(random_words(1, Purpose::synthetic_data, 0, i, 0).v[0] >> 24);
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    batch.labels[i] = static_cast<std::int32_t>(i) % info.classes;
    batch.ids[i] = static_cast<std::int64_t>(i);
  }
  return replica.images().load(batch, 0, nullptr);
}

/// Seconds per number of the sum of a long message over the ranks: the least of some.
[[nodiscard]] double seconds_of_a_sum(Communicator& ranks, std::int64_t elements) {
  constexpr std::int64_t kLongest = 8388608;
  constexpr int kRuns = 4;
  std::vector<float> message(static_cast<std::size_t>(std::min(elements, kLongest)));
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    ranks.barrier();
    const auto begin = std::chrono::steady_clock::now();
    ranks.sum(message.data(), std::ssize(message));
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least / static_cast<double>(message.size());
}

}  // namespace

std::vector<double> measure_layer_seconds(Replica& replica, const Plan& plan, const DatasetInfo& images, int passes,
                                          Communicator& ranks) {
  TrainingProgram& program = replica.training(plan.micro_batch * replica.copies());
  const Parameters& parameters = replica.model().parameters;
  const Batch& drawn = load_noise(replica, plan.micro_batch, images);
  const float* const x = replica.images().shown(drawn.clean, drawn);
  std::vector<double> seconds = program.weight_gradient_seconds(x, parameters.gradients);
  const double of_a_sum = seconds_of_a_sum(ranks, parameters.size);
  for (std::size_t d = 0; d < seconds.size(); ++d)
    seconds[d] = seconds[d] * passes * plan.micro_batches + of_a_sum * static_cast<double>(parameters.layer_sizes[d]);
  return seconds;
}

}  // namespace dat
