#pragma once

#include <cstdint>
#include <vector>

#include "train/layers/sampling.hpp"

namespace dat {

/// A draw of its own on every rank, as JointSpar has it: each rank has a selector, which learns from the gradient of
/// the rank's own batch, and multiplies its gradients by its own 1/p before the mean over all ranks is made. The
/// optimizer gets that mean with the factor 1, for the layers that any rank has drawn. All ranks know all masks.
class PerWorkerMasks final : public LayerSampling {
 public:
  PerWorkerMasks(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model);

  const ActiveSet& draw(std::int64_t step) override;
  [[nodiscard]] std::span<const ActiveSet> brought() const override { return masks_; }
  [[nodiscard]] const ActiveSet& updated() const override { return updated_; }
  [[nodiscard]] const ActiveSet& summed() const override { return updated_; }
  void weigh(int segment) override;

  void fetch(Backend::Ticket& ticket) override;

  /// Saves draws and selectors of all ranks, one after the other.
  void save(Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;

 private:
  [[nodiscard]] const double* squares(const double* /*mean*/) const override { return host_sums_; }
  void take() override;
  /// Number of sums that a step has.
  [[nodiscard]] std::int64_t sums() const;
  /// all: [ranks][layers], 0 where a layer is not active.
  void set_masks(const auto& all);

  std::vector<ActiveSet> masks_;  ///< [ranks] with scale 1 or 0
  ActiveSet updated_;
  std::vector<std::uint8_t> mine_, all_;  ///< [layers]; [ranks][layers]: masks as they travel
  std::vector<float> factors_;            ///< [segments] 1/p
  float* device_factors_;
  ChunkTable chunks_;
  double *partial_, *sums_, *host_sums_;  ///< sums of squares: by chunk, by segment, by segment on the host
};

}  // namespace dat
