// Numbers that are not finite, put into a step on the way; and what aggregators get and make in a step. The linker
// hands the trainer's calls to what stands here (--wrap, tests/CMakeLists.txt); the program itself knows nothing of it.

#include "aggregation_reference.hpp"
#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

/// Called with what the step is about to go on with, on every rank.
struct Plant {
  std::function<void(float* images)> after_attack;
  std::function<void()> before_training, after_training_of_unit;
  std::function<void(float* gradients)> after_training;
  std::function<void()> after_sum;
} plant;

}  // namespace

extern "C" {
void __real__ZN3dat11NumberCheck14look_at_imagesERKNS_5BatchE(NumberCheck* self, const Batch& batch);
void __wrap__ZN3dat11NumberCheck14look_at_imagesERKNS_5BatchE(NumberCheck* self, const Batch& batch) {
  if (plant.after_attack) plant.after_attack(batch.x_adv);
  __real__ZN3dat11NumberCheck14look_at_imagesERKNS_5BatchE(self, batch);
}

void __real__ZN3dat7Learner5trainERKNS_5BatchERKNS_9ActiveSetEPf(Learner* self, const Batch& batch,
                                                                 const ActiveSet& active, float* gradients);
void __wrap__ZN3dat7Learner5trainERKNS_5BatchERKNS_9ActiveSetEPf(Learner* self, const Batch& batch,
                                                                 const ActiveSet& active, float* gradients) {
  if (plant.before_training) plant.before_training();
  __real__ZN3dat7Learner5trainERKNS_5BatchERKNS_9ActiveSetEPf(self, batch, active, gradients);
  if (plant.after_training_of_unit) plant.after_training_of_unit();
  if (plant.after_training) plant.after_training(gradients);
}

void __real__ZN3dat11NumberCheck11look_at_sumERKNS_9ActiveSetE(NumberCheck* self, const ActiveSet& layers);
void __wrap__ZN3dat11NumberCheck11look_at_sumERKNS_9ActiveSetE(NumberCheck* self, const ActiveSet& layers) {
  if (plant.after_sum) plant.after_sum();
  __real__ZN3dat11NumberCheck11look_at_sumERKNS_9ActiveSetE(self, layers);
}
}

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kBad = 2;  ///< the step that goes wrong, from 0

[[nodiscard]] bool guilty() { return world().rank() == world().size() - 1; }

void set(Backend& backend, float* at, float value) { backend.copy_to_device(at, &value, sizeof value); }
[[nodiscard]] float get(Backend& backend, const float* at) {
  float value = 0;
  backend.copy_to_host(&value, at, sizeof value);
  return value;
}

/// Puts a value in place of a weight while the last rank trains, and the weight back.
void plant_weight(Trainer& trainer, const std::string& name, float value) {
  Parameters& p = trainer.replica().model().parameters;
  const auto segment =
      std::find_if(p.segments.begin(), p.segments.end(), [&](const Segment& one) { return one.name == name; });
  CHECK(segment != p.segments.end());
  Backend& backend = trainer.replica().backend();
  float* const at = p.values + segment->begin;
  const float weight = get(backend, at);
  plant.before_training = [&backend, &p, at, value] {
    set(backend, at, value);
    ++p.version;
  };
  plant.after_training_of_unit = [&backend, &p, at, weight] {
    set(backend, at, weight);
    ++p.version;
  };
}

/// An element in the last of these layers' tensors; for infinity, which all layers get, in the first of all.
[[nodiscard]] std::int64_t element(const Parameters& p, const ActiveSet& layers, float value) {
  if (value == kInfinity) return p.segments.front().begin;
  const auto last = std::find_if(p.segments.rbegin(), p.segments.rend(),
                                 [&](const Segment& segment) { return layers.active(segment.layer); });
  return last->begin + last->size / 2;
}

/// On the last rank, in the step that is to come.
void plant_in(Trainer& trainer, const std::string& where, float value) {
  if (!guilty()) return;
  Parameters& p = trainer.replica().model().parameters;
  Backend& backend = trainer.replica().backend();
  const LayerSampling& layers = trainer.layers();
  if (where == "images") plant.after_attack = [&backend, value](float* images) { set(backend, images + 77, value); };
  if (where == "statistics") plant_weight(trainer, p.segments.front().name, value);
  if (where == "loss") plant_weight(trainer, p.segments.back().name, value);
  if (where == "gradient")
    plant.after_training = [&, value](float* gradients) {
      set(backend, gradients + element(p, layers.active(), value), value);
    };
  if (where == "sum")
    plant.after_sum = [&, value] { set(backend, p.gradients + element(p, layers.summed(), value), value); };
}

/// Whether that is what the step says, which is the same on all ranks. tensor: of the number; the last rank knows it.
[[nodiscard]] bool says(const std::string& text, const std::string& where, const std::string& tensor) {
  const std::string rank = " (rank " + std::to_string(world().size() - 1) + ")";
  if (where == "images") return text.ends_with(" an attacked image is not finite" + rank);
  if (where == "statistics") return text.ends_with(" a batch statistic is not finite" + rank);
  if (where == "loss") return text.ends_with(" the loss is not finite" + rank);
  return contains(text, " the gradient of " + (guilty() ? tensor + " is" : "")) &&
         contains(text, " is not finite" + std::string(where == "sum" ? " after the sum over the ranks" : "") + rank);
}

[[nodiscard]] TrainOptions options_of(const std::string& kind) {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.optimizer = "sgd";
  options.lr = 0.05;
  options.lambda = 1;
  options.max_bad_steps = 1;
  options.selector = "all";
  options.deterministic = kind == "ordered" || test::test_device() == "cuda";  // for the same bits
  if (kind == "ordered") options.micro_batch = 4;
  if (kind == "drawn" || kind == "ordered") {
    options.selector = "exp3";
    options.budget = 6;
    options.optimizer = "lamb";
    options.bias_correction = true;
  }
  if (kind == "overlap") options.overlap = true;
  if (kind == "powersgd") options.codec = "powersgd";
  if (kind == "f16") options.codec = "f16";
  if (kind == "warm") {
    options.warm_start = 2;
    options.micro_batch = 8;
  }
  if (kind == "stale") options.stale_attack = 1;
  if (kind == "local") options.bn_statistics = "local";
  if (kind == "masks") {
    options.mask = "per_worker";
    options.selector = "exp3";
    options.budget = 6;
  }
  return options;
}

/// The state without times.
[[nodiscard]] Checkpoint state_of(Trainer& trainer) {
  Checkpoint state = trainer.capture();
  state.doubles.erase("seconds");
  return state;
}

[[nodiscard]] int differences(const Checkpoint& a, const Checkpoint& b) {
  int found = a.arrays.size() != b.arrays.size() || a.doubles != b.doubles || a.integers != b.integers;
  for (std::size_t k = 0; k < std::min(a.arrays.size(), b.arrays.size()); ++k)
    found += a.arrays[k].name != b.arrays[k].name || a.arrays[k].values != b.arrays[k].values;
  for (const auto& [name, bytes] : a.bytes) found += !b.bytes.contains(name) || b.bytes.at(name).values != bytes.values;
  return found;
}

}  // namespace

TEST_CASE("A number that is not finite on one rank is agreed by all in its step, and nothing of the step stays",
          "[numbers]") {
  std::vector<std::string> kinds =
      test::drawn<std::string>({"drawn", "ordered", "overlap", "powersgd", "f16", "warm", "stale", "local", "masks"},
                               static_cast<std::size_t>(test::cases(3, 1)));
  kinds.emplace_back("plain");
  for (const std::string& kind : kinds) {
    const TrainOptions options = options_of(kind);
    // The reference: that step's update is left out.
    test::Started before(world(), options, kBad);
    Checkpoint skipped = before.capture();
    skipped.integers["step"] = kBad + 1;
    if (kind == "stale") {  // the attack of the next step has begun in the step that is left out
      std::erase_if(skipped.arrays, [](const Checkpoint::Array& array) { return array.name == "attack/begun"; });
    }
    test::Resumed reference(world(), options, skipped);
    reference.start();
    for (int k = 0; k < 2; ++k) (void)reference.step(false);
    const Checkpoint expected = state_of(reference);

    for (const std::string where : {"images", "statistics", "loss", "gradient", "sum"})
      for (const float value : {kNan, kInfinity}) {
        if (kind != "plain" && value == kInfinity) continue;
        INFO(kind << ", " << where << ", " << value);
        test::Started trainer(world(), options);
        for (int k = 0; k < kBad; ++k) {
          (void)trainer.step(false);
          CHECK(trainer.skipped().empty());
        }
        const std::string hash = trainer.weights_hash();
        plant_in(trainer, where, value);
        const StepRecord& record = trainer.step(false);
        plant = {};
        CHECK(record.step == kBad + 1);
        INFO(trainer.skipped());
        const Parameters& p = trainer.model().parameters;
        const std::int64_t at =
            element(p, where == "sum" ? trainer.layers().summed() : trainer.layers().active(), value);
        const auto tensor = std::find_if(p.segments.rbegin(), p.segments.rend(),
                                         [&](const Segment& segment) { return segment.begin <= at; });
        CHECK((says(trainer.skipped(), where, tensor->name) && trainer.skipped().starts_with("in step 3 (epoch 1) ")));
        CHECK(contains(trainer.skipped(), ", by --codec ") == (where == "sum" && options.codec != "float32"));
        CHECK(trainer.skipped_steps().in_a_row == 1);
        CHECK(trainer.weights_hash() == hash);
        trainer.check_replicas();
        for (int k = 0; k < 2; ++k) {
          (void)trainer.step(false);
          CHECK(trainer.skipped().empty());
        }
        CHECK(trainer.skipped_steps().in_a_row == 0);
        trainer.check_replicas();
        const Checkpoint state = state_of(trainer);
        if (world().root()) CHECK(differences(state, expected) == 0);
      }
  }
}

TEST_CASE("A gradient that the codec cannot hold is seen after the sum", "[numbers]") {
  for (const std::string codec : {"f16", "float32"}) {
    TrainOptions options = options_of("plain");
    options.codec = codec;
    test::Started trainer(world(), options);
    // A weight after the features makes their gradient large: above 65504, the largest number of binary16, and far
    // below 3.4e38.
    const std::vector<Segment>& segments = trainer.model().parameters.segments;
    if (guilty()) plant_weight(trainer, segments[segments.size() - 2].name, 1e15F);
    (void)trainer.step(false);
    plant = {};
    INFO(codec << ": " << trainer.skipped());
    CHECK((contains(trainer.skipped(), " is not finite after the sum over the ranks (rank 0), by --codec f16")) ==
          (codec == "f16"));
    CHECK(trainer.skipped().empty() == (codec == "float32"));
  }
}

TEST_CASE("More bad steps in a row than are allowed end the run on all ranks; good ones in between do not count",
          "[numbers]") {
  for (const std::int64_t allowed : {0, 1, 3}) {
    TrainOptions options = options_of("plain");
    options.max_bad_steps = allowed;
    test::Started trainer(world(), options);
    const auto bad_step = [&] {
      plant_in(trainer, "gradient", kNan);
      const std::string error = error_of([&] { (void)trainer.step(false); });
      plant = {};
      return error;
    };
    for (int round = 0; round < 2; ++round) {
      for (int k = 0; k < allowed; ++k) CHECK(bad_step() == "none");
      (void)trainer.step(false);
    }
    for (int k = 0; k < allowed; ++k) CHECK(bad_step() == "none");
    const std::string hash = trainer.weights_hash();
    const std::int64_t steps = trainer.steps_done();
    const std::string error = bad_step();
    CHECK(error.starts_with("7: in step " + std::to_string(steps + 1) + " (epoch 1) the gradient of "));
    CHECK(contains(error, (allowed > 0 ? "), after " + std::to_string(allowed) + " skipped in a row" : ")") +
                              "; the weights are those of"));
    CHECK(trainer.weights_hash() == hash);
    CHECK(trainer.steps_done() == steps);
  }
}

TEST_CASE("Bad steps in a row, rollbacks and the rate's factor are part of the state", "[numbers]") {
  const TrainOptions options = options_of("drawn");
  test::Started lost(world(), options), straight(world(), options), resumed(world(), options);
  (void)lost.step(false);
  const Checkpoint first = lost.capture();
  CHECK_FALSE(first.doubles.contains("setbacks"));
  (void)lost.step(false);
  if (world().root()) straight.restore(first);
  SkippedSteps earlier;
  earlier.rollbacks = 1;
  earlier.lr_factor = 0.5;
  straight.share_state();
  straight.set_back(earlier, 0.25);
  straight.start();
  CHECK(straight.steps_done() == 1);
  CHECK(straight.skipped_steps().rollbacks == 2);
  CHECK(straight.skipped_steps().lr_factor == 0.125);
  plant_in(straight, "loss", kNan);
  CHECK(straight.step(false).lr == 0.125 * options.lr);
  plant = {};
  const Checkpoint middle = straight.capture();
  if (world().root()) {
    CHECK(middle.doubles.at("setbacks") == std::vector<double>{1, 2, 0.125});
    resumed.restore(middle);
  }
  resumed.share_state();
  resumed.start();
  CHECK((resumed.skipped_steps().in_a_row == 1 && resumed.skipped_steps().rollbacks == 2));
  for (Trainer* trainer : {&straight, &resumed})
    for (int k = 0; k < 2; ++k) (void)trainer->step(false);
  const Checkpoint a = state_of(straight), b = state_of(resumed);
  if (world().root()) CHECK(differences(a, b) == 0);
  CHECK(resumed.skipped_steps().lr_factor == 0.125);
}

namespace {

/// One step's gradients: what each rank has computed, a block for each of its units of work, and what became of them.
struct SeenStep {
  std::vector<std::vector<float>> own;
  std::vector<float> result;
};

[[nodiscard]] SeenStep see_step(Trainer& trainer) {
  SeenStep seen;
  Backend& backend = trainer.replica().backend();
  const Parameters& p = trainer.model().parameters;
  plant.after_training = [&](float* gradients) { seen.own.push_back(test::to_host(backend, gradients, p.size)); };
  plant.after_sum = [&] { seen.result = test::to_host(backend, p.gradients, p.size); };
  (void)trainer.step(false);
  plant = {};
  CHECK(trainer.skipped().empty());
  return seen;
}

/// The elements of the active layers.
[[nodiscard]] std::vector<double> active_of(const Trainer& trainer, const float* block) {
  std::vector<double> active;
  for (const Segment& segment : trainer.model().parameters.segments)
    if (trainer.layers().active().active(segment.layer))
      active.insert(active.end(), block + segment.begin, block + segment.begin + segment.size);
  return active;
}

/// The ranks' means over their units of work.
[[nodiscard]] test::AggregationCase brought(const Trainer& trainer, std::vector<std::vector<float>> own) {
  const auto ranks = static_cast<std::size_t>(world().size());
  const auto size = static_cast<std::size_t>(trainer.model().parameters.size);
  std::vector<std::size_t> units(ranks);
  const std::size_t mine = own.size();
  world().all_gather(&mine, units.data(), sizeof mine);
  test::AggregationCase all;
  all.gradients.assign(ranks, test::Vector(active_of(trainer, own.front().data()).size(), 0.0));
  for (std::size_t unit = 0; unit < *std::max_element(units.begin(), units.end()); ++unit) {
    std::vector<float> block = unit < mine ? own[unit] : std::vector<float>(size), blocks(ranks * size);
    world().all_gather(block.data(), blocks.data(), size * sizeof(float));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<double> active = active_of(trainer, blocks.data() + rank * size);
      for (std::size_t d = 0; unit < units[rank] && d < active.size(); ++d) all.gradients[rank][d] += active[d];
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    // The loss of an ordered step is a mean over the micro-batches of all ranks.
    const double factor = trainer.plan().ordered ? double(trainer.plan().micro_batches) / double(units[rank]) : 1;
    for (double& value : all.gradients[rank]) value *= factor;
    all.weights.push_back(trainer.plan().ordered ? double(units[rank]) : 1);
  }
  return all;
}

}  // namespace

TEST_CASE("The gradient of a step is what the aggregator makes of the ranks' own", "[aggregators]") {
  struct Form {
    std::string kind, name;
    bool mixing;
  };
  std::vector<Form> all_forms;
  for (const std::string kind : {"plain", "drawn", "overlap", "ordered"})
    for (const std::string name : {"median", "trimmed_mean", "geometric_median", "krum", "multi_krum", "centered_clip"})
      for (const bool mixing : {false, true}) all_forms.push_back({kind, name, mixing});
  for (const auto& [kind, name, mixing] : test::drawn(all_forms, 12)) {
    TrainOptions options = options_of(kind);
    options.aggregator = name;
    options.aggregator_mixing = mixing;
    options.aggregator_tau = 0.05;
    if (kind == "ordered") {  // unevenly: five micro-batches
      options.micro_batch = 8;
      options.total_batch = 40;
    }
    test::Started trainer(world(), options);
    for (int step = 0; step < 2; ++step) {
      const SeenStep seen = see_step(trainer);
      test::AggregationCase all = brought(trainer, seen.own);
      all.faults = faults_of(name, -1, world().size());
      all.tau = options.aggregator_tau;
      all.mixing = mixing;
      const std::vector<double> result = active_of(trainer, seen.result.data());
      double nearest = HUGE_VAL;
      for (const test::Vector& right : test::right_results(name, all))
        nearest = std::min(nearest, test::distance(result, right) / test::length(right));
      // Iterations end with steps of 1e-6, of gradients of some tenths.
      INFO(kind << ", " << name << (mixing ? ", mixed" : "") << ", step " << step);
      CHECK(nearest <= (name == "centered_clip" || name == "geometric_median" ? 2e-5 : 3e-7));
      if (name == "centered_clip" && world().size() > 1)
        CHECK(test::distance(all.gradients[0], all.gradients[1]) > options.aggregator_tau);
    }
    trainer.check_replicas();
  }
}
