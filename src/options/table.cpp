#include "options/table.hpp"

#include <algorithm>
#include <sstream>

#include "dat/error.hpp"
#include "options/bound.hpp"

namespace dat {

namespace {

/// "--optimizer lamb", "--holdout"; of a switch its name.
std::string text_of(const Choice& choice) {
  if (choice.values == std::vector<std::string>{"true"}) return "--" + choice.option;
  return "--" + choice.option + (choice.values.empty() ? "" : " ") + alternatives(choice.values);
}

/// Refuses `row` where a condition does not hold, or gives it its default back: see OptionOf::falls_back.
void enforce(const OptionRow& row, const Condition& condition, Bound& options) {
  if (options.holds(condition) || (row.falls_back && !options.typed())) return;
  const Choice& choice = condition.any_of.front();
  const Origin own = options.origin(row.name);
  const bool overruled = row.falls_back && (own == Origin::none || own < options.origin(choice.option));
  if (options.asked(row) && !overruled) {
    require(condition.sentence.empty(), ExitCode::usage, options.filled(condition.sentence));
    fail(ExitCode::usage, "--", row.name, " works with ", text_of(choice), ", not with ",
         options.filled("{" + choice.option + "}"), "; leave it off");
  }
  if (row.falls_back) options.put_back(row);
}

}  // namespace

void Table::group(const std::string& name, bool in_file) {
  group_ = name;
  in_file_ = in_file;
}

const OptionRow* Table::find(const std::string& name) const {
  const auto found = std::ranges::find_if(rows_, [&](const OptionRow& row) { return row.name == name; });
  return found == rows_.end() ? nullptr : &*found;
}

namespace {

/// "powersgd:rank=N", a setting as a member's word has it.
std::string text_of_setting(const Table& table, const OptionRow& row, const std::string& member) {
  const Field field = row.field(table.defaults());
  return member + ":" + row.key + (is_flag(field) ? "" : "=" + label_of(field, row.range));
}

}  // namespace

std::string Table::where_now(const std::string& word) const {
  std::string key = word;
  std::ranges::replace(key, '-', '_');
  for (const OptionRow& row : rows_) {
    if (!row.environment.empty() && row.name == word) return "set " + row.environment + " in the environment";
    if (row.parent.empty() || (row.key != key && row.parent + "-" + row.key != word)) continue;
    return "it is a setting: --" + row.parent + " " + text_of_setting(*this, row, row.members.front());
  }
  return "";
}

std::vector<const OptionRow*> Table::settings_of(const OptionRow& row) const {
  std::vector<const OptionRow*> all;
  for (const OptionRow& other : rows_)
    if (other.parent == row.name) all.push_back(&other);
  return all;
}

std::size_t Table::add_row(const std::string& names, const std::string& about, Range range) {
  OptionRow row{.names = names, .name = names, .about = about, .group = group_, .range = std::move(range)};
  row.in_file = in_file_;
  row.positional = names.find("--") == std::string::npos;
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');)
    if (word.starts_with("--")) {
      row.name = word.substr(2);
      break;
    }
  rows_.push_back(std::move(row));
  return rows_.size() - 1;
}

void Table::add_condition(std::size_t row, Condition condition) {
  rules_.push_back([row, at = rows_[row].works_with.size()](Bound& options) {
    const OptionRow& refused = options.table().rows()[row];
    enforce(refused, refused.works_with[at], options);
  });
  rows_[row].works_with.push_back(std::move(condition));
}

void Table::add_rule(std::function<void(const void* options)> refuse) {
  rules_.push_back([refuse = std::move(refuse)](const Bound& options) { refuse(options.options()); });
}

void Table::not_with(const std::string& option, std::initializer_list<std::pair<Choice, const char*>> others) {
  for (const auto& [other, why] : others)
    not_together({option}, other, "--" + option + " does not go with " + why + "; leave one of them off");
}

void Table::not_together(const Choice& one, const Choice& other, const std::string& sentence) {
  rules_.push_back([at = exclusions_.size()](const Bound& options) {
    const Exclusion& refused = options.table().exclusions()[at];
    require(!options.holds(refused.one) || !options.holds(refused.other), ExitCode::usage,
            options.filled(refused.sentence));
  });
  exclusions_.push_back({one, other, sentence});
}

void Table::one_counts(const std::string& one, const std::string& other, const std::string& sentence) {
  rules_.push_back([one, other, sentence](Bound& options) {
    const OptionRow &a = *options.table().find(one), &b = *options.table().find(other);
    if (!options.asked(a) || !options.asked(b)) return;
    if (options.origin(one) < options.origin(other))
      options.put_back(a);
    else if (options.origin(other) < options.origin(one))
      options.put_back(b);
    else
      fail(ExitCode::usage, options.filled(sentence));
  });
}

std::string own_values(const Family& family, const std::string& option) {
  std::vector<std::pair<std::string, std::vector<std::string>>> members;  // by what they have
  for (const Family::About& member : family.members()) {
    const Setting* const setting = setting_of(member.settings, option);
    if (setting == nullptr || setting->value.empty()) continue;
    auto same = std::ranges::find_if(members, [&](const auto& of) { return of.first == setting->value; });
    if (same == members.end()) same = members.insert(same, {setting->value, {}});
    same->second.push_back(member.name);
  }
  std::vector<std::string> parts;
  for (const auto& [value, names] : members) parts.push_back(listing(names) + " " + value);
  return joined(parts, "; ");
}

namespace {

/// "powersgd:rank=N, atomo:rank=N: columns of powersgd's factors".
std::string about_setting(const Table& table, const OptionRow& row) {
  const Field field = row.field(table.defaults());
  std::vector<std::string> words;
  for (const std::string& member : row.members) words.push_back(text_of_setting(table, row, member));
  return joined(words, ", ") + ": " + row.about + (is_flag(field) ? "" : " [" + text_of(field, row.range, false) + "]");
}

}  // namespace

std::string description(const Table& table, const OptionRow& row) {
  const std::vector<std::string> kOff = {"false"};
  std::vector<std::string> parts, without;
  for (auto condition = row.works_with.begin(); condition != row.works_with.end(); ++condition) {
    const Choice& first = condition->any_of.front();
    // The second of two conditions on the same option is the narrower one.
    const bool narrowed = std::any_of(std::next(condition), row.works_with.end(), [&](const Condition& later) {
      return later.any_of.front().option == first.option;
    });
    std::vector<std::string> words;
    for (const Choice& choice : condition->any_of) words.push_back(text_of(choice));
    if (first.values == kOff)
      without.push_back("--" + first.option);
    else if (!narrowed)
      parts.push_back(alternatives(words));
  }
  std::string text = row.about + (parts.empty() ? "" : "; only with ") + joined(parts, " and ") +
                     (without.empty() ? "" : "; not with ") + joined(without, " and ");
  for (const OptionRow* setting : table.settings_of(row)) text += "\n" + about_setting(table, *setting);
  return text;
}

}  // namespace dat
