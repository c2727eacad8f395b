#pragma once

#include <set>
#include <string>
#include <vector>

#include "options/shell/option_text.hpp"
#include "options/table.hpp"

namespace dat {

/// The parts of a text between marks; of an empty text one that is empty.
[[nodiscard]] std::vector<std::string> parts_of(const std::string& text, char mark);

/// A word that names a member of a family and says settings of it: "powersgd:4", "freezeout:t0=0.5:schedule=linear".
/// Where the option changes by epoch there are several, "none,ema:0.999@9".
struct MemberWord {
  std::string name;
  std::vector<std::string> settings;
  std::string epochs;  ///< "@9"; empty: none are named
};

/// The words of a value, between commas.
[[nodiscard]] std::vector<MemberWord> read_member_words(const std::string& text);
[[nodiscard]] std::string text_of(const std::vector<MemberWord>& words);

/// Returns whether a member has a setting.
[[nodiscard]] bool has(const OptionRow& setting, const std::string& member);

/// A setting as it is written, and the row that it is of.
struct SettingValue {
  const OptionRow* row;
  std::string value;
};
/// "rank=4", "nesterov", or "4" for the first setting that the member has and `given` has not. settings: all of the
/// option. where: begins the message. Error(usage): the member has no such setting.
[[nodiscard]] SettingValue read_setting(const Table& table, const std::vector<const OptionRow*>& settings,
                                        const std::string& member, const std::string& text,
                                        const std::set<const OptionRow*>& given, const std::string& where);

/// Adds to the text of an option what its values are: those that are words, and the settings of these.
void describe_values(const Table& table, const OptionRow& row, OptionText& text);

}  // namespace dat
