#pragma once

#include <optional>

#include "dat/options/bench.hpp"
#include "options/command_line.hpp"

namespace dat {

/// Parser for make_verb().
[[nodiscard]] std::optional<BenchOptions> parse_bench(CommandLine& line);

}  // namespace dat
