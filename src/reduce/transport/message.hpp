#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduce/sums/message_memory.hpp"
#include "reduce/transport/transport.hpp"

namespace dat {

/// Bytes of a tensor's message in this round; none of a tensor without elements.
[[nodiscard]] std::int64_t bytes_of(const Codec& codec, const Segment& tensor, int round = 0);
/// [rounds][tensors].
[[nodiscard]] std::vector<std::int64_t> lengths_of(const Codec& codec, const Parameters& tensors, int rounds = 1);

/// f(k) for the bucket's segments of these layers, the last one first: in the order in which they are finished.
template <class F>
void for_each_segment(const Bucket& bucket, const Parameters& parameters, const ActiveSet& layers, const F& f) {
  for (auto k = static_cast<std::size_t>(bucket.end); k-- > static_cast<std::size_t>(bucket.first);)
    if (layers.active(parameters.segments[k].layer)) f(k);
}

/// Error(communication): MPI cannot count so many bytes of a bucket; `before` and `after` say what they are.
void check_length(const Bucket& bucket, std::int64_t bytes, const char* before, const char* after);

/// Facts about the tensors for a codec, whatever message they are in; on the device.
struct TensorTables {
  void reserve(Backend& backend, const Parameters& tensors);

  std::int64_t *element = nullptr, *size = nullptr, *real = nullptr;
  double *partial = nullptr, *sums = nullptr;
};

/// The messages of one rank, or of all that have the same layers: which tensors are in them, and where in its bucket's
/// message each begins.
class Message {
 public:
  Message(Backend& backend, const Parameters& tensors, int rounds = 1);
  void reserve();

  /// First byte of the tensor in this round; to be set before select().
  [[nodiscard]] std::int64_t& begin(std::size_t tensor, int round = 0);
  /// The message has the tensors of these layers, from now on. Returns their chunks.
  const Chunks& select(const ActiveSet& layers);
  /// Message tensors first .. end - 1. `about` has step, round and bytes; row: the round whose places count.
  [[nodiscard]] MessageTensors range(const TensorTables& tables, int first, int end, MessageTensors about,
                                     int row = 0) const;

 private:
  Backend& backend_;
  std::size_t tensors_;
  ChunkTable table_;
  std::vector<std::int64_t> begin_;  ///< [rounds][tensors]
  std::int64_t* device_begin_ = nullptr;
};

}  // namespace dat
