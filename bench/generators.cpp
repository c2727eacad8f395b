// Times steps of trainers and generators (--generators) whose computing is a delay, and whose messages are real: one
// line of JSON. See bench/README.md.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <thread>

#include "command_line.hpp"
#include "train/generators/generator.hpp"
#include "train/message/held_weights.hpp"
#include "train/plan/clock.hpp"
#include "train/plan/role.hpp"
#include "train/trainer.hpp"

namespace {

constexpr int kEndTag = 7;

void pass(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Delays {
  double image = 0.01;           ///< seconds of a trainer for an image, without the attack
  double attack = 0.1;           ///< seconds for the attack on an image
  std::vector<double> slower{};  ///< [generators, or fewer] how many times longer one takes

  [[nodiscard]] double slowness(int generator) const {
    return generator < std::ssize(slower) ? slower[static_cast<std::size_t>(generator)] : 1;
  }
};

/// What a rank has computed in the step, seconds.
[[nodiscard]] double computed(const dat::StepRecord& record, bool attacks) {
  double seconds = 0;
  for (const dat::Phase phase :
       {dat::Phase::data, dat::Phase::forward, dat::Phase::backward, dat::Phase::select, dat::Phase::update})
    seconds += record.seconds[static_cast<std::size_t>(phase)];
  return seconds + (attacks ? record.seconds[static_cast<std::size_t>(dat::Phase::attack)] : 0);
}

struct Steps {
  std::vector<double> seconds{};  ///< of each step of the trainer, after those that do not count
  std::int64_t version_bytes = 0, dealt_again = 0;
  double computed = 0;  ///< most seconds that a step has really computed: what is above a delay is not the delay's
};

[[nodiscard]] Steps train(dat::Communicator& world, dat::Communicator& trainers, const dat::TrainOptions& options,
                          const Delays& delays, int before, int steps) {
  Steps result;
  {
    const bool attacks = options.generators == 0;
    dat::Trainer trainer(trainers, options);
    trainer.share_state();
    trainer.start();
    const double delay = trainer.plan().batch * (delays.image + (attacks ? delays.attack : 0));
    const int parts = trainer.plan().micro_batches_of(trainers.rank());
    for (int step = 0; step < before + steps; ++step) {
      const double begin = dat::seconds_now();
      const dat::StepRecord& record = trainer.step(false);
      const double done = computed(record, attacks);
      for (int part = 0; part < parts; ++part) {  // between micro-batches a trainer takes answers
        pass((delay - done) / parts);
        trainer.examples().trained();
      }
      if (step < before) continue;
      result.seconds.push_back(dat::seconds_now() - begin);
      result.computed = std::max(result.computed, done);
      if (record.generators != nullptr) result.dealt_again += record.generators->dealt_again;
    }
    trainer.examples().close();
    result.version_bytes = dat::HeldWeights::memory(trainer.model());
  }
  const int end = 0;
  for (int rank = trainers.size(); trainers.root() && rank < world.size(); ++rank)
    world.send(&end, sizeof end, rank, kEndTag);
  return result;
}

void attack(dat::Communicator& world, const dat::TrainOptions& options, const Delays& delays) {
  dat::Generator generator(world, options);
  const double slowness = delays.slowness(world.rank() - dat::trainers_of(world.size(), options));
  const double iteration = slowness * delays.attack * options.micro_batch / options.attack_steps;
  generator.tell([&](int iterations, double seconds) { pass(iterations * iteration - seconds); });
  const auto called = [&]() -> std::optional<dat::ExitCode> {
    if (!world.probe(0, kEndTag)) return {};
    int end = 0;
    world.receive(&end, sizeof end, 0, kEndTag);
    return dat::ExitCode::done;
  };
  static_cast<void>(generator.serve(called, [] { return false; }));
}

}  // namespace

int main(int argc, char** argv) {
  // So small that its computing takes next to nothing.
  dat::TrainOptions options;
  options.network = "small_cnn";
  options.width = 16;
  options.micro_batch = 8;
  options.attack_steps = 8;
  options.attack_bn = "eval";
  options.warmup_epochs = 0;
  options.threads = 1;
  options.device = "cpu";
  options.epochs = 100000;
  options.selector = "all";
  options.optimizer = "sgd";
  options.lambda = 0;
  Delays delays;
  int steps = 20, before = 5, images = 64;
  bool deterministic = false;
  std::string data;
  CLI::App app("Times steps with generators whose computing is a delay: one line of JSON, from rank 0",
               "bench_generators");
  app.option_defaults()->always_capture_default();
  app.add_option("--generators", options.generators, "0: all ranks train, and attack what they train on");
  app.add_option("--staleness", options.staleness);
  app.add_flag("--deterministic", deterministic, "weights by rule");
  app.add_option("--network", options.network, "what the messages of weights are as long as");
  app.add_option("--width", options.width);
  app.add_option("--data", data, "a file of images; none: 32x32, drawn");
  app.add_option("--total-batch", images, "images of all trainers");
  app.add_option("--micro-batch", options.micro_batch);
  app.add_option("--steps", options.attack_steps, "of the attack");
  app.add_option("--image-seconds", delays.image, "of a trainer for an image, without the attack");
  app.add_option("--attack-seconds", delays.attack, "for the attack on an image");
  app.add_option("--slower", delays.slower, "how many times longer the first generators take");
  app.add_option("--repeat", steps, "steps");
  app.add_option("--before", before, "steps that do not count");
  const auto world = dat::Communicator::world();
  const int code = dat::bench::run_program(app, argc, argv, [&] {
    options.attack_batch = options.micro_batch;
    options.deterministic = deterministic;
    if (!data.empty()) options.data = {data};
    const int trainers = dat::trainers_of(world->size(), options);
    if (deterministic)
      options.total_batch = images;
    else
      options.batch = images / trainers;
    const bool trains = world->rank() < trainers;
    const auto group = world->subgroup(trains ? 0 : 1, world->rank());
    if (!trains) return attack(*world, options, delays);
    const Steps found = train(*world, *group, options, delays, before, steps);
    if (!world->root()) return;
    double speed = 0, sum = 0;  // speed: images a second of all generators
    for (int k = 0; k < options.generators; ++k) speed += 1 / (delays.attack * delays.slowness(k));
    for (const double one : found.seconds) sum += one;
    if (!deterministic) images = options.batch * trainers;
    std::cout << nlohmann::ordered_json{{"trainers", trainers},
                                        {"generators", options.generators},
                                        {"staleness", options.staleness},
                                        {"deterministic", deterministic},
                                        {"computing", "delay"},
                                        {"images", images},
                                        {"version_bytes", found.version_bytes},
                                        {"trainer_seconds", images * delays.image / trainers},
                                        {"generators_seconds", speed > 0 ? images / speed : 0},
                                        {"computed_seconds", found.computed},
                                        {"dealt_again", found.dealt_again},
                                        {"step_seconds", sum / static_cast<double>(found.seconds.size())},
                                        {"seconds", found.seconds}}
              << std::endl;
  });
  if (code != 0 && world->size() > 1) world->abort(code);
  return code;
}
