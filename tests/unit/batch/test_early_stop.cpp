#include "batch/view/early_stop.hpp"
#include "catch.hpp"
#include "device.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"
#include "random_values.hpp"
#include "small_network.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr int kSize = 8, kClasses = 10, kCapacity = 8;

/// A small network, images of which it classifies all but two as their labels say, and starts of attacks.
struct Fixture {
  explicit Fixture(DType type)
      : backend(test_backend()),
        storage(type),
        model(*backend, kSize),
        images(*backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, kCapacity),
        pixels(images.layout.elements()) {
    starts = random_values(kCapacity * pixels, 5, -0.03F, 0.03F);
    start = backend->allocate_floats(kCapacity * pixels, "test");
    loss = backend->allocate_floats(kCapacity, "test");
    correct = backend->allocate_floats(kCapacity, "test");
    labels.assign(kCapacity, 0);
  }
  [[nodiscard]] bool refused() const { return !backend->refuses(storage).empty(); }

  /// Labels of the first samples are what the network says of them, but for two.
  void label(FrozenProgram& program) {
    load({0, 1, 2, 3, 4, 5, 6, 7});
    program.forward(images.clean);
    const auto logits = to_host(*backend, program.logits(), kCapacity * kClasses);
    for (int k = 0; k < kCapacity; ++k) {
      const float* z = logits.data() + k * kClasses;
      labels[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(std::max_element(z, z + kClasses) - z);
    }
    for (const std::size_t k : {std::size_t{1}, std::size_t{6}}) labels[k] = (labels[k] + 1) % kClasses;
  }
  /// These samples of the fixture, in this order, and the starts of their attacks.
  void load(const std::vector<int>& samples) {
    HostBatch batch;
    batch.count = static_cast<int>(samples.size());
    std::vector<float> eta;
    for (const int k : samples) {
      const HostBatch one = host_batch({labels[static_cast<std::size_t>(k)]}, pixels, k);
      batch.pixels.insert(batch.pixels.end(), one.pixels.begin(), one.pixels.end());
      batch.labels.push_back(one.labels[0]);
      batch.ids.push_back(k);
      batch.crops.push_back({});
      eta.insert(eta.end(), starts.begin() + k * pixels, starts.begin() + (k + 1) * pixels);
    }
    images.load(batch, 0, nullptr);
    backend->copy_to_device(start, eta.data(), eta.size() * sizeof(float));
  }
  [[nodiscard]] std::vector<float> eta() const { return to_host(*backend, images.eta, images.batch().n * pixels); }
  [[nodiscard]] std::vector<float> x_adv() const { return to_host(*backend, images.x_adv, images.batch().n * pixels); }

  std::unique_ptr<Backend> backend;
  DType storage;
  SmallNetwork model;
  Buffers images;
  std::int64_t pixels;
  std::vector<float> starts;
  std::vector<std::int32_t> labels;
  float *start, *loss, *correct;
};

struct Result {
  std::vector<float> eta, x_adv;
  std::int64_t passes;
  friend bool operator==(const Result&, const Result&) = default;
};

Result perturb(const Fixture& f, FrozenView& objective, const AttackOptions& options) {
  objective.prepare(1, Purpose::attack_start, 0);
  objective.start = f.start;
  const std::int64_t before = objective.passes;
  attacks().at("pgd")(options)->perturb(objective);
  return {f.eta(), f.x_adv(), objective.passes - before};
}

/// Algorithm 1 of the paper as it stands there, one sample after the other through the whole program. steps: how many
/// each sample takes.
std::vector<float> reference(Fixture& f, FrozenView& objective, const AttackOptions& options, std::vector<int>& steps) {
  const std::int64_t all = f.images.batch().n * f.pixels;
  std::vector<float> result;
  steps.clear();
  objective.prepare(1, Purpose::attack_start, 0);
  for (int sample = 0; sample < f.images.batch().n; ++sample) {
    each(f.backend->device(), kernels::groups(all), kernels::Add<float>{f.start, nullptr, f.images.eta, all});
    each(f.backend->device(), kernels::groups(all),
         kernels::Add<float>{f.images.clean, f.images.eta, f.images.x_adv, all});
    const std::int64_t at = sample * f.pixels;
    int left = options.steps, tau = options.stop;
    while (left > 0) {
      objective.measure(f.images.x_adv, f.loss, f.correct);
      const bool fooled = to_host(*f.backend, f.correct + sample, 1)[0] == 0;
      if (fooled && tau == 0) break;
      if (fooled) --tau;
      objective.gradient();
      each(f.backend->device(), f.pixels,
           kernels::PgdStep{{f.images.clean + at, f.images.eta + at, f.images.x_adv + at,
                             static_cast<float>(options.alpha), static_cast<float>(options.eps)},
                            f.images.dx + at});
      --left;
    }
    steps.push_back(options.steps - left);
    const auto eta = to_host(*f.backend, f.images.eta + at, f.pixels);
    result.insert(result.end(), eta.begin(), eta.end());
  }
  return result;
}

/// Images in the attack at each iteration: a sample that leaves has been looked at once more than it moved.
std::int64_t passes_of(const std::vector<int>& steps, int most, const std::function<int(int)>& computed) {
  std::int64_t passes = 0;
  for (int k = 0; k < most; ++k)
    passes += computed(static_cast<int>(std::count_if(steps.begin(), steps.end(), [&](int s) { return s >= k; })));
  return passes;
}

}  // namespace

TEST_CASE("Slots hold the samples they name; a sample that has left keeps what it has", "[kernels]") {
  constexpr std::int64_t kElements = 5;
  constexpr std::size_t kSamples = 4;
  const auto values = [](std::int64_t count, std::uint32_t seed) { return shared(random_values(count, seed)); };
  const Shared<float> all_x = values(kSamples * kElements, 1), correct = shared(std::vector<float>{0, 1, 0, 0});
  Shared<float> all_eta = values(kSamples * kElements, 2);
  const Shared<float> before = all_eta;
  const Shared<std::int32_t> all_labels = shared(std::vector<std::int32_t>{10, 11, 12, 13}),
                             samples = shared(std::vector<std::int32_t>{2, 0, 3, -1});
  Shared<float> x(20, -9.0F), eta(20, -9.0F), x_adv(20, -9.0F);
  Shared<std::int32_t> labels(4, -9), left = shared(std::vector<std::int32_t>{0, 7, 0, 2});
  const kernels::Slots slots{samples.data(), kElements};
  run(std::ssize(x), kernels::FillSlots{slots, all_x.data(), all_eta.data(), all_labels.data(), x.data(), eta.data(),
                                        x_adv.data(), labels.data()});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int32_t sample = samples[i / kElements];
    const auto from = static_cast<std::size_t>(sample) * kElements + i % kElements;
    CHECK(x[i] == (sample < 0 ? -9 : all_x[from]));
    CHECK(eta[i] == (sample < 0 ? -9 : all_eta[from]));
    CHECK(x_adv[i] == (sample < 0 ? -9 : all_x[from] + all_eta[from]));
  }
  CHECK(labels == shared(std::vector<std::int32_t>{12, 10, 13, -9}));
  run(std::ssize(eta), kernels::Gather<float>{slots, all_x.data(), eta.data()});
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(eta[i] == x[i]);
  Shared<float> back(x.size() + kElements, -9.0F);  // nobody is in the last slot: nothing is put before the images
  run(std::ssize(x), kernels::Scatter{slots, x.data(), back.data() + kElements});
  for (std::size_t i = 0; i < back.size(); ++i)
    CHECK(back[i] == (i / kElements == 0 || i / kElements == 2 ? -9 : all_x[i - kElements]));

  // Sample 2 is fooled and leaves; 0 is not; 3 is fooled and has one more step; nobody is in the last slot.
  run(4, kernels::CountFooled{samples.data(), correct.data(), left.data()});
  CHECK(left == shared(std::vector<std::int32_t>{0, 7, -1, 1}));
  for (float& v : eta) v += 100;
  run(std::ssize(x), kernels::KeepSteps{slots, left.data(), eta.data(), all_eta.data()});
  for (std::size_t i = 0; i < all_eta.size(); ++i) {
    const std::size_t sample = i / kElements, slot = sample == 0 ? 1 : 2;
    CHECK(all_eta[i] == (sample == 0 || sample == 3 ? eta[slot * kElements + i % kElements] : before[i]));
  }
}

TEST_CASE("Programs of an early stop halve", "[attack]") {
  CHECK(early_stop_sizes(128) == std::vector<int>{128, 64, 32, 16});
  CHECK(early_stop_sizes(100) == std::vector<int>{100, 50, 25, 13});
  CHECK(early_stop_sizes(5) == std::vector<int>{5, 3, 2, 1});
  CHECK(early_stop_sizes(1) == std::vector<int>{1});
}

TEST_CASE("An early-stopped attack is algorithm PGD-K-tau, sample by sample", "[attack][long]") {
  const DType storage = GENERATE(DType::f32, DType::f16, DType::bf16);
  Fixture f(storage);
  if (f.refused()) {
    SUCCEED("refused here: " << f.backend->refuses(storage));
    return;
  }
  FrozenProgram whole(f.model, kCapacity, storage);
  const auto alone = FrozenProgram::of_sizes(f.model, {kCapacity}, storage),
             several = FrozenProgram::of_sizes(f.model, {kCapacity, 5, 2}, storage);
  FrozenView slow(f.images, whole);
  EarlyStopView one(f.images, alone), many(f.images, several);
  f.backend->commit_workspace();
  f.label(whole);
  bool some_left = false, some_stayed = false;
  // All samples, some, and in another order; other attacks; all samples again.
  struct Round {
    std::vector<int> samples;
    AttackOptions attack;
  };
  const AttackOptions base{.eps = 0.03, .alpha = 0.004, .steps = 6, .stop = 0};
  AttackOptions patient = base, wide = base, single = base;
  patient.stop = 4;   // who is fooled from the beginning leaves before the last step
  wide.alpha = 0.01;  // and then another radius with it: either is in the recordings
  wide.stop = 1;
  single = wide;
  single.eps = 0.05;
  single.steps = 1;
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const Round& round : {Round{all, base}, Round{all, patient}, Round{{7, 1, 4, 6}, base}, Round{all, wide},
                             Round{{1, 3, 0, 2, 5}, wide}, Round{{0, 1, 2, 3, 4, 5, 7}, single}, Round{all, base}}) {
    f.load(round.samples);
    std::vector<int> steps;
    const auto expected = reference(f, slow, round.attack, steps);
    for (const int s : steps) {
      some_left |= s > 0 && s < round.attack.steps;
      some_stayed |= s == round.attack.steps;
    }
    std::string taken;
    for (const int s : steps) taken += " " + std::to_string(s);
    INFO("steps taken:" << taken);

    const Result ours = perturb(f, one, round.attack);
    CHECK(ours.eta == expected);
    CHECK(ours.passes == passes_of(steps, round.attack.steps, [](int live) { return live > 0 ? kCapacity : 0; }));

    // Other sizes may be computed by other code, whose rounding turns a sign here and there.
    const Result fitting = perturb(f, many, round.attack);
    std::int64_t differing = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) differing += fitting.eta[i] != expected[i];
    CHECK(differing <= std::ssize(expected) / 50);
    constexpr int kComputed[] = {0, 2, 2, 2 + 2, 2 + 2, 5, 5 + 2, 8, 8};  // an eighth empty at most, where that can be
    CHECK(fitting.passes == passes_of(steps, round.attack.steps, [&](int live) { return kComputed[live]; }));
  }
  CHECK(some_left);
  CHECK(some_stayed);
}

TEST_CASE("With as much patience as steps, an early-stopped attack has the bits of a plain one", "[attack]") {
  Fixture f(DType::f32);
  FrozenProgram whole(f.model, kCapacity);
  const auto several = FrozenProgram::of_sizes(f.model, early_stop_sizes(kCapacity));
  FrozenProgram pair(f.model, 2);
  FrozenView plain(f.images, whole), pairs(f.images, pair);
  EarlyStopView stopping(f.images, several);
  f.backend->commit_workspace();
  f.label(whole);
  f.load({0, 1, 2, 3, 4, 5, 6, 7});
  const AttackOptions options{.eps = 0.05, .alpha = 0.01, .steps = 5};
  AttackOptions patient = options, hasty = options;
  patient.stop = options.steps;
  hasty.stop = 0;
  const Result expected = perturb(f, plain, options);
  CHECK(expected.passes == std::int64_t{options.steps} * kCapacity);
  CHECK(perturb(f, stopping, patient) == expected);
  CHECK(!(perturb(f, stopping, hasty) == expected));
  // Without a stop, the same objective does the plain attack.
  CHECK(perturb(f, stopping, options) == expected);
  CHECK(perturb(f, stopping, patient) == expected);
  // In a last pass that is not full, only what is there is looked at.
  f.load({6, 0, 1});
  pairs.prepare(1, Purpose::attack_start, 0);
  pairs.measure(f.images.clean, f.loss, f.correct);
  const auto losses = to_host(*f.backend, f.loss, 4);
  CHECK((losses[0] > 0 && losses[2] > 0 && losses[3] == 0));
  pairs.gradient();
  CHECK(pairs.passes == 4);  // two of the program
}

TEST_CASE("What an early-stopped attack does to a sample does not depend on the others", "[attack]") {
  Fixture f(DType::f32);
  const auto programs = FrozenProgram::of_sizes(f.model, {kCapacity});
  EarlyStopView objective(f.images, programs);
  f.backend->commit_workspace();
  f.label(*programs.front());
  const AttackOptions options{.eps = 0.03, .alpha = 0.004, .steps = 6, .stop = 1};
  const auto of = [&](const std::vector<float>& all, int place) {
    return std::vector<float>(all.begin() + place * f.pixels, all.begin() + (place + 1) * f.pixels);
  };
  f.load({0, 1, 2, 3, 4, 5, 6, 7});
  const auto together = perturb(f, objective, options).eta;
  for (const std::vector<int>& samples : {std::vector<int>{5, 1, 0}, {7}, {6, 5, 4, 3, 2, 1, 0}}) {
    f.load(samples);
    const auto eta = perturb(f, objective, options).eta;
    for (int k = 0; k < static_cast<int>(samples.size()); ++k)
      CHECK(of(eta, k) == of(together, samples[static_cast<std::size_t>(k)]));
  }
}

TEST_CASE("An attack on samples that depend on each other cannot be stopped early", "[attack]") {
  class Dependent final : public Objective {
   public:
    void gradient() override {}
  } objective;
  const ExitCode code = code_of([&] { objective.steps_until_fooled(1, 0, 0.1F, 0.1F); });
  CHECK(code == ExitCode::usage);
}

TEST_CASE("training counts the passes of its attack, and those that an early stop saves", "[trainer][long]") {
  TrainOptions options = small_run();
  options.micro_batch = GENERATE(16, 8);
  options.attack_steps = 3;
  const auto run = [&](int stop) {
    options.attack_stop = stop;
    test::OneRank trainer(options);
    std::vector<std::int64_t> passes;
    for (int k = 0; k < 4; ++k) {
      const StepRecord& record = trainer.step(false);
      CHECK(record.images == 16);
      passes.push_back(record.attack_passes);
    }
    const EvaluationRecord evaluation = trainer.evaluate().front();
    CHECK(evaluation.attack_steps == 2);
    return std::tuple{trainer.weights_hash(), passes, evaluation.adv_loss};
  };
  const auto plain = run(-1);
  CHECK(std::get<1>(plain) == std::vector<std::int64_t>(4, 48));
  CHECK(run(3) == plain);
  const auto stopped = run(0);
  CHECK(std::get<0>(stopped) != std::get<0>(plain));
  for (const std::int64_t passes : std::get<1>(stopped)) {
    CHECK(passes >= 16);  // every image is looked at once
    CHECK(passes < 48);
  }
  CHECK(run(0) == stopped);
}
