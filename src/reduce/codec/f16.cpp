#include "codec.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"

namespace dat {

namespace {

/// Rounded to the nearest IEEE binary16, ties to even; from 65520 on, to infinity, which ends the run with a
/// numerical error instead of training on a wrong gradient, 2 bytes an element.
class F16 final : public Codec {
 public:
  explicit F16(Backend& backend) : backend_(backend) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override { return (tensor.size + 1) / 2 * 4; }
  [[nodiscard]] bool exact() const override { return false; }
  [[nodiscard]] std::vector<Transport> transports() const override { return {Transport::two_sided, Transport::gather}; }

  void encode(const Bucket& bucket, const float* gradients, void* message) override {
    each(backend_.device(), bucket.chunks,
         kernels::PackAs<Half>{gradients, static_cast<std::byte*>(message), bucket.element, bucket.byte});
  }
  void decode(const Bucket& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::UnpackAs<Half>{static_cast<const std::byte*>(message), gradients, bucket.element, bucket.byte,
                                 factor});
  }

 private:
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Codec> make_f16(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<F16>(backend);
}

}  // namespace dat
