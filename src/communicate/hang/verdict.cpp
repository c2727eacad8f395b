#include "communicate/hang/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "communicate/hang/listed.hpp"

namespace dat {

namespace {

using Kind = Verdict::Kind;
using Main = RankState::Main;

constexpr std::size_t kMostListed = 4;  // hosts, classes of ranks

template <class Condition>
[[nodiscard]] std::vector<int> those(std::size_t count, const Condition& condition) {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < count; ++rank)
    if (condition(rank)) found.push_back(static_cast<int>(rank));
  return found;
}

/// "rank 2 on node1 (process 4711)", "ranks 0, 1 on node0".
[[nodiscard]] std::string named(const std::vector<int>& who, const std::vector<Place>& places) {
  std::vector<std::string> hosts;
  for (const int rank : who) {
    const std::string& host = places[static_cast<std::size_t>(rank)].host;
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  std::string text = fmt::format("{} on {}", listed(who), fmt::join(hosts | std::views::take(kMostListed), ", "));
  if (hosts.size() > kMostListed) text += ", ...";
  if (who.size() == 1) text += " (process " + std::to_string(places[static_cast<std::size_t>(who[0])].process) + ")";
  return text;
}

[[nodiscard]] std::string seconds_text(double seconds) {
  return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
}

/// State of a rank in words, now or when it was heard last: "waits in sum #4 of 8 bytes", "has waited in ...".
[[nodiscard]] std::string doing(const RankState& rank, bool plural, bool past) {
  const bool known = rank.at.call != Call::none;
  if (rank.main == Main::ended) return plural ? "have ended" : "has ended";
  if (rank.main == Main::left) return past ? "asleep, having left" : plural ? "have left" : "has left";
  if (!rank.answers && !past)
    return (plural ? "do not answer, last heard " : "does not answer, last heard ") + doing(rank, plural, true);
  if (rank.main == Main::waiting)
    return std::string(past     ? "in "
                       : plural ? "wait in "
                                : "waits in ") +
           (known ? text_of(rank.at) : "a communication");
  return std::string(past     ? "computing"
                     : plural ? "compute"
                              : "computes") +
         (known ? " after " + text_of(rank.at) : "");
}

/// "ranks 0, 1 on node0 wait in ..., rank 3 on node1 (process 7) computes after ...", with those who do the same
/// together.
[[nodiscard]] std::string all_doing(const std::vector<int>& who, const std::vector<RankState>& ranks,
                                    const std::vector<Place>& places) {
  std::vector<std::pair<std::string, std::vector<int>>> classes;
  for (const int rank : who) {
    const std::string text = doing(ranks[static_cast<std::size_t>(rank)], true, false);
    auto found = std::ranges::find_if(classes, [&](const auto& one) { return one.first == text; });
    if (found == classes.end()) found = classes.insert(found, {text, {}});
    found->second.push_back(rank);
  }
  std::string text;
  for (std::size_t k = 0; k < std::min(classes.size(), kMostListed); ++k) {
    const std::vector<int>& members = classes[k].second;
    text += (k > 0 ? ", " : "") + named(members, places) + " " +
            doing(ranks[static_cast<std::size_t>(members[0])], members.size() > 1, false);
  }
  return classes.size() > kMostListed ? text + ", ..." : text;
}

[[nodiscard]] double longest(const std::vector<int>& who, const std::vector<RankState>& ranks,
                             double RankState::*seconds) {
  double most = 0;
  for (const int rank : who) most = std::max(most, ranks[static_cast<std::size_t>(rank)].*seconds);
  return most;
}

}  // namespace

std::vector<int> minority(const std::vector<std::string>& classes) {
  std::map<std::string, std::size_t> sizes;
  for (const std::string& one : classes)
    if (!one.empty()) ++sizes[one];
  if (sizes.size() < 2) return {};
  const auto counts = sizes | std::views::values;
  const std::size_t most = std::ranges::max(counts);
  const bool several = std::ranges::count(counts, most) > 1;
  return those(classes.size(),
               [&](std::size_t rank) { return !classes[rank].empty() && (several || sizes[classes[rank]] < most); });
}

RankState::Main believed(RankState::Main said, bool excused) {
  return excused && said != Main::ended ? Main::left : said;
}

Verdict judge(const std::vector<RankState>& ranks, double timeout_seconds) {
  const std::size_t count = ranks.size();
  Verdict verdict;
  const auto found = [&](Kind kind, std::vector<int> culprits) {
    if (culprits.empty()) return false;
    verdict.kind = kind;
    verdict.culprits = std::move(culprits);
    return true;
  };
  const auto left = [&](std::size_t k) { return ranks[k].main == Main::left; };
  const auto unheard = [&](std::size_t k) { return ranks[k].silent > timeout_seconds; };
  const auto silent = [&](std::size_t k) { return ranks[k].main != Main::ended && !left(k) && unheard(k); };
  const auto stands = [&](std::size_t k) { return ranks[k].still > timeout_seconds; };
  const auto waits = [&](std::size_t k) { return ranks[k].main == Main::waiting; };
  const auto ended = [&](std::size_t k) { return ranks[k].main == Main::ended; };

  // The collective in question: the first that a rank of the first such rank's group waits in.
  for (std::size_t k = 0; k < count; ++k) {
    const CallRecord& at = ranks[k].at;
    if (!waits(k) || at.number == 0 || of_two_ranks(at.call)) continue;
    if (verdict.number != 0 && (at.group != verdict.group || at.number >= verdict.number)) continue;
    verdict.group = at.group;
    verdict.number = at.number;
  }
  if (found(Kind::silent, those(count, [&](std::size_t k) { return ranks[k].heard && silent(k); }))) return verdict;
  bool hangs = false, all = true;
  for (std::size_t k = 0; k < count; ++k) {
    hangs = hangs || (waits(k) && stands(k));
    all = all && (ended(k) || left(k) || stands(k) || silent(k));
  }
  if (!hangs || !all) return {};
  if (found(Kind::unheard, those(count, [&](std::size_t k) { return silent(k); }))) return verdict;
  if (found(Kind::ended, those(count, ended))) return verdict;
  if (found(Kind::still, those(count, [&](std::size_t k) { return !waits(k) && !left(k); }))) return verdict;
  std::vector<std::string> classes;
  bool at_the_end = true;
  for (const RankState& rank : ranks) {
    const bool member = rank.main != Main::left;
    const bool idle = rank.at.call == Call::work;  // it does whatever the others want
    classes.push_back(member && !idle ? std::to_string(rank.at.group) + " " + text_of(rank.at) : "");
    at_the_end = at_the_end && (!member || rank.at.call == Call::finalize);
  }
  if (found(Kind::mismatch, minority(classes))) return verdict;
  if (at_the_end && found(Kind::silent, those(count, [&](std::size_t k) { return left(k) && unheard(k); })))
    return verdict;
  verdict.kind = Kind::undelivered;
  return verdict;
}

std::string hang_text(const Verdict& verdict, const std::vector<RankState>& ranks, const std::vector<Place>& places,
                      const std::string& why) {
  std::vector<int> culprits = verdict.culprits;
  std::vector<std::string> classes;
  for (const RankState& rank : ranks)
    classes.push_back(rank.reference.call == Call::none ? "" : text_of(rank.reference));
  const bool may_differ = verdict.kind == Kind::mismatch || verdict.kind == Kind::failed;
  const std::vector<int> differ = may_differ ? minority(classes) : std::vector<int>{};
  std::string text;
  if (!differ.empty()) {
    // The first collective that is not the same on all ranks says more than where they stand now.
    if (verdict.kind == Kind::failed) text += named(culprits, places) + ": " + why + ": ";
    culprits = differ;
    text += "the ranks do not call the same: ";
    std::vector<std::string> told;
    for (const bool first : {true, false})  // ranks that differ come first
      for (std::size_t k = 0; k < classes.size(); ++k) {
        const bool differs = std::ranges::binary_search(differ, static_cast<int>(k));
        const bool again = std::ranges::find(told, classes[k]) != told.end();
        if (classes[k].empty() || again || differs != first) continue;
        const std::vector<int> members = those(classes.size(), [&](std::size_t j) { return classes[j] == classes[k]; });
        text += (told.empty() ? "" : ", ") + classes[k] + " is what " + named(members, places) +
                (members.size() > 1 ? " have called" : " has called");
        told.push_back(classes[k]);
      }
    return text + "; now " + all_doing(those(ranks.size(), [](std::size_t) { return true; }), ranks, places);
  }
  const std::string who = culprits.empty() ? "" : named(culprits, places);
  const std::string has = culprits.size() > 1 ? " have " : " has ";
  const std::string last = culprits.empty() ? "" : doing(ranks[static_cast<std::size_t>(culprits[0])], false, true);
  switch (verdict.kind) {
    case Kind::none:
      break;
    case Kind::silent:
      text = who + has + "sent no heartbeat for " + seconds_text(longest(culprits, ranks, &RankState::silent)) +
             ": dead, stopped or cut off" + (culprits.size() > 1 ? ", the first of them" : ",") + " last heard " + last;
      break;
    case Kind::unheard:
      text = who + has + "not been heard at all for " + seconds_text(longest(culprits, ranks, &RankState::silent)) +
             ", while the others wait: dead, or UDP does not pass between the hosts";
      break;
    case Kind::ended:
      text = who + has + "left the run, while others wait";
      break;
    case Kind::still:
      text = who + has + "not moved for " + seconds_text(longest(culprits, ranks, &RankState::still)) +
             ": alive, but the main thread stands outside of any communication, " + last;
      break;
    case Kind::mismatch:
      text = "the ranks wait in different collectives: " + all_doing(culprits, ranks, places);
      break;
    case Kind::undelivered:
      text = "MPI or the network does not deliver";
      break;
    case Kind::failed:
      text = who + ": " + why;
      break;
  }
  const std::vector<int> others = those(
      ranks.size(), [&](std::size_t k) { return std::ranges::find(culprits, static_cast<int>(k)) == culprits.end(); });
  if (!others.empty()) text += "; " + all_doing(others, ranks, places);
  return text;
}

}  // namespace dat
