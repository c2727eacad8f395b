#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "data/indexing/indexing.hpp"
#include "options/command_line.hpp"

namespace dat {

/// Options of `data synthetic`.
struct SyntheticOrder : SyntheticOptions {
  std::string output;
};

/// Options of `data inspect`.
struct InspectOptions {
  std::vector<std::string> files;
  std::string page;  ///< a PNG to draw; empty: none
};

/// Options of `data index`.
struct IndexOrder : IndexOptions {
  int threads = 0;  ///< 0: one for each core
  bool pack = false;
  std::string on_damage = "refuse";
  int shard_megabytes = 1000;
};

// Parsers for make_verb().
[[nodiscard]] std::optional<ConvertOptions> parse_convert(CommandLine& line);
[[nodiscard]] std::optional<IndexOrder> parse_index(CommandLine& line);
[[nodiscard]] std::optional<SyntheticOrder> parse_synthetic(CommandLine& line);
[[nodiscard]] std::optional<InspectOptions> parse_inspect(CommandLine& line);

}  // namespace dat
