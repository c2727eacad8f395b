#pragma once

#include <optional>

#include "dat/options/certify.hpp"
#include "options/command_line.hpp"

namespace dat {

/// Parser for make_verb().
[[nodiscard]] std::optional<CertifyOptions> parse_certify(CommandLine& line);

}  // namespace dat
