#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace dat {

/// Exit codes of the process, which are the same on every rank. The table is in docs/manual/failures.md.
enum class ExitCode : int {
  done = 0,           ///< finished
  usage = 2,          ///< bad option, configuration or combination of options
  data = 3,           ///< data missing, short or corrupt
  checkpoint = 4,     ///< no usable checkpoint
  device = 5,         ///< device or library cannot do what was asked
  communication = 6,  ///< MPI failure
  numerical = 7,      ///< NaN or infinity in the loss or the weights
  integrity = 8,      ///< ranks disagree about the weights or the active layers
  io = 9,             ///< disk full, or a file cannot be written
  stopped = 75        ///< stopped early with a good checkpoint: run the same command again
};

/// The one exception type. `what()` is one sentence for the user: what is wrong, where, what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// The text without what a terminal would obey: control characters (C0 but for line breaks and tabs, DEL, C1) and bytes
/// that are no UTF-8 become '?'. Untrusted texts have any.
[[nodiscard]] std::string without_controls(std::string text);
/// The same text in one line: line breaks and tabs become blanks.
[[nodiscard]] std::string in_one_line(std::string text);
/// Length of the well-formed UTF-8 character that `text` begins with (Unicode 15, table 3-7): 0 where there is none, -1
/// where its end may come yet. `text` is not empty.
[[nodiscard]] int utf8_length(std::string_view text);

/// Throws Error(code) with the parts written one after the other.
template <class... Parts>
[[noreturn]] void fail(ExitCode code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

/// Throws Error(code) unless `condition` holds. For input; the program's own logic is checked by assert.
template <class... Parts>
void require(bool condition, ExitCode code, const Parts&... parts) {
  if (!condition) fail(code, parts...);
}

}  // namespace dat
