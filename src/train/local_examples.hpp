#pragma once

#include <memory>

#include "dat/attack.hpp"
#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "train/batch_objective.hpp"
#include "train/example_source.hpp"
#include "train/phase_timer.hpp"
#include "train/plan.hpp"
#include "train/warm_start.hpp"

namespace dat {

/// Examples that this rank makes itself, from its part of the training set: read, cut out at random, attacked with the
/// weights of the moment.
class LocalExamples final : public ExampleSource, public MessagePart {
 public:
  /// statistics: what the attack's passes in training mode enter; null: it attacks the frozen network.
  LocalExamples(Communicator& ranks, const Dataset& images, const TrainOptions& options, const Plan& plan,
                const Attack& attack, Replica& replica, BatchStatistics* statistics, PhaseTimer& timer);

  /// The pixels of the training set, on the device; else they are read step by step. Before start().
  void keep_on_device(const std::uint8_t* pixels) { pixels_ = pixels; }

  void start(std::int64_t step) override;
  void begin(std::int64_t step) override;
  const Examples* next() override;
  void trained() override;
  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  [[nodiscard]] std::int64_t attack_passes() const override { return passes_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void write(double* to) override;
  void read(const double* from) override { passes_ = static_cast<std::int64_t>(*from); }

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

  /// Bytes of the perturbations that --warm-start keeps, of all samples; 0 without it.
  [[nodiscard]] std::int64_t warm_start_bytes() const { return warm_start_ ? warm_start_->bytes() : 0; }

 private:
  [[nodiscard]] Objective& prepared_objective();

  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  Plan plan_;
  const Attack& attack_;
  Replica& replica_;
  PhaseTimer& timer_;
  bool reuses_;  ///< the training pass is the last step of the attack (--attack-reuse)
  std::unique_ptr<BatchObjective> batch_objective_;
  std::unique_ptr<WarmStart> warm_start_;  ///< null: attacks start at random
  std::unique_ptr<Loader> loader_;
  const std::uint8_t* pixels_ = nullptr;

  std::int64_t step_ = 0, passes_before_ = 0, passes_ = 0, bytes_sent_ = 0;
  const HostBatch* batch_ = nullptr;
  Objective* objective_ = nullptr;  ///< of the examples at hand
  Examples examples_;
};

}  // namespace dat
