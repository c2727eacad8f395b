#pragma once

#include <memory>
#include <vector>

#include "byzantine/part_work.hpp"
#include "byzantine/protocol.hpp"
#include "reduce/transport/parts_watch.hpp"
#include "reduce/tree/summation_tree.hpp"
#include "train/attackers/cheating.hpp"
#include "train/message/stateful.hpp"
#include "train/message/step_message.hpp"
#include "train/protocol/collusion.hpp"
#include "train/protocol/kept_step.hpp"
#include "train/protocol/ranks_assembly.hpp"
#include "train/watch/recompute.hpp"

namespace dat {

/// Error(usage): a step's validators leave too few of so many ranks to bring gradients to it.
void require_validators(const TrainOptions& options, int ranks);

/// The protocol that bans (--byzantine), between a transport that cuts gradients into parts and the numbers that go
/// with them: calls its phases where a step comes to them, and does a rank's work of the step before once more.
class Guard final : public PartsWatch, public Stateful {
 public:
  struct Parts {
    Communicator& ranks;
    const Dataset& images;
    const TrainOptions& options;
    const Plan& plan;
    const Method& method;
    Replica& replica;
    const SummationTree& order;  ///< of the micro-batches of all ranks
    PhaseTimer& timer;
    Cheating& cheating;
  };
  /// All references must outlive it.
  explicit Guard(const Parts& parts);

  /// What makes one gradient of all.
  void use(Aggregator& aggregator) { work_.use(aggregator); }
  /// Adds a part of what a rank says of its contribution: of its batch statistics and losses.
  void add(MessagePart& part) { numbers_.add(part); }
  /// To be called when the parts have been added.
  void ready();
  void keep_on_device(const std::uint8_t* pixels) { recompute_.keep_on_device(pixels); }

  void begin(std::int64_t step);
  /// Whether this rank does another one's work in this step, in the place of its own.
  [[nodiscard]] bool validates() const { return protocol_->own_check() != nullptr; }

  void encoded(std::int64_t step, std::int64_t elements, const float* message) override;
  void leaves(std::span<float> message) override;
  void exchanged(float* everyone, float* place) override;
  [[nodiscard]] std::span<const double> weights() const override { return protocol_->weights(); }
  void aggregated(std::span<float> part) override;
  void gathered(const float* result) override;

  /// Behind the reduction: the checks of the step before; then the parts read what all ranks have said of their
  /// numbers. False: ranks are banned, and the step must be done once more without them.
  [[nodiscard]] bool passed();
  /// The step stands, and is about to be updated with. active: its layers; result: [parameters.size], flat.
  void keep(const ActiveSet& active, const float* result);
  [[nodiscard]] Protocol& protocol() { return *protocol_; }

  /// [ranks of the launch] how far the gradient of each was from the result, as it has claimed; NaN: it has brought
  /// none.
  [[nodiscard]] const std::vector<double>& distances() const { return distances_; }
  /// Bytes that the protocol has sent in this step.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] static std::int64_t memory(const Model& model, int ranks);

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void forget_step_under_way() override { restored_.pending.checks.clear(); }
  void share(Communicator& ranks) override;

 private:
  [[nodiscard]] Redone redo(const PendingChecks& of, const PendingCheck& check);
  void tell_friends();

  Communicator& ranks_;
  const Plan& plan_;
  Replica& replica_;
  const SummationTree& order_;
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
  std::int64_t step_ = 0, bytes_sent_ = 0, given_ = 0;
};

}  // namespace dat
