#pragma once

#include <vector>

#include "verbs/verb.hpp"

namespace dat {

/// All of them, in the order of the help.
[[nodiscard]] const std::vector<Verb>& verbs();

/// Returns whether the command line is one of `train`, as far as its first word says.
[[nodiscard]] bool trains(int argc, const char* const* argv);
/// Returns whether this process reports errors of its command line itself. Where ranks work together the first one
/// does, and also for a line that no verb knows.
[[nodiscard]] bool speaks(int argc, const char* const* argv);

/// Reads the command line, the file that --config names and the recipe that --recipe names; what comes first here wins.
/// Calls neither MPI nor a device.
/// Error(usage): unknown or misspelt option or key, wrong type, value out of range, options that do not fit together;
/// the message names the option, or the file and the line.
[[nodiscard]] Command parse_command_line(int argc, const char* const* argv);

}  // namespace dat
