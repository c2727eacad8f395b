#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/config.hpp"
#include "dat/sampler.hpp"

namespace dat {

/// A training whose batch changes by epoch (--batch, --total-batch) is made of parts. Each is planned as if the whole
/// training had its batch, and goes on from the one before as a run goes on with another number of ranks: at the same
/// place, its steps counted anew.

/// The epochs with which parts begin, in order; the first is 0.
[[nodiscard]] std::vector<int> beginnings_of_parts(const TrainOptions& options);

/// The number of the part that an epoch belongs to, from 0.
[[nodiscard]] int part_at(const TrainOptions& options, std::int64_t epoch);

/// The options of the part that an epoch belongs to: batches are single numbers.
[[nodiscard]] TrainOptions part_of(const TrainOptions& options, std::int64_t epoch);

/// Heights = widths of the images that a part is trained on, as --train-size has them; 0: the dataset's.
[[nodiscard]] std::vector<int> sizes_in_part(const TrainOptions& part);

/// Returns whether training passes see whole images beside those of --train-size: statistics of an average, costs of
/// layers.
[[nodiscard]] bool measures_whole_images(const TrainOptions& options);

/// The epoch from which on a step of a training has the most pixels, and so needs most memory.
[[nodiscard]] int epoch_of_largest_part(const TrainOptions& options);

/// Steps of all parts together.
[[nodiscard]] std::int64_t steps_of_parts(const TrainOptions& options, const Mix& images, int ranks);

/// Steps and epochs of a training, in one line. Error(usage): a part cannot be planned.
[[nodiscard]] std::string text_of_parts(const TrainOptions& options, const Mix& images, int ranks);

/// Gives options that have been resolved for one part the batches of the whole training back. With --deterministic they
/// are those of all of so many ranks.
void put_back_parts(TrainOptions& resolved, const TrainOptions& whole, int ranks);

}  // namespace dat
