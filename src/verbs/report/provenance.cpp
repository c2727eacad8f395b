#include <algorithm>
#include <nlohmann/json.hpp>

#include "dat/file.hpp"
#include "dat/shell.hpp"
#include "files/outside_json.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

using NamedFacts = std::vector<std::pair<std::string, std::string>>;  // in their order

constexpr std::size_t kMostFacts = 200, kLongestFact = 4000;
constexpr int kDeepestFact = 4;

[[nodiscard]] std::string json_value_text(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_structured() ? "..." : value.dump();
}

/// Adds the values of an object, those of objects in it with the name before theirs. A command is as it was typed. What
/// lies deep, is long or comes after many others is cut.
void add_named_facts(const nlohmann::ordered_json& object, const std::string& before, int depth, NamedFacts& facts) {
  for (const auto& [name, value] : object.items()) {
    if (facts.size() == kMostFacts) return;
    if (value.is_object() && depth < kDeepestFact) {
      add_named_facts(value, before + name + ": ", depth + 1, facts);
      continue;
    }
    std::string text;
    if (value.is_array()) {
      for (const nlohmann::ordered_json& one : value) {
        if (text.size() > kLongestFact) break;
        text += (text.empty() ? "" : " ") +
                (name == "command_line" ? shell_quoted(json_value_text(one)) : json_value_text(one));
      }
    } else {
      text = json_value_text(value);
    }
    if (text.size() > kLongestFact) text.replace(kLongestFact, std::string::npos, "...");
    facts.emplace_back((before + name).substr(0, kLongestFact), text);
  }
}

}  // namespace

void add_provenance(Page& page, const std::vector<const Subject*>& subjects) {
  page.heading(2, "Provenance");
  Sheet sheet{"", {""}};
  for (const Subject* subject : subjects) {
    sheet.header.push_back(subject->name);
    NamedFacts facts;
    add_named_facts(json_or_discarded<nlohmann::ordered_json>(subject->provenance), "", 1, facts);
    for (const auto& [name, value] : facts) {
      auto row = std::ranges::find_if(sheet.rows, [&](const auto& one) { return one[0] == name; });
      if (row == sheet.rows.end()) row = sheet.rows.insert(row, {name});
      row->resize(sheet.header.size() - 1, "-");
      row->push_back(value);
    }
  }
  for (auto& row : sheet.rows) row.resize(sheet.header.size(), "-");
  sheet.title = "Program, machine, command, data";
  page.table(sheet);
  for (const Subject* subject : subjects)
    if (!subject->evaluation)
      page.folded("All options of " + subject->name,
                  small_file(subject->path + "/config.resolved.toml").value_or("(cannot be read)"));
}

}  // namespace dat
