#pragma once

#include "dat/config.hpp"
#include "device.hpp"

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
  options.eval_attack_steps = 2;
  options.threads = 2;
  options.device = test_device();
  options.deterministic = true;
  return options;
}

}  // namespace dat::test
