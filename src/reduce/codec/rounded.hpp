#pragma once

#include "codec.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"

namespace dat {

/// Rounded to the nearest number of a type of 16 bits, ties to even, 2 bytes an element.
template <class T>
class Rounded final : public Codec {
 public:
  explicit Rounded(Backend& backend) : backend_(backend) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override { return (tensor.size + 1) / 2 * 4; }
  [[nodiscard]] bool exact() const override { return false; }
  [[nodiscard]] std::string transport() const override { return "two_sided"; }
  [[nodiscard]] DType sum_type() const override { return Stored<T>::type; }
  [[nodiscard]] bool takes_runs() const override { return true; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    each(backend_.device(), bucket.chunks,
         kernels::PackAs<T>{gradients, static_cast<std::byte*>(message), bucket.element, bucket.byte});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::UnpackAs<T>{static_cast<const std::byte*>(message), gradients, bucket.element, bucket.byte, factor});
  }

 private:
  Backend& backend_;
};

}  // namespace dat
