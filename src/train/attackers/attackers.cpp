#include "train/attackers/attackers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dat/error.hpp"

namespace dat {

std::vector<Cheater> attackers_of(const TrainOptions& options) {
  std::vector<Cheater> all;
  for (std::size_t k = 0; k < options.attackers.size(); ++k) {
    // One for all, or one for each: of as many, by the option's rules.
    const CheatWord word = *read_cheat_word(options.cheat[k % options.cheat.size()]);
    all.push_back({word, options.attackers[k], cheats().at(word.name)({})->leaves()});
  }
  return all;
}

void require_fitting(const std::vector<Cheater>& attackers, int ranks) {
  require(2 * std::ssize(attackers) < ranks, ExitCode::usage, "--attackers names ", attackers.size(), " of ", ranks,
          ranks == 1 ? " rank" : " ranks", "; more than half must be honest");
  for (const Cheater& one : attackers)
    require(one.rank < ranks, ExitCode::usage, "--attackers names rank ", one.rank, ", and the ranks are 0 to ",
            ranks - 1);
}

std::vector<Cheater> leaving(const std::vector<Cheater>& attackers, std::int64_t done) {
  std::vector<Cheater> found;
  for (const Cheater& one : attackers)
    if (one.leaves && done >= one.from) found.push_back(one);
  return found;
}

std::string text_of(const std::vector<Cheater>& attackers) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // cheats and their ranks
  for (const Cheater& one : attackers) {
    const std::string what = one.name + (one.delay > 0 ? ":" + std::to_string(one.delay) : "") +
                             (one.from > 0 ? " from step " + std::to_string(one.from + 1) + " on" : "") +
                             (one.every > 1 ? ", every " + std::to_string(one.every) + " steps" : "");
    auto group = std::ranges::find_if(groups, [&](const auto& known) { return known.first == what; });
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(one.rank);
  }
  std::string text;
  for (const auto& [what, ranks] : groups)
    text += fmt::format("{}rank{} {}: {}", text.empty() ? "" : "; ", ranks.size() > 1 ? "s" : "",
                        fmt::join(ranks, ", "), what);
  return text;
}

}  // namespace dat
