#pragma once

#include "catch.hpp"

namespace dat::test {

/// Variables of the environment, until the end of the scope.
class Environment {
 public:
  using Values = std::map<std::string, std::string>;
  Environment(std::initializer_list<Values::value_type> values) : Environment(Values(values)) {}
  explicit Environment(const Values& values) {
    for (const auto& [name, value] : values) {
      const char* const before = std::getenv(name.c_str());
      before_[name] = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, before] : before_)
      before ? ::setenv(name.c_str(), before->c_str(), 1) : ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace dat::test
