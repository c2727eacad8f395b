#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dat/reducer.hpp"
#include "train/attackers/cheating.hpp"

namespace dat {

/// What goes into a reducer in a simulation with ranks that cheat: on each rank the true gradient, on those that cheat
/// what their cheat has made of it. Gradients of the honest, where a cheat must know them, go through a side channel on
/// the host, which a real cheater has not (it would compute them: seeds are public). How far each rank's gradient was
/// from the result is found out on the way. All of that is in ReducerStage::aside, between two barriers, so that no
/// rank waits for it elsewhere. Each rank has one block of gradients, and all have the same layers.
class FalseGradients final : public Reducer {
 public:
  /// gradients: where `of_ranks` takes them and leaves the result. distances: [ranks], where they are left. All
  /// references outlive it.
  FalseGradients(Backend&, Communicator& ranks, const Parameters& parameters, float* gradients,
                 std::unique_ptr<Reducer> of_ranks, const Cheating& cheating, std::vector<double>& distances,
                 std::function<void(ReducerStage)> ended);

  void begin(std::span<const ActiveSet> layers, std::int64_t step) override;
  [[nodiscard]] float* place(int unit) override { return of_ranks_->place(unit); }
  void ready(int /*segment*/) override {}
  /// The true ones.
  [[nodiscard]] std::span<float* const> own() override { return of_ranks_->own(); }
  void finish() override;

  [[nodiscard]] std::int64_t elements() const override { return of_ranks_->elements(); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return of_ranks_->bytes_sent(); }
  [[nodiscard]] std::int64_t bytes_received() const override { return of_ranks_->bytes_received(); }
  [[nodiscard]] std::string transport() const override { return of_ranks_->transport(); }
  [[nodiscard]] double bytes_sent(const std::vector<double>& probabilities, int ranks) const override {
    return of_ranks_->bytes_sent(probabilities, ranks);
  }
  [[nodiscard]] std::int64_t memory(int ranks) const override { return of_ranks_->memory(ranks); }
  [[nodiscard]] double seconds_under_way() const override { return of_ranks_->seconds_under_way(); }
  [[nodiscard]] std::vector<State> state() const override { return of_ranks_->state(); }

 private:
  void cheat();
  void learn_honest();
  void measure();
  /// Between the device and a block of the host.
  void fetch(std::vector<float>& block);

  Backend& backend_;
  Communicator& ranks_;
  const Parameters& parameters_;
  float* gradients_;
  std::unique_ptr<Reducer> of_ranks_;
  const Cheating& cheating_;
  std::vector<double>& distances_;
  std::function<void(ReducerStage)> ended_;
  std::vector<const Segment*> tensors_;  ///< of the active layers
  CheatStep step_;
  bool knows_result_ = false;
  std::vector<float> own_, result_;              ///< [parameters.size]
  std::vector<float> mean_, deviation_, first_;  ///< the same, on a rank that must know them
  std::vector<float> piece_;                     ///< of the gradients of all ranks
};

}  // namespace dat
