#pragma once

#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "gradients.hpp"

namespace dat {

/// Gradients as they are, or rounded to the nearest number of a type of 16 bits, ties to even.
template <class T>
class Rounded final : public Codec {
 public:
  explicit Rounded(Backend& backend) : backend_(backend) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override {
    return (tensor.size * std::int64_t{sizeof(T)} + 3) / 4 * 4;
  }
  [[nodiscard]] bool exact() const override { return std::is_same_v<T, float>; }
  [[nodiscard]] std::string transport() const override { return exact() ? "sum" : "two_sided"; }
  [[nodiscard]] DType sum_type() const override { return Stored<T>::type; }
  [[nodiscard]] bool takes_runs() const override { return true; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    each(backend_.device(), bucket.chunks, kernels::Pack<T>{gradients, message, bucket.element, bucket.byte});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks, kernels::Unpack<T>{message, gradients, bucket.element, bucket.byte, factor});
  }

 private:
  Backend& backend_;
};

}  // namespace dat
