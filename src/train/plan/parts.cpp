#include "train/plan/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "train/plan/plan.hpp"

namespace dat {

std::vector<int> beginnings_of_parts(const TrainOptions& options) {
  std::set<int> epochs;
  options.batch.add_changes(epochs);
  options.total_batch.add_changes(epochs);
  const std::int64_t all = std::llround(options.warmup_epochs + options.epochs);  // what begins later never does
  std::erase_if(epochs, [all](int epoch) { return epoch >= all; });
  epochs.insert(0);
  return {epochs.begin(), epochs.end()};
}

int part_at(const TrainOptions& options, std::int64_t epoch) {
  const std::vector<int> all = beginnings_of_parts(options);
  return static_cast<int>(std::ranges::upper_bound(all, epoch) - all.begin()) - 1;
}

TrainOptions part_of(const TrainOptions& options, std::int64_t epoch) {
  TrainOptions part = options;
  const std::vector<int> all = beginnings_of_parts(options);
  const auto number = static_cast<std::size_t>(part_at(options, epoch));
  part.part_begin = all[number];
  if (number + 1 < all.size()) part.part_end = all[number + 1];
  part.batch = options.batch.at(epoch);
  part.total_batch = options.total_batch.at(epoch);
  if (part.micro_batch == 0) part.micro_batch = part.batch;
  if (part.attack_batch == 0) part.attack_batch = part.micro_batch;
  return part;
}

int epoch_of_largest_part(const TrainOptions& options) {
  constexpr int kLargest = 4096;
  const int whole = options.size != 0 ? options.size : kLargest;  // no size is larger
  const std::vector<int> all = beginnings_of_parts(options);
  std::vector<double> pixels;  // of a step
  for (const int epoch : all) {
    const TrainOptions part = part_of(options, epoch);
    const std::vector<int> sizes = sizes_in_part(part);  // 0 first, which is whole images
    const double largest = measures_whole_images(part) || sizes.front() == 0 ? whole : sizes.back();
    pixels.push_back(std::max<int>(part.batch, part.total_batch) * largest * largest);
  }
  return all[static_cast<std::size_t>(std::ranges::max_element(pixels) - pixels.begin())];
}

bool measures_whole_images(const TrainOptions& options) {
  return (options.average != "none" && options.average_bn == "rebuild") || options.budget_unit == "seconds";
}

std::vector<int> sizes_in_part(const TrainOptions& part) {
  std::set<int> sizes{part.train_size.at(part.part_begin)};
  for (const auto& one : part.train_size.parts())
    if (one.from > part.part_begin && one.from < part.part_end) sizes.insert(one.value);
  return {sizes.begin(), sizes.end()};
}

std::int64_t steps_of_parts(const TrainOptions& options, const Mix& images, int ranks) {
  std::int64_t steps = 0;
  for (const int epoch : beginnings_of_parts(options)) {
    const TrainOptions part = part_of(options, epoch);
    const Plan plan(part, images, ranks);
    steps += std::max<std::int64_t>(0, plan.end - part.part_begin * plan.steps_per_epoch);
  }
  return steps;
}

std::string text_of_parts(const TrainOptions& options, const Mix& images, int ranks) {
  const std::vector<int> all = beginnings_of_parts(options);
  const Plan first(part_of(options, all.front()), images, ranks);
  if (all.size() == 1) return first.text();
  std::string text = fmt::format("{} steps, {} epochs", steps_of_parts(options, images, ranks), first.epochs);
  if (options.warmup_epochs != 0) text += fmt::format(" ({:g} warm-up)", options.warmup_epochs);
  for (const int epoch : all) {
    const Plan plan(part_of(options, epoch), images, ranks);
    text += (epoch == 0 ? ": " : fmt::format(", from epoch {} on ", epoch)) +
            fmt::format("{} of {} images", plan.steps_per_epoch, plan.images_of_a_step());
  }
  return text + " an epoch";
}

void put_back_parts(TrainOptions& resolved, const TrainOptions& whole, int ranks) {
  resolved.part_begin = whole.part_begin;
  resolved.part_end = whole.part_end;
  if (!whole.batch.changes() && !whole.total_batch.changes()) return;
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
