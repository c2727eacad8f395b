#include "train/watch/replica_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <utility>

#include "dat/error.hpp"

namespace dat {

namespace {

/// Gives the state of a group's rank 0 to the group.
class Copy final : public ReplicatedState {
 public:
  Copy(Communicator& group, Backend& backend) : group_(group), backend_(backend) {}
  void device(const std::string&, float* data, std::int64_t count) override {
    share_floats(group_, backend_, data, count);
  }
  void host(const std::string&, void* data, std::size_t bytes) override { group_.broadcast(data, bytes); }
  [[nodiscard]] bool writes() const override { return true; }

 private:
  Communicator& group_;
  Backend& backend_;
};

const char* const kAdvice =
    "; the last checkpoint is good: run the same command again, and suspect the node, or a library, if it returns";

/// "weights, running means".
[[nodiscard]] std::string names_of(const std::vector<std::size_t>& arrays, const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(arrays | std::views::transform([&](std::size_t k) { return names[k]; }), ", "));
}

/// "rank 0 on a and ranks 1 on b, 2 on c": groups with one value each, of which ranks have the first of `numbers`.
[[nodiscard]] std::string groups_text(std::span<const std::uint64_t> values, std::size_t numbers,
                                      const std::vector<std::string>& places) {
  std::vector<std::uint64_t> firsts;
  std::map<std::ptrdiff_t, std::vector<int>> groups;  // by the first of their ranks
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    firsts.push_back(values[rank * numbers]);
    groups[std::ranges::find(firsts, firsts.back()) - firsts.begin()].push_back(static_cast<int>(rank));
  }
  std::string text;
  for (const auto& [first, ranks] : groups) text += (text.empty() ? "" : " and ") + ranks_text(ranks, places);
  return text;
}

}  // namespace

Majority majority_of(std::span<const std::uint64_t> values, int ranks) {
  const std::size_t count = values.size() / static_cast<std::size_t>(ranks);
  Majority found;
  found.wrong.resize(static_cast<std::size_t>(ranks));
  for (std::size_t number = 0; number < count; ++number) {
    std::vector<std::uint64_t> all;  // of each rank
    for (std::size_t at = number; at < values.size(); at += count) all.push_back(values[at]);
    bool majority = false;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (2 * std::ranges::count(all, all[rank]) > ranks)
        majority = true;
      else
        found.wrong[rank].push_back(number);
    }
    if (std::ranges::adjacent_find(all, std::not_equal_to()) != all.end()) found.differing.push_back(number);
    found.decided &= majority;
  }
  if (!found.decided) found.wrong.assign(found.wrong.size(), {});
  const auto right = std::ranges::find_if(found.wrong, [](const auto& numbers) { return numbers.empty(); });
  if (found.decided && right != found.wrong.end()) found.source = static_cast<int>(right - found.wrong.begin());
  return found;
}

std::vector<std::string> places_of(Communicator& ranks) {
  std::vector<std::string> places = ranks.gather(std::to_string(ranks.launch_rank()) + " on " + host_name());
  places.resize(static_cast<std::size_t>(ranks.size()));
  return places;
}

std::string ranks_text(const std::vector<int>& ranks, const std::vector<std::string>& places) {
  const auto place = [&](int rank) { return places[static_cast<std::size_t>(rank)]; };
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                     fmt::join(ranks | std::views::transform(place), ", "));
}

ReplicaCheck::ReplicaCheck(Communicator& ranks, Backend& backend, std::vector<Stateful*> parts)
    : ranks_(ranks), backend_(backend), parts_(std::move(parts)), hash_(backend, parts_) {}

std::vector<CorruptionRecord> ReplicaCheck::check(std::int64_t step, bool repair) {
  const CallLabel label("hash of the state");
  hash_.take(parts_);
  if (ranks_.agree(hash_.value())) return {};

  const std::vector<std::uint64_t>& mine = hash_.values();
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(ranks_.size()));
  ranks_.all_gather(mine.data(), all.data(), mine.size() * sizeof(std::uint64_t));
  const Majority found = majority_of(all, ranks_.size());
  // Only rank 0 speaks, but all have the same records.
  const std::vector<std::string> places = places_of(ranks_);
  const std::string when = "silent corruption: after step " + std::to_string(step) + ", ";
  require(found.decided, ExitCode::integrity, when,
          groups_text(std::span(all).subspan(found.differing.front()), mine.size(), places), " hold different ",
          names_of(found.differing, hash_.names()), ", and no majority says whose are wrong", kAdvice);

  std::vector<CorruptionRecord> records;
  std::vector<std::string> who;
  const std::string source = "rank " + std::to_string(ranks_.launch_rank(std::max(found.source, 0)));
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const auto& wrong = found.wrong[static_cast<std::size_t>(rank)];
    if (wrong.empty()) continue;
    const std::string what = names_of(wrong, hash_.names());
    who.push_back(ranks_text({rank}, places) + " holds other " + what);
    records.push_back({.step = step,
                       .rank = ranks_.launch_rank(rank),
                       .what = what,
                       .done = "copied from " + source,
                       .text = when + ranks_text({rank}, places) + " held other " + what + " than most of the " +
                               std::to_string(ranks_.size()) + " ranks; it has got those of " + source});
  }
  const std::string told = fmt::format("{}{} than most of the {} ranks", when, fmt::join(who, "; "), ranks_.size());
  require(repair && found.source >= 0, ExitCode::integrity, told, kAdvice);

  const auto group = ranks_.subgroup(found.source, static_cast<int>(ranks_.rank() != found.source));
  Copy copy(*group, backend_);
  for (Stateful* part : parts_) part->replicated(copy);
  hash_.take(parts_);
  require(ranks_.agree(hash_.value()), ExitCode::integrity, told,
          ", and still did when it had been copied from one of those", kAdvice);
  return records;
}

}  // namespace dat
