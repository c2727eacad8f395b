#pragma once

#include <cstdlib>
#include <string>

namespace dat::test {

/// A file that the tests read, by its path below tests/: in this source tree, or, for a program that was carried to
/// another machine, below the folder $DAT_TEST_DATA.
[[nodiscard]] inline std::string data_path(const std::string& name) {
  const char* folder = std::getenv("DAT_TEST_DATA");
  return std::string(folder != nullptr ? folder : DAT_TEST_DATA) + "/" + name;
}

}  // namespace dat::test
