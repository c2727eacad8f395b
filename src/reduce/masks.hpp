#pragma once

#include <span>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "dat/parameters.hpp"

namespace dat {

/// Layers for which the ranks have gradients in a step, and those of them that their messages have
/// (ReducerOptions::mask_transport). Layers that a rank does not have count as zero.
class Masks {
 public:
  /// Masks of a way `how`: empty where all ranks have the same layers. Error(usage): there is no such way.
  Masks(Backend& backend, Communicator& ranks, const Parameters& parameters, std::string how);
  /// Takes the memory for set_zeros(), before it.
  void reserve();

  [[nodiscard]] bool per_worker() const { return !how_.empty(); }
  /// Returns whether each rank's message has its own layers alone.
  [[nodiscard]] bool separate() const { return how_ == "allgather"; }

  /// layers: one set for all ranks; or, per worker, one of each rank. They must stay until set_zeros().
  void begin(std::span<const ActiveSet> layers);
  [[nodiscard]] const ActiveSet& any() const { return any_; }  ///< layers of the result
  [[nodiscard]] const ActiveSet& own() const;                  ///< layers that this rank has
  /// Layers of each rank's message, where these differ; else those of all.
  [[nodiscard]] std::span<const ActiveSet> of_messages() const { return separate() ? layers_ : std::span(&any_, 1); }
  /// Sets to zero what is lacking of the result's layers: in this rank's gradients; where messages are separate, in
  /// those of every rank, [ranks][parameters.size], as they are put together here.
  void set_zeros(float* gradients, float* of_ranks);

 private:
  Backend& backend_;
  Communicator& ranks_;
  const Parameters& parameters_;
  std::string how_;
  std::span<const ActiveSet> layers_;
  ActiveSet any_, absent_;
  std::vector<ChunkTable> zeros_;  ///< [messages that differ] chunks of absent layers
};

}  // namespace dat
