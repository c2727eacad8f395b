#include <algorithm>
#include <cmath>

#include "allocations.hpp"
#include "catch.hpp"
#include "device.hpp"
#include "train/trainer.hpp"

using namespace dat;

namespace {

/// Few steps of a small network on the built-in set.
[[nodiscard]] TrainOptions small_run() {
  TrainOptions options;
  options.network = "small_cnn";
  options.width = 16;
  options.batch = 16;
  options.epochs = 1;
  options.warmup_epochs = 0;
  options.attack_steps = 2;
  options.eval_attack_steps = 2;
  options.threads = 2;
  options.device = test::test_device();
  options.deterministic = true;
  return options;
}

[[nodiscard]] std::string weights_after(const TrainOptions& options, int steps) {
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  for (int k = 0; k < steps; ++k) (void)trainer.step(false);
  return trainer.weights_hash();
}

}  // namespace

TEST_CASE("a steady step allocates nothing", "[trainer][cpu]") {
  TrainOptions options = small_run();
  options.lambda = GENERATE(0.0, 1.0);
  options.attack = GENERATE("pgd", "fgsm");
  options.micro_batch = GENERATE(16, 8);
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  for (int k = 0; k < 3; ++k) (void)trainer.step(false);
  ignore_library_allocations = true;
  const std::int64_t before = allocations;
  for (int k = 0; k < 5; ++k) (void)trainer.step(false);
  const std::int64_t during = allocations - before;
  ignore_library_allocations = false;
  CHECK(during == 0);
  // The counter does see this program's allocations.
  const std::int64_t earlier = allocations;
  const std::vector<float> one(1);
  CHECK(allocations == earlier + 1);
}

TEST_CASE("the weights do not depend on overlap, message size, replica checks or the number of readers of a phase",
          "[trainer]") {
  const TrainOptions options = small_run();
  const std::string expected = weights_after(options, 4);
  TrainOptions other = options;
  other.bucket = 100;
  CHECK(weights_after(other, 4) == expected);
  other.overlap = true;
  CHECK(weights_after(other, 4) == expected);
  other = options;
  other.seed = 2;
  CHECK(weights_after(other, 4) != expected);
}

TEST_CASE("only active layers' weight gradients are computed and sent", "[trainer]") {
  TrainOptions options = small_run();
  options.budget = 4;
  options.p_min = 0.1;
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  int convolutions_left_out = 0;
  for (int k = 0; k < 12; ++k) {
    const StepRecord& record = trainer.step(false);
    std::int64_t elements = 0, convolutions = 0;
    for (const Segment& segment : trainer.model().parameters.segments) {
      const bool active = (*record.scale)[static_cast<std::size_t>(segment.layer)] != 0.0F;
      elements += active ? segment.size : 0;
      convolutions += active && segment.shape.size() == 4 ? 1 : 0;
    }
    CHECK(record.bytes_sent == 4 * elements);
    CHECK(record.active_elements == elements);
    CHECK(record.weight_gradients == convolutions);
    convolutions_left_out += 3 - static_cast<int>(convolutions);
  }
  CHECK(convolutions_left_out > 0);
}

TEST_CASE("during the warm-up all layers are active and the bandit rests", "[trainer]") {
  TrainOptions options = small_run();
  options.warmup_epochs = 1;
  options.limit_train = 0;
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  const std::vector<double> p = trainer.selector().probabilities();
  const StepRecord& record = trainer.step(false);
  CHECK(std::all_of(record.scale->begin(), record.scale->end(), [](float s) { return s == 1.0F; }));
  CHECK(trainer.selector().probabilities() == p);
}

TEST_CASE("a state captured in mid-epoch continues bit for bit", "[trainer]") {
  TrainOptions options = small_run();
  options.resample = GENERATE("step", "3", "epoch");
  options.optimizer = GENERATE("lamb", "lars", "sgd");
  const auto world = Communicator::single();
  Trainer straight(*world, options);
  straight.start();
  for (int k = 0; k < 5; ++k) (void)straight.step(false);
  const Checkpoint state = straight.capture();
  for (int k = 0; k < 4; ++k) (void)straight.step(false);

  Trainer resumed(*world, options);
  resumed.restore(state);
  resumed.share_state();
  resumed.start();
  CHECK(resumed.steps_done() == 5);
  for (int k = 0; k < 4; ++k) (void)resumed.step(false);
  CHECK(resumed.weights_hash() == straight.weights_hash());
}

TEST_CASE("a loss that is not finite ends the run before the weights are touched", "[trainer]") {
  TrainOptions options = small_run();
  options.optimizer = "sgd";
  options.lr = 1e30;
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  bool caught = false;
  try {
    for (int k = 0; k < 10; ++k) (void)trainer.step(false);
  } catch (const Error& error) {
    caught = error.code() == ExitCode::numerical;
  }
  CHECK(caught);
}
