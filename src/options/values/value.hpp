#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "dat/number.hpp"

namespace dat {

/// One value as it was written: on the command line, or in the file without or with quotes.
struct Value {
  enum class Form : std::uint8_t { argument, bare, quoted };
  std::string text;
  Form form = Form::argument;
};

/// The shortest text that is read as this number; of a radius or a step size, in grey levels: 8/255.
template <class T>
[[nodiscard]] std::string number_text(T value) {
  char buffer[32];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, shortest.ptr);
  if constexpr (std::is_floating_point_v<T>) {
    constexpr double kExact = 0x1p53;  // up to here, doubles have all whole numbers
    const double k = std::round(value * 255);
    if (text.size() > 8 && std::fabs(k) < kExact && k / 255 == value)
      text = number_text(static_cast<std::int64_t>(k)) + "/255";
  }
  return text;
}

/// Text as a string of a TOML file.
[[nodiscard]] std::string quoted(const std::string& text);

/// Returns whether a word is among others.
[[nodiscard]] bool is_one_of(const std::string& word, const std::vector<std::string>& words);
[[nodiscard]] std::string joined(const std::vector<std::string>& words, const std::string& separator);
/// "a, b or c".
[[nodiscard]] std::string alternatives(const std::vector<std::string>& words);
/// "a, b and c".
[[nodiscard]] std::string listing(const std::vector<std::string>& words);

}  // namespace dat
