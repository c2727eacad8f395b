#include "options/recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "dat/error.hpp"
#include "options/values/hints.hpp"

namespace dat {

namespace {

/// tests/house/recipes.py refuses another first line.
Recipe recipe_of(const RecipeFile& file) {
  const std::string name = file.name, text = file.text;
  std::smatch parts;
  std::regex_search(text, parts, std::regex("^# " + name + ": (.*)\\. Cost: (.*)\\.\n"));
  return {name, parts[1], parts[2], text};
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = [] {
    std::vector<Recipe> made;
    for (const RecipeFile& file : recipe_files()) made.push_back(recipe_of(file));
    std::ranges::sort(made, [](const Recipe& a, const Recipe& b) { return a.name < b.name; });
    return made;
  }();
  return all;
}

const Recipe& recipe_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  std::string plain = name.substr(name.rfind('/') + 1);
  if (plain.ends_with(".toml")) plain.resize(plain.size() - 5);
  const std::string guess = hint(plain, names);
  fail(ExitCode::usage, "there is no recipe '", name, "'",
       plain == name   ? ""
       : guess.empty() ? "; --config takes a file"
                       : "; --config takes a file, --recipe a name",
       guess.empty() ? "; --recipe list names all" : guess);
}

std::string recipe_list() {
  std::size_t name = 0, cost = 0;
  for (const Recipe& recipe : recipes()) {
    name = std::max(name, recipe.name.size());
    cost = std::max(cost, recipe.cost.size());
  }
  std::string text;
  for (const Recipe& recipe : recipes())
    text += fmt::format("{:<{}}{:<{}}{}\n", recipe.name, name + 2, recipe.cost, cost + 2, recipe.about);
  return text +
         "\nPasses are forward and back through the network, for each image and epoch, those of the attack included.\n"
         "dat_hpc validate --recipe NAME prints what a recipe sets and needs.\n";
}

}  // namespace dat
