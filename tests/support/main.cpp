#include <cstdlib>
#include <cstring>
#include <iostream>

#include "device.hpp"
#include "run_tests.hpp"

/// Catch2's main; and where the laws shall be checked on a GPU that is not there, says so and names them: exit code 77,
/// or 1 with DAT_REQUIRE_CUDA=1.
int main(int argc, char** argv) {
  setenv("XDG_CACHE_HOME", "/dev/null", 1);  // no choices of other processes
  const std::string missing = dat::test::test_device() == "cuda" ? dat::cuda_missing() : "";
  if (missing.empty()) return dat::test::run_tests(argc, argv);
  std::cout << "NOT RUN on a GPU: " << missing << ". The laws that remain unchecked there:" << std::endl;
  const int status = dat::test::run_tests(argc, argv, true);
  if (status != 0) return status;
  const char* required = std::getenv("DAT_REQUIRE_CUDA");
  return required != nullptr && std::strcmp(required, "1") == 0 ? 1 : 77;
}
