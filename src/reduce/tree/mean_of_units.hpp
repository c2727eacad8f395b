#pragma once

#include <memory>
#include <span>

#include "reduce/sums/summation_tree.hpp"
#include "reduce/wrapped_reducer.hpp"

namespace dat {

/// Contribution of a rank where units of work are dealt to the ranks (dat/dealing.hpp) and the aggregator looks at each
/// rank's gradient: the mean of its own units, added up in their order as they are finished. Another reducer makes one
/// gradient of these. The loss of all units together is one mean, so a rank's sum is multiplied by all units over its
/// own ones. Bits are equal at an equal number of ranks.
class MeanOfUnits final : public WrappedReducer {
 public:
  /// gradients: as make_reducer() gets them, by which `of_ranks` was made. order: of the group; only how many units a
  /// rank has counts.
  MeanOfUnits(Backend&, const Parameters& parameters, float* gradients, const SummationTree& order, int rank,
              std::unique_ptr<Reducer> of_ranks);

  void begin(std::span<const ActiveSet> layers, std::int64_t step) override;
  [[nodiscard]] float* place(int unit) override;
  [[nodiscard]] std::span<float* const> own() override;
  void finish() override;
  [[nodiscard]] std::int64_t memory(int ranks) const override;

 private:
  void complete();
  void make_mean();

  Backend& backend_;
  const Parameters& parameters_;
  float* gradients_;
  const SummationTree& order_;
  float factor_;           ///< factor from the sum of this rank's units to their mean
  float* more_ = nullptr;  ///< [parameters.size] a unit after the first one; null: there are none
  ChunkTable table_;
  Chunks chunks_;     ///< chunks of the active layers
  ActiveSet active_;  ///< layers
  int unit_ = -1;     ///< being put together; -1: none, or all are in the mean
};

}  // namespace dat
