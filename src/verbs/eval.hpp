#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dat/options/eval.hpp"
#include "options/command_line.hpp"

namespace dat {

/// Parser for make_verb().
[[nodiscard]] std::optional<EvalOptions> parse_eval(CommandLine& line);

/// Every option, `key = value` a line, readable with --config.
[[nodiscard]] std::string toml_of(const EvalOptions& options);
/// Every option, name and value.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> settings_of(const EvalOptions& options);

}  // namespace dat
