#include <algorithm>
#include <string>
#include <string_view>

#include "dat/file.hpp"

namespace dat {

std::string quoted_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::string_view("+,-./:=@_").find(c) != std::string_view::npos || (c >= '0' && c <= '9') ||
           (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "\"";
  for (const char c : word) {
    if (std::string_view("\"\\$`").find(c) != std::string_view::npos) quoted += '\\';
    quoted += c >= 0 && c < ' ' ? '?' : c;
  }
  return quoted + "\"";
}

}  // namespace dat
