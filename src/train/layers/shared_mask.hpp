#pragma once

#include <algorithm>
#include <numeric>
#include <utility>

#include "train/layers/sampling.hpp"

namespace dat {

/// One draw for all ranks. Rank 0 learns from the mean gradient; all draw from its probabilities and compare with it.
/// Where ranks may be false, every rank draws and learns for itself: the gradient has the same bits on all.
class SharedMask final : public LayerSampling {
 public:
  SharedMask(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model)
      : LayerSampling(ranks, options, plan, model),
        alone_(ranks_may_be_false(options)),
        drawn_(active_),
        updated_(active_) {}

  const ActiveSet& draw(std::int64_t step) override;
  [[nodiscard]] std::span<const ActiveSet> brought() const override { return {&active_, 1}; }
  [[nodiscard]] const ActiveSet& updated() const override { return selector_->rates() != nullptr ? updated_ : active_; }
  void require_agreement() const override;

  [[nodiscard]] std::size_t places() const override { return alone_ ? 0 : 1; }
  void write(double* to, int /*unit*/) override { std::fill_n(to, places(), std::exchange(wrong_, false) ? 1.0 : 0.0); }
  void read(const double* from) override {
    wrong_ranks_ = static_cast<int>(std::accumulate(from, from + places(), 0.0));
  }

  void save(Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;

 private:
  [[nodiscard]] bool learns() const override { return (alone_ || ranks_.root()) && LayerSampling::learns(); }

  bool alone_;          ///< true: this rank believes nobody's draw
  ActiveSet drawn_;     ///< layers that this rank draws: from rank 0's probabilities, or from its own
  ActiveSet updated_;   ///< 1/p times the selector's learning rates, where it has some
  bool wrong_ = false;  ///< true: this rank's draw and rank 0's differ
  int wrong_ranks_ = 0;
};

}  // namespace dat
