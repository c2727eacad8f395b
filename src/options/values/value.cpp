#include "options/values/value.hpp"

#include <algorithm>

namespace dat {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '\n') result += '\\';
    result += c == '\n' ? 'n' : c;
  }
  return result + '"';
}

bool is_one_of(const std::string& word, const std::vector<std::string>& words) {
  return std::ranges::find(words, word) != words.end();
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : separator) + word;
  return all;
}

namespace {

std::string listed(const std::vector<std::string>& words, const std::string& last) {
  if (words.size() < 2) return joined(words, "");
  return joined({words.begin(), words.end() - 1}, ", ") + last + words.back();
}

}  // namespace

std::string alternatives(const std::vector<std::string>& words) { return listed(words, " or "); }
std::string listing(const std::vector<std::string>& words) { return listed(words, " and "); }

}  // namespace dat
