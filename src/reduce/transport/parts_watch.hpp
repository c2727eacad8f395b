#pragma once

#include <cstdint>
#include <span>

namespace dat {

/// Who looks on while a step's gradients go by parts (butterfly), in the order of the calls. All of a rank's message
/// leaves at once then. Blocks are on the device unless they are spans.
class PartsWatch {
 public:
  virtual ~PartsWatch() = default;
  /// This rank's message is there, of so many elements; nothing of it has left.
  virtual void encoded(std::int64_t step, std::int64_t elements, const float* message) = 0;
  /// What leaves, on the host.
  virtual void leaves(std::span<float> message) = 0;
  /// What all ranks have for this rank's part, one behind the other; place: for one part of the result, to use freely.
  virtual void exchanged(float* everyone, float* place) = 0;
  /// [ranks] of their gradients in this step, as Contributions has them.
  [[nodiscard]] virtual std::span<const double> weights() const = 0;
  /// What this rank has made of its part, on the host, before it leaves.
  virtual void aggregated(std::span<float> part) = 0;
  /// The result.
  virtual void gathered(const float* result) = 0;
};

}  // namespace dat
