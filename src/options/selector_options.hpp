#pragma once

#include <functional>
#include <string>

#include "dat/config.hpp"

namespace dat {

/// How near to the user an option was set: by no one, by a recipe, by a file, on the command line.
enum class Origin : std::uint8_t { none, recipe, file, command_line };

/// Looks at options that say more of another selector than the chosen one. Error(usage) where such an option was set as
/// near to the user as the selector, or nearer: somebody believes that it counts. Where the selector was set nearer,
/// --selector all over a recipe of JointSpar for instance, the option falls back to its default.
void settle_selector_options(TrainOptions& options, const std::function<Origin(const std::string&)>& origin);

}  // namespace dat
