#include "codec.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"

namespace dat {

namespace {

/// Rounded to the nearest bfloat16, ties to even, 2 bytes an element.
class Bf16 final : public Codec {
 public:
  explicit Bf16(Backend& backend) : backend_(backend) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override { return (tensor.size + 1) / 2 * 4; }
  [[nodiscard]] bool exact() const override { return false; }
  [[nodiscard]] std::vector<Transport> transports() const override { return {Transport::two_sided, Transport::gather}; }

  void encode(const Bucket& bucket, const float* gradients, void* message) override {
    each(backend_.device(), bucket.chunks,
         kernels::PackAs<BFloat16>{gradients, static_cast<std::byte*>(message), bucket.element, bucket.byte});
  }
  void decode(const Bucket& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::UnpackAs<BFloat16>{static_cast<const std::byte*>(message), gradients, bucket.element, bucket.byte,
                                     factor});
  }

 private:
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Codec> make_bf16(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<Bf16>(backend);
}

}  // namespace dat
