#define CATCH_CONFIG_RUNNER
#include "catch.hpp"
#include "world.hpp"

namespace {
std::unique_ptr<dat::Communicator> ranks;
}

dat::Communicator& dat::test::world() { return *ranks; }

int main(int argc, char** argv) {
  ranks = dat::Communicator::world();
  std::int64_t failures = Catch::Session().run(argc, argv);
  ranks->sum(&failures, 1);
  ranks.reset();
  return failures == 0 ? 0 : 1;
}
