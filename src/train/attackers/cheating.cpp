#include "train/attackers/cheating.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/attackers/false_gradients.hpp"

namespace dat {

namespace {

/// A part of the step's message, of whose numbers a rank that cheats says something else.
class FalseNumbers final : public MessagePart {
 public:
  FalseNumbers(MessagePart& part, const Cheating& cheating) : part_(part), cheating_(cheating) {}

  [[nodiscard]] std::size_t places() const override { return part_.places(); }
  void fetch(Backend::Ticket& ticket) override { part_.fetch(ticket); }
  void write(double* to, int unit) override {
    part_.write(to, unit);
    if (Cheat* cheat = cheating_.now()) cheat->statistics({to, places()});
  }
  void read(const double* from) override { part_.read(from); }
  [[nodiscard]] Estimate estimate() const override { return part_.estimate(); }
  bool read_each(const RankNumbers& said) override { return part_.read_each(said); }

 private:
  MessagePart& part_;
  const Cheating& cheating_;
};

}  // namespace

Cheating::Cheating(const Communicator& ranks, const TrainOptions& options, int classes, std::int64_t parameters)
    : honest_(static_cast<std::size_t>(ranks.size()), 1) {
  std::vector<Cheater> attackers = attackers_of(options);
  const auto number = [&](const Cheater& one) {  // in the group; the group's size: it has left
    int rank = 0;
    while (rank < ranks.size() && ranks.launch_rank(rank) != one.rank) ++rank;
    return rank;
  };
  std::erase_if(attackers, [&](const Cheater& one) { return number(one) == ranks.size(); });
  for (const Cheater& one : attackers) {
    honest_[static_cast<std::size_t>(number(one))] = 0;
    if (one.leaves) continue;
    auto cheat = cheats().at(one.cheat)({.seed = options.seed,
                                         .classes = classes,
                                         .ranks = ranks.size(),
                                         .attackers = static_cast<int>(std::ssize(attackers)),
                                         .rank = one.rank,
                                         .delay = one.own_delay(),
                                         .parameters = parameters});
    if (cheat->attack_steps()) weak_ = one.cheat;
    all_.push_back({number(one), one, std::move(cheat)});
  }
  for (const OfRank& one : all_)
    if (one.rank == ranks.rank()) own_ = &one;
}

Cheat* Cheating::at(std::int64_t step) const {
  return own_ != nullptr && own_->attacker.cheats_after(step) ? own_->cheat.get() : nullptr;
}

Cheat* Cheating::looks() const {
  if (own_ == nullptr || own_->cheat->sees() == Cheat::Sees::nothing) return nullptr;
  return step_ >= own_->attacker.from - own_->cheat->looks_back() ? own_->cheat.get() : nullptr;
}

bool Cheating::anyone_sees_all() const {
  return std::ranges::any_of(all_, [&](const OfRank& one) {
    return one.cheat->sees() == Cheat::Sees::all && one.attacker.cheats_after(step_);
  });
}

std::unique_ptr<Reducer> Cheating::falsify(std::unique_ptr<Reducer> reducer, Backend& backend, Communicator& ranks,
                                           const Parameters& parameters, float* gradients,
                                           const ReducerOptions& options) {
  if (all_.empty()) return reducer;
  distances_.resize(static_cast<std::size_t>(ranks.launch_rank(ranks.size() - 1)) + 1, std::nan(""));
  return std::make_unique<FalseGradients>(backend, ranks, parameters, gradients, std::move(reducer), *this, distances_,
                                          options.ended);
}

MessagePart& Cheating::falsify(MessagePart& part) {
  if (all_.empty()) return part;
  false_numbers_ = std::make_unique<FalseNumbers>(part, *this);
  return *false_numbers_;
}

}  // namespace dat
