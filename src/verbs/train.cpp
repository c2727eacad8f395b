// The verb train.

#include <utility>

#include "options/train/parse.hpp"
#include "printed.hpp"
#include "run/begin/folder.hpp"
#include "run/begin/found.hpp"
#include "run/run.hpp"
#include "run/settle_generators.hpp"
#include "run/signals.hpp"
#include "train/plan/role.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

/// Plans, trains, evaluates, writes the run's folder; goes on from a checkpoint where there is one. **Collective.**
int run_training(const TrainOrder& order, int argc, char** argv) {
  outlive_readers();
  return with_ranks([&](Communicator& world) {
    shake_hands(world, facts_of(settings_of(order.options), argc, argv));
    TrainOrder own = order;
    GivenWeights weights = take_network(own, world);
    const std::string told = settle_generators(world, own.options);
    if (world.root() && !told.empty()) say(told);
    if (const std::string other = other_ranks(order, trainers_of(world.size(), own.options));
        world.root() && !other.empty())
      say("warning: " + other);
    return Run(world, own.options, std::move(weights), argc, argv).go();
  });
}

std::optional<TrainOrder> parse_train(CommandLine& line) {
  const std::optional<TrainOrder> order =
      parse_training(line,
                     "Distributed adversarial training of image classifiers. What a bare\n"
                     "  dat_hpc train --data FILE\n"
                     "does is LAMB with JointSpar: PGD-10, and the exp3 bandit draws 40/54 of the\n"
                     "layers in the mean, which a step trains. Plain PGD training, as published, is\n"
                     "  dat_hpc train --recipe madry --data FILE\n"
                     "and --selector all trains all layers in each step.",
                     take_network);
  if (order) require_apart_from_inputs(order->options, line.config_file());
  return order;
}

}  // namespace

Verb train_verb() {
  return make_verb<TrainOrder>("train", "train a network; the verb when there are options alone", parse_train,
                               run_training, Launch::together);
}

}  // namespace dat
