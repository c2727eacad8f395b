#pragma once

namespace dat::test {

/// Catch2's main(): runs the tests that the command line names. Returns the exit code.
/// only_names: prints their names instead, and returns 0 unless the command line is wrong.
[[nodiscard]] int run_tests(int argc, char** argv, bool only_names = false);

}  // namespace dat::test
