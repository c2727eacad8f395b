#include <algorithm>
#include <sstream>
#include <string_view>

#include "dat/dataset.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

/// Returns whether a character is a control, a blank, or what ends a line or a paragraph.
[[nodiscard]] bool is_blank(std::string_view c) {
  if (c.size() == 1) return static_cast<unsigned char>(c[0]) <= ' ' || c[0] == 0x7f;  // a byte above is no character
  return (c[0] == '\xc2' && static_cast<unsigned char>(c[1]) <= 0xa0) || c == "\xe2\x80\xa8" || c == "\xe2\x80\xa9";
}

[[nodiscard]] std::string clean(std::string_view name) {
  constexpr std::size_t kMostBytes = 200;  // enough for people, and a bound for files
  std::string cleaned, gap;                // gap: what comes before the next character
  while (!name.empty()) {
    const int bytes = utf8_length(name);
    const std::string_view character = name.substr(0, static_cast<std::size_t>(std::max(bytes, 1)));
    name.remove_prefix(character.size());
    if (character == "\xef\xbb\xbf") continue;  // a mark of the order of bytes
    if (is_blank(character)) {
      gap = cleaned.empty() ? "" : " ";
      continue;
    }
    const std::string next = gap.append(bytes > 0 ? character : "?");
    if (cleaned.size() + next.size() > kMostBytes) break;
    cleaned += next;
    gap.clear();
  }
  return cleaned;
}

}  // namespace

std::vector<std::string> numbered_classes(int classes) {
  std::vector<std::string> names;
  for (int i = 0; i < classes; ++i) names.push_back("class " + std::to_string(i));
  return names;
}

std::vector<std::string> clean_class_names(std::vector<std::string> names) {
  for (std::size_t k = 0; k < names.size(); ++k) {
    names[k] = clean(names[k]);
    if (names[k].empty()) names[k] = "class " + std::to_string(k);
  }
  return names;
}

std::vector<std::string> class_names_of(const std::string& lines) {
  std::vector<std::string> names;
  std::istringstream text(lines);
  for (std::string name; std::getline(text, name);) names.push_back(name);
  return clean_class_names(std::move(names));
}

std::string lines_of(const std::vector<std::string>& class_names) {
  std::string lines;
  for (const std::string& name : class_names) lines += name + "\n";
  return lines;
}

}  // namespace dat
