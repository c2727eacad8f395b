#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "hdf5/hdf5.hpp"

namespace dat {

/// Attributes of the root of a file.
using FileFacts = std::vector<std::pair<std::string, std::string>>;

inline void write_facts(Hdf5File& file, const std::string& filetype, int format, const FileFacts& facts) {
  file.set_text("/", "filetype", filetype);
  file.set_integer("/", "format_version", format);
  for (const auto& [name, value] : facts) file.set_text("/", name, value);
}

/// One 1-D dataset: a member of each row, or what is made of it.
template <class T, class Rows, class Of = std::identity>
void write_column(Hdf5File& file, const std::string& name, const Rows& rows, const Of& of = {}) {
  std::vector<T> values;
  for (const auto& row : rows) values.push_back(static_cast<T>(std::invoke(of, row)));
  file.write(name, {std::ssize(values)}, values);
}

}  // namespace dat
