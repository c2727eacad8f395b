#include "verbs/results/groups.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"
#include "options/train/table.hpp"
#include "options/values/hints.hpp"

namespace dat {

namespace {

/// Options of places, of what is printed, and of what is kept.
const std::set<std::string> kWithoutNumbers = {"out",          "resume",           "progress",         "quiet",
                                               "verbose",      "checkpoint-every", "checkpoint-async", "prefetch",
                                               "data-threads", "comm-timeout",     "planning-seconds", "calibration",
                                               "tensorboard"};

[[nodiscard]] std::string value_in(const Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

/// Order of an option's values: numbers by their size, before words.
[[nodiscard]] std::pair<double, std::string> place_of(const std::string& value) {
  double number = std::numeric_limits<double>::infinity();  // a word leaves it so
  std::from_chars(value.data(), value.data() + value.size(), number);
  return {number, value};
}

void require_row_option(const std::string& by) {
  std::vector<std::string> known;
  for (const OptionRow& row : train_table().rows())
    if (row.parent.empty() && row.environment.empty() && !kWithoutNumbers.contains(row.name)) known.push_back(row.name);
  require(by != "seed", ExitCode::usage, "--by seed: runs that differ in their seeds alone are one row; name an ",
          "option by which rows differ, as lr");
  require(std::ranges::find(known, by) != known.end(), ExitCode::usage, "--by ", by,
          ": is no option of 'train' that makes figures differ", hint(by, known));
}

}  // namespace

Settings settings_in(const std::string& toml, const std::string& where) {
  try {
    Written written = read_written(toml, where);
    const Bound options(train_table(), written.options);
    Settings settings;
    for (const OptionRow& row : train_table().rows())
      if (row.parent.empty() && !kWithoutNumbers.contains(row.name)) settings[row.name] = options.text(row);
    return settings;
  } catch (const Error& error) {
    fail(ExitCode::data, where, " is of another version of the program, or damaged: ", error.what());
  }
}

Settings settings_of_run(const std::string& folder) {
  const std::string path = folder + "/config.resolved.toml";
  const std::optional<std::string> toml = small_file(path);
  require(toml.has_value(), ExitCode::data, "no run in ", folder, ": cannot open config.resolved.toml");
  return settings_in(*toml, path);
}

int ranks_of_run(const std::string& folder, const Settings& settings) {
  const std::string path = folder + "/provenance.json";
  const std::optional<std::string> text = small_file(path);
  require(text.has_value(), ExitCode::data, "no whole run in ", folder, ": cannot open provenance.json");
  try {
    return count_in<int>(parsed_json(*text).at("ranks"), 1) - std::atoi(value_in(settings, "generators").c_str());
  } catch (const std::exception& wrong) {
    fail(ExitCode::data, path, ": is damaged, or of another version of the program: ", wrong.what());
  }
}

void name_apart(std::vector<std::string>& names, const std::vector<std::string>& paths) {
  const std::vector<std::string> short_ones = names;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::ranges::count(short_ones, short_ones[i]) > 1) names[i] = paths[i];
}

std::vector<std::string> differing(const std::vector<const Compared*>& members) {
  std::vector<std::string> names;
  for (const OptionRow& row : train_table().rows()) {
    std::set<std::string> values;
    for (const Compared* one : members)
      if (!one->settings.empty()) values.insert(value_in(one->settings, row.name));
    if (values.size() > 1) names.push_back(row.name);
  }
  return names;
}

std::vector<Group> groups_by(const std::string& by, const std::vector<const Compared*>& members) {
  require_row_option(by);
  using Key = std::tuple<std::pair<double, std::string>, bool, int, Settings, std::optional<std::size_t>>;
  std::map<Key, Group> sorted;
  for (std::size_t i = 0; i < members.size(); ++i) {
    Settings all = members[i]->settings;
    all.erase("seed");
    const bool known = !all.empty();
    sorted[{place_of(known ? all[by] : "unknown"), members[i]->evaluation, members[i]->ranks, all,
            known ? std::nullopt : std::optional(i)}]
        .members.push_back(i);
  }
  std::vector<const Compared*> firsts;
  std::vector<Group> groups;
  for (auto& [key, group] : sorted) {
    firsts.push_back(members[group.members.front()]);
    groups.push_back(std::move(group));
  }
  std::vector<std::string> others = differing(firsts);
  std::erase_if(others, [&](const std::string& name) { return name == by || name == "seed"; });
  const auto name = [&](auto& group, const Compared& first, bool whole) {
    group.name = first.settings.empty() ? first.name : by + "=" + value_in(first.settings, by);
    if (!whole || first.settings.empty()) return;
    for (const std::string& other : others) group.name += ", " + other + "=" + value_in(first.settings, other);
    if (first.ranks > 0) group.name += ", " + std::to_string(first.ranks) + (first.ranks == 1 ? " rank" : " ranks");
    if (first.evaluation) group.name += ", evaluated";
  };
  for (std::size_t g = 0; g < groups.size(); ++g) name(groups[g], *firsts[g], false);
  std::vector<std::string> names;
  for (const Group& group : groups) names.push_back(group.name);
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (std::ranges::count(names, names[g]) > 1) name(groups[g], *firsts[g], true);
  return groups;
}

}  // namespace dat
