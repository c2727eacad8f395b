#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batch/view/frozen.hpp"

namespace dat {

/// Sizes of the programs for an early-stopped attack on n samples at a time: n, and halves down to an eighth.
[[nodiscard]] std::vector<int> early_stop_sizes(int n);

/// The frozen network for attacks that samples leave. In each iteration, the samples that are still in the attack are
/// put side by side and computed by programs of fitting sizes. The result of a sample does not depend on the other
/// samples, but for the rounding of another program.
class EarlyStopView final : public FrozenView {
 public:
  using Sizes = std::vector<std::unique_ptr<FrozenProgram>>;
  /// programs: programs of falling sizes, made by FrozenProgram::of_sizes; the first one holds no more than
  /// images.capacity samples, and does all work but steps_until_fooled.
  EarlyStopView(Buffers& images, const Sizes& programs);
  /// The first call with these step sizes plans its work and allocates.
  void steps_until_fooled(int steps, int tau, float alpha, float eps) override;

 private:
  /// An iteration for as many samples as one program takes.
  struct Pass {
    FrozenProgram* program;
    std::unique_ptr<Backend::Recording> forward, backward;  ///< steps_left_ is known between the two
  };
  [[nodiscard]] Pass& fitting(std::int64_t samples);
  void forward(FrozenProgram& program);
  void backward(FrozenProgram& program);
  void record(float alpha, float eps);
  /// These samples into the slots of the program.
  void assign_slots(const FrozenProgram& program, std::span<const std::int32_t> samples);

  std::vector<Pass> passes_;
  PgdUpdate slots_;                                ///< x, eta, x_adv of the samples being computed, and the step sizes
  std::int32_t *samples_, *labels_, *steps_left_;  ///< [slots], [slots], [images.capacity]
  std::int32_t* host_steps_left_;
  float* slot_x_;
  std::vector<std::int32_t> live_, host_samples_;
};

}  // namespace dat
