// The verb bench: what the machine reaches, as a table for a person.

#include "measure/bench.hpp"

#include <cstdio>

#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

int run_bench(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) {
    shake_hands(world, facts_of(command, argc, argv));
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // rows appear as they are measured, through mpirun too
    Bench(world, command.bench).run(argc, argv);
    if (world.root())
      require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, ExitCode::io,
              "cannot write to standard output; is the disk full?");
    return static_cast<int>(ExitCode::done);
  });
}

}  // namespace dat
