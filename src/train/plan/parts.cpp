#include "train/plan/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "train/plan/plan.hpp"

namespace dat {

std::vector<int> beginnings_of_parts(const TrainOptions& options) {
  std::set<int> epochs{0};
  options.batch.add_changes(epochs);
  options.total_batch.add_changes(epochs);
  return {epochs.begin(), epochs.end()};
}

int part_at(const TrainOptions& options, std::int64_t epoch) {
  const std::vector<int> all = beginnings_of_parts(options);
  return static_cast<int>(std::upper_bound(all.begin(), all.end(), epoch) - all.begin()) - 1;
}

TrainOptions part_of(const TrainOptions& options, std::int64_t epoch) {
  TrainOptions part = options;
  part.batch = options.batch.at(epoch);
  part.total_batch = options.total_batch.at(epoch);
  if (part.micro_batch == 0) part.micro_batch = part.batch;
  if (part.attack_batch == 0) part.attack_batch = part.micro_batch;
  return part;
}

int epoch_of_largest_part(const TrainOptions& options) {
  const std::vector<int> all = beginnings_of_parts(options);
  return *std::max_element(all.begin(), all.end(), [&](int a, int b) {
    return std::pair(options.batch.at(a), options.total_batch.at(a)) <
           std::pair(options.batch.at(b), options.total_batch.at(b));
  });
}

std::string text_of_parts(const TrainOptions& options, const Mix& images, int ranks) {
  const std::vector<int> all = beginnings_of_parts(options);
  std::string text = Plan(part_of(options, 0), images, ranks).text();
  for (std::size_t k = 0; all.size() > 1 && k < all.size(); ++k) {
    const Plan plan(part_of(options, all[k]), images, ranks);
    text += fmt::format("\n  from epoch {:<6}{} images a step, {} steps an epoch", all[k], plan.images_of_a_step(),
                        plan.steps_per_epoch);
  }
  return text;
}

void put_back_parts(TrainOptions& resolved, const TrainOptions& whole, int ranks) {
  if (beginnings_of_parts(whole).size() == 1) return;
  resolved.batch = whole.batch;
  resolved.total_batch = whole.total_batch;
  resolved.micro_batch = whole.micro_batch;
  resolved.attack_batch = whole.attack_batch;
  if (!sums_are_ordered(whole) || whole.total_batch != 0) return;
  std::vector<ByEpoch<int>::Part> parts = whole.batch.parts();
  for (auto& part : parts) part.value = part.end = batch_of(part_of(whole, part.from), ranks);
  resolved.total_batch = ByEpoch<int>(std::move(parts));
  resolved.batch = 0;
}

}  // namespace dat
