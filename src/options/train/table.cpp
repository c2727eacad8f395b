#include "options/train/table.hpp"

#include <algorithm>

#include "dat/aggregator.hpp"
#include "options/machine.hpp"
#include "options/recipes.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

TrainTable make_table() {
  TrainTable table;
  for (const auto add : {add_data, add_network, add_fine_tuning, add_attack, add_evaluation, add_optimizer,
                         add_schedule, add_jointspar, add_reduction, add_generators, add_attackers, add_run})
    add(table);
  return table;
}

/// A table looks at options that it does not change through the same pointers.
Bound bound(const TrainOptions& options) { return {train_table(), const_cast<TrainOptions&>(options)}; }

}  // namespace

const TableOf<TrainOptions>& train_table() {
  static const TrainTable all = make_table();
  return all;
}

void settle(TrainOptions& options) {
  // Radii and weights follow from attacks and losses, batches of the attack from those of the training.
  settle_precision(options);
  for (const auto group : {settle_schedule, settle_data, settle_network, settle_attack, settle_evaluation,
                           settle_optimizer, settle_jointspar})
    group(options);
}

void put_back_unused(TrainOptions& options) {
  Bound all(train_table(), options);
  for (const OptionRow& row : train_table().rows())
    if (row.falls_back && !all.takes_part(row)) all.put_back(row);
}

std::string toml_of(const TrainOptions& options) { return bound(options).toml(); }

std::vector<std::pair<std::string, std::string>> settings_of(const TrainOptions& options) {
  return bound(options).settings();
}

TrainOptions parse_train_options(const std::string& toml, const std::string& where) {
  TrainOptions result;
  Bound options(train_table(), result);
  options.read(toml, where, Origin::file, "dat_hpc train");
  options.check(false);
  settle(result);
  return result;
}

Written read_written(const std::string& toml, const std::string& where) {
  Written result;
  Bound options(train_table(), result.options);
  options.read(toml, where, Origin::file, "dat_hpc train");
  for (const OptionRow& row : train_table().rows())
    if (options.origin(row.name) != Origin::none) result.said.insert(row.name);
  put_back_unused(result.options);
  return result;
}

std::string differences(const Written& earlier, const TrainOptions& now,
                        bool (*matters)(const OptionRow& row, const Bound& now)) {
  const Bound before = bound(earlier.options), after = bound(now);
  std::vector<std::string> all;
  for (const OptionRow& row : train_table().rows())
    if ((row.environment.empty() ? earlier.said.contains(row.name) : before.asked(row) || after.asked(row)) &&
        matters(row, after) && before.counts(row) && after.counts(row) &&
        !same_value(before.field(row), after.field(row)))
      all.push_back(row.set_by() + " (was " + before.text(row, true) + ", is " + after.text(row, true) + ")");
  std::ranges::sort(all);
  return joined(all, ", ");
}

namespace {

/// "lr = 0.1 (default 0.01)", where `word` is "default". paths: files and folders among them.
std::vector<std::string> differences_from(const TrainOptions& plain, const char* word, const TrainOptions& options,
                                          bool paths = true) {
  const auto is_path = [](const std::string& label) {
    return label == "DIR" || label.find("PATH") != std::string::npos;
  };
  const Bound own = bound(options), there = bound(plain);
  std::vector<std::string> all;
  for (const OptionRow& row : train_table().rows())
    if (row.parent.empty() && (row.environment.empty() || own.asked(row)) && own.text(row) != there.text(row) &&
        (paths || !is_path(row.range.label)))
      all.push_back(row.set_by() + " = " + own.text(row, true) + " (" + word + " " + there.text(row, true) + ")");
  return all;
}

}  // namespace

std::vector<std::string> differences_from_defaults(const TrainOptions& options, bool paths) {
  TrainOptions plain;
  plain.data = options.data;  // without data of one's own, other defaults hold
  settle(plain);
  plain.data.clear();
  return differences_from(plain, "default", options, paths);
}

std::vector<std::string> differences_from_recipe(const TrainOptions& options, const std::string& recipe) {
  TrainOptions plain;
  Bound written(train_table(), plain);
  written.read(recipe_named(recipe).text, "recipe " + recipe, Origin::recipe, "dat_hpc train");
  plain.data = options.data;
  plain.out = options.out;
  settle(plain);
  return differences_from(plain, "recipe", options);
}

std::string ordering_refused(const TrainOptions& options) {
  const Bound own = bound(options);
  for (const OptionRow& row : train_table().rows())
    if (row.bound_to_ranks && own.holds(*row.bound_to_ranks) && (!row.bound_with || own.holds(*row.bound_with)))
      return own.named(row);
  return "";
}

bool ranks_may_be_false(const TrainOptions& options) { return repeats(options.aggregator) == Repeats::at_equal_ranks; }

bool sums_are_ordered(const TrainOptions& options) {
  return options.deterministic && ordering_refused(options).empty();
}

}  // namespace dat
