// The loss scale of a training in f16: overflows, of which those in an attack alone; what it becomes, and what is kept.

#include "catch.hpp"
// Catch before the names of the device.
#include <cuda_runtime_api.h>

#include "small_run.hpp"
#include "train/trainer.hpp"

using namespace dat;
using namespace dat::test;

namespace {

using Numbers = std::vector<double>;

[[nodiscard]] TrainOptions in_f16() {
  TrainOptions options = small_run_in_f16();
  options.lr = 0.01;
  options.batch = options.micro_batch = 8;
  options.label_smoothing = 0.99;  // of the training alone, whose gradients are small then
  options.limit_train = 32;
  options.epochs = 8;
  return options;
}

/// A training, on the one rank that it has.
struct Training {
  Trainer trainer;
  explicit Training(const TrainOptions& options) : trainer(single(), options) {}
  /// That goes on from there.
  Training(const TrainOptions& options, const Checkpoint& from) : Training(options) {
    trainer.restore(from);
    trainer.share_state();
  }
  /// The step of which the network takes another scale than it should.
  void step_at(float scale) {
    trainer.replica().set_gradient_scale(scale);
    (void)trainer.step(false);
  }
  [[nodiscard]] Numbers scale() { return trainer.capture().doubles.at("loss_scale"); }
};

/// At a loss scale, after so many good steps.
[[nodiscard]] Checkpoint state_at(const Numbers& scale) {
  Checkpoint state = Training(in_f16()).trainer.capture();
  state.doubles["loss_scale"] = scale;
  return state;
}

/// Of a network whose predictions are nearly even, so that smoothed labels leave small gradients.
[[nodiscard]] Checkpoint undecided() {
  Checkpoint state = Training(in_f16()).trainer.capture();
  for (Checkpoint::Array& array : state.arrays)
    if (array.name.starts_with("param/linear."))
      for (float& value : array.values) value /= 64;
  return state;
}
/// At this scale only its attack overflows.
constexpr float kOnlyTheAttack = 0x1p30F;

}  // namespace

TEST_CASE("An overflow in the attack alone halves the loss scale and skips the step, and the run goes on in its bits",
          "[double]") {
  TrainOptions options = in_f16();
  SECTION("a step is queued ahead") {}
  SECTION("micro-batches are added up in order") { options.micro_batch = 4; }
  SECTION("PGD, call by call") {
    options.attack = "pgd";
    options.graphs = "off";
  }
  Training straight(options, undecided());
  straight.trainer.start();
  const std::string before = straight.trainer.weights_hash();
  straight.step_at(kOnlyTheAttack);
  CHECK(straight.trainer.skipped() == "in step 1 (epoch 1) an attacked image is not finite (rank 0)");
  CHECK(straight.trainer.overflowed_to() == 512);
  CHECK(straight.trainer.weights_hash() == before);
  CHECK(straight.trainer.skipped_steps().in_a_row == 0);
  CHECK(straight.scale() == Numbers{512, 0});
  Training resumed(options, straight.trainer.capture());
  resumed.trainer.start();
  for (Training* const one : {&straight, &resumed}) {
    for (int k = 0; k < 2; ++k) (void)one->trainer.step(false);
    CHECK((one->trainer.skipped().empty() && one->scale() == Numbers{512, 2}));
  }
  CHECK(straight.trainer.weights_hash() != before);
  CHECK(straight.trainer.weights_hash() == resumed.trainer.weights_hash());

  options.attack = "none";
  options.attack_bn = "eval";
  Training without(options, undecided());
  without.trainer.start();
  without.step_at(kOnlyTheAttack);
  CHECK(without.trainer.skipped().empty());
}

TEST_CASE("Gradients in f16 are as large as those in f32", "[double]") {
  TrainOptions options = in_f16();
  options.attack = "none";
  options.attack_bn = "eval";
  std::vector<Numbers> norms;
  for (const char* const precision : {"f16", "f32"}) {
    options.precision = precision;
    norms.push_back(*OneRank(options).step(false).norms);
  }
  for (std::size_t k = 0; k < norms[0].size(); ++k) CHECK(norms[0][k] == Approx(norms[1][k]).epsilon(0.2));
}

TEST_CASE("Good steps double the loss scale up to its end, and at 1 it is not to blame", "[double]") {
  TrainOptions options = in_f16();
  options.max_bad_steps = 1;
  const double last = static_cast<double>(LossScale::kSteps - 1);
  const auto after_a_step = [&](const Numbers& scale) {
    Training one(options, state_at(scale));
    one.trainer.start();
    (void)one.trainer.step(false);
    CHECK(one.trainer.skipped().empty());
    return one.scale();
  };
  CHECK(after_a_step({1024, last - 1}) == Numbers{1024, last});
  CHECK(after_a_step({1024, last}) == Numbers{2048, 0});
  CHECK(after_a_step({LossScale::kMost, last}) == Numbers{LossScale::kMost, last + 1});

  constexpr float kFarTooLarge = 0x1p100F;
  Training one(options, state_at({2, 7}));
  one.trainer.start();
  one.step_at(kFarTooLarge);
  CHECK(one.trainer.overflowed_to() == 1);
  CHECK(one.scale() == Numbers{1, 0});
  CHECK(one.trainer.skipped_steps().in_a_row == 0);
  one.step_at(kFarTooLarge);
  CHECK(one.trainer.overflowed_to() == 0);
  CHECK(one.trainer.skipped_steps().in_a_row == 1);
  const std::string before = one.trainer.weights_hash();
  CHECK(code_of([&] { one.step_at(kFarTooLarge); }) == ExitCode::numerical);
  CHECK(one.trainer.weights_hash() == before);
}

TEST_CASE("A rollback has the loss scale of its checkpoint, and a damaged one is refused", "[double]") {
  TrainOptions options = in_f16();
  Training before(options, state_at({256, 10}));
  before.trainer.start();
  for (int k = 0; k < 2; ++k) (void)before.trainer.step(false);
  const Checkpoint good = before.trainer.capture();
  before.step_at(0x1p100F);  // has been queued already, and the next one is
  CHECK(before.scale() == Numbers{256, 13});
  (void)before.trainer.step(false);
  CHECK(before.scale() == Numbers{128, 0});
  Training back(options, good);
  back.trainer.set_back(before.trainer.skipped_steps(), 0.5);
  CHECK(back.scale() == Numbers{256, 12});
  CHECK(Training(options, state_at({1, 0})).scale() == Numbers{1, 0});
  Checkpoint of_f32 = good;
  of_f32.doubles.erase("loss_scale");
  CHECK(Training(options, of_f32).scale() == Numbers{LossScale::kFirst, 0});
  for (const Numbers& wrong : {Numbers{},
                               {1024},
                               {1024, 0, 0},
                               {1000, 0},
                               {0.5, 0},
                               {-2, 0},
                               {131072, 0},
                               {1024, -1},
                               {1024, 0x1p53},
                               {std::nan(""), 0},
                               {1024, std::nan("")}}) {
    Checkpoint damaged = good;
    damaged.doubles["loss_scale"] = wrong;
    CHECK(message_of([&] { back.trainer.restore(damaged); }, ExitCode::checkpoint) ==
          "the checkpoint's loss scale is damaged");
  }
}

TEST_CASE("A loss scale that is copied from another rank is the network's", "[double]") {
  struct Copied final : ReplicatedState {
    void device(const std::string&, float*, std::int64_t) override {}
    void host(const std::string& name, void* data, std::size_t) override {
      if (name == "loss scale") *static_cast<double*>(data) = 0x1p100;
    }
    [[nodiscard]] bool writes() const override { return true; }
  };
  Training one(in_f16());
  one.trainer.start();
  Copied copied;
  one.trainer.replicated(copied);
  (void)one.trainer.step(false);
  CHECK(one.trainer.overflowed_to() == 0x1p99);
}

TEST_CASE("What is planned in 16 bits is what the device gives, and activations take half", "[double]") {
  const auto activations = [](const char* precision) {
    INFO(precision);
    TrainOptions options = in_f16();
    options.precision = precision;
    options.width = 64;
    const auto used = [] {
      std::size_t free = 0, total = 0;
      CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
      return total - free;
    };
    const std::size_t before = used();
    Training one(options);
    one.trainer.start();
    (void)one.trainer.step(false);
    std::size_t planned = 0, passes = 0, blocks = 0;
    for (const Backend::Allocation& part : one.trainer.replica().backend().allocations()) {
      planned += part.bytes;
      if (part.purpose == "activations") passes += part.bytes;
      ++blocks;
    }
    CHECK(used() - before >= planned);
    CHECK(used() - before <= planned + 1024 * blocks);
    return passes;
  };
  const std::size_t f32 = activations("f32");
  CHECK(f32 > 0);
  CHECK(10 * activations("f16") <= 6 * f32);
}
