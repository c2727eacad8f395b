#pragma once

#include <memory>
#include <vector>

#include "byzantine/part_work.hpp"
#include "reduce/transport/parts_watch.hpp"
#include "train/exchange/step_exchange.hpp"
#include "train/protocol/collusion.hpp"
#include "train/protocol/kept_step.hpp"
#include "train/protocol/ranks_assembly.hpp"
#include "train/watch/recompute.hpp"

namespace dat {

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
  std::unique_ptr<Collusion> collusion_;  ///< null: this rank never cheats
  std::int64_t bytes_sent_ = 0, given_ = 0;
};

}  // namespace dat
