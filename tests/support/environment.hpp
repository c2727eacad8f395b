#pragma once

#include "catch.hpp"

namespace dat::test {

/// Variables of the environment, until the end of the scope.
class Environment {
 public:
  Environment() = default;
  Environment(const std::string& name, const std::string& value) { set(name, value); }
  ~Environment() {
    for (const auto& [name, before] : before_)
      before ? ::setenv(name.c_str(), before->c_str(), 1) : ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::string& value) {
    const char* const before = std::getenv(name.c_str());
    before_.emplace(name, before != nullptr ? std::optional<std::string>(before) : std::nullopt);
    ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace dat::test
