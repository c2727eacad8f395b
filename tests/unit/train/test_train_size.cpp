#include "by_epoch.hpp"
#include "catch.hpp"
#include "datasets.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"

using namespace dat;
using test::bytes_on_device;

namespace {

/// The middle of all images of a set.
class MiddleOfImages final : public test::Wrapped {
 public:
  MiddleOfImages(std::unique_ptr<Dataset> of, int size) : Wrapped(std::move(of)), info_(whole->info()) {
    info_.size = size;
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    const std::vector<std::uint8_t> all = test::pixels_of(*whole, index);
    const int from = whole->info().size, first = (from - info_.size) / 2, row = info_.size * info_.channels;
    for (int y = 0; y < info_.size; ++y)
      std::copy_n(all.begin() + ((first + y) * from + first) * info_.channels, row, pixels + y * row);
  }

 private:
  DatasetInfo info_;
};

/// Three epochs of three steps, the last of which has fewer images.
[[nodiscard]] TrainOptions growing_run() {
  TrainOptions options = test::small_run();
  options.limit_train = 44;
  options.limit_test = 16;
  options.epochs = 3;
  options.train_size = test::by_epoch({{8, 0}, {11, 1}, {16, 2}});
  return options;
}

[[nodiscard]] std::string hash_after(Trainer& trainer, int steps) {
  trainer.share_state();
  trainer.start();
  for (int k = 0; k < steps; ++k) (void)trainer.step(false);
  return trainer.weights_hash();
}

}  // namespace

TEST_CASE("training on cuts of images is training on smaller images", "[trainer][sizes]") {
  TrainOptions options = growing_run();
  options.augment = "none";  // the middle is cut out
  options.attack = GENERATE("pgd", "fgsm");
  options.attack_bn = options.attack == "pgd" ? "eval" : "train";
  options.attack_stop = options.attack == "pgd" ? GENERATE(-1, 1) : -1;
  const int size = GENERATE(8, 11);
  const bool in_passes = options.attack == "pgd" && options.attack_stop < 0;
  if (in_passes) options.attack_batch = 4;
  options.train_size = test::by_epoch({{size, 0}, {16, 1}});
  Trainer cut(test::single(), options);
  CHECK(cut.replica().images().layout.h == 16);  // the dataset's, until smaller ones are loaded
  TrainOptions plain = options;
  plain.train_size = 0;
  Splits splits = open_splits(plain);
  CHECK(splits.hashes.empty());  // nobody reads all images to look at a plan
  CHECK(open_splits(plain, true).hashes.size() == 2);
  splits.train = std::make_unique<MiddleOfImages>(std::move(splits.train), size);
  splits.test = std::make_unique<MiddleOfImages>(std::move(splits.test), size);
  Trainer small(test::single(), plain, std::move(splits));
  CHECK(hash_after(cut, 3) == hash_after(small, 3));
  Trainer whole(test::single(), plain);
  CHECK(hash_after(whole, 3) != small.weights_hash());
  for (Trainer* one : {&cut, &small}) (void)one->step(false);
  CHECK(cut.weights_hash() != small.weights_hash());
  // A pass of the smaller ones, put side by side, and its gradients.
  if (in_passes)
    CHECK(bytes_on_device(cut, "images") - bytes_on_device(whole, "images") ==
          2 * 4 * 4 * cut.replica().image_floats().back());
}

TEST_CASE("evaluations and memory do not follow images that grow", "[trainer][sizes]") {
  TrainOptions options = growing_run();
  const bool batch_statistics = GENERATE(false, true);
  options.warm_start = batch_statistics ? 0 : 2;
  options.attack_bn = batch_statistics ? "train" : "eval";
  options.average = "ema";
  options.average_bn = batch_statistics ? "rebuild" : "ema";
  options.budget = 5;
  options.verify = batch_statistics ? 1 : 0;
  options.resident = batch_statistics ? "off" : "on";
  Trainer straight(test::single(), options), evaluated(test::single(), options);
  const std::int64_t bytes = bytes_on_device(straight);
  for (Trainer* one : {&straight, &evaluated}) {
    one->share_state();
    one->start();
  }
  std::vector<Checkpoint> states;
  std::vector<double> losses;
  for (int k = 0; k < 9; ++k) {
    (void)straight.step(false);
    (void)evaluated.step(false);
    const double loss = evaluated.evaluate().front().adv_loss;
    if (k != 1 && k != 2 && k != 5) continue;
    states.push_back(evaluated.capture());
    losses.push_back(loss);
  }
  CHECK(bytes_on_device(straight) == bytes);
  CHECK(evaluated.weights_hash() == straight.weights_hash());
  for (std::size_t k = 0; k < states.size(); ++k) {
    test::Resumed resumed(test::single(), options, states[k]);
    CHECK(resumed.evaluate().front().adv_loss == losses[k]);  // which has seen no smaller image
  }
}

TEST_CASE("the statistics of averaged weights are those of whole images", "[trainer][sizes]") {
  TrainOptions options = growing_run();
  options.average = "ema";
  options.average_bn = "rebuild";
  options.lr = 0;  // so the weights are the same
  options.weight_decay = 0;
  Trainer growing(test::single(), options);
  options.train_size = 0;
  Trainer whole(test::single(), options);
  std::vector<Checkpoint> states;
  for (Trainer* one : {&growing, &whole}) {
    (void)hash_after(*one, 1);
    one->complete_average();
    states.push_back(one->capture());
  }
  int compared = 0;
  for (const Checkpoint::Array& array : states[0].arrays)
    for (const Checkpoint::Array& other : states[1].arrays)
      if (array.name == other.name && array.name.starts_with("optim/average/")) {
        CHECK(array.values == other.values);
        ++compared;
      }
  CHECK(compared > 6);
}

TEST_CASE("sizes that the images do not have are refused, and a network is evaluated in theirs", "[trainer][sizes]") {
  const auto refused = [&](const ByEpoch<int>& sizes) {
    TrainOptions options = growing_run();
    options.train_size = sizes;
    return error_of([&] { Trainer(test::single(), options); });
  };
  CHECK(contains(refused(test::by_epoch({{8, 0}, {17, 1}})),
                 "2: --train-size cuts 17 x 17 pixels out of images of 16 x 16; choose at most 16"));
  for (const ByEpoch<int>& sizes :
       {test::by_epoch({{8, 0}, {15, 1}}), test::by_epoch({{8, 0}}), test::by_epoch({{16, 0}, {8, 1}})})
    CHECK(contains(refused(sizes), "add ,16@EPOCH"));
  TrainOptions options = growing_run();
  options.train_size = 16;
  Trainer same(test::single(), options);
  options.train_size = 0;
  Trainer plain(test::single(), options);
  CHECK(hash_after(same, 2) == hash_after(plain, 2));
  CHECK(bytes_on_device(same) == bytes_on_device(plain));
  options.size = 64;  // which are looked at in more chunks than gradients
  Trainer large(test::single(), options);
  CHECK(bytes_on_device(large, "checks of numbers") > bytes_on_device(plain, "checks of numbers"));
}
