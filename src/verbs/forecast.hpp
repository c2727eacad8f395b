#pragma once

#include <optional>

#include "dat/options/forecast.hpp"
#include "options/command_line.hpp"

namespace dat {

/// Parser for make_verb().
[[nodiscard]] std::optional<ForecastOptions> parse_forecast(CommandLine& line);

}  // namespace dat
