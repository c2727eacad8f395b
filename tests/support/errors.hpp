#pragma once

// A part of catch.hpp.

#include "dat/error.hpp"

namespace dat {

/// "code: message" of the error that `action` throws, or "none".
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "none";
}

/// The code of the error that `action` throws, or `done`.
template <class Action>
ExitCode code_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

/// The message of the error that `action` throws, which must be of this code; empty: none.
template <class Action>
std::string message_of(Action&& action, ExitCode expected = ExitCode::usage) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == expected);
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace dat
