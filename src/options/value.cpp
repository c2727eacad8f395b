#include "options/value.hpp"

namespace dat {

bool read_fraction(const std::string& text, double& value) {
  const std::size_t slash = text.find('/');
  double denominator = 1;
  if (slash != std::string::npos && !read_number(text.substr(slash + 1), denominator)) return false;
  if (!read_number(text.substr(0, slash), value)) return false;
  value /= denominator;
  return std::isfinite(value);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + '"';
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : separator) + word;
  return all;
}

std::string alternatives(const std::vector<std::string>& words) {
  if (words.size() < 2) return joined(words, "");
  return joined({words.begin(), words.end() - 1}, ", ") + " or " + words.back();
}

}  // namespace dat
