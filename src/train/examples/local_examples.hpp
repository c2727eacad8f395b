#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dat/attack.hpp"
#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "dat/loss.hpp"
#include "train/examples/batch_objective.hpp"
#include "train/examples/example_source.hpp"
#include "train/examples/warm_start.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/phase_timer.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// Examples that this rank makes itself, from its part of the training set: read, cut out at random, attacked with the
/// weights of the moment. With --stale-attack, look_ahead() has made the first iterations of the attack on a step's
/// first micro-batch with the weights before those.
class LocalExamples final : public ExampleSource, public MessagePart {
 public:
  /// statistics: what the attack's passes in training mode enter; null: it attacks the frozen network.
  LocalExamples(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                const Loss& loss, const Attack& attack, Replica& replica, BatchStatistics* statistics,
                PhaseTimer& timer);

  /// The pixels of the training set, on the device; else they are read step by step. Before start().
  void keep_on_device(const std::uint8_t* pixels) { pixels_ = pixels; }

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
  void share(Communicator& ranks) override;

  /// Bytes of the perturbations that --warm-start keeps, of all samples; 0 without it.
  [[nodiscard]] std::int64_t warm_start_bytes() const { return warm_start_ ? warm_start_->bytes() : 0; }

  /// Bytes of a checkpoint for attacks that have begun, of all ranks; 0 without --stale-attack.
  [[nodiscard]] std::int64_t begun_bytes() const { return ranks_.size() * begun_floats(plan_.micro_batch) * 4; }
  /// Why the attacks that a checkpoint had begun are not gone on with; empty where they are, or there were none.
  [[nodiscard]] const std::string& dropped() const { return dropped_; }

 private:
  /// An attack that has begun, and the step that it is for; -1: none. Its perturbation is in begun_.
  struct Begun {
    std::int64_t step = -1;
    std::int64_t passes = 0;  ///< of the attack so far
    std::int64_t images = 0;
  };
  [[nodiscard]] Objective& prepared_objective();
  /// Where the micro-batch at hand enters batch statistics.
  [[nodiscard]] BatchStatistics::Place place() const {
    return {.unit = examples_.unit, .first = examples_.begins_unit(), .share = examples_.share()};
  }
  /// Images of each micro-batch of the batch at hand.
  [[nodiscard]] int micro_batch() const { return batch_->count / plan_.micro_batches_of(ranks_.rank()); }
  /// The batch of this step.
  void take_batch(std::int64_t step);
  [[nodiscard]] std::int64_t begun_floats(std::int64_t images) const {
    return stale_ > 0 ? images * replica_.images().layout.elements() : 0;
  }
  [[nodiscard]] std::int64_t images_of_first_micro_batch(std::int64_t step) const;
  /// Between the device's layout and [n][c][h][w], in which files have it.
  void copy_begun(std::vector<float>& plain, bool to_device);
  void save_begun(Checkpoint& checkpoint);
  void restore_begun(const Checkpoint& checkpoint);
  void share_begun();

  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  Plan plan_;
  const Attack& attack_;
  AttackGoal goal_;
  Replica& replica_;
  PhaseTimer& timer_;
  int rounds_;   ///< most micro-batches of a rank
  int stale_;    ///< iterations of an attack with the weights before the update
  bool reuses_;  ///< the training pass is the last step of the attack (--attack-reuse)
  std::unique_ptr<BatchObjective> batch_objective_;
  std::unique_ptr<WarmStart> warm_start_;  ///< null: attacks start at random
  std::unique_ptr<Loader> loader_;
  const std::uint8_t* pixels_ = nullptr;

  std::int64_t step_ = 0, passes_before_ = 0, passes_ = 0, bytes_sent_ = 0;
  const HostBatch* batch_ = nullptr;
  std::int64_t batch_step_ = -1;  ///< that batch_ is of
  float* begun_ = nullptr;        ///< [micro_batch] perturbations, on the device
  Begun begun_attack_;
  std::vector<float> restored_;  ///< of all ranks, on rank 0, until share()
  std::string dropped_;
  Objective* objective_ = nullptr;  ///< of the examples at hand
  Examples examples_;
};

}  // namespace dat
