// Cheats in the protocol that bans (--byzantine): members that change one thing of what leaves their rank.

#include <algorithm>
#include <cstring>
#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

class ProtocolCheat : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() final { return this; }
};

/// Changes its messages of one topic.
class ChangedMessages final : public ProtocolCheat {
 public:
  using Change = void (*)(Letter& letter);
  /// validating: also while it does another rank's work.
  ChangedMessages(Topic topic, bool validating, Change change)
      : topic_(topic), validating_(validating), change_(change) {}

  void message(Topic topic, Letter& letter, bool validates) override {
    if (topic == topic_ && (validating_ || !validates)) change_(letter);
  }

 private:
  Topic topic_;
  bool validating_;
  Change change_;
};

/// Adds 1 to a number of each claim of a message of claims, which follow a number of 8 bytes.
template <auto number>
void change_claims(Letter& letter) {
  const std::span<std::byte> claims = letter.bytes().subspan(sizeof(std::uint64_t));
  for (std::size_t at = 0; at + sizeof(Claim) <= claims.size(); at += sizeof(Claim)) {
    Claim claim;
    std::memcpy(&claim, claims.data() + at, sizeof claim);
    claim.*number += 1;
    std::memcpy(claims.data() + at, &claim, sizeof claim);
  }
}

/// Sends every rank something else than it has committed to, and shows what it has committed to when it is asked.
class Equivocate final : public ProtocolCheat {
  void parts(std::span<float> message) override {
    for (float& value : message) value = -value;
  }
};

/// Makes something else of its part of the gradients: the result, 1000 times as long, in the other direction.
class WrongAggregate final : public ProtocolCheat {
  void aggregate(std::span<float> part) override {
    for (float& value : part) value *= -1000;
  }
};

/// Sends no parts of its gradient, and does not show them either.
class Silent final : public ProtocolCheat {
  void parts(std::span<float> message) override { std::ranges::fill(message, 0.0F); }
  void message(Topic topic, Letter& letter, bool /*validates*/) override {
    if (topic == Topic::salts || topic == Topic::show) letter.length() = 0;
  }
};

/// Cheat that does not recompute another rank's work when it should, and claims what all have heard.
class IdleValidator final : public ProtocolCheat {
  [[nodiscard]] const Contribution* story(const PendingCheck& check) override {
    story_ = {.roots = check.commitments, .numbers = check.numbers, .claims = check.claims};
    return &story_;
  }

  Contribution story_;
};

}  // namespace

/// Commits to parts that it does not have.
std::unique_ptr<Cheat> make_wrong_digest(const CheatOptions&) {
  return std::make_unique<ChangedMessages>(Topic::commit, false, [](Letter& letter) {
    for (std::byte& byte : letter.bytes().first(letter.bytes().size() - 2 * sizeof(Sha256Digest))) byte = ~byte;
  });
}

/// Cheat that does not show its share of the randomness.
std::unique_ptr<Cheat> make_no_reveal(const CheatOptions&) {
  return std::make_unique<ChangedMessages>(Topic::reveal, true, [](Letter& letter) { letter.length() = 0; });
}

/// Sends claims of another length.
std::unique_ptr<Cheat> make_malformed(const CheatOptions&) {
  return std::make_unique<ChangedMessages>(Topic::claims, true, [](Letter& letter) { letter.length() += 4; });
}

/// Claims to be further away from the result than it is.
std::unique_ptr<Cheat> make_false_norm(const CheatOptions&) {
  return std::make_unique<ChangedMessages>(Topic::claims, false, change_claims<&Claim::norm>);
}

/// Claims another product with the random direction than that of its gradient.
std::unique_ptr<Cheat> make_false_product(const CheatOptions&) {
  return std::make_unique<ChangedMessages>(Topic::claims, false, change_claims<&Claim::product>);
}

/// Says of all ranks that their claims about its part are false.
std::unique_ptr<Cheat> make_false_accuser(const CheatOptions&) {
  return std::make_unique<ChangedMessages>(Topic::accusations, true,
                                           [](Letter& letter) { std::ranges::fill(letter.bytes(), std::byte{0xff}); });
}

std::unique_ptr<Cheat> make_equivocate(const CheatOptions&) { return std::make_unique<Equivocate>(); }
std::unique_ptr<Cheat> make_wrong_aggregate(const CheatOptions&) { return std::make_unique<WrongAggregate>(); }
std::unique_ptr<Cheat> make_silent(const CheatOptions&) { return std::make_unique<Silent>(); }
std::unique_ptr<Cheat> make_idle_validator(const CheatOptions&) { return std::make_unique<IdleValidator>(); }

}  // namespace dat
