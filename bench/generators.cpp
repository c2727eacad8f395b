// Times steps of trainers and generators (--generators) whose computing is a delay, and whose messages are real: one
// line of JSON. See bench/README.md.

#include <chrono>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>

#include "command_line.hpp"
#include "train/generators/generator.hpp"
#include "train/plan/role.hpp"
#include "train/trainer.hpp"

namespace {

constexpr int kEndTag = 7;

void pass(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

struct Delays {
  double step = 0.1;             ///< seconds of a trainer for a step, without the attack
  double iteration = 0.01;       ///< seconds of a generator for an iteration on a micro-batch
  std::vector<double> slower{};  ///< [generators, or fewer] how many times longer one takes
};

/// Seconds of each step of the trainer, behind `before` that do not count.
[[nodiscard]] std::vector<double> train(dat::Communicator& world, dat::Communicator& trainers,
                                        const dat::TrainOptions& options, const Delays& delays, int before, int steps) {
  std::vector<double> seconds;
  {
    dat::Trainer trainer(trainers, options);
    trainer.share_state();
    trainer.start();
    for (int step = 0; step < before + steps; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      static_cast<void>(trainer.step(false));
      pass(delays.step);
      if (step >= before)
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    trainer.examples().close();
  }
  const int end = 0;
  for (int rank = trainers.size(); trainers.root() && rank < world.size(); ++rank)
    world.send(&end, sizeof end, rank, kEndTag);
  return seconds;
}

void attack(dat::Communicator& world, const dat::TrainOptions& options, const Delays& delays) {
  dat::Generator generator(world, options);
  const int number = world.rank() - dat::trainers_of(world.size(), options);
  const double factor = number < std::ssize(delays.slower) ? delays.slower[static_cast<std::size_t>(number)] : 1;
  generator.tell([&](int iterations) { pass(iterations * delays.iteration * factor); });
  static_cast<void>(generator.serve([&]() -> std::optional<dat::ExitCode> {
    if (!world.probe(0, kEndTag)) return {};
    int end = 0;
    world.receive(&end, sizeof end, 0, kEndTag);
    return dat::ExitCode::done;
  }));
}

}  // namespace

int main(int argc, char** argv) {
  // So small that its computing takes next to nothing.
  dat::TrainOptions options;
  options.network = "small_cnn";
  options.width = 16;
  options.batch = 64;
  options.micro_batch = 8;
  options.attack_steps = 8;
  options.attack_bn = "eval";
  options.warmup_epochs = 0;
  options.threads = 1;
  options.device = "cpu";
  options.epochs = 100000;
  options.selector = "all";
  options.lambda = 0;
  Delays delays;
  int steps = 20, before = 5;
  bool deterministic = false;
  CLI::App app("Times steps with generators whose computing is a delay: one line of JSON, from rank 0",
               "bench_generators");
  app.option_defaults()->always_capture_default();
  app.add_option("--generators", options.generators)->required();
  app.add_option("--staleness", options.staleness);
  app.add_option("--refresh", options.refresh, "iteration or attack");
  app.add_flag("--deterministic", deterministic, "weights by rule");
  app.add_option("--width", options.width, "of small_cnn: what the messages of weights are as long as");
  app.add_option("--batch", options.batch, "images of a trainer");
  app.add_option("--micro-batch", options.micro_batch);
  app.add_option("--steps", options.attack_steps, "of the attack");
  app.add_option("--step-seconds", delays.step, "of a trainer, without the attack");
  app.add_option("--iteration-seconds", delays.iteration, "of a generator, for a micro-batch");
  app.add_option("--slower", delays.slower, "how many times longer the first generators take");
  app.add_option("--repeat", steps, "steps");
  app.add_option("--before", before, "steps that do not count");
  const auto world = dat::Communicator::world();
  const int code = dat::bench::run_program(app, argc, argv, [&] {
    options.attack_batch = options.micro_batch;
    options.deterministic = deterministic;
    if (deterministic) options.total_batch = std::exchange(options.batch, 0) * dat::trainers_of(world->size(), options);
    const bool trains = dat::role_of(world->rank(), world->size(), options) == dat::Role::trainer;
    const auto group = world->split(trains ? 0 : 1, world->rank());
    if (!trains) return attack(*world, options, delays);
    const std::vector<double> seconds = train(*world, *group, options, delays, before, steps);
    if (!world->root()) return;
    double speed = 0;
    for (int k = 0; k < options.generators; ++k)
      speed +=
          1 / (delays.iteration * (k < std::ssize(delays.slower) ? delays.slower[static_cast<std::size_t>(k)] : 1));
    double sum = 0;
    for (const double one : seconds) sum += one;
    const int batch = deterministic ? options.total_batch : options.batch * group->size();
    std::cout << nlohmann::ordered_json{{"trainers", group->size()},
                                        {"generators", options.generators},
                                        {"staleness", options.staleness},
                                        {"computing", "delay"},
                                        {"trainer_seconds", delays.step},
                                        {"generators_seconds",
                                         batch / options.micro_batch * options.attack_steps / speed},
                                        {"step_seconds", sum / static_cast<double>(seconds.size())},
                                        {"seconds", seconds}}
              << std::endl;
  });
  if (code != 0 && world->size() > 1) world->abort(code);
  return code;
}
