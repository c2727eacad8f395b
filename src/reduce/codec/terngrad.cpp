#include "codec.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"

namespace dat {

namespace {

/// TernGrad (Wen et al., NeurIPS 2017, equations 2 to 5 and section 3.2): a sign or nothing, 2 bits an element, and one
/// scale for each tensor ("layer-wise ternarizing"), after gradient clipping. Unbiased without clipping.
class TernGrad final : public Codec {
 public:
  TernGrad(Backend& backend, const CodecOptions& options) : backend_(backend), options_(options) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override {
    constexpr std::int64_t kGroup = kernels::Ternary::kGroup;
    return std::int64_t{sizeof(float)} + (tensor.size + kGroup - 1) / kGroup * std::int64_t{sizeof(std::uint32_t)};
  }
  [[nodiscard]] bool takes_runs() const override { return true; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    const Chunks& chunks = bucket.chunks;
    each(backend_.device(), chunks,
         kernels::ChunkMoments{gradients, bucket.element, bucket.size, chunks.first, chunks.origin, bucket.first,
                               bucket.partial});
    each(backend_.device(), std::int64_t{chunks.segments},
         kernels::TernaryScale{chunks.first, chunks.origin, bucket.real, bucket.first, bucket.partial,
                               options_.settings.codec_clip, bucket.sums});
    each(backend_.device(), chunks,
         kernels::Ternary{gradients, static_cast<std::byte*>(message), bucket.element, bucket.size, bucket.byte,
                          bucket.sums, bucket.first,
                          kernels::draw_of(options_.seed, bucket.step, options_.rank, bucket.round)});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::ValuesOfTernary{static_cast<const std::byte*>(message), gradients, bucket.element, bucket.byte,
                                  factor});
  }

 private:
  Backend& backend_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_terngrad(Backend& backend, const Parameters&, const CodecOptions& options) {
  return std::make_unique<TernGrad>(backend, options);
}

}  // namespace dat
