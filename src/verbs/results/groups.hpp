#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dat {

/// Options of a training by name, as on the command line; those that change no number are left out. Empty: unknown.
using Settings = std::map<std::string, std::string>;

/// Options that a run or a checkpoint has written down. Error(data): this version of the program does not know them.
[[nodiscard]] Settings settings_in(const std::string& toml, const std::string& where);
/// Options of the run in a folder. Error(data): there is no run, or as settings_in.
[[nodiscard]] Settings settings_of_run(const std::string& folder);
/// Ranks of the run in a folder that train, as it has begun last. Error(data): nobody says.
[[nodiscard]] int ranks_of_run(const std::string& folder, const Settings& settings);

/// A run or an evaluation, as far as it is compared with others.
struct Compared {
  std::string name;
  Settings settings{};
  int ranks = 0;            ///< ranks that have trained; 0: unknown
  bool evaluation = false;  ///< its figures are of a file of `eval`
};

/// Names of paths: the last part, or the whole path where two would have one name.
void name_apart(std::vector<std::string>& names, const std::vector<std::string>& paths);

/// Options in which members with known ones differ, in the order of the help.
[[nodiscard]] std::vector<std::string> differing(const std::vector<const Compared*>& members);

/// Members that are equal in all but their seeds.
struct Group {
  std::string name;  ///< "lr=0.1", and what else tells it from the others
  std::vector<std::size_t> members;
};
/// Groups in the order of the values of an option. Members without options are alone. Error(usage): `by` is no option
/// by which rows can be made.
[[nodiscard]] std::vector<Group> groups_by(const std::string& by, const std::vector<const Compared*>& members);

}  // namespace dat
