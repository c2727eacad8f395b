#pragma once

#include <sys/ioctl.h>

#include <string>

namespace dat {

/// Has everything that is written to std::cout from now on pass through without_controls(). Output of printf does not
/// pass there: Report cleans that itself, and `bench` prints no text of a file.
void clean_output();

/// Prints a line to standard error, at once; what a file says cannot begin another one (in_one_line).
void print_error_line(const std::string& line);
/// Prints "dat_hpc: LINE" there.
void say(const std::string& line);

/// A text that is printed to be kept, a script or a configuration: what is cleaned would name other files. Returns it.
/// Error(usage): it would be changed; the message has the line.
[[nodiscard]] const std::string& unchanged(const std::string& text);

/// Lines and columns of the terminal that a person looks at; 0 without one. That of a launcher (mpirun) has no size.
[[nodiscard]] winsize terminal_size();

}  // namespace dat
