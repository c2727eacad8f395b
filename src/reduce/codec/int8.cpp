#include "codec.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"

namespace dat {

namespace {

/// A byte an element after the norm of the tensor: stochastic rounding to 127 levels of either sign, unbiased. QSGD
/// (Alistarh et al., NeurIPS 2017, section 3.1) with s = 127 levels, in the form of DAT's quantization.py.
class Int8 final : public Codec {
 public:
  Int8(Backend& backend, const CodecOptions& options) : backend_(backend), options_(options) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override {
    return std::int64_t{sizeof(float)} + (tensor.size + 3) / 4 * 4;
  }
  [[nodiscard]] bool takes_runs() const override { return true; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    sum(backend_.device(), bucket.chunks, kernels::SquaredNorm{gradients}, bucket.partial, bucket.sums);
    each(backend_.device(), bucket.chunks,
         kernels::QuantiseLevels{gradients, static_cast<std::byte*>(message), bucket.element, bucket.size, bucket.byte,
                                 bucket.sums, bucket.first,
                                 kernels::draw_of(options_.seed, bucket.step, options_.rank, bucket.round)});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::ValuesOfLevels{static_cast<const std::byte*>(message), gradients, bucket.element, bucket.byte,
                                 factor});
  }

 private:
  Backend& backend_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_int8(Backend& backend, const Parameters&, const CodecOptions& options) {
  return std::make_unique<Int8>(backend, options);
}

}  // namespace dat
