// Times PGD training steps: one line of JSON each. See bench/README.md.

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "training_step.hpp"

namespace {

void report(dat::bench::TrainingStep& step) {
  step.run();
  const auto& options = step.options();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const nlohmann::ordered_json line{{"ms_per_image", (step.attack_ms + step.train_ms + step.update_ms) / options.batch},
                                    {"attack_ms", step.attack_ms},
                                    {"train_ms", step.train_ms},
                                    {"update_ms", step.update_ms},
                                    {"network", options.network},
                                    {"width", options.width},
                                    {"batch", options.batch},
                                    {"threads", options.threads},
                                    {"steps", options.attack_steps},
                                    {"peak_rss_mb", static_cast<double>(usage.ru_maxrss) / 1024},
                                    {"commit", DAT_GIT_SHA1}};
  std::cout << line << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  dat::bench::StepOptions options;
  int repeat = 3;
  bool serve = false;
  CLI::App app("Times PGD training steps on random images of CIFAR's shape: one line of JSON each");
  app.option_defaults()->always_capture_default();
  app.add_option("--network", options.network);
  app.add_option("--width", options.width, "channels of the first stage");
  app.add_option("--batch", options.batch);
  app.add_option("--threads", options.threads);
  app.add_option("--steps", options.attack_steps, "of the attack");
  app.add_option("--attack-batch", options.attack_batch, "images per pass of the attack; 0: the batch");
  app.add_option("--repeat", repeat);
  app.add_flag("--serve", serve, "one step for each line of stdin, until it ends");
  CLI11_PARSE(app, argc, argv);
  try {
    dat::bench::TrainingStep step(options);
    step.check();  // also warms up
    std::string line;
    for (int k = 0; serve ? static_cast<bool>(std::getline(std::cin, line)) : k < repeat; ++k) report(step);
  } catch (const dat::Error& error) {
    std::cerr << "bench_step: " << error.what() << '\n';
    return static_cast<int>(error.code());
  }
  return 0;
}
