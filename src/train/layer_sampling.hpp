#pragma once

#include <memory>
#include <vector>

#include "dat/config.hpp"
#include "dat/network.hpp"
#include "dat/selector.hpp"
#include "train/plan.hpp"
#include "train/stateful.hpp"
#include "train/step_message.hpp"

namespace dat {

/// JointSpar around the selector: when layers are drawn, that all ranks know the draw and agree on it, and what the
/// selector learns of their gradients.
class LayerSampling final : public MessagePart, public Stateful {
 public:
  LayerSampling(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model);

  /// The active layers of step number `step`: drawn anew where that is due, on rank 0, and repeated by the others.
  /// **Collective.**
  const ActiveSet& draw(std::int64_t step);
  /// Error(integrity), on all ranks: some have drawn other layers. Once the message of the step has been summed.
  void require_agreement() const;
  /// The selector learns from the norms of the mean gradient, where the next draw is due.
  void learn();

  [[nodiscard]] const ActiveSet& active() const { return active_; }
  [[nodiscard]] const std::vector<double>& probabilities() const { return p_; }
  /// [layers] gradient norms of the active layers that the selector has learned from in this step; null: it has not.
  [[nodiscard]] const std::vector<double>* norms() const { return learned_ ? &norms_ : nullptr; }
  [[nodiscard]] const LayerSelector& selector() const { return *selector_; }
  [[nodiscard]] double budget() const { return budget_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void fetch(Backend::Ticket& ticket) override;
  void write(double* to) override { *to = wrong_ ? 1 : 0; }
  void read(const double* from) override { wrong_ranks_ = static_cast<int>(*from); }

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void digest(Digest& digest) const override;

 private:
  [[nodiscard]] bool draw_due(std::int64_t step) const;
  /// Whether this rank's selector learns from this step.
  [[nodiscard]] bool learns() const;

  Communicator& ranks_;
  std::uint64_t seed_;
  std::int64_t warmup_steps_, period_, step_ = 0;
  Model& model_;
  double budget_;
  std::unique_ptr<LayerSelector> selector_;
  ActiveSet active_, repeated_;  ///< in force; as this rank draws it from rank 0's probabilities
  std::vector<double> p_, norms_;
  bool wrong_ = false, learned_ = false;  ///< they differ
  int wrong_ranks_ = 0;
  ChunkTable chunks_;
  double *partial_, *sums_, *host_sums_;  ///< of squares, by segment: on the device; on the host
};

}  // namespace dat
