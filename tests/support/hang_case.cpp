// Ranks that hang in one way or another, under the hang watch: dat_hang_case CASE RANK TIMEOUT. All sum twenty times;
// then rank RANK does something else than the others, who sum on:
//
//   name    broadcasts where the others sum
//   bytes   sums more numbers
//   skip    leaves one sum out, and stands at the end before the others
//   still   its main thread waits for something that never comes; sums are made in memory of two nodes, by MPI between
//           them
//   leave   returns
//   liar    has left to the others, and says for ever that it gets on; the next rank stands still
//   slow    computes three times the timeout long, and says so; this is no hang, and all ranks end with code 0
//
// Exit code 1: a hang that nobody has seen.

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dat/tick.hpp"
#include "reduce/sums/sums.hpp"
#include "verbs/ranks.hpp"

namespace {

int run(dat::Communicator& world, const std::string& what, int who, double timeout) {
  const bool guilty = world.rank() == who;
  world.watch(timeout);
  std::vector<double> numbers(100000, 1.0);
  const auto backend = dat::make_backend({.device = "cpu", .threads = 1});
  std::unique_ptr<dat::NodeSums> over_nodes;
  if (what == "still")
    over_nodes = dat::make_sums(
        "window", {.backend = *backend, .ranks = world, .bytes = 8000, .longest = 2000, .node = world.rank() / 2});
  const auto sum = [&](std::int64_t count) {
    if (over_nodes == nullptr) return world.sum(numbers.data(), count);
    over_nodes->start(0, 2 * count).wait();
  };
  for (int k = 0; k < 20; ++k) sum(1000);
  const dat::CallLabel label("after twenty sums");
  if (what == "liar") {
    if (!guilty) world.excuse(who);
    if (world.rank() == who + 1)
      for (;;) pause();
    while (guilty) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      dat::tick();
    }
  }
  if (guilty) {
    if (what == "name") world.broadcast(numbers.data(), 8000);
    if (what == "bytes") sum(100000);
    if (what == "still")
      for (;;) pause();
    if (what == "leave") return 0;
    if (what == "slow")
      for (int k = 0; k < 300; ++k) {
        std::this_thread::sleep_for(std::chrono::duration<double>(timeout / 100));
        dat::tick();
      }
  }
  const bool as_many = what == "slow" || !guilty;
  for (int k = 0; k < (as_many ? 20 : 19); ++k) sum(1000);
  if (what == "slow") return 0;
  std::this_thread::sleep_for(std::chrono::duration<double>(3 * timeout));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return dat::with_ranks(
      [&](dat::Communicator& world) { return run(world, argv[1], std::atoi(argv[2]), std::atof(argv[3])); });
}
