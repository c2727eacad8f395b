#pragma once

#include <cstdint>
#include <span>

namespace dat {

/// Observer of a step's gradients while they go by parts (butterfly); calls in this order. All of a rank's message
/// leaves at once then. Blocks are on the device unless they are spans.
class PartsWatch {
 public:
  virtual ~PartsWatch() = default;
  /// Called when this rank's message is there, of so many elements; nothing of it has left.
  virtual void encoded(std::int64_t step, std::int64_t elements, const float* message) = 0;
  /// Called with the message, on the host, before it leaves.
  virtual void leaves(std::span<float> message) = 0;
  /// Called with all ranks' numbers for this rank's part, one after the other; place: room for one part of the result.
  virtual void exchanged(float* everyone, float* place) = 0;
  /// [ranks] of their gradients in this step, as Contributions has them.
  [[nodiscard]] virtual std::span<const double> weights() const = 0;
  /// Called with this rank's aggregated part, on the host, before it leaves.
  virtual void aggregated(std::span<float> part) = 0;
  /// The result.
  virtual void gathered(const float* result) = 0;
};

}  // namespace dat
