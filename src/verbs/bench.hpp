#pragma once

#include <optional>

#include "dat/options/bench.hpp"
#include "options/command_line.hpp"

namespace dat {

/// As make_verb takes it.
[[nodiscard]] std::optional<BenchOptions> parse_bench(CommandLine& line);

}  // namespace dat
