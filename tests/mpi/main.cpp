#define CATCH_CONFIG_RUNNER
#include <iostream>

#include "catch.hpp"
#include "device.hpp"
#include "world.hpp"

namespace {
std::unique_ptr<dat::Communicator> ranks;
}

dat::Communicator& dat::test::world() { return *ranks; }

int main(int argc, char** argv) {
  if (dat::test::test_device() == "cuda" && !dat::cuda_missing().empty()) {
    std::cout << "NOT RUN on a GPU: " << dat::cuda_missing() << std::endl;
    return 77;
  }
  ranks = dat::Communicator::world();
  std::int64_t failures = Catch::Session().run(argc, argv);
  ranks->sum(&failures, 1);
  ranks.reset();
  return failures == 0 ? 0 : 1;
}
