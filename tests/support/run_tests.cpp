#define CATCH_CONFIG_RUNNER
#include "run_tests.hpp"

#include "catch.hpp"

int dat::test::run_tests(int argc, char** argv, bool only_names) {
  Catch::Session session;
  const int status = session.applyCommandLine(argc, argv);
  if (status != 0) return status;
  if (!only_names) return session.run();
#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR < 3
  session.configData().listTestNamesOnly = true;
#else
  session.configData().listTests = true;
#endif
  (void)session.run();
  return 0;
}
