#include <algorithm>
#include <bit>

#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "spectral.hpp"

namespace dat {

namespace {

/// A tensor as a tall matrix, where its atoms are shorter than itself. Convolutions as in the authors' codings/svd.py:
/// two neighbouring inputs of an output, with their kernels, are a row (one, where their number is odd). The longer
/// side of matrices is the rows; where both are long, pieces of 16 elements. No row has padding beside gradients: in
/// the sum of the atoms that are chosen it would not be zero.
[[nodiscard]] kernels::Spectrum spectrum_of(const Segment& tensor, int atoms) {
  constexpr std::int32_t kMost = kernels::Spectrum::kMostCols, kPiece = 16;
  const std::vector<int>& shape = tensor.shape;
  kernels::Spectrum s;
  if (shape.size() < 2) return s;
  s.inputs = shape.at(1);
  for (std::size_t d = 2; d < shape.size(); ++d) s.kernel *= shape[d];
  if (s.kernel > 1) {
    s.pair = s.inputs % 2 == 0 && tensor.padding_in % 2 == 0 && 2 * s.kernel <= kMost ? 2 : 1;
  } else {
    const auto shorter = std::min(shape[0], shape[1]);
    if (shorter > kMost && tensor.padding_in % kPiece != 0) return {};
    s.inputs = shorter == shape[0] && shorter <= kMost ? shape[1] : 1;
    s.kernel = shorter <= kMost ? shorter : kPiece;
  }
  if (s.cols() > kMost || tensor.size % s.cols() != 0) return {};
  s.rows = static_cast<std::int32_t>(tensor.size / s.cols());
  const std::int32_t chosen = std::min(atoms, s.cols());
  if (s.rows < s.cols() || chosen * (std::int64_t{s.rows} + s.cols()) >= tensor.size) return {};
  s.atoms = chosen;
  const auto items = static_cast<std::uint64_t>(s.blocks()) * static_cast<std::uint64_t>(s.pairs());
  s.shift = static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(tensor.size) / items)) - 1;
  return s;
}

/// Spectral ATOMO (Wang et al., NeurIPS 2018): of the singular value decomposition of each tensor a fixed number of
/// atoms, chosen at random so that the estimate is unbiased and its variance least.
class Atomo final : public Codec {
 public:
  Atomo(Backend& backend, const Parameters& parameters, const CodecOptions& options)
      : backend_(backend), options_(options) {
    std::vector<kernels::Spectrum> spectra;
    std::int64_t sums = 0, square = 0, weight = 0;
    for (const Segment& segment : parameters.segments) {
      kernels::Spectrum& s = spectra.emplace_back(spectrum_of(segment, options_.settings.codec_rank));
      s.sums = sums;
      s.square = square;
      s.weight = weight;
      sums += std::int64_t{s.blocks()} * s.pairs();
      square += std::int64_t{s.cols()} * s.cols();
      weight += s.atoms;
    }
    const auto doubles = [&](std::int64_t count) { return backend.allocate_array<double>(count, "atomo"); };
    spectra_ = backend.allocate_array<kernels::Spectrum>(std::ssize(spectra), "atomo");
    backend.copy_to_device(spectra_, spectra.data(), spectra.size() * sizeof(kernels::Spectrum));
    memory_ = {doubles(sums), doubles(square), doubles(square), doubles(weight)};
  }

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override {
    const kernels::Spectrum s = spectrum_of(tensor, options_.settings.codec_rank);
    return (s.atoms > 0 ? s.atoms * (std::int64_t{s.rows} + s.cols()) : tensor.size) * std::int64_t{sizeof(float)};
  }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    const Device device = backend_.device();
    auto* const floats = static_cast<float*>(message);
    each(device, bucket.chunks, kernels::GramOfBlocks{spectra_, memory_, gradients, bucket.element});
    each(device, bucket.chunks, kernels::GramOfTensor{spectra_, memory_, bucket.element});
    each(device, std::int64_t{bucket.end} - bucket.first,
         kernels::ChooseAtoms{spectra_, memory_, bucket.chunks.first, bucket.first, floats, bucket.element, bucket.byte,
                              kernels::draw_of(options_.seed, bucket.step, options_.rank, bucket.round)});
    each(device, bucket.chunks,
         kernels::LeftOfAtoms{spectra_, memory_, gradients, floats, bucket.element, bucket.byte});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::FromAtoms{spectra_, static_cast<const float*>(message), gradients, bucket.element, bucket.byte,
                            factor});
  }

 private:
  Backend& backend_;
  CodecOptions options_;
  kernels::Spectrum* spectra_;  ///< [segments], on the device
  kernels::SpectralMemory memory_{};
};

}  // namespace

std::unique_ptr<Codec> make_atomo(Backend& backend, const Parameters& parameters, const CodecOptions& options) {
  return std::make_unique<Atomo>(backend, parameters, options);
}

}  // namespace dat
