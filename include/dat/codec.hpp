#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

class Backend;

/// Tensors whose gradients travel together, in one message: those of the active layers among the segments
/// first .. end - 1. Each tensor's message has a place of its own in it.
struct Bucket {
  int first = 0, end = 0;  ///< segments
  std::int64_t step = 0;   ///< of the training: with seed and rank, the key of counted random numbers
  /// The tensors' elements, for the loops of kernels/launch.hpp; results of `sum` begin with segment `first`.
  Chunks chunks{};
  const std::int64_t* element = nullptr;  ///< [all segments], on the device: the tensor's first element
  const std::int64_t* byte = nullptr;     ///< [all segments], on the device: the first byte of its message
  std::int64_t bytes = 0;                 ///< of the whole message
};

struct CodecOptions {
  std::uint64_t seed = 1;  ///< of random numbers
  int rank = 0;            ///< of those that send to each other
};

/// How gradients become a message, and a message gradients. All work is queued on the device, through the loops of
/// kernels/launch.hpp; a step allocates nothing and waits for nothing.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Bytes of the message of a tensor with so many elements: a multiple of 4, and the same whatever the values are, so
  /// that no rank need tell the others how long its messages are. A message that may be shorter has its length in it.
  [[nodiscard]] virtual std::int64_t bytes(std::int64_t elements) const = 0;
  /// Whether decoding what was encoded brings back every bit.
  [[nodiscard]] virtual bool exact() const = 0;
  /// Whether messages are made of floats, and the sum of the ranks' messages decodes to the sum of their gradients.
  [[nodiscard]] virtual bool summable() const = 0;

  /// Writes the messages of the bucket's tensors. gradients: the whole flat block [parameters.size]; message: the
  /// bucket's; both on the device. Called once a step for every tensor that takes part in it.
  virtual void encode(const Bucket& bucket, const float* gradients, void* message) = 0;
  /// Sets the bucket's elements of `gradients` to `factor` times what any rank's message stands for, or a sum of
  /// messages. The other elements are left alone.
  virtual void decode(const Bucket& bucket, const void* message, float factor, float* gradients) = 0;

  /// What this rank remembers from step to step, such as what compression has left out so far: flat arrays
  /// [parameters.size] in the layout of the gradients, on the device. Every rank has its own.
  struct State {
    std::string name;
    float* data;
  };
  [[nodiscard]] virtual std::vector<State> state() const { return {}; }
};

[[nodiscard]] const Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)>& codecs();

}  // namespace dat
