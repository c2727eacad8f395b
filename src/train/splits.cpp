#include "train/splits.hpp"

#include <algorithm>

#include "dat/error.hpp"

namespace dat {

namespace {

/// The set that a run without --data trains on: small enough for a first try on a few cores.
[[nodiscard]] SyntheticOptions built_in_set(const TrainOptions& options) {
  return {.classes = 10, .size = 16, .train = 1024, .test = 256, .seed = options.seed};
}

}  // namespace

std::unique_ptr<Dataset> open_split(const TrainOptions& options, const std::string& split) {
  const std::string of = split == "test" ? "test" : "train";
  const std::int64_t limit = of == "test" ? options.limit_test : options.limit_train;
  std::unique_ptr<Dataset> whole;
  if (options.data.empty()) {
    SyntheticOptions set = built_in_set(options);
    if (limit > 0) (of == "test" ? set.test : set.train) = std::min(of == "test" ? set.test : set.train, limit);
    whole = synthetic_dataset(set, of);
  } else {
    const bool balanced = read_mix(options.mix) < 1;
    if (balanced && of == "test") return open_dataset({options.data.front()}, of, limit);
    whole = open_dataset(options.data, of, balanced ? 0 : limit);
    if (balanced) whole = first_of_first_file(std::move(whole), limit);
  }
  if (of == "test" || options.holdout == 0) return whole;
  const std::int64_t among = read_mix(options.mix) < 1 ? whole->first_file() : whole->size();
  return held_out(std::move(whole), among, options.holdout, options.seed, split == "train");
}

Mix mix_of(const TrainOptions& options, const Dataset& train) {
  const double share = read_mix(options.mix);
  if (share == 1) return train.size();
  return {train.first_file(), train.size() - train.first_file(), share,
          options.micro_batch > 0 ? options.micro_batch : options.batch};
}

Splits open_splits(const TrainOptions& options) {
  Splits splits{open_split(options, "train"), open_split(options, "test"), nullptr};
  if (options.holdout > 0) splits.holdout = open_split(options, "holdout");
  const DatasetInfo &train = splits.train->info(), &test = splits.test->info();
  require(test.size == train.size && test.channels == train.channels && test.classes <= train.classes, ExitCode::data,
          "the test images do not fit the training images");
  return splits;
}

}  // namespace dat
