// What a step of a training queues: counted; and that graphs change nothing but that.

#include "by_epoch.hpp"
#include "catch.hpp"
#include "datasets.hpp"
#include "device.hpp"
#include "double.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// What a step queues.
struct Queued {
  long launches = 0, calls = 0, graphs = 0, copies = 0, records = 0, waits = 0, nodes = 0;
  std::map<std::string_view, long> work{};  ///< kernels by name, in graphs or not
  [[nodiscard]] long all() const { return launches + calls + graphs + copies + records; }
};

/// Of the step after some others. DAT_PRINT_LAUNCHES: prints it.
[[nodiscard]] Queued queued_in_step(const char* name, const TrainOptions& options) {
  test::OneRank trainer(options, 3);
  const dat_double::Counts before = dat_double::counts();
  (void)trainer.step(false);
  const dat_double::Counts& now = dat_double::counts();
  CHECK(now.allocations == before.allocations);
  CHECK(now.graph_instantiations == before.graph_instantiations);
  Queued step{.launches = now.launches - before.launches,
              .calls = now.library_calls - before.library_calls,
              .graphs = now.graph_launches - before.graph_launches,
              .copies = now.copies - before.copies,
              .records = now.records - before.records,
              .waits = now.synchronizations - before.synchronizations};
  for (const auto& [kernel, count] : now.work) {
    const auto was = before.work.find(kernel);
    if (const long more = count - (was == before.work.end() ? 0 : was->second); more > 0) step.work[kernel] = more;
  }
  for (const auto& [kernel, count] : step.work) step.nodes += count;
  if (std::getenv("DAT_PRINT_LAUNCHES") == nullptr) return step;
  std::printf(
      "%s: %ld launches of kernels, %ld calls of libraries, %ld graphs, %ld copies, %ld events, %ld waits; %ld "
      "kernels\n",
      name, step.launches, step.calls, step.graphs, step.copies, step.records, step.waits, step.nodes);
  for (const auto& [kernel, count] : step.work)
    std::printf("  %4ld %.*s\n", count, static_cast<int>(kernel.size()), kernel.data());
  return step;
}

[[nodiscard]] TrainOptions of_resnet18(const std::string& attack) {
  TrainOptions options = small_run();
  options.device = "cuda";
  options.network = "resnet18";
  options.batch = options.micro_batch = 2;
  options.limit_train = options.limit_test = 8;
  options.epochs = 2;
  options.attack = attack;
  options.attack_bn = attack == "fgsm" ? "train" : "eval";
  options.attack_steps = 2;
  options.lambda = 0;
  options.selector = "all";
  options.optimizer = "sgd";
  options.lr = 0.05;
  return options;
}

/// Weights, counts, and what the records tell, of a training: with graphs one that is evaluated, and taken up again
/// from a checkpoint, in the midst of it.
[[nodiscard]] std::string trained(TrainOptions options, bool graphs) {
  options.graphs = graphs ? "on" : "off";
  auto trainer = std::make_unique<Trainer>(single(), options);
  trainer->start();
  const long before = dat_double::counts().graph_launches;
  std::string all;
  while (trainer->steps_done() < trainer->plan().steps) {
    if (graphs && trainer->steps_done() == trainer->plan().steps / 2) {
      (void)trainer->evaluate();
      const Checkpoint state = trainer->capture();
      trainer = std::make_unique<Trainer>(single(), options);
      trainer->restore(state);
      trainer->share_state();
      trainer->start();
    }
    const StepRecord& step = trainer->step(false);
    for (const double number : {step.loss_adv, step.loss_clean, step.acc_adv, double(step.images),
                                double(step.attack_passes), double(step.weight_gradients)})
      all += std::to_string(number) + " ";
  }
  if (!graphs) CHECK(dat_double::counts().graph_launches == before);
  const Checkpoint state = trainer->capture();
  if (const auto counts = state.doubles.find("optimizer"); counts != state.doubles.end())
    for (const double count : counts->second) all += std::to_string(count) + " ";
  return all + std::to_string(state.integers.at("batches_tracked")) + " " + trainer->weights_hash();
}

/// All arrays and counts of a checkpoint.
[[nodiscard]] std::vector<std::vector<double>> numbers_of(const Checkpoint& state) {
  std::vector<std::vector<double>> all;
  for (const Checkpoint::Array& array : state.arrays) all.emplace_back(array.values.begin(), array.values.end());
  if (const auto counts = state.doubles.find("optimizer"); counts != state.doubles.end()) all.push_back(counts->second);
  all.push_back({static_cast<double>(state.integers.at("batches_tracked"))});
  return all;
}

}  // namespace

TEST_CASE("A step queues few launches and calls, for graphs of all its kernels", "[double]") {
  // FGSM on batch statistics: one graph for the attack's gradient, one for the training pass.
  const Queued fgsm = queued_in_step("fgsm", of_resnet18("fgsm"));
  CHECK(fgsm.graphs == 2);
  CHECK(fgsm.calls == 0);
  CHECK(fgsm.all() <= 45);
  // Additions are parts of norms and convolutions.
  CHECK(!fgsm.work.contains("Add"));
  const Queued pgd = queued_in_step("pgd", of_resnet18("pgd"));
  CHECK(pgd.graphs == 3);
  CHECK(pgd.all() <= 43);
  CHECK(!pgd.work.contains("Add"));
  CHECK(pgd.work.at("FoldAllWeights") == 2);  // of each program
  CHECK(!pgd.work.contains("FoldWeights"));
  // 16 bits have the weights packed besides.
  using Case = std::pair<std::string, std::string>;
  for (const auto& [precision, attack] :
       drawn<Case>({{"f16", "fgsm"}, {"f16", "pgd"}, {"bf16", "fgsm"}, {"bf16", "pgd"}}, 1)) {
    TrainOptions options = of_resnet18(attack);
    options.precision = options.attack_precision = precision;
    options.normalize = "cifar10";
    const std::string name = attack + " in " + precision;
    INFO(name);
    const Queued step = queued_in_step(name.c_str(), options);
    CHECK(step.calls == 0);
    CHECK(step.all() <= (attack == "fgsm" ? fgsm : pgd).all());
    CHECK(!step.work.contains("Add"));
    CHECK(step.work.at("NormalizeImages") == 3);  // of each pass, and the images' gradient that is no step
  }
  // Pre-activation: sums are written by the norm that reads them.
  TrainOptions preactivation = of_resnet18("fgsm");
  preactivation.network = "preact_resnet18_bn";
  CHECK(!queued_in_step("preact", preactivation).work.contains("Add"));
}

TEST_CASE("Work that is done once more is one graph where the step's own passes are, else its pieces", "[double]") {
  const auto graphs = [](const char* selector, int micro_batch) {
    TrainOptions options = of_resnet18("none");
    options.network = "small_cnn";
    options.selector = selector;
    options.micro_batch = micro_batch;
    OneRank trainer(options);
    const ActiveSet all = ActiveSet::all(trainer.model().parameters.layers());
    Recompute again(single(), *trainer.splits().train, options, trainer.plan(), trainer.method(), trainer.replica(),
                    trainer.timer());
    for (int k = 0; k < 3; ++k) {  // called, recorded, replayed
      (void)again.recompute(0, {}, all);
      CHECK(again.loss() > 0);
    }
    const long before = dat_double::counts().graph_launches;
    (void)again.recompute(0, {}, all);
    return dat_double::counts().graph_launches - before;
  };
  const long whole = graphs("all", 2);
  CHECK((whole > 0 && graphs("all", 1) > whole && graphs("exp3", 2) > whole));
}

TEST_CASE("An error of the next step's images leaves the step before them whole, any other one ends it", "[double]") {
  static constexpr std::int64_t kBatches = 3;
  const auto [code, steps] = GENERATE(table<ExitCode, std::int64_t>(
      {{ExitCode::data, kBatches}, {ExitCode::io, kBatches}, {ExitCode::device, kBatches - 1}}));
  struct Failing final : Wrapped {
    using Wrapped::Wrapped;
    ExitCode code = ExitCode::data;
    mutable std::atomic<std::int64_t> reads = 0;
    void read(std::int64_t index, std::uint8_t* pixels) const override {
      require(reads++ < kBatches * 16 + 3, code, "the file has become short");
      whole->read(index, pixels);
    }
  };
  TrainOptions options = small_run();
  options.device = "cuda";
  options.selector = "all";
  options.resident = "off";
  options.epochs = 20;
  options.limit_train = options.limit_test = 32;
  options.data_threads = 1;  // of several, one may be in the next batch while another one is not through with this
  Splits splits = open_splits(options);
  auto failing = std::make_unique<Failing>(std::move(splits.train));
  failing->code = code;
  const Failing& images = *failing;
  splits.train = std::move(failing);
  Trainer trainer(single(), options, std::move(splits));
  images.reads = 0;
  trainer.start();
  const auto train = [&] {
    for (int k = 0; k < 30; ++k) {
      const double loss = trainer.step(false).loss_adv;  // whose error no CHECK may take
      CHECK(std::isfinite(loss));
    }
  };
  CHECK(message_of(train, code) == "the file has become short");
  CHECK(trainer.steps_done() == steps);
}

TEST_CASE("Recorded passes have the bits of called ones", "[double]") {
  TrainOptions options = small_run();
  options.device = "cuda";
  options.width = 20;
  options.batch = options.micro_batch = 5;
  options.limit_train = 13;  // the last batch of an epoch has images of the next
  options.limit_test = 4;
  options.epochs = 2;
  options.selector = "all";
  options.attack_bn = "train";
  options.optimizer = "sgd";
  const std::string form = GENERATE("fgsm", "pgd", "trades", "mart", "clean", "warm", "sizes", "weights", "epochs",
                                    "radius", "averaged", "bad", "frozen");
  // By day those in which most is different.
  const bool by_day = form == "fgsm" || form == "trades" || form == "sizes" || form == "bad" || form == "frozen";
  if (!by_day && std::getenv("DAT_ALL_CASES") == nullptr) return;
  options.attack = form == "fgsm" ? "fgsm" : "pgd";
  if (form == "trades" || form == "mart") options.loss = form;
  if (form == "trades" || form == "epochs") options.attack_bn = "eval";
  options.lambda = form == "clean" ? 0.5 : 0;
  options.label_smoothing = form == "clean" ? 0.1 : 0;
  if (form == "warm") options.warm_start = 3;
  if (form == "sizes") options.train_size = by_epoch({{8, 0}, {16, 1}});
  if (form == "weights") options.awp_gamma = 0.01;
  if (form == "epochs") {
    options.attack_steps = by_epoch({{1, 0}, {3, 1}});
    options.eps = ByEpoch<double>({{0, 0.01, 0, 0.01}, {1, 0.03, 1, 0.03}});
  }
  if (form == "radius") options.eps = ByEpoch<double>({{0, 0.01, 0, 0.01}, {1, 0.03, 1, 0.03}});
  if (form == "averaged" || form == "bad") {
    options.optimizer = "lamb";
    options.bias_correction = true;
    options.average = "ema";
  }
  if (form == "frozen") {
    options.freeze = test::by_epoch<std::string>({{"conv1", 0}, {"none", 1}});
    options.head_lr = 0.1;
  }
  if (form == "bad") {  // from the second step on
    options.lr = 1e30;
    options.max_bad_steps = 100;
  }
  INFO(form);
  // Numbers that are told a step later are those of their step, however late they are copied.
  dat_double::followers_are_late() = true;
  const std::string recorded = trained(options, true);
  dat_double::followers_are_late() = false;
  CHECK(recorded == trained(options, false));
}

TEST_CASE("The device leaves out the update of a step that is not finite, which is told as ever", "[double]") {
  TrainOptions options = small_run();
  options.device = "cuda";
  options.selector = "all";
  options.epochs = 2;
  options.batch = 8;
  options.limit_train = 32;
  options.limit_test = 4;
  options.attack = "fgsm";
  options.attack_bn = "train";
  options.max_bad_steps = 1;
  options.optimizer = GENERATE("sgd", "lars", "lars_sgd", "lamb");
  const std::string optimizer = options.optimizer;
  options.bias_correction = optimizer == "lamb";
  options.average = optimizer == "sgd" || optimizer == "lamb" ? "ema" : "none";
  options.clip_norm = optimizer == "sgd" ? 1 : 0;
  INFO(optimizer);
  test::OneRank trainer(options, 3);
  const Parameters& parameters = trainer.model().parameters;
  const auto plant = [&] {  // the gradient of the next step has been queued
    const float nan = std::nanf("");
    trainer.model().backend.copy_to_device(parameters.gradients + parameters.size - 1, &nan, sizeof nan);
  };
  const auto before = numbers_of(trainer.capture());
  const auto instantiations = dat_double::counts().graph_instantiations;
  plant();
  CHECK(trainer.step(false).step == 4);
  CHECK(trainer.skipped() ==
        "in step 4 (epoch 1) the gradient of linear.bias is not finite after the sum over the ranks (rank 0)");
  CHECK(trainer.skipped_steps().in_a_row == 1);
  CHECK(numbers_of(trainer.capture()) == before);
  (void)trainer.step(false);
  CHECK(trainer.skipped().empty());
  CHECK(numbers_of(trainer.capture()) != before);
  const auto good = numbers_of(trainer.capture());
  plant();
  (void)trainer.step(false);
  // One more is too many.
  plant();
  CHECK(code_of([&] { (void)trainer.step(false); }) == ExitCode::numerical);
  CHECK(numbers_of(trainer.capture()) == good);
  CHECK(trainer.steps_done() == 6);
  CHECK(dat_double::counts().graph_instantiations == instantiations);
}
