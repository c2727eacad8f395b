#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "dat/error.hpp"
#include "measure/convolutions.hpp"
#include "measure/training_step.hpp"

namespace dat::bench {

/// The options of programs that time training steps.
inline void add_options(CLI::App& app, StepOptions& options, int& repeat) {
  app.option_defaults()->always_capture_default();
  app.add_option("--network", options.network);
  app.add_option("--width", options.width, "channels of the first stage");
  app.add_option("--batch", options.batch);
  app.add_option("--steps", options.attack_steps, "of the attack");
  app.add_option("--device", options.device, "auto, cpu or cuda");
  app.add_option("--threads", options.threads, "of the CPU");
  app.add_option("--repeat", repeat);
}

/// Parses the command line, does the work, and gives the exit code.
inline int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // or --help
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  try {
    work();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}

}  // namespace dat::bench
