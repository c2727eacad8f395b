#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reduce/wrapped_reducer.hpp"
#include "train/attackers/cheating.hpp"

namespace dat {

/// Reducer of a simulation with ranks that cheat: on each rank the true gradient goes into it, on those that cheat what
/// their cheat has made of it. Gradients of the honest, where a cheat must know them, go through a side channel on the
/// host, which a real cheater has not (it would compute them: seeds are public). The distance of each rank's gradient
/// from the result is measured on the way. All of that is in ReducerStage::aside, between two barriers, so that no rank
/// waits for it elsewhere. own() has the true gradient. Each rank has one block of gradients, and all have the same
/// layers.
class FalseGradients final : public WrappedReducer {
 public:
  /// gradients: where `of_ranks` takes them and leaves the result. distances: [ranks of the launch], where they are
  /// left. All references outlive it.
  FalseGradients(Backend&, Communicator& ranks, const Parameters& parameters, float* gradients,
                 std::unique_ptr<Reducer> of_ranks, const Cheating& cheating, std::vector<double>& distances,
                 std::function<void(ReducerStage)> ended);

  void begin(std::span<const ActiveSet> layers, std::int64_t step) override;
  void finish() override;

 private:
  void cheat();
  void learn_honest();
  void measure();
  /// Copies between the device and a block of the host.
  void fetch(std::vector<float>& block);

  Backend& backend_;
  Communicator& ranks_;
  const Parameters& parameters_;
  float* gradients_;
  const Cheating& cheating_;
  std::vector<double>& distances_;
  std::function<void(ReducerStage)> ended_;
  std::vector<const Segment*> tensors_;  ///< tensors of the active layers
  CheatStep step_;
  bool knows_result_ = false;
  std::vector<float> own_, result_;  ///< [parameters.size]
  std::vector<float> mean_, deviation_,
      first_;                 ///< [parameters.size] statistics of the honest gradients, on a rank that must know them
  std::vector<float> piece_;  ///< piece of the gradients of all ranks
  std::vector<double> of_group_;  ///< [ranks] distances
};

}  // namespace dat
