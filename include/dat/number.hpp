#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

namespace dat {

/// Reads a number; true if all of `text` is a number that T can hold.
template <class T>
[[nodiscard]] bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// Reads a number or a fraction such as 8/255; true if all of `text` is one, and finite.
[[nodiscard]] inline bool read_fraction(std::string_view text, double& value) {
  const std::size_t slash = text.find('/');
  double denominator = 1;
  if (slash != std::string_view::npos && !read_number(text.substr(slash + 1), denominator)) return false;
  if (!read_number(text.substr(0, slash), value)) return false;
  value /= denominator;
  return std::isfinite(value);
}

/// Returns whether all of a text are letters and digits of ASCII, or these ones.
[[nodiscard]] inline bool is_plain(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || others.find(c) != std::string_view::npos;
  });
}

/// The text without blanks at its ends, as an element of a list has them after a comma.
[[nodiscard]] inline std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

}  // namespace dat
