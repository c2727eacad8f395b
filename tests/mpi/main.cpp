#include <cstdlib>
#include <ctime>
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
  // All ranks draw the same cases, at midnight too.
  std::int64_t day = ranks->root() ? std::time(nullptr) / 86'400 : 0;
  ranks->broadcast(&day, sizeof day);
  setenv("DAT_SEED", std::to_string(day).c_str(), 0);
  std::int64_t failures = dat::test::run_tests(argc, argv);
  ranks->sum(&failures, 1);
  ranks.reset();
  return failures == 0 ? 0 : 1;
}
