#pragma once

#include "dat/config.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "single.hpp"
#include "train/trainer.hpp"

namespace dat::test {

/// Few steps of a small network on the built-in set.
[[nodiscard]] inline TrainOptions small_run() {
  TrainOptions options;
  options.network = "small_cnn";
  options.width = 16;
  options.batch = 16;
  options.epochs = 1;
  options.warmup_epochs = 0;
  options.attack_steps = 2;
  options.eval = {"pgd2"};
  options.threads = 2;
  options.device = test_device();
  options.deterministic = true;
  return options;
}

/// A trainer that has been started with what rank 0 has, and has taken some steps. **Collective.**
struct Started : Trainer {
  Started(Communicator& ranks, const TrainOptions& options, int steps = 0) : Trainer(ranks, options) {
    share_state();
    start();
    for (int k = 0; k < steps; ++k) (void)step(false);
  }
};
/// The same without other ranks.
struct OneRank : Started {
  explicit OneRank(const TrainOptions& options, int steps = 0) : Started(single(), options, steps) {}
};
/// A trainer with what a checkpoint of rank 0 has, before it starts. **Collective.**
struct Resumed : Trainer {
  Resumed(Communicator& ranks, const TrainOptions& options, const Checkpoint& from) : Trainer(ranks, options) {
    if (ranks.root()) restore(from);
    share_state();
  }
};

[[nodiscard]] inline std::vector<float> weights_of(Trainer& trainer) {
  const Parameters& p = trainer.model().parameters;
  return to_host(trainer.model().backend, p.values, p.size);
}

/// Bytes for one purpose, or for all.
[[nodiscard]] inline std::int64_t bytes_on_device(Trainer& trainer, const std::string& purpose = "") {
  std::int64_t bytes = 0;
  for (const Backend::Allocation& one : trainer.replica().backend().allocations())
    if (purpose.empty() || one.purpose == purpose) bytes += static_cast<std::int64_t>(one.bytes);
  return bytes;
}

/// The small run on a GPU, or its double, in f16 throughout: FGSM on batch statistics, all layers, SGD.
[[nodiscard]] inline TrainOptions small_run_in_f16() {
  TrainOptions options = small_run();
  options.device = "cuda";
  options.precision = "f16";
  options.attack = "fgsm";
  options.attack_bn = "train";
  options.lambda = 0;
  options.selector = "all";
  options.optimizer = "sgd";
  options.limit_test = 16;
  return options;
}

}  // namespace dat::test
