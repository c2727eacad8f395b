#pragma once

#include <string>
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

/// Output of a bare `dat_hpc` and of `dat_hpc --help`: at most 45 lines of 80 columns.
[[nodiscard]] std::string first_screen();
/// Output of `dat_hpc data --help`, of the verbs that begin with this word.
[[nodiscard]] std::string screen_of(const std::string& first_word);

/// Prints a text.
[[nodiscard]] Command print_command(const std::string& text);
/// Prints what makes a shell complete words ("bash", "zsh"), or, behind "words", what may stand in place of the last
/// one. Error(usage): neither.
[[nodiscard]] Command completion_command(const std::vector<std::string>& words);
/// Prints what stands after --help: "dat_hpc help layers" and "dat_hpc --help layers" come here with {"layers"};
/// of "dat_hpc help --man" the manual page. Error(usage): no verb or option is called so, or speaks of it.
[[nodiscard]] Command help_command(std::vector<std::string> topic);

}  // namespace dat
