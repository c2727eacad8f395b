#pragma once

#include "dat/backend.hpp"
#include "replica/replica.hpp"
#include "train/message/held_weights.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// Data for recomputing a rank's work of the step before: the weights and running statistics with which it was done,
/// the layers, and the result of all gradients.
class KeptStep final : public Stateful {
 public:
  explicit KeptStep(Replica& replica);
  [[nodiscard]] static std::int64_t memory(const Model& model);
  [[nodiscard]] static std::int64_t checkpoint_bytes(const Model& model) {
    return (2 * model.parameters.size + 2 * model.graph.statistics) * std::int64_t{sizeof(float)};
  }

  /// Keeps the step that is about to be updated with; result: flat [parameters.size], of the active layers.
  void keep(const ActiveSet& active, const float* result);
  /// Gives the network the weights and statistics that are kept, and keeps those that it had; and back.
  void exchange() { before_.exchange(); }
  [[nodiscard]] const ActiveSet& active() const { return active_; }
  [[nodiscard]] const float* result() const { return result_; }

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  Replica& replica_;
  HeldWeights before_;
  float* result_;
  ActiveSet active_;
  bool there_ = false;
};

}  // namespace dat
