// The verb train: everything around the steps.

#include "run/beginning.hpp"
#include "run/run.hpp"
#include "run/signals.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

int run_training(const Command& command, int argc, char** argv) {
  catch_signals();
  Command own = command;
  try {
    take_network(own);
  } catch (const Error&) {  // rank 0 says so when it reads the weights, if it must
  }
  return with_ranks([&](Communicator& world) {
    shake_hands(world, facts_of(own, argc, argv));
    return Run(world, own.train, argc, argv).go();
  });
}

}  // namespace dat
