#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dat/attack.hpp"
#include "dat/loader.hpp"
#include "train/examples/batch_objective.hpp"
#include "train/examples/begun_attack.hpp"
#include "train/examples/examples.hpp"
#include "train/examples/old_weights.hpp"
#include "train/examples/warm_start.hpp"

namespace dat {

/// Examples that this rank makes itself, from its part of the training set: read, cut out at random, attacked with the
/// weights of the moment, or with --staleness those of steps before. With --stale-attack, look_ahead() has made the
/// first iterations of the attack on a step's first micro-batch with the weights before those.
class LocalExamples final : public ExampleSource {
 public:
  explicit LocalExamples(const ExampleParts& parts);

  void keep_on_device(const std::uint8_t* pixels) override { pixels_ = pixels; }
  void start(std::int64_t step) override;
  void begin(std::int64_t step) override;
  const Examples* next() override;
  void look_ahead(std::int64_t step) override;
  void trained() override;
  void take_back() override {
    if (warm_start_) warm_start_->put_back();
  }
  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  [[nodiscard]] std::int64_t attack_passes() const override { return passes_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void write(double* to, int unit) override;
  void read(const double* from) override { passes_ = static_cast<std::int64_t>(*from); }

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void forget_step_under_way() override { begun_.forget(); }
  void share(Communicator& ranks) override;

  /// Of the perturbations of --warm-start.
  [[nodiscard]] std::int64_t kept_bytes() const override { return warm_start_ ? warm_start_->bytes() : 0; }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override {
    return kept_bytes() + begun_.checkpoint_bytes(ranks) + (old_weights_ ? old_weights_->checkpoint_bytes() : 0);
  }
  [[nodiscard]] std::string dropped() const override { return begun_.dropped(); }

 private:
  [[nodiscard]] Objective& prepared_objective();
  /// Where the micro-batch at hand enters batch statistics.
  [[nodiscard]] BatchStatistics::Place place() const {
    return {.unit = examples_.unit, .first = examples_.begins_unit(), .share = examples_.share()};
  }
  /// Images of each micro-batch of the batch at hand.
  [[nodiscard]] int micro_batch() const { return batch_->count / plan_.micro_batches_of(ranks_.rank()); }
  /// Most micro-batches of a rank.
  [[nodiscard]] int rounds() const { return plan_.batch / plan_.micro_batch; }
  /// Of all ranks in the step of the batch at hand.
  [[nodiscard]] const EpochAttack& now() const { return method_.in_epoch(plan_.epoch_of(step_)); }
  /// That of this rank in this step.
  [[nodiscard]] const Attack& attack() const;
  /// What a cheat makes of the labels of these images of the batch, which are at hand.
  void falsify_labels(Cheat& cheat, int first, int count);
  /// The batch of this step.
  void take_batch(std::int64_t step);

  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  Plan plan_;
  const Method& method_;
  const Cheating& cheating_;
  std::unique_ptr<Attack> weak_;  ///< of a rank that cheats with its attack; null: attack_
  Replica& replica_;
  PhaseTimer& timer_;
  bool reuses_;  ///< the training pass is the last step of the attack (--attack-reuse)
  std::unique_ptr<BatchObjective> batch_objective_;
  std::unique_ptr<WarmStart> warm_start_;  ///< null: attacks start at random
  std::unique_ptr<Loader> loader_;
  const std::uint8_t* pixels_ = nullptr;

  std::int64_t step_ = 0, passes_before_ = 0, passes_ = 0, bytes_sent_ = 0;
  const HostBatch* batch_ = nullptr;
  std::int64_t batch_step_ = -1;  ///< that batch_ is of
  BegunAttack begun_;
  std::unique_ptr<OldWeights> old_weights_;  ///< null: attacks run on the weights of the moment
  Objective* objective_ = nullptr;           ///< of the examples at hand
  Examples examples_;
};

}  // namespace dat
