#pragma once

#include <string>
#include <vector>

#include "options/values/value.hpp"

namespace dat {

/// A line of a file of options, or several where a list goes on.
struct Entry {
  int line = 0;
  std::string key;
  bool list = false;
  std::vector<Value> values{};
};

/// The `key = value` lines of `text`: TOML without tables, plus fractions (8/255) as values. `name` names the text in
/// messages. Error(usage): the text is something else, or has a key twice.
[[nodiscard]] std::vector<Entry> read_entries(const std::string& text, const std::string& name);

}  // namespace dat
