#pragma once

#include <map>
#include <vector>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

/// A rank that is made to cheat, in the protocol: what its cheat does to messages, and, where it should do the work of
/// another cheating rank once more, the story that all is well, which needs what that rank has committed to.
class Collusion final : public Mischief {
 public:
  /// Sets this rank's cheat in a step; null: it does not cheat in this step.
  void act(Cheat* cheat) { own_ = cheat != nullptr ? cheat->mischief() : nullptr; }
  /// The roots of the parts of a friend's contribution to the last step. rank: of the launch.
  void hear(int rank, std::vector<Sha256Digest> roots) { roots_[rank] = std::move(roots); }
  void forget() { roots_.clear(); }

  void message(Topic topic, Letter& letter, int to, bool validates) override {
    if (own_ != nullptr) own_->message(topic, letter, to, validates);
  }
  void parts(std::span<float> message) override {
    if (own_ != nullptr) own_->parts(message);
  }
  void aggregate(std::span<float> part) override {
    if (own_ != nullptr) own_->aggregate(part);
  }
  [[nodiscard]] const Contribution* story(const PendingCheck& check) override {
    const auto of_friend = roots_.find(check.target);
    if (of_friend == roots_.end()) return own_ != nullptr ? own_->story(check) : nullptr;
    story_ = {.roots = of_friend->second, .numbers = check.numbers, .claims = check.claims};
    return &story_;
  }

 private:
  Mischief* own_ = nullptr;
  std::map<int, std::vector<Sha256Digest>> roots_;
  Contribution story_;
};

}  // namespace dat
