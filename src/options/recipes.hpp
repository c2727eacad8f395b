#pragma once

#include <string>
#include <vector>

namespace dat {

/// A recipe of the folder jobs/, as it was when the program was built.
struct Recipe {
  std::string name;   ///< name of its file, without .toml
  std::string about;  ///< subject that it reproduces, from its first line: "# NAME: ABOUT. Cost: COST."
  std::string cost;   ///< "11 passes x 205 epochs": forward and back per image, the attack's included
  std::string text;   ///< the file
};

/// All of them, by name.
[[nodiscard]] const std::vector<Recipe>& recipes();
/// Error(usage): there is no such recipe.
[[nodiscard]] const Recipe& recipe_named(const std::string& name);
/// A line for each recipe: name, cost, what it reproduces.
[[nodiscard]] std::string recipe_list();

/// Name and text of each recipe's file; written by CMakeLists.txt.
struct RecipeFile {
  const char* name;
  const char* text;
};
[[nodiscard]] std::vector<RecipeFile> recipe_files();

}  // namespace dat
