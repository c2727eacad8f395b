#include "communicate/handshake.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <sstream>

#include "communicate/together.hpp"

namespace dat {

namespace {

constexpr char kBetween = '\t';
constexpr std::size_t kMostNamed = 5;  // facts, values of a fact, places of a value

[[nodiscard]] std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == kBetween; }, ' ');
  return text;
}

}  // namespace

std::string differences(Communicator& ranks, const Facts& facts, const std::string& where) {
  std::string mine;
  for (const auto& [name, value] : facts) mine += one_line(name) + kBetween + one_line(value) + "\n";
  if (ranks.agree(XXH3_64bits(mine.data(), mine.size()))) return {};
  const std::vector<std::string> all = ranks.gather(mine), places = ranks.gather(where);

  std::vector<std::string> names;                                         // in the order of those who have them first
  std::map<std::string, std::map<std::string, std::vector<int>>> values;  // of each name, with their ranks
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream lines(all[rank]);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find(kBetween);
      const std::string name = line.substr(0, at);
      if (!values.contains(name)) names.push_back(name);
      values[name][line.substr(at + 1)].push_back(static_cast<int>(rank));
    }
  }
  std::string text;
  std::size_t differing = 0;
  for (const std::string& name : names) {
    auto& found = values[name];
    std::set<int> with;
    for (const auto& [value, who] : found) with.insert(who.begin(), who.end());
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
      if (!with.contains(rank)) found["unknown"].push_back(rank);
    if (found.size() == 1) continue;
    if (differing++ == kMostNamed) return text + "; ...";
    // The value of the lowest rank first.
    std::vector<std::pair<std::vector<int>, std::string>> order;
    for (const auto& [value, who] : found) order.emplace_back(who, value);
    std::ranges::sort(order);
    text += (text.empty() ? "" : "; ") + name + " is ";
    for (std::size_t k = 0; k < std::min(order.size(), kMostNamed); ++k) {
      const auto& [who, value] = order[k];
      std::set<std::string> at;
      for (const int rank : who) at.insert(places[static_cast<std::size_t>(rank)]);
      text += fmt::format("{}{} on {} ({}{})", k > 0 ? ", " : "", value, listed(who),
                          fmt::join(at | std::views::take(kMostNamed), ", "), at.size() > kMostNamed ? ", ..." : "");
    }
    if (order.size() > kMostNamed) text += ", ...";
  }
  return text;
}

void shake_hands(Communicator& ranks, const Facts& facts) {
  const CallLabel label("handshake");
  const std::string found = differences(ranks, facts, host_name());
  together(ranks, [&] {
    require(found.empty(), ExitCode::usage, "the ranks do not fit together: ", found,
            "; start the same program with the same options, environment, data and kind of device on all of them");
  });
}

}  // namespace dat
