#pragma once

#include <string>

namespace dat {

/// Has everything that is written to std::cout and std::cerr from now on pass through without_controls(). What a
/// library of C prints (printf) does not pass there: Report and `bench` clean what they print themselves.
void clean_streams();

/// A text that is printed to be kept, a script or a configuration: what is cleaned would name other files. Returns it.
/// Error(usage): it would be changed; the message has the line.
[[nodiscard]] const std::string& unchanged(const std::string& text);

}  // namespace dat
