#define CATCH_CONFIG_RUNNER
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "catch.hpp"
#include "device.hpp"

/// Catch2's main; and where the laws shall be checked on a GPU that is not there, says so and names them: exit code 77,
/// or 1 with DAT_REQUIRE_CUDA=1.
int main(int argc, char** argv) {
  Catch::Session session;
  const int status = session.applyCommandLine(argc, argv);
  if (status != 0) return status;
  const std::string missing = dat::test::test_device() == "cuda" ? dat::cuda_missing() : "";
  if (missing.empty()) return session.run();
  std::cout << "NOT RUN on a GPU: " << missing << ". The laws that remain unchecked there:" << std::endl;
#ifdef CATCH_VERSION_MAJOR
#if CATCH_VERSION_MAJOR < 3
  session.configData().listTestNamesOnly = true;
#else
  session.configData().listTests = true;
#endif
#endif
  (void)session.run();
  const char* required = std::getenv("DAT_REQUIRE_CUDA");
  return required != nullptr && std::strcmp(required, "1") == 0 ? 1 : 77;
}
