#pragma once

#include <string>

namespace dat {

/// An option in lines of at most 80 columns: name and values (`left`) on the left, `about` and the default on the
/// right.
[[nodiscard]] std::string option_lines(const std::string& left, const std::string& about, const std::string& standard);

/// Returns whether an argument asks for help, as "--help=milestones" does.
[[nodiscard]] bool asks_for_help(const std::string& word);

}  // namespace dat
