#pragma once

#include <map>
#include <memory>
#include <vector>

#include "byzantine/assembly.hpp"
#include "byzantine/mischief.hpp"
#include "byzantine/part_work.hpp"
#include "dat/cheat.hpp"
#include "dat/communicator.hpp"
#include "reduce/transport/parts_watch.hpp"
#include "train/exchange/step_exchange.hpp"
#include "train/protocol/kept_step.hpp"
#include "train/watch/recompute.hpp"

namespace dat {

/// A rank that is made to cheat, in the protocol: what its cheat does to messages, and, where it should do the work of
/// another cheating rank once more, the story that all is well, which needs what that rank has committed to.
class Collusion final : public Mischief {
 public:
  /// Sets this rank's cheat in a step; null: it does not cheat in this step.
  void act(Cheat* cheat) {
    Mischief* const mischief = cheat != nullptr ? cheat->mischief() : nullptr;
    own_ = mischief != nullptr ? mischief : &none_;
  }
  /// The roots of the parts of a friend's contribution to the last step. rank: of the launch.
  void hear(int rank, std::vector<Sha256Digest> roots) { roots_[rank] = std::move(roots); }
  void forget() { roots_.clear(); }

  void message(Topic topic, Letter& letter, bool validates) override { own_->message(topic, letter, validates); }
  void parts(std::span<float> message) override { own_->parts(message); }
  void aggregate(std::span<float> part) override { own_->aggregate(part); }
  [[nodiscard]] const Contribution* story(const PendingCheck& check) override {
    const auto of_friend = roots_.find(check.target);
    if (of_friend == roots_.end()) return own_->story(check);
    story_ = {.roots = of_friend->second, .numbers = check.numbers, .claims = check.claims};
    return &story_;
  }

 private:
  Mischief none_;
  Mischief* own_ = &none_;
  std::map<int, std::vector<Sha256Digest>> roots_;
  Contribution story_;
};

/// The protocol's meetings, of a group of ranks.
class RanksAssembly final : public Assembly {
 public:
  explicit RanksAssembly(Communicator& ranks) : ranks_(ranks), bytes_(static_cast<std::size_t>(ranks.size())) {}
  [[nodiscard]] int rank() const override { return ranks_.rank(); }
  [[nodiscard]] int size() const override { return ranks_.size(); }
  [[nodiscard]] int launch_rank(int rank) const override { return ranks_.launch_rank(rank); }
  void all_gather(const void* mine, void* all, std::size_t bytes) override {
    const CallLabel label("what ranks say of their gradients");
    ranks_.all_gather(mine, all, bytes);
  }
  void exchange(const void* to, void* from, std::size_t bytes) override {
    const CallLabel label("salts of parts of gradients");
    bytes_.assign(bytes_.size(), static_cast<int>(bytes));
    ranks_.exchange(to, bytes_, from, bytes_);
  }
  void broadcast(void* data, std::size_t bytes, int from) override {
    const CallLabel label("a part of a gradient that is disputed");
    bytes_.assign(bytes_.size(), 0);
    bytes_[static_cast<std::size_t>(from)] = static_cast<int>(bytes);
    all_.resize(bytes);
    ranks_.all_gather(data, all_.data(), bytes_);
    std::ranges::copy(all_, static_cast<std::byte*>(data));
  }

 private:
  Communicator& ranks_;
  std::vector<int> bytes_;
  std::vector<std::byte> all_;
};

/// Error(usage): a step's validators leave too few of so many ranks to bring gradients to it.
void require_validators(const TrainOptions& options, int ranks);

/// The exchange that the options ask for, open.
[[nodiscard]] std::unique_ptr<StepExchange> make_exchange(const StepExchange::Parts& parts);

/// The exchange of a step under the protocol that bans (--byzantine), which stands between a transport that cuts
/// gradients into parts and the numbers that go with them: calls its phases where a step comes to them, and does a
/// rank's work of the step before once more.
class BanProtocol final : public StepExchange, public PartsWatch {
 public:
  /// parts: with an order.
  explicit BanProtocol(const Parts& parts);

  [[nodiscard]] StepMessage& message_of_contributions() override { return numbers_; }
  void ready() override;
  void keep_on_device(const std::uint8_t* pixels) override { recompute_.keep_on_device(pixels); }

  void begin_step(std::int64_t step) override;
  /// A rank that does another one's work in this step does it in place of its own.
  [[nodiscard]] bool contributes() const override { return protocol_->own_check() == nullptr; }
  /// Makes the checks of the step before, after the reduction; then the parts read all ranks' numbers.
  [[nodiscard]] bool finish() override;
  void keep(const ActiveSet& active) override;

  void encoded(std::int64_t step, std::int64_t elements, const float* message) override;
  void leaves(std::span<float> message) override;
  void exchanged(float* everyone, float* place) override;
  [[nodiscard]] std::span<const double> weights() const override { return protocol_->weights(); }
  void aggregated(std::span<float> part) override;
  void gathered(const float* result) override;

  [[nodiscard]] std::int64_t bytes_sent() const override { return StepExchange::bytes_sent() + bytes_sent_; }
  /// Distances as each rank has claimed.
  [[nodiscard]] const std::vector<double>* distances() const override { return &distances_; }
  [[nodiscard]] std::span<const Ban> bans() const override { return protocol_->bans(); }
  [[nodiscard]] std::vector<Accusation> take_accusations() override { return protocol_->take_accusations(); }
  [[nodiscard]] static std::int64_t memory(const Model& model, int ranks);

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void forget_step_under_way() override { restored_.pending.checks.clear(); }
  void share(Communicator& ranks) override;

 private:
  [[nodiscard]] PartsWatch* watch() override { return this; }
  void use(Aggregator& aggregator) override { work_.use(aggregator); }
  [[nodiscard]] Redone redo(const PendingChecks& of, const PendingCheck& check);
  void tell_friends();
  /// Counts the bytes that it gives to MPI.
  template <class Talk>
  void counted(const Talk& talk) {
    const std::int64_t before = ranks_.bytes_given();
    talk();
    bytes_sent_ += ranks_.bytes_given() - before;
  }

  Communicator& ranks_;
  const Plan& plan_;
  Replica& replica_;
  Cheating& cheating_;
  ProtocolOptions options_;
  Secret secret_;
  RanksAssembly assembly_;
  Recompute recompute_;
  KeptStep kept_;
  float *sum_, *message_;  ///< [parameters.size]: a contribution that is made once more
  PartWork work_;
  StepMessage numbers_;
  std::unique_ptr<Protocol> protocol_;
  ProtocolState restored_;
  std::vector<double> unit_, redone_, shares_, distances_;
  Collusion collusion_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace dat
