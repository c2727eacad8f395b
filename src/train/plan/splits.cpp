#include "train/plan/splits.hpp"

#include <algorithm>

#include "dat/attack.hpp"
#include "dat/error.hpp"
#include "dat/loss.hpp"
#include "train/plan/plan.hpp"

namespace dat {

namespace {

/// Images without labels have a part in some losses only, with an attack that works without labels.
void require_labels(const TrainOptions& options, const Splits& splits) {
  require(splits.holdout == nullptr || unlabelled_images(*splits.holdout) == 0, ExitCode::usage,
          "--holdout draws from the first file, or from all of a pool, and there are images without labels; ",
          "give the labelled file first and --mix balanced:SHARE");
  const std::int64_t without = unlabelled_images(*splits.train);
  if (without == 0) return;
  require(without < splits.train->size(), ExitCode::usage,
          "no training image has a label (they are -1), so that nothing says what the classes are; give a file with ",
          "labels, too: --data LABELLED.h5 EXTRA.h5 --mix balanced:0.5");
  const char* const unlabelled = "some training images have no labels (-1)";
  require(losses().at(options.loss)({.lambda = options.lambda})->takes_unlabelled(), ExitCode::usage, unlabelled,
          ", which --loss ", options.loss, options.loss == "cross_entropy" ? " --lambda 0" : "",
          " does not take; choose trades or kl, or cross_entropy with --lambda above 0");
  const auto climbs_labels = [](const std::string& attack) { return !climbs_goal(attack) && attack != "none"; };
  require(!options.attack.any(climbs_labels), ExitCode::usage, unlabelled, ", and --attack ", options.attack.last(),
          " climbs a loss of labels; choose pgd, fgsm or none");
  require(options.attack_bn != "train" && options.attack_stop < 0, ExitCode::usage, unlabelled,
          ": their attack climbs a divergence, which wants --attack-bn eval and no --attack-stop");
}

}  // namespace

std::int64_t unlabelled_images(const Dataset& images) {
  std::int64_t count = 0;
  for_labels(images, [&](std::span<const std::int16_t> labels) {
    count += std::ranges::count_if(labels, [](int label) { return label < 0; });
  });
  return count;
}

std::string sizes_text(const Splits& splits) {
  const std::int64_t unlabelled = unlabelled_images(*splits.train);
  const std::string text =
      std::to_string(splits.train->size()) + " training and " + std::to_string(splits.test->size()) + " test images";
  return unlabelled == 0 ? text : text + ", " + std::to_string(unlabelled) + " of the training images without a label";
}

std::unique_ptr<Dataset> open_split(const TrainOptions& options, const std::string& split, int usual_size) {
  const std::string of = split == "test" ? "test" : "train";
  const std::int64_t limit = of == "test" ? options.limit_test : options.limit_train;
  // Images for figures are decoded exactly.
  const Sight sight{.size = options.size, .usual = usual_size, .fast = split == "train" && options.decode == "fast"};
  std::unique_ptr<Dataset> whole;
  if (options.data.empty()) {
    // Small enough for a first try on a few cores.
    SyntheticOptions set{.classes = 10, .size = 16, .train = 1024, .test = 256, .seed = options.seed};
    if (options.size != 0) set.size = options.size;
    auto& images = of == "test" ? set.test : set.train;
    if (limit != 0) images = std::min(images, limit);
    whole = synthetic_dataset(set, of);
  } else {
    const bool balanced = read_mix(options.mix) < 1;
    if (balanced && of == "test") return open_dataset({options.data.front()}, of, limit, sight);
    whole = open_dataset(options.data, of, balanced ? 0 : limit, sight);
    if (balanced) whole = first_of_first_file(std::move(whole), limit);
  }
  if (of == "test" || options.holdout == 0) return whole;
  const std::int64_t among = read_mix(options.mix) < 1 ? whole->first_file() : whole->size();
  return held_out(std::move(whole), among, options.holdout, options.seed, split == "train");
}

Mix mix_of(const TrainOptions& options, const Dataset& train, int ranks) {
  const double share = read_mix(options.mix);
  if (share == 1) return train.size();
  return {train.first_file(), train.size() - train.first_file(), share,
          options.micro_batch != 0 ? options.micro_batch : batch_of(options, ranks)};
}

Splits open_splits(const TrainOptions& options, bool hashed) {
  TrainOptions whole = options;
  whole.limit_test = 0;
  Splits splits{open_split(options, "train"), open_split(whole, "test"), nullptr};
  splits.test_images = splits.test->size();
  if (options.holdout != 0) splits.holdout = open_split(options, "holdout");
  if (hashed) splits.hashes = {{"train", content_hash(*splits.train)}, {"test", content_hash(*splits.test)}};
  if (hashed && splits.holdout) splits.hashes["holdout"] = content_hash(*splits.holdout);
  splits.test = first_of(std::move(splits.test), options.limit_test);
  const DatasetInfo &train = splits.train->info(), &test = splits.test->info();
  require(test.size == train.size && test.channels == train.channels && test.classes <= train.classes, ExitCode::data,
          "the test images do not fit the training images");
  require_labels(options, splits);
  return splits;
}

std::vector<std::string> label_remarks(const TrainOptions& options, const Splits& splits) {
  if (options.limit_train != 0 || options.limit_test != 0) return {};
  return class_remarks(*splits.train, splits.test.get());
}

}  // namespace dat
