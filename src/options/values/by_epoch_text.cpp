#include "options/values/by_epoch_text.hpp"

#include <sstream>

#include "options/values/value.hpp"

namespace dat {

namespace {

constexpr const char* kGrows = "..";

[[nodiscard]] bool read_epoch(const std::string& text, int& epoch) {
  constexpr int kMost = 100000;
  return read_number(text, epoch) && epoch >= 0 && epoch <= kMost;
}

/// VALUE, VALUE@EPOCH, or VALUE..VALUE@EPOCH-EPOCH.
[[nodiscard]] bool read_part(const std::string& word, WrittenPart& part) {
  const std::size_t at = word.find('@');
  part.value = word.substr(0, at);
  const std::size_t grows = part.value.find(kGrows);
  const std::string epochs = at == std::string::npos ? "0" : word.substr(at + 1);
  if (grows == std::string::npos) {
    if (!read_epoch(epochs, part.from)) return false;
    part.until = part.from;
    return !part.value.empty();
  }
  part.end = part.value.substr(grows + 2);
  part.value.erase(grows);
  const std::size_t dash = epochs.find('-');
  return dash != std::string::npos && read_epoch(epochs.substr(0, dash), part.from) &&
         read_epoch(epochs.substr(dash + 1), part.until) && part.from < part.until && !part.value.empty() &&
         !part.end.empty();
}

}  // namespace

bool changes_by_epoch(const std::string& text) {
  return text.find('@') != std::string::npos || text.find(kGrows) != std::string::npos;
}

std::optional<std::vector<WrittenPart>> read_parts(const std::string& text) {
  std::vector<WrittenPart> parts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    WrittenPart part;
    if (!read_part(trimmed(word), part)) return {};
    if (parts.empty() ? part.from > 0 && part.end.empty() : part.from <= parts.back().until) return {};
    parts.push_back(part);
  }
  if (parts.empty() || text.back() == ',') return {};
  return parts;
}

std::string text_of(const std::vector<WrittenPart>& parts) {
  std::vector<std::string> words;
  for (const WrittenPart& part : parts) {
    std::string& word = words.emplace_back(part.value);
    if (!part.end.empty())
      word += kGrows + part.end + "@" + std::to_string(part.from) + "-" + std::to_string(part.until);
    else if (part.from > 0)
      word += "@" + std::to_string(part.from);
  }
  return joined(words, ",");
}

}  // namespace dat
