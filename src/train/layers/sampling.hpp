#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dat/config.hpp"
#include "dat/network.hpp"
#include "dat/selector.hpp"
#include "train/message/stateful.hpp"
#include "train/message/step_message.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// JointSpar around the selector: when layers are drawn, what the ranks know of each other's draws, and what the
/// selector learns of their gradients. The two kinds, SharedMask and PerWorkerMasks, differ in who draws (--mask).
class LayerSampling : public MessagePart, public Stateful {
 public:
  LayerSampling(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model);

  /// The layers of step number `step` whose weight gradients this rank computes: drawn anew where that is due.
  /// **Collective.**
  virtual const ActiveSet& draw(std::int64_t step) = 0;
  /// The layers whose gradients the ranks bring to the reduction: one set of all ranks, or one of each.
  [[nodiscard]] virtual std::span<const ActiveSet> brought() const = 0;
  /// The layers that the optimizer updates, with the factors that it applies; equal on all ranks.
  [[nodiscard]] virtual const ActiveSet& updated() const = 0;
  /// Multiplies the gradient of a segment of this rank's layers by 1/p where that is to be done, once the gradient is
  /// complete and before it is reduced.
  virtual void weigh(int /*segment*/) {}
  /// Checks the ranks' draws, once the message of the step has been summed. Error(integrity), on all ranks: some ranks
  /// have drawn other layers.
  virtual void require_agreement() const {}
  /// The layers of which the reduction makes a gradient.
  [[nodiscard]] virtual const ActiveSet& summed() const { return active_; }
  /// The selector learns from the norms of the gradient, where the next draw is due. squares [segments][kSums]: sums of
  /// squares of the mean gradient.
  void learn(const double* squares);
  /// Sees to it that all ranks have the costs of layers that are measured (--budget-unit seconds): rank 0's, from the
  /// checkpoint that it has been restored from, or else from `measure` now, which all ranks call. Comes before share().
  /// **Collective.**
  void share_costs(const std::function<std::vector<double>()>& measure);

  [[nodiscard]] const ActiveSet& active() const { return active_; }
  [[nodiscard]] const std::vector<double>& probabilities() const { return p_; }
  /// [layers] gradient norms of the active layers that the selector has learned from in this step; null: the selector
  /// has not learned.
  [[nodiscard]] const std::vector<double>* norms() const { return learned_ ? &norms_ : nullptr; }
  [[nodiscard]] const LayerSelector& selector() const { return *selector_; }
  [[nodiscard]] double budget() const { return options_.budget; }
  /// Costs [layers] in units of their mean.
  [[nodiscard]] std::vector<double> costs() const;

  /// Takes up the draw in force and the selector's state of a rank with this number; where the checkpoint has fewer
  /// ranks, they are counted again from the first.
  void restore(const Checkpoint& checkpoint) override;

 protected:
  /// State that checkpoints hold of one rank or of several, one after the other.
  struct Saved {
    std::size_t ranks = 0;
    std::vector<double> selector, p, scale;
  };

  /// Adds the costs to a checkpoint, where they cannot be known otherwise.
  void save_costs(Checkpoint& checkpoint) const;
  /// Begins a step. Returns whether a draw is due.
  [[nodiscard]] bool begin(std::int64_t step);
  /// Returns whether this rank's selector learns from this step.
  [[nodiscard]] virtual bool learns() const;
  /// What a rank with this number takes up of an array of `saved_`.
  [[nodiscard]] std::vector<double> row(const std::vector<double>& all, int rank) const;
  /// Takes up what `saved_` has for this rank.
  virtual void take();
  /// [segments][kSums] sums of squares that the selector learns from; `mean`: the sums of the mean gradient.
  [[nodiscard]] virtual const double* squares(const double* mean) const { return mean; }

  Communicator& ranks_;
  std::uint64_t seed_;
  Model& model_;
  std::unique_ptr<LayerSelector> selector_;
  ActiveSet active_;
  std::vector<double> p_;
  Saved saved_;
  std::int64_t step_ = 0;

 private:
  [[nodiscard]] bool draw_due(std::int64_t step) const;
  void make_selector();
  /// Layers that the selector chooses from, which come after those that stand still.
  [[nodiscard]] std::size_t chosen() const { return static_cast<std::size_t>(options_.layers); }

  std::int64_t warmup_steps_, period_;
  const int frozen_;                 ///< layers that stand still, none of them in part (frozen_segments)
  const std::int64_t frozen_steps_;  ///< number of first steps in which layers are frozen
  const std::string name_;           ///< name of the selector
  SelectorOptions options_;          ///< options of the selector
  const bool measured_;              ///< the costs are seconds
  std::vector<double> norms_;
  bool learned_ = false;
};

/// The kind of sampling that --mask names.
[[nodiscard]] std::unique_ptr<LayerSampling> make_layer_sampling(Communicator& ranks, const TrainOptions& options,
                                                                 const Plan& plan, Model& model);

}  // namespace dat
