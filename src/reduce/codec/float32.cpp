#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "gradients.hpp"

namespace dat {

namespace {

/// The gradients as they are, 4 bytes an element.
class Float32 final : public Codec {
 public:
  explicit Float32(Backend& backend) : backend_(backend) {}

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override {
    return tensor.size * std::int64_t{sizeof(float)};
  }
  [[nodiscard]] bool exact() const override { return true; }
  [[nodiscard]] std::string transport() const override { return "sum"; }
  [[nodiscard]] bool takes_runs() const override { return true; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    each(backend_.device(), bucket.chunks,
         kernels::Pack{gradients, static_cast<float*>(message), bucket.element, bucket.byte});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::Unpack{static_cast<const float*>(message), gradients, bucket.element, bucket.byte, factor});
  }

 private:
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Codec> make_float32(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<Float32>(backend);
}

}  // namespace dat
