#pragma once

#include <functional>
#include <string>

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

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace dat
