#pragma once

#include <string>

#include "dat/reducer.hpp"
#include "reduce/sums/summation_tree.hpp"
#include "reduce/sums/sums.hpp"

namespace dat {

/// Adds up gradients in the order of a tree over the micro-batches of all ranks: the same bits however these are dealt.
/// Each micro-batch is a unit of work with a gradient of its own; the loss of all of them together is one mean, so the
/// result is their sum. Partial sums are made on the device as micro-batches are finished; those that are left meet in
/// pieces, of which several are under way.
class TreeReducer final : public Reducer {
 public:
  /// gradients: as make_reducer() gets them. tree: of the group. Only the length of messages and `ended` of the options
  /// count.
  TreeReducer(Backend&, Communicator& ranks, const Parameters& parameters, float* gradients, const SummationTree& tree,
              const ReducerOptions&);
  TreeReducer(const TreeReducer&) = delete;
  TreeReducer& operator=(const TreeReducer&) = delete;

  void begin(std::span<const ActiveSet> layers, std::int64_t step) override;
  [[nodiscard]] float* place(int unit) override;
  void ready(int /*segment*/) override {}
  [[nodiscard]] std::span<float* const> own() override;
  void finish() override;

  [[nodiscard]] std::int64_t elements() const override { return elements_; }
  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  [[nodiscard]] std::string transport() const override { return "two_sided"; }
  /// Mean over the ranks.
  [[nodiscard]] double bytes_sent(const std::vector<double>& probabilities, int ranks) const override;
  [[nodiscard]] std::int64_t memory(int ranks) const override;
  [[nodiscard]] std::int64_t added_up(int ranks) const override;

 private:
  void complete();
  [[nodiscard]] float* message(int node) { return reinterpret_cast<float*>(sums_->device(node, 0)); }
  void exchange();

  Backend& backend_;
  Communicator& ranks_;
  const Parameters& parameters_;
  const SummationTree& tree_;
  ReducerOptions options_;
  std::int64_t piece_;  ///< most gradients of a message
  TreeFold fold_;
  int unit_ = -1;               ///< being put together; -1: none yet
  std::vector<float*> places_;  ///< [places of this rank] flat blocks, of partial sums; the first one is the gradients
  std::unique_ptr<NodeSums> sums_;  ///< sums of this rank's nodes; messages: the active segments one after the other
  ChunkTable table_;
  Chunks chunks_;                   ///< chunks of the active layers
  std::vector<std::int64_t> byte_;  ///< [segments] where they begin in a message
  std::int64_t *device_byte_ = nullptr, *device_element_ = nullptr;
  std::int64_t elements_ = 0, bytes_sent_ = 0;
};

}  // namespace dat
