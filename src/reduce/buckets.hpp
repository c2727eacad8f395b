#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dat/reducer.hpp"
#include "reduce/transport/transport.hpp"

namespace dat {

/// Scheduler of the messages of a step: the active layers are cut into buckets, last layer first, which is the order in
/// which the backward pass finishes them; a bucket is encoded when its last segment is announced, and given to MPI then
/// (--overlap) or after all others, always in the same order. finish() waits for the device once for each bucket and
/// round.
class Buckets {
 public:
  /// transport: null where nothing is to be sent; then only the cutting and the counting are left.
  Buckets(Backend& backend, const Parameters& parameters, const ReducerOptions& options, Transport* transport);

  /// Cuts the buckets of a step. any: the layers of all messages; own: those that this rank will announce.
  void cut(const ActiveSet& any, const ActiveSet& own);
  [[nodiscard]] std::span<const Bucket> buckets() const { return buckets_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }  ///< elements of this rank's layers

  /// Encodes buckets without active segments of this rank, for which ready() is never called.
  void begin();
  void ready(int segment);
  /// Finishes all rounds of all buckets: the transport has then taken what the last one has brought.
  void finish();

 private:
  /// Progress of a bucket.
  struct Progress {
    int missing = 0;             ///< segments not announced yet
    Backend::Ticket ticket = 0;  ///< arrives when MPI may read the message
    bool sent = false;           ///< given to MPI
    Request request{};           ///< request of its message
  };
  [[nodiscard]] Progress& of(const Bucket& bucket) { return progress_[static_cast<std::size_t>(bucket.number)]; }

  void encode(const Bucket& bucket);
  void give(const Bucket& bucket);
  bool move_on();

  Backend& backend_;
  const Parameters& parameters_;
  std::int64_t most_;  ///< gradients of a bucket
  bool overlap_;
  std::function<void(ReducerStage)> ended_;
  Transport* transport_;
  std::vector<int> bucket_of_;  ///< [segments]
  std::vector<Bucket> buckets_;
  std::vector<Progress> progress_;  ///< [buckets]
  std::int64_t elements_ = 0;
};

}  // namespace dat
