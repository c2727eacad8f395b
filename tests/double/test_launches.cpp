// What a step of a training queues: counted; and that graphs change nothing but that.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "by_epoch.hpp"
#include "catch.hpp"
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

/// Of the step behind some others. DAT_PRINT_LAUNCHES: prints it.
[[nodiscard]] Queued queued_in_step(const char* name, const TrainOptions& options) {
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  for (int k = 0; k < 3; ++k) (void)trainer.step(false);
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
  options.batch = options.micro_batch = 4;
  options.limit_train = options.limit_test = 16;
  options.epochs = 2;
  options.attack = attack;
  options.attack_bn = attack == "fgsm" ? "train" : "eval";
  options.attack_steps = 10;
  options.lambda = 0;
  options.selector = "all";
  options.optimizer = "sgd";
  options.lr = 0.05;
  return options;
}

/// Weights, and what the records tell, after some steps.
[[nodiscard]] std::string trained(TrainOptions options, bool graphs) {
  options.graphs = graphs ? "on" : "off";
  const auto world = Communicator::single();
  Trainer trainer(*world, options);
  trainer.start();
  std::string all;
  while (trainer.steps_done() < trainer.plan().steps) {
    const StepRecord& step = trainer.step(false);
    for (const double number : {step.loss_adv, step.loss_clean, step.acc_adv}) all += std::to_string(number) + " ";
  }
  return all + trainer.weights_hash();
}

}  // namespace

TEST_CASE("A step queues few launches and calls, for graphs of all its kernels", "[double]") {
  // FGSM on batch statistics: one graph for the attack's gradient, two for the training pass, forth and back.
  const Queued fgsm = queued_in_step("fgsm", of_resnet18("fgsm"));
  CHECK(fgsm.graphs == 3);
  CHECK(fgsm.calls == 0);
  CHECK(fgsm.all() <= 60);
  const Queued pgd = queued_in_step("pgd", of_resnet18("pgd"));
  CHECK(pgd.all() <= 100);
}

TEST_CASE("Recorded passes have the bits of called ones", "[double]") {
  TrainOptions options = small_run();
  options.device = "cuda";
  options.width = 20;
  options.batch = options.micro_batch = 5;
  options.limit_train = 13;  // the last batch of an epoch has images of the next
  options.limit_test = 16;
  options.epochs = 3;
  options.selector = "all";
  options.attack_bn = "train";
  options.optimizer = "sgd";
  const std::string form = GENERATE("fgsm", "pgd", "trades", "mart", "clean", "warm", "sizes", "weights", "epochs");
  options.attack = form == "fgsm" ? "fgsm" : "pgd";
  if (form == "trades" || form == "mart") options.loss = form;
  if (form == "trades" || form == "epochs") options.attack_bn = "eval";
  options.lambda = form == "clean" ? 0.5 : 0;
  options.label_smoothing = form == "clean" ? 0.1 : 0;
  if (form == "warm") {
    options.warm_start = 3;
    options.attack_reuse = true;
  }
  if (form == "sizes") options.train_size = by_epoch({{8, 0}, {16, 1}});
  if (form == "weights") options.awp_gamma = 0.01;
  if (form == "epochs") {
    options.attack_steps = by_epoch({{1, 0}, {3, 1}});
    options.eps = ByEpoch<double>({{0, 0.01, 0, 0.01}, {1, 0.03, 1, 0.03}});
  }
  INFO(form);
  const std::string recorded = trained(options, true);
  CHECK(recorded.find("nan") == (options.lambda > 0 ? std::string::npos : recorded.find("nan")));
  CHECK(recorded == trained(options, false));
}
