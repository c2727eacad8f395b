#include "options/words.hpp"

#include <algorithm>
#include <sstream>

#include "dat/error.hpp"
#include "options/values/hints.hpp"

namespace dat {

std::vector<std::string> parts_of(const std::string& text, char mark) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == mark)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::vector<MemberWord> read_member_words(const std::string& text) {
  std::vector<MemberWord> words;
  for (const std::string& written : parts_of(text, ',')) {
    const std::string part = trimmed(written);
    const std::size_t at = std::min(part.find('@'), part.size());
    std::vector<std::string> pieces = parts_of(part.substr(0, at), ':');
    words.push_back({pieces[0], {pieces.begin() + 1, pieces.end()}, part.substr(at)});
  }
  return words;
}

std::string text_of(const std::vector<MemberWord>& words) {
  std::vector<std::string> texts;
  for (const MemberWord& word : words) {
    std::string& text = texts.emplace_back(word.name);
    for (const std::string& setting : word.settings) text += ":" + setting;
    text += word.epochs;
  }
  return joined(texts, ",");
}

bool has(const OptionRow& setting, const std::string& member) { return is_one_of(member, setting.members); }

SettingValue read_setting(const Table& table, const std::vector<const OptionRow*>& settings, const std::string& member,
                          const std::string& text, const std::set<const OptionRow*>& given, const std::string& where) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  std::vector<std::string> keys;
  const OptionRow* first = nullptr;
  for (const OptionRow* row : settings) {
    if (!has(*row, member)) continue;
    keys.push_back(row->key);
    const bool is_switch = is_flag(row->field(table.defaults()));
    if (row->key == key && (equals != std::string::npos || is_switch))
      return {row, equals == std::string::npos ? "true" : text.substr(equals + 1)};
    if (first == nullptr && !is_switch && !given.contains(row)) first = row;
  }
  if (equals == std::string::npos && first != nullptr) return {first, text};
  require(!keys.empty(), ExitCode::usage, where, ": ", member, " has no settings, and '", text, "' would be one");
  const std::string guess = hint(key, keys);
  fail(ExitCode::usage, where, ": ", member, " has no setting '", text, "'; it has ", listing(keys), guess);
}

namespace {

/// The values of a row that are words: its choices, or else those that it knows; the word for its number; and the words
/// in the form of its values, which are in small letters.
[[nodiscard]] std::vector<std::string> words_among_values(const OptionRow& row) {
  std::vector<std::string> words = row.range.choices;
  if (row.range.known != nullptr) words = row.range.known();
  if (row.range.automatic) words.push_back(row.range.word);
  std::istringstream forms(row.range.label);
  for (std::string form; std::getline(forms, form, '|');)
    if (form.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos) words.push_back(form);
  return words;
}

}  // namespace

void describe_values(const Table& table, const OptionRow& row, OptionText& text) {
  const Field field = row.field(table.defaults());
  text.values = words_among_values(row);
  text.several = is_list(field);
  text.commas = row.range.commas || may_change_by_epoch(field);
  for (const OptionRow* setting : table.settings_of(row)) {
    text.settings.push_back(
        {setting->key, setting->members, words_among_values(*setting), is_flag(setting->field(table.defaults()))});
  }
}

}  // namespace dat
