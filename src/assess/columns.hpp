#pragma once

#include <cstdint>
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

/// One 1-D dataset: of(i) for i in [0, n).
template <class T, class Of>
void write_column(Hdf5File& file, const std::string& name, std::size_t n, const Of& of) {
  std::vector<T> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(static_cast<T>(of(i)));
  file.write(name, {static_cast<std::int64_t>(n)}, values);
}

}  // namespace dat
