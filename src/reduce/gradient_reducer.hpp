#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "dat/parameters.hpp"
#include "dat/reducer.hpp"
#include "reduce/buckets.hpp"
#include "reduce/transport/transport.hpp"

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

/// Makes one gradient of the gradients of all ranks, for the active layers: which these are, `Masks` knows; into what
/// messages they are cut, and when these go, `Buckets`; the codec writes the messages and reads them; how they meet is
/// the transport's, and what becomes of whole gradients the aggregator's. One rank does the same as many, unless
/// neither codec nor aggregator would change a bit: then nothing is done.
///
/// Ranks may have gradients of different layers (ReducerOptions::mask_transport). Layers that a rank does not have
/// count as zero, so the mean is over all ranks, for each layer that any of them has.
///
/// A step allocates nothing. A rank's part of the step is one unit of work.
class GradientReducer final : public Reducer {
 public:
  /// Arguments and errors as of make_reducer().
  GradientReducer(Backend&, Communicator& ranks, const Parameters& parameters, float* gradients, std::unique_ptr<Codec>,
                  std::unique_ptr<Aggregator>, const ReducerOptions&);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Lays out the messages of this step. layers: one set for all; or, with masks per worker, [size of the group] one of
  /// each. The result is of the layers in any of them; `dense` sets all.
  void begin(std::span<const ActiveSet> layers, std::int64_t step) override;
  [[nodiscard]] float* place(int /*unit*/) override { return gradients_; }
  /// Announces a segment of this rank's layers. Ranks announce their segments in the same order.
  void ready(int segment) override { buckets_.ready(segment); }
  [[nodiscard]] std::span<float* const> own() override { return {&gradients_, 1}; }
  void finish() override;

  [[nodiscard]] std::int64_t elements() const override { return buckets_.elements(); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return ranks_.size() > 1 ? bytes_sent_ : 0; }
  [[nodiscard]] std::string transport() const override { return name_; }
  [[nodiscard]] double bytes_sent(const std::vector<double>& probabilities, int ranks) const override;
  /// Bytes of memory on the device.
  [[nodiscard]] std::int64_t memory(int ranks) const override;
  [[nodiscard]] std::int64_t added_up(int ranks) const override;
  [[nodiscard]] double seconds_under_way() const override {
    return overlap_ ? ranks_.seconds_under_way() - under_way_before_ : 0;
  }
  [[nodiscard]] std::vector<State> state() const override;

 private:
  /// Returns whether the gradient of so many ranks is the result already.
  [[nodiscard]] bool unchanged(int ranks) const { return ranks == 1 && codec_->exact() && aggregator_->keeps_one(); }

  Communicator& ranks_;
  const Parameters& parameters_;
  float* gradients_;
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<Aggregator> aggregator_;
  std::vector<double> weights_;  ///< weights of the ranks; empty: all alike
  std::function<void(ReducerStage)> ended_;
  Masks masks_;
  std::string name_;  ///< name of the transport
  TransportKind kind_;
  std::unique_ptr<Transport> transport_;
  bool overlap_, unchanged_;
  Buckets buckets_;
  std::int64_t bytes_sent_ = 0;  ///< bytes of this step, were there several ranks
  double under_way_before_ = 0;
};

/// The transport of messages. Error(usage): it is unknown, or the codec, the aggregator or the masks per worker do not
/// allow it.
[[nodiscard]] std::string choose_transport(const Codec& codec, const Aggregator& aggregator,
                                           const ReducerOptions& options);

}  // namespace dat
