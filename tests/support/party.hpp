#pragma once

#include <barrier>
#include <mutex>

#include "byzantine/part_work.hpp"
#include "byzantine/protocol.hpp"
#include "catch.hpp"
#include "dat/cheat.hpp"
#include "dat/random.hpp"

/// The protocol among threads: each is a rank of a small training whose gradients follow from the rank, the step and
/// the weights.
namespace dat::test {

/// Where the ranks of a group meet: threads, one a rank.
class Hall {
 public:
  explicit Hall(std::vector<int> members)
      : members_(std::move(members)), barrier_(std::ssize(members_)), places_(members_.size()) {}
  [[nodiscard]] const std::vector<int>& members() const { return members_; }
  void put(int rank, const void* data) {
    places_[static_cast<std::size_t>(rank)] = static_cast<const std::byte*>(data);
    barrier_.arrive_and_wait();
  }
  [[nodiscard]] const std::byte* of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  void leave() { barrier_.arrive_and_wait(); }

 private:
  std::vector<int> members_;
  std::barrier<> barrier_;
  std::vector<const std::byte*> places_;
};

/// All halls of a launch.
class House {
 public:
  Hall& hall(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Hall>& hall = halls_[members];
    if (!hall) hall = std::make_unique<Hall>(members);
    return *hall;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int>, std::unique_ptr<Hall>> halls_;
};

/// What may be done to the bytes that a rank says, on their way: number counts this rank's messages.
using Distortion = std::function<void(int number, std::byte* data, std::size_t bytes)>;

class HallAssembly final : public Assembly {
 public:
  HallAssembly(Hall& hall, int launch_rank, Distortion distort, std::int64_t& said)
      : hall_(hall), launch_(launch_rank), distort_(std::move(distort)), said_(said) {
    rank_ = static_cast<int>(std::ranges::find(hall.members(), launch_rank) - hall.members().begin());
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(std::ssize(hall_.members())); }
  [[nodiscard]] int launch_rank(int rank) const override { return hall_.members()[static_cast<std::size_t>(rank)]; }
  void all_gather(const void* mine, void* all, std::size_t bytes) override {
    const std::vector<std::byte> said = distorted(mine, bytes);
    said_ += static_cast<std::int64_t>(bytes);
    hall_.put(rank_, said.data());
    for (int rank = 0; rank < size(); ++rank) std::memcpy(at(all, rank, bytes), hall_.of(rank), bytes);
    hall_.leave();
  }
  void exchange(const void* to, void* from, std::size_t bytes) override {
    const std::vector<std::byte> said = distorted(to, bytes * static_cast<std::size_t>(size()));
    said_ += static_cast<std::int64_t>(bytes) * (size() - 1);
    hall_.put(rank_, said.data());
    for (int rank = 0; rank < size(); ++rank)
      std::memcpy(at(from, rank, bytes), hall_.of(rank) + static_cast<std::size_t>(rank_) * bytes, bytes);
    hall_.leave();
  }
  void broadcast(void* data, std::size_t bytes, int from) override {
    const std::vector<std::byte> said = from == rank_ ? distorted(data, bytes) : std::vector<std::byte>();
    hall_.put(rank_, said.data());
    std::memcpy(data, hall_.of(from), bytes);
    hall_.leave();
  }
  /// As a transport: every rank gets its part of each rank's message, then all get what each has made of its part.
  void exchange_parts(const PartLayout& layout, std::vector<float> message, float* everyone) {
    hall_.put(rank_, message.data());
    const std::int64_t mine = layout.size(rank_);
    for (int rank = 0; rank < size(); ++rank)
      std::memcpy(everyone + rank * mine, reinterpret_cast<const float*>(hall_.of(rank)) + layout.begin(rank_),
                  static_cast<std::size_t>(mine) * sizeof(float));
    hall_.leave();
  }
  void gather_parts(const PartLayout& layout, const float* part, float* result) {
    hall_.put(rank_, part);
    for (int rank = 0; rank < size(); ++rank)
      std::memcpy(result + layout.begin(rank), hall_.of(rank),
                  static_cast<std::size_t>(layout.size(rank)) * sizeof(float));
    hall_.leave();
  }

 private:
  [[nodiscard]] static std::byte* at(void* all, int rank, std::size_t bytes) {
    return static_cast<std::byte*>(all) + static_cast<std::size_t>(rank) * bytes;
  }
  [[nodiscard]] std::vector<std::byte> distorted(const void* data, std::size_t bytes) {
    std::vector<std::byte> copy(bytes);
    std::memcpy(copy.data(), data, bytes);
    if (distort_) distort_(number_++, copy.data(), bytes);
    return copy;
  }
  Hall& hall_;
  int launch_, rank_ = 0, number_ = 0;
  Distortion distort_;
  std::int64_t& said_;  ///< bytes that this rank says to others, but what it shows
};

struct PartyOptions {
  int ranks = 4, faults = 1, validators = 1;
  std::int64_t elements = 500;
  std::int64_t steps = 10;
  double tau = 0;  ///< 0: from the distances
  int iterations = 2000;
  std::uint64_t seed = 1;
  std::map<int, std::string> cheats{};  ///< of ranks, from `from` on
  std::int64_t from = 2;
  /// Ranks that cheat with their gradients, from `from` on.
  std::vector<int> poisoners{};
  /// By rank, which other one gets another part from it than it commits to, and than it shows when it is asked.
  std::map<int, int> deceives{};
  /// By rank, what is added to each number of the part of the result that it makes.
  std::map<int, float> shifts{};
  /// Steps after which ranks leave, by rank.
  std::map<int, std::int64_t> leave{};
  std::map<int, Distortion> distortions{};
  double spread = 0.3;  ///< of honest gradients around their mean, whose numbers are about 1
  int wide = 0;         ///< the first ranks, whose gradients have three times that
};

struct PartyResult {
  std::vector<Ban> bans;
  std::vector<Accusation> accusations;
  std::vector<float> weights;
  std::int64_t steps = 0;
  std::vector<int> validators{};  ///< [steps] the first one of each; -1: none
  std::int64_t looks = 0;         ///< times that this rank has aggregated another one's part, or its own once more
  std::int64_t said = 0;          ///< bytes of its messages to others
  int wrong = 0;                  ///< numbers and distances of ranks that are not those of their honest gradients
};

/// Counts what another one does.
class CountedAggregator final : public Aggregator {
 public:
  CountedAggregator(std::unique_ptr<Aggregator> of, std::int64_t& count) : of_(std::move(of)), count_(count) {}
  [[nodiscard]] bool keeps_one() const override { return of_->keeps_one(); }
  [[nodiscard]] bool unfinished() const override { return of_->unfinished(); }
  void aggregate(const Contributions& all) override {
    ++count_;
    of_->aggregate(all);
  }

 private:
  std::unique_ptr<Aggregator> of_;
  std::int64_t& count_;
};

/// A rank of the small training.
class Party {
 public:
  Party(House& house, const PartyOptions& options, int rank) : house_(house), options_(options), launch_(rank) {}

  PartyResult run() {
    const auto size = static_cast<std::size_t>(options_.elements);
    weights_.assign(size, 1.0F);
    before_ = result_before_ = weights_;
    for (int rank = 0; rank < options_.ranks; ++rank) members_.push_back(rank);
    if (const auto cheat = options_.cheats.find(launch_); cheat != options_.cheats.end())
      cheat_ = cheats().at(cheat->second)({.ranks = options_.ranks, .rank = launch_});
    ProtocolState state;
    while (done_ < options_.steps && is_member(launch_)) {
      for (const auto& [rank, after] : options_.leave)
        if (after == done_) std::erase(members_, rank);
      if (is_member(launch_) && std::ssize(members_) > 1) state = train(state);
    }
    result_.weights = weights_;
    result_.steps = done_;
    return result_;
  }

 private:
  [[nodiscard]] bool is_member(int rank) const { return std::ranges::count(members_, rank) > 0; }
  /// With the members of now, until somebody leaves or the end has come.
  ProtocolState train(const ProtocolState& state) {
    const int ranks = static_cast<int>(std::ssize(members_)), gone = options_.ranks - ranks;
    const auto distortion = options_.distortions.find(launch_);
    HallAssembly assembly(house_.hall(members_), launch_,
                          distortion != options_.distortions.end() ? distortion->second : Distortion(), result_.said);
    const std::unique_ptr<Backend> backend = make_backend({.device = "cpu", .threads = 1, .math = "f32"});
    const int faults = std::max(0, options_.faults - gone);
    const auto aggregator = std::make_unique<CountedAggregator>(
        aggregators().at("centered_clip")(
            *backend, Parameters{},
            {.ranks = ranks,
             .faults = faults,
             .settings = {.aggregator_tau = options_.tau, .aggregator_iterations = options_.iterations}}),
        result_.looks);
    PartWork work(*backend, ranks, assembly.rank(), options_.elements,
                  [&](const PendingChecks& of, const PendingCheck& check) {
                    redone_ = gradient(check.target, of.step, before_);
                    redone_numbers_ = numbers_of(redone_);
                    return Redone{redone_.data(), result_before_.data(), options_.elements, redone_numbers_};
                  });
    work.use(*aggregator);
    Protocol protocol(assembly, work,
                      {.faults = faults,
                       .validators = options_.validators,
                       .tau = options_.tau,
                       .enough = kClipAtRest,
                       .weights = std::vector<double>(static_cast<std::size_t>(ranks), 1.0)},
                      Secret(options_.seed, launch_, ""), 2);
    protocol.restore(state);
    const PartLayout layout{.elements = options_.elements, .ranks = ranks};
    const auto size = static_cast<std::size_t>(options_.elements),
               mine = static_cast<std::size_t>(layout.size(assembly.rank()));
    std::vector<float> everyone(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(layout.longest())),
        part(mine + 1), place(static_cast<std::size_t>(layout.longest())), result(size);
    while (done_ < options_.steps) {
      for (const auto& [rank, after] : options_.leave)
        if (after == done_ && is_member(rank)) return protocol.state();
      const bool cheats_now = cheat_ && done_ >= options_.from;
      protocol.act(cheats_now ? cheat_->mischief() : nullptr);
      protocol.begin(done_);
      work.weigh(protocol.weights());
      std::vector<float> message = protocol.own_check() != nullptr ? weights_ : own_gradient();
      work.begin(done_, options_.elements, message.data());
      protocol.commit(numbers_of(message));
      if (cheats_now && protocol.own_check() == nullptr && cheat_->mischief() != nullptr)
        cheat_->mischief()->parts(message);
      if (const auto other = options_.deceives.find(launch_); other != options_.deceives.end())
        message[static_cast<std::size_t>(layout.begin(place_of(other->second)))] += 1;
      assembly.exchange_parts(layout, message, everyone.data());
      work.exchanged(everyone.data(), place.data());
      protocol.check_parts();
      std::vector<Chunk> chunks;
      for (std::int64_t at = 0; at < layout.size(assembly.rank()); at += kChunk)
        chunks.push_back(
            {.begin = at,
             .size = static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, layout.size(assembly.rank()) - at)),
             .segment = 0});
      const std::int32_t first[] = {0, static_cast<std::int32_t>(std::ssize(chunks))};
      aggregator->aggregate({.chunks = {.data = chunks.data(), .first = first, .count = first[1], .segments = 1},
                             .gradients = everyone.data(),
                             .stride = layout.size(assembly.rank()),
                             .step = done_,
                             .result = part.data(),
                             .weights = protocol.weights()});
      --result_.looks;
      work.aggregated();
      if (cheats_now && cheat_->mischief() != nullptr) cheat_->mischief()->aggregate({part.data(), mine});
      if (const auto shift = options_.shifts.find(launch_); shift != options_.shifts.end())
        for (std::size_t i = 0; i < mine; ++i) part[i] += shift->second;
      assembly.gather_parts(layout, part.data(), result.data());
      work.gathered(result.data());
      protocol.reveal();
      protocol.check_claims();
      result_.wrong += wrong_numbers(protocol, result);
      protocol.validate();
      for (const Accusation& one : protocol.take_accusations()) result_.accusations.push_back(one);
      if (!protocol.bans().empty()) {
        for (const Ban& ban : protocol.bans()) {
          result_.bans.push_back(ban);
          std::erase(members_, ban.rank);
        }
        return protocol.state();
      }
      const auto& checks = protocol.state().pending.checks;
      result_.validators.push_back(checks.empty() ? -1 : checks.front().validator);
      protocol.end();
      before_ = weights_;
      result_before_ = result;
      for (std::size_t i = 0; i < size; ++i) weights_[i] -= 0.1F * result[i];
      ++done_;
    }
    return protocol.state();
  }

  [[nodiscard]] int wrong_numbers(const Protocol& protocol, const std::vector<float>& result) const {
    int wrong = 0;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      const std::vector<double> said(&protocol.numbers()[2 * rank], &protocol.numbers()[2 * rank] + 2);
      if (protocol.weights()[rank] == 0) {  // it brings nothing
        wrong += said != std::vector<double>(2) || !std::isnan(protocol.claimed_distance(static_cast<int>(rank)));
        continue;
      }
      const std::vector<float> made = gradient(members_[rank], done_, weights_);
      double squares = 0;
      for (std::size_t i = 0; i < made.size(); ++i) squares += std::pow(double(made[i]) - double(result[i]), 2);
      const double far = protocol.claimed_distance(static_cast<int>(rank));
      wrong += !(std::abs(far - std::sqrt(squares)) <= 1e-6 * std::sqrt(squares));
      wrong += said != numbers_of(made);
    }
    return wrong;
  }
  [[nodiscard]] std::vector<float> gradient(int rank, std::int64_t step, const std::vector<float>& weights) const {
    const double spread = options_.spread * (rank < options_.wide ? 3 : 1);
    std::vector<float> made(weights.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      const Philox4 words = random_words(options_.seed, Purpose::synthetic_data, static_cast<std::uint32_t>(step),
                                         static_cast<std::uint64_t>(rank), static_cast<std::uint32_t>(i));
      made[i] = weights[i] + static_cast<float>(spread) * (2 * uniform(words.v[0]) - 1);
    }
    return made;
  }
  [[nodiscard]] std::vector<float> own_gradient() const {
    std::vector<float> made = gradient(launch_, done_, weights_);
    if (std::ranges::count(options_.poisoners, launch_) > 0 && done_ >= options_.from)
      for (float& value : made) value *= 1.01F;
    return made;
  }
  /// In the group.
  [[nodiscard]] int place_of(int rank) const {
    return static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
  }
  [[nodiscard]] static std::vector<double> numbers_of(const std::vector<float>& gradient) {
    double total = 0, square = 0;
    for (const float value : gradient) total += double(value), square += double(value) * double(value);
    return {total, square};
  }

  House& house_;
  const PartyOptions& options_;
  int launch_;
  std::unique_ptr<Cheat> cheat_;
  std::vector<int> members_;
  std::int64_t done_ = 0;
  std::vector<float> weights_, before_, result_before_, redone_;
  std::vector<double> redone_numbers_;
  PartyResult result_;
};

/// The results of all ranks.
[[nodiscard]] inline std::vector<PartyResult> hold_party(const PartyOptions& options) {
  House house;
  std::vector<PartyResult> results(static_cast<std::size_t>(options.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)] = Party(house, options, rank).run(); });
  threads.clear();
  return results;
}

}  // namespace dat::test
