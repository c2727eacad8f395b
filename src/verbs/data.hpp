#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
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

// As make_verb takes them.
[[nodiscard]] std::optional<ConvertOptions> parse_convert(CommandLine& line);
[[nodiscard]] std::optional<SyntheticOrder> parse_synthetic(CommandLine& line);
[[nodiscard]] std::optional<InspectOptions> parse_inspect(CommandLine& line);

}  // namespace dat
