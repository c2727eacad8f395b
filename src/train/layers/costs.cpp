#include "train/layers/costs.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

namespace dat {

namespace {

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
  HostBatch ramps;
  ramps.count = plan.micro_batch;
  ramps.make_room(ramps.count, static_cast<std::int64_t>(images.image_bytes()));
  std::iota(ramps.pixels.begin(), ramps.pixels.end(), std::uint8_t{0});
  const Batch& batch = replica.images().load(ramps, 0, nullptr);
  const float* const x = replica.images().shown(batch.clean, batch);
  std::vector<double> seconds = program.weight_gradient_seconds(x, parameters.gradients);
  const double of_a_sum = seconds_of_a_sum(ranks, parameters.size);
  for (std::size_t d = 0; d < seconds.size(); ++d)
    seconds[d] = seconds[d] * passes * plan.micro_batches + of_a_sum * static_cast<double>(parameters.layer_sizes[d]);
  return seconds;
}

}  // namespace dat
