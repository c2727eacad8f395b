#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "dat/report.hpp"
#include "dat/shell.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

using NamedFacts = std::vector<std::pair<std::string, std::string>>;  // in their order

[[nodiscard]] std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

[[nodiscard]] std::string json_value_text(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Adds the values of an object, those of objects in it with the name before theirs. A command is as it was typed.
void add_named_facts(const nlohmann::ordered_json& object, const std::string& before, NamedFacts& facts) {
  for (const auto& [name, value] : object.items())
    if (value.is_object()) {
      add_named_facts(value, before + name + ": ", facts);
    } else if (value.is_array()) {
      std::string text;
      for (const nlohmann::ordered_json& one : value)
        text += (text.empty() ? "" : " ") +
                (name == "command_line" ? shell_quoted(json_value_text(one)) : json_value_text(one));
      facts.emplace_back(before + name, text);
    } else {
      facts.emplace_back(before + name, json_value_text(value));
    }
}

}  // namespace

std::string provenance_of(const Subject& subject) {
  if (!subject.evaluation) return file_text(subject.path + "/provenance.json");
  const auto all = nlohmann::ordered_json::parse(file_text(evaluation_in(subject.path)), nullptr, false);
  return all.is_object() && all.contains("provenance") ? all["provenance"].dump() : "";
}

void add_provenance(Page& page, const std::vector<const Subject*>& subjects) {
  page.heading(2, "Provenance");
  Sheet sheet{"", {""}};
  for (const Subject* subject : subjects) {
    sheet.header.push_back(subject->name);
    NamedFacts facts;
    const auto all = nlohmann::ordered_json::parse(provenance_of(*subject), nullptr, false);
    if (all.is_object()) add_named_facts(all, "", facts);
    for (const auto& [name, value] : facts) {
      auto row = std::find_if(sheet.rows.begin(), sheet.rows.end(), [&](const auto& one) { return one[0] == name; });
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
      page.folded("All options of " + subject->name, file_text(subject->path + "/config.resolved.toml"));
}

}  // namespace dat
