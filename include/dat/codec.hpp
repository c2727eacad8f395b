#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/device_state.hpp"
#include "dat/parameters.hpp"
#include "dat/registry.hpp"
#include "dat/tensor.hpp"

namespace dat {

class Backend;

/// Tensors whose gradients travel together, in one message: the tensors of the active layers among the tensors first ..
/// end - 1. Each tensor's message has a place of its own in the bucket's. A transport may make "tensors" of its own of
/// the network's: runs of their elements.
struct MessageTensors {
  int first = 0, end = 0;  ///< tensors
  std::int64_t step = 0;   ///< step of the training: with seed and rank, the key of counted random numbers
  /// Counts the messages of a step, from 0: the codec's rounds, or those of a transport that encodes once more.
  int round = 0;
  /// The tensors' elements, for the loops of kernels/launch.hpp; results of `sum` begin with tensor `first`.
  Chunks chunks{};
  const std::int64_t* element = nullptr;  ///< [all tensors], on the device: the tensor's first element
  const std::int64_t* size = nullptr;     ///< [all tensors], on the device: the tensor's elements
  const std::int64_t* real = nullptr;     ///< [all tensors], on the device: those of them that are no padding
  const std::int64_t* byte = nullptr;     ///< [all tensors], on the device: the first byte of its message
  std::int64_t bytes = 0;                 ///< bytes of the whole message
  /// Room for one `sum`, on the device: partial [chunks.count][kSums], sums [end - first][kSums].
  double *partial = nullptr, *sums = nullptr;
};

/// Fields are called like the options of the command line, whose structs inherit them.
struct CodecSettings {
  int codec_rank = 0;       ///< columns of powersgd's factors, atoms of atomo; 0: the codec's own
  double codec_clip = 2.5;  ///< terngrad: largest gradient, in standard deviations of its tensor; 0: any

  friend bool operator==(const CodecSettings&, const CodecSettings&) = default;
};

struct CodecOptions {
  std::uint64_t seed = 1;  ///< seed of random numbers
  int rank = 0;            ///< number of this rank among those that send to each other
  CodecSettings settings{};
};

/// A pair of functions by which gradients become a message, and a message gradients. All work is queued on the device,
/// through the loops of kernels/launch.hpp; a step allocates nothing and waits for nothing.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Bytes of a tensor's message in this round: a multiple of 4, and the same whatever the values are, so that no rank
  /// need send the others how long its messages are. A message that may be shorter has its length in it.
  [[nodiscard]] virtual std::int64_t bytes(const Segment& tensor, int round) const = 0;
  /// Returns whether decoding what was encoded brings back every bit.
  [[nodiscard]] virtual bool exact() const { return false; }
  /// The transport (reduce/transport/) by which its messages meet unless the user names another one. "sum": messages
  /// may be added up, as floats, number by number, and the sum stands for the sum of gradients.
  [[nodiscard]] virtual std::string transport() const { return "gather"; }
  /// The type of its messages' numbers, in which they are added up where their sums may be rounded to it: by NCCL. Only
  /// with messages that add up, or of another type than f32.
  [[nodiscard]] virtual DType sum_type() const { return DType::f32; }
  /// Returns whether it takes any run of a tensor's elements for a tensor, which then has one dimension.
  [[nodiscard]] virtual bool takes_runs() const { return false; }
  /// Messages of a step. In each round a bucket is encoded, its messages are added up, and the sum is decoded; the
  /// last decoding leaves the result. More than one goes only where messages are added up.
  [[nodiscard]] virtual int rounds() const { return 1; }

  /// Writes the messages of the bucket's tensors. `gradients` is the whole flat block [parameters.size], `message` the
  /// bucket's [bucket.bytes]; both are on the device. Called once a step and round for every tensor that takes part in
  /// it.
  virtual void encode(const MessageTensors& bucket, const float* gradients, void* message) = 0;
  /// Sets the bucket's elements of `gradients` to `factor` times what any rank's message stands for, or a sum of
  /// messages. Elements outside the bucket are left alone. In a round that is not the last one, the codec may leave all
  /// elements alone.
  virtual void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) = 0;

  using State = DeviceState;
  /// State that is remembered from step to step, such as what compression has left out so far.
  [[nodiscard]] virtual std::vector<State> state() const { return {}; }
};

[[nodiscard]] const Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)>& codecs();

}  // namespace dat
