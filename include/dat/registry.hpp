#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dat/error.hpp"

namespace dat {

/// The members of one family (attacks, selectors, optimizers, ...), by name. A new member is one line in its family's
/// table. `what` is the family's name in messages.
template <class Signature>
class Registry {
 public:
  Registry(std::string what, std::map<std::string, std::function<Signature>> members)
      : what_(std::move(what)), members_(std::move(members)) {}

  /// Error(usage) for an unknown name; the message lists the known ones.
  [[nodiscard]] const std::function<Signature>& at(const std::string& name) const {
    const auto found = members_.find(name);
    if (found != members_.end()) return found->second;
    std::string known;
    for (const auto& [key, make] : members_) known += (known.empty() ? "" : ", ") + key;
    fail(ExitCode::usage, "unknown ", what_, " '", name, "'; known: ", known);
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [key, make] : members_) all.push_back(key);
    return all;
  }

 private:
  std::string what_;
  std::map<std::string, std::function<Signature>> members_;
};

}  // namespace dat
