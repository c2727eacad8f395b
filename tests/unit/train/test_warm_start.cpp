#include "catch.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "warm_start_case.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr int kSize = 7, kChannels = 3;
constexpr std::int64_t kImage = kSize * kSize * kChannels, kNever = 1 << 20;

struct Fixture {
  explicit Fixture(std::int64_t reset_steps = kNever, std::int64_t samples = 10)
      : backend(test_backend()),
        stage(*backend, backend->image_layout(kChannels, kSize, kSize), 8),
        warm(single(), *backend,
             {.samples = samples, .layout = stage.layout, .micro_batch = 8, .reset_steps = reset_steps}) {}

  /// Where the attacks on these samples start; they are made, and their results kept.
  std::vector<float> attack(const std::vector<std::int64_t>& ids, std::uint32_t epoch, std::int64_t step = 1,
                            int before = 0) {
    stage.show(ids, epoch);
    std::vector<std::int64_t> batch(static_cast<std::size_t>(before), 0);
    batch.insert(batch.end(), ids.begin(), ids.end());
    CHECK(warm.load(stage, Stage::kEps, stage.crops, batch_of(batch, batch), before, step) ==
          0);  // one rank sends nothing
    CHECK(stage.start == stage.eta);
    const auto start = stage.etas();
    stage.attack();
    warm.keep(stage, Stage::kEps, stage.crops);
    return start;
  }
  /// The same, and whether they start at random.
  bool random(const std::vector<std::int64_t>& ids, std::uint32_t epoch, std::int64_t step = 1, int before = 0) {
    const auto start = attack(ids, epoch, step, before);
    return start == stage.random_start();
  }

  std::unique_ptr<Backend> backend;
  Stage stage;
  WarmStart warm;
};

/// Calls f(at of sample k's pixel in this epoch, at of the same pixel in the epoch before or -1) for all of them.
template <class F>
void for_each_pixel(const std::vector<std::int64_t>& ids, std::uint32_t epoch, const Layout& layout, F&& f) {
  for (std::size_t k = 0; k < ids.size(); ++k) {
    const Crop now = Stage::crop(ids[k], epoch), then = Stage::crop(ids[k], epoch - 1);
    for (int y = 0; y < kSize; ++y)
      for (int x = 0; x < kSize; ++x)
        for (int c = 0; c < kChannels; ++c) {
          const int from_y = y + now.top, from_x = (now.flip != 0 ? kSize - 1 - x : x) + now.left;
          const bool inside = from_y >= 0 && from_y < kSize && from_x >= 0 && from_x < kSize;
          const int then_y = from_y - then.top, cut = from_x - then.left,
                    then_x = then.flip != 0 ? kSize - 1 - cut : cut;
          const bool seen = inside && then_y >= 0 && then_y < kSize && then_x >= 0 && then_x < kSize;
          const auto n = static_cast<std::int64_t>(k);
          f(static_cast<std::size_t>(layout.offset(n, c, y, x)), seen ? layout.offset(n, c, then_y, then_x) : -1);
        }
  }
}

}  // namespace

TEST_CASE("An attack starts where the last one on the sample ended, seen through this epoch's crop, else at random",
          "[trainer]") {
  Fixture f;
  const std::vector<std::int64_t> ids = {4, 9, 0, 7};
  CHECK(f.random(ids, 1));
  const auto x = f.stage.x, x_adv = f.stage.perturbed;
  const auto start = f.attack(ids, 2);
  const auto random = f.stage.random_start();
  std::int64_t known = 0, unknown = 0;
  for_each_pixel(ids, 2, f.stage.layout, [&](std::size_t at, std::int64_t then) {
    if (then < 0) {
      REQUIRE(start[at] == random[at]);
      ++unknown;
      return;
    }
    ++known;
    const double left = double(x_adv[static_cast<std::size_t>(then)]) - x[static_cast<std::size_t>(then)];
    const double inside = std::clamp(left, -double(f.stage.x[at]), 1 - double(f.stage.x[at]));
    REQUIRE(std::abs(start[at] - inside) <= Stage::kEps / 254 * 1.001);
  });
  CHECK((known > 100 && unknown > 100));
  // Other samples know nothing of it.
  CHECK(f.random({1, 2}, 2));
}

TEST_CASE("What a crop cuts off keeps its old perturbation", "[trainer]") {
  Fixture f;
  // Epochs until every pixel was seen; then none starts at random but the padding.
  const std::vector<std::int64_t> ids = {3};
  for (std::uint32_t epoch = 0; epoch < 6; ++epoch) (void)f.attack(ids, epoch);
  const auto start = f.attack(ids, 6);
  const auto random = f.stage.random_start();
  std::int64_t unknown = 0, padding = 0;
  const Crop crop = Stage::crop(3, 6);
  for (int y = 0; y < kSize; ++y)
    for (int x = 0; x < kSize; ++x) {
      const int from_y = y + crop.top, from_x = (crop.flip != 0 ? kSize - 1 - x : x) + crop.left;
      const bool inside = from_y >= 0 && from_y < kSize && from_x >= 0 && from_x < kSize;
      const auto at = static_cast<std::size_t>(f.stage.layout.offset(0, 0, y, x));
      unknown += inside && start[at] == random[at];
      padding += !inside;
      if (!inside) CHECK(start[at] == random[at]);
    }
  CHECK(unknown == 0);
  CHECK(padding > 0);
}

TEST_CASE("At a reset all starts are random; only the first micro-batch of such a step resets", "[trainer]") {
  Fixture f(6);
  const std::vector<std::int64_t> ids = {1, 5};
  (void)f.attack(ids, 0, 0);
  CHECK(!f.random(ids, 1, 5));
  CHECK(!f.random(ids, 2, 6, 3));
  CHECK(f.random(ids, 3, 6));
  CHECK(!f.random(ids, 4, 7));
  CHECK(f.random(ids, 5, 12));
}

TEST_CASE("Of a sample that comes twice the last one is kept", "[trainer]") {
  Fixture twice, once;
  // Same crop, other results: the second copy's place gets other values.
  twice.stage.show({2, 2}, 1);
  CHECK(twice.warm.load(twice.stage, Stage::kEps, twice.stage.crops, batch_of({2, 2}, {2, 2}), 0, 1) == 0);
  for (std::size_t i = 0; i < kImage; ++i) twice.stage.perturbed[i] = 0.5F;
  twice.stage.attack();
  twice.warm.keep(twice.stage, Stage::kEps, twice.stage.crops);
  (void)once.attack({2}, 1);
  CHECK(twice.attack({2}, 2) == once.attack({2}, 2));
}

TEST_CASE("A checkpoint holds the perturbations of all samples, and refuses another shape", "[trainer]") {
  Fixture f, g;
  (void)f.attack({4, 9, 0, 7}, 0);
  (void)f.attack({1, 2, 3}, 0);
  Checkpoint state;
  f.warm.save(state);
  REQUIRE(state.bytes.count("perturbations") == 1);
  const Checkpoint::Bytes& all = state.bytes.at("perturbations");
  CHECK(all.shape == std::vector<std::int64_t>{10, kSize, kSize, kChannels});
  REQUIRE(std::ssize(all.values) == 10 * kImage);
  // Attacked samples have some, the others none.
  for (std::int64_t id = 0; id < 10; ++id) {
    const auto* begin = all.values.data() + id * kImage;
    const bool none = std::all_of(begin, begin + kImage, [](std::uint8_t b) { return b == 0; });
    CHECK(none == (id == 5 || id == 6 || id == 8));
  }
  g.warm.restore(state);
  g.warm.share(single());
  const std::vector<std::int64_t> ids = {9, 8, 1, 5};
  CHECK(g.attack(ids, 1) == f.attack(ids, 1));

  const auto refusal = [](WarmStart& warm, const Checkpoint& checkpoint) {
    return error_of([&] { warm.restore(checkpoint); });
  };
  CHECK(refusal(g.warm, {}).starts_with("4: the checkpoint has no perturbations"));
  Fixture more(kNever, 11);
  CHECK(refusal(more.warm, state).starts_with("4: the checkpoint's perturbations"));
  const WarmStartOptions huge{.samples = 10, .layout = f.stage.layout, .micro_batch = 14'608'733};
  CHECK(error_of([&] { WarmStart(single(), *f.backend, huge); }).starts_with("2: --warm-start would send messages"));
}

TEST_CASE(
    "With a reset in every epoch a run is the one without a warm start; with fewer it is from the second epoch on",
    "[trainer][long]") {
  TrainOptions options = small_run();
  options.micro_batch = 8;
  options.limit_train = 40;  // epochs of three steps, which end with a part of a batch
  options.limit_test = 16;
  options.epochs = 3;
  options.warmup_epochs = 1;
  options.threads = 1;
  options.lambda = GENERATE(0.0, 1.0);
  options.attack = GENERATE("pgd", "fgsm");
  struct Result {
    std::vector<std::string> weights;  ///< by epoch
    std::vector<double> losses;        ///< of evaluations
    bool operator==(const Result&) const = default;
  };
  const auto run = [&](int warm_start) {
    options.warm_start = warm_start;
    test::OneRank trainer(options);
    Result result;
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (int k = 0; k < 3; ++k) (void)trainer.step(false);
      result.weights.push_back(trainer.weights_hash());
      result.losses.push_back(trainer.evaluate().front().adv_loss);
    }
    return result;
  };
  const Result without = run(0), always = run(1), twice = run(2);
  CHECK(always == without);
  CHECK(twice.weights[0] == without.weights[0]);
  CHECK(twice.losses[0] == without.losses[0]);  // evaluations start at random
  CHECK(twice.weights[1] != without.weights[1]);
}
