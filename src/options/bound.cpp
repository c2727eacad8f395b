#include "options/bound.hpp"

#include <algorithm>
#include <set>

#include "dat/error.hpp"
#include "options/file_reader.hpp"
#include "options/hints.hpp"

namespace dat {

Bound::Bound(const Table& table, void* options) : table_(table), options_(options), origins_(table.rows().size()) {}

std::string Bound::text(const OptionRow& row, bool toml) const { return text_of(field(row), row.range, toml); }

Origin Bound::origin(const std::string& name) const {
  const OptionRow* row = table_.find(name);
  return row == nullptr ? Origin::none : origins_[static_cast<std::size_t>(row - table_.rows().data())];
}

void Bound::set_origin(const OptionRow& row, Origin origin) {
  origins_[static_cast<std::size_t>(&row - table_.rows().data())] = origin;
}

bool Bound::asked(const OptionRow& row) const {
  return row.asked ? row.asked(options_) : !same_value(field(row), row.field(table_.defaults()));
}

bool Bound::holds(const Choice& choice) const {
  const OptionRow* row = table_.find(choice.option);
  require(row != nullptr, ExitCode::usage, "a rule names '--", choice.option, "', which is no option");
  if (choice.values.empty()) return asked(*row);
  return is_one_of(field(*row), row->range, choice.values);
}

bool Bound::holds(const Condition& condition) const {
  return std::any_of(condition.any_of.begin(), condition.any_of.end(),
                     [&](const Choice& choice) { return holds(choice); });
}

bool Bound::takes_part(const OptionRow& row) const {
  return std::all_of(row.works_with.begin(), row.works_with.end(),
                     [&](const Condition& condition) { return holds(condition); });
}

void Bound::put_back(const OptionRow& row) { copy_value(row.field(table_.defaults()), field(row)); }

std::string Bound::named(const OptionRow& row) const {
  return "--" + row.name + (is_flag(field(row)) ? "" : " " + text(row));
}

std::string Bound::filled(const std::string& sentence) const {
  std::string all;
  std::size_t at = 0;
  for (std::size_t open = 0; (open = sentence.find('{', at)) != std::string::npos;) {
    const std::size_t close = sentence.find('}', open);
    const OptionRow* row = table_.find(sentence.substr(open + 1, close - open - 1));
    require(row != nullptr, ExitCode::usage, "a rule speaks of an option that there is not: ", sentence);
    all += sentence.substr(at, open - at) + text(*row);
    at = close + 1;
  }
  return all + sentence.substr(at);
}

std::vector<std::string> Bound::read(const std::string& text, const std::string& name, Origin origin,
                                     const std::string& program) {
  std::vector<std::string> remarks;
  std::set<const OptionRow*> seen;
  for (const Entry& entry : read_entries(text, name)) {
    const std::string where = name + ":" + std::to_string(entry.line) + ": '" + entry.key + "'";
    const OptionRow* row = table_.find(entry.key);
    if (row == nullptr || !row->in_file) {
      std::vector<std::string> known;
      for (const OptionRow& each : table_.rows())
        if (each.in_file) known.push_back(each.name);
      const std::string guess = hint(entry.key, known);
      fail(ExitCode::usage, where, " is no option of '", program, "'", guess.empty() ? "; see its --help" : guess);
    }
    if (entry.key != row->name) remarks.push_back(where + " is called '" + row->name + "' now");
    require(seen.insert(row).second, ExitCode::usage, where, " is '", row->name, "' under another name; keep one of ",
            "the lines");
    require(is_list(field(*row)) || !entry.list, ExitCode::usage, where, " takes one value, not a list");
    if (this->origin(row->name) > origin) continue;
    assign(entry.values, row->range, where, field(*row));
    set_origin(*row, origin);
  }
  return remarks;
}

std::string Bound::toml(bool commented) const {
  std::string all, group;
  for (const OptionRow& row : table_.rows()) {
    if (!row.in_file) continue;
    if (row.group != group) all += (all.empty() ? "# " : "\n# ") + row.group + "\n";
    group = row.group;
    if (commented) all += "# " + description(row) + "\n";
    all += row.name + " = " + text(row, true) + "\n";
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> Bound::settings() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const OptionRow& row : table_.rows())
    if (row.in_file) all.emplace_back(row.name, text(row, true));
  return all;
}

void Bound::check(bool typed) {
  typed_ = typed;
  table_.check(*this);
}

}  // namespace dat
