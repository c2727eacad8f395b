#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dat/options/bench.hpp"
#include "dat/options/eval.hpp"
#include "dat/options/forecast.hpp"
#include "options/command_line.hpp"

namespace dat {

// Parsers for make_verb().
[[nodiscard]] std::optional<BenchOptions> parse_bench(CommandLine& line);
[[nodiscard]] std::optional<EvalOptions> parse_eval(CommandLine& line);
[[nodiscard]] std::optional<ForecastOptions> parse_forecast(CommandLine& line);

/// Every option, `key = value` a line, readable with --config.
[[nodiscard]] std::string toml_of(const EvalOptions& options);
/// Every option, name and value.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> settings_of(const EvalOptions& options);

}  // namespace dat
