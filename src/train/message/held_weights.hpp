#pragma once

#include <cstdint>
#include <string>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "replica/replica.hpp"

namespace dat {

/// Weights and running statistics of a network, held on the device beside its own.
class HeldWeights {
 public:
  /// Weights with a purpose `what`, for a list of memory. The replica must outlive it.
  HeldWeights(Replica& replica, const char* what);
  /// Bytes on the device.
  [[nodiscard]] static std::int64_t memory(const Model& model) { return floats(model) * std::int64_t{sizeof(float)}; }

  /// Takes a copy of the network's.
  void keep();
  /// Gives the network a copy of what is held.
  void give();
  /// Copies between the device and host memory, where they are [floats()]: weights in memory's order, running means,
  /// variances. Returns when the copy is done.
  void copy_to_host(float* to) const;
  void copy_from_host(const float* from);
  static void copy_network_to_host(const Model& model, float* to);
  [[nodiscard]] static std::int64_t floats(const Model& model) {
    return model.parameters.size + 2 * model.graph.statistics;
  }
  /// Gives the network what is held, and holds what the network had; and back.
  void exchange();
  [[nodiscard]] const float* weights() const { return weights_; }

  /// Saves them as "GROUP/NAME" and "GROUP/NAME.running_mean", "GROUP/NAME.running_var". Error(checkpoint).
  void save(Checkpoint& checkpoint, const std::string& group) const;
  void restore(const Checkpoint& checkpoint, const std::string& group);
  /// Rank 0's, to all. **Collective.**
  void share(Communicator& ranks);

 private:
  /// Calls act(the network's array, the one that is held for it, elements).
  template <class Act>
  void for_each_array(const Act& act) {
    act(model_.parameters.values, weights_, model_.parameters.size);
    act(model_.running_mean, mean_, model_.graph.statistics);
    act(model_.running_variance, variance_, model_.graph.statistics);
  }

  Replica& replica_;
  Model& model_;
  float *weights_, *mean_, *variance_;  ///< one after the other
};

}  // namespace dat
