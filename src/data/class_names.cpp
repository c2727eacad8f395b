#include <cstdint>
#include <sstream>
#include <string_view>

#include "dat/dataset.hpp"

namespace dat {

namespace {

/// The next character of UTF-8, which is taken off; -1: a byte that begins none.
[[nodiscard]] std::int32_t next_character(std::string_view& text) {
  const auto byte = [&](std::size_t k) { return static_cast<std::uint8_t>(text[k]); };
  const std::uint8_t first = byte(0);
  const std::size_t bytes = first < 0x80   ? 1
                            : first < 0xc2 ? 0
                            : first < 0xe0 ? 2
                            : first < 0xf0 ? 3
                            : first < 0xf5 ? 4
                                           : 0;
  std::int32_t character = bytes < 2 ? first : first & (0x7f >> bytes);
  bool whole = bytes > 0 && bytes <= text.size();
  for (std::size_t k = 1; whole && k < bytes; ++k) {
    whole = (byte(k) & 0xc0) == 0x80;
    character = character << 6 | (byte(k) & 0x3f);
  }
  constexpr std::int32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  whole = whole && character >= kShortest[bytes] && character <= 0x10ffff && (character < 0xd800 || character > 0xdfff);
  text.remove_prefix(whole ? bytes : 1);
  return whole ? character : -1;
}

/// Controls, blanks, and what ends a line or a paragraph.
[[nodiscard]] bool is_blank(std::int32_t character) {
  return (character >= 0 && character <= ' ') || (character >= 0x7f && character <= 0xa0) || character == 0x2028 ||
         character == 0x2029;
}

[[nodiscard]] std::string clean(std::string_view name) {
  constexpr std::size_t kMostBytes = 200;  // enough for people, and a bound for files
  constexpr std::int32_t kByteOrderMark = 0xfeff;
  std::string cleaned;
  bool blank = false;
  while (!name.empty()) {
    const std::string_view before = name;
    const std::int32_t character = next_character(name);
    if (character == kByteOrderMark) continue;
    if (is_blank(character)) {
      blank = true;
      continue;
    }
    std::string next = blank && !cleaned.empty() ? " " : "";
    next += character < 0 ? "?" : before.substr(0, before.size() - name.size());
    if (cleaned.size() + next.size() > kMostBytes) break;
    cleaned += next;
    blank = false;
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
