#include "options/bound.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "dat/error.hpp"
#include "options/values/file_reader.hpp"
#include "options/values/hints.hpp"
#include "options/words.hpp"

namespace dat {

namespace {

/// The row that a rule names.
[[nodiscard]] const OptionRow& row_of(const Table& table, const std::string& name) {
  const OptionRow* const row = table.find(name);
  require(row != nullptr, ExitCode::usage, "a rule names '", name, "', which is no option");
  return *row;
}

}  // namespace

Bound::Bound(const Table& table, void* options) : table_(table), options_(options), origins_(table.rows().size()) {}

std::string Bound::text(const OptionRow& row, bool toml) const {
  if (table_.settings_of(row).empty()) return text_of(field(row), row.range, toml);
  const std::string text = with_settings(row, text_of(field(row), row.range, false));
  return toml ? quoted(text) : text;
}

std::string Bound::with_settings(const OptionRow& row, const std::string& text) const {
  std::vector<MemberWord> words = read_member_words(text);
  for (MemberWord& word : words)
    for (const OptionRow* setting : table_.settings_of(row)) {
      const Field value = field(*setting);
      if (same_value(value, setting->field(table_.defaults())) || !has(*setting, word.name)) continue;
      word.settings.push_back(setting->key + (is_flag(value) ? "" : "=" + text_of(value, setting->range, false)));
    }
  return text_of(words);
}

bool Bound::counts(const OptionRow& row) const {
  if (row.parent.empty()) return true;
  const OptionRow& parent = *table_.find(row.parent);
  const std::vector<MemberWord> words = read_member_words(text_of(field(parent), parent.range, false));
  return std::ranges::any_of(words, [&](const MemberWord& word) { return has(row, word.name); });
}

void Bound::take(const OptionRow& row, const std::vector<Value>& values, const std::string& where) {
  const std::vector<const OptionRow*> settings = table_.settings_of(row);
  if (settings.empty()) return assign(values, row.range, where, field(row));
  for (const OptionRow* setting : settings) put_back(*setting);
  std::vector<Value> names = values;
  std::vector<MemberWord> words;
  for (Value& value : names) {
    std::vector<MemberWord> read = read_member_words(value.text);
    words.insert(words.end(), read.begin(), read.end());
    for (MemberWord& word : read) word.settings.clear();
    value.text = text_of(read);
  }
  assign(names, row.range, where, field(row));
  std::map<const OptionRow*, std::string> given;
  for (const MemberWord& word : words) {
    std::set<const OptionRow*> of_word;
    for (const std::string& text : word.settings) {
      const SettingValue setting = read_setting(table_, settings, word.name, text, of_word, where);
      const bool again = given.contains(setting.row) && given[setting.row] != setting.value;
      require(of_word.insert(setting.row).second && !again, ExitCode::usage, where, " has two values for ",
              setting.row->key, " of ", word.name, "; keep one of them");
      given[setting.row] = setting.value;
      assign({Value{setting.value}}, setting.row->range, where + ": " + setting.row->key + " of " + word.name,
             field(*setting.row));
    }
  }
}

void Bound::take_environment() {
  for (const OptionRow& row : table_.rows()) {
    const char* const text = row.environment.empty() ? nullptr : std::getenv(row.environment.c_str());
    if (text == nullptr) continue;
    take(row, {Value{text}}, "the environment's " + row.environment);
    set_origin(row, Origin::command_line);
  }
}

Origin Bound::origin(const std::string& name) const {
  const OptionRow* row = table_.find(name);
  return row == nullptr ? Origin::none : origins_[static_cast<std::size_t>(row - table_.rows().data())];
}

void Bound::set_origin(const OptionRow& row, Origin origin) {
  origins_[static_cast<std::size_t>(&row - table_.rows().data())] = origin;
  for (const OptionRow* setting : table_.settings_of(row)) set_origin(*setting, origin);
}

bool Bound::asked(const OptionRow& row) const {
  return row.asked ? row.asked(options_) : !same_value(field(row), row.field(table_.defaults()));
}

bool Bound::holds(const Choice& choice) const {
  const OptionRow& row = row_of(table_, choice.option);
  if (choice.values.empty()) return asked(row);
  return is_one_of(field(row), row.range, choice.values);
}

bool Bound::holds(const Condition& condition) const {
  return std::ranges::any_of(condition.any_of, [&](const Choice& choice) { return holds(choice); });
}

bool Bound::takes_part(const OptionRow& row) const {
  return std::ranges::all_of(row.works_with, [&](const Condition& condition) { return holds(condition); });
}

void Bound::put_back(const OptionRow& row) { copy_value(row.field(table_.defaults()), field(row)); }

std::string Bound::named(const OptionRow& row) const {
  return "--" + row.name + (is_flag(field(row)) ? "" : " " + text(row));
}

std::string Bound::filled(const std::string& sentence) const {
  const std::size_t open = sentence.find('{');
  if (open == std::string::npos) return sentence;
  const std::size_t close = sentence.find('}', open);
  const OptionRow& row = row_of(table_, sentence.substr(open + 1, close - open - 1));
  return sentence.substr(0, open) + text(row) + filled(sentence.substr(close + 1));
}

void Bound::read(const std::string& text, const std::string& name, Origin origin, const std::string& program) {
  for (const Entry& entry : read_entries(text, name)) {
    const std::string where = name + ":" + std::to_string(entry.line) + ": '" + entry.key + "'";
    const OptionRow* row = table_.find(entry.key);
    if (row == nullptr || (!row->in_file && row->environment.empty())) {
      std::vector<std::string> known;
      for (const OptionRow& each : table_.rows())
        if (each.in_file) known.push_back(each.name);
      const std::string now = table_.where_now(entry.key);
      require(now.empty(), ExitCode::usage, where, " is no option of '", program, "'; ", now);
      const std::string guess = hint(entry.key, known);
      fail(ExitCode::usage, where, " is no option of '", program, "'", guess.empty() ? "; see its --help" : guess);
    }
    require(is_list(field(*row)) || !entry.list, ExitCode::usage, where, " takes one value, not a list");
    if (this->origin(row->name) != Origin::none) continue;
    take(*row, entry.values, where);
    set_origin(*row, origin);
  }
}

std::string Bound::toml(bool commented) const {
  std::string all, group;
  for (const OptionRow& row : table_.rows()) {
    if (!row.in_file && (row.environment.empty() || !asked(row))) continue;
    if (row.group != group) all += (all.empty() ? "# " : "\n# ") + row.group + "\n";
    group = row.group;
    if (commented) {
      std::istringstream lines(description(table_, row));
      for (std::string line; std::getline(lines, line);) all += "# " + line + "\n";
    }
    all += row.name + " = " + text(row, true) + "\n";
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> Bound::settings() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const OptionRow& row : table_.rows())
    if (row.in_file || (!row.environment.empty() && row.restart != Restart::free))
      all.emplace_back(row.set_by(), text(row, true));
  return all;
}

void Bound::check(bool typed) {
  typed_ = typed;
  table_.check(*this);
}

}  // namespace dat
