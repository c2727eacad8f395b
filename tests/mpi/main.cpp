#include <cstdlib>
#include <iostream>
#include <string>

#include "device.hpp"
#include "run_tests.hpp"
#include "world.hpp"

namespace {
std::unique_ptr<dat::Communicator> ranks;
}

dat::Communicator& dat::test::world() { return *ranks; }

int main(int argc, char** argv) {
  setenv("XDG_CACHE_HOME", "/dev/null", 1);  // no choices of other processes
  if (dat::test::test_device() == "cuda" && !dat::cuda_missing().empty()) {
    std::cout << "NOT RUN on a GPU: " << dat::cuda_missing() << std::endl;
    return 77;
  }
  ranks = dat::Communicator::world();
  std::int64_t failures = dat::test::run_tests(argc, argv);
  ranks->sum(&failures, 1);
  ranks.reset();
  return failures == 0 ? 0 : 1;
}
