#include <bit>
#include <cmath>
#include <numbers>

#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "low_rank.hpp"

namespace dat {

namespace {

// Instead of a sender: numbers that all ranks draw alike.
constexpr std::uint32_t kFirstFactor = 0xFFFFFFFF, kReplacement = 0xFFFFFFFE;

/// A tensor as the authors' view_as_matrix has it: outputs by all else. Factors only where they are shorter than the
/// tensor.
[[nodiscard]] kernels::Factors factors_of(const Segment& tensor, int rank) {
  if (tensor.shape.size() < 2) return {};
  kernels::Factors f{.rows = tensor.shape[0], .cols = static_cast<std::int32_t>(tensor.size / tensor.shape[0])};
  f.rank = std::min({rank, f.rows, f.cols});
  if (f.rank * (std::int64_t{f.rows} + f.cols) >= tensor.size) return {};
  const auto shift = [&](std::int64_t items) {
    return static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(tensor.size / items)) - 1);
  };
  constexpr int kTile = kernels::RightFactor::kTile;
  f.left_shift = shift(std::int64_t{f.rows} * f.rank);
  f.right_shift = shift(std::int64_t{(f.cols + kTile - 1) / kTile} * f.rank);
  return f;
}

/// PowerSGD (Vogels et al., NeurIPS 2019): one step of power iteration from the factor Q of the step before, with error
/// feedback. First the P of all ranks are added up, then, with P made orthonormal, their Q. The error is what the
/// decoded mean lacks of this rank's own gradient and error, as in the authors' code: decoded plus error is the input.
class PowerSgd final : public Codec {
 public:
  PowerSgd(Backend& backend, const Parameters& parameters, const CodecOptions& options)
      : backend_(backend), parameters_(parameters), options_(options) {
    std::vector<kernels::Factors> factors;
    std::int64_t left = 0;
    for (const Segment& segment : parameters.segments) {
      kernels::Factors& f = factors.emplace_back(factors_of(segment, options_.settings.codec_rank));
      f.left = left;
      f.right = right_size_;
      left += std::int64_t{f.rows} * f.rank;
      right_size_ += std::int64_t{f.cols} * f.rank;
    }
    const char* const purpose = "powersgd";
    factors_ = backend.allocate_array<kernels::Factors>(std::ssize(factors), purpose);
    backend.copy_to_device(factors_, factors.data(), factors.size() * sizeof(kernels::Factors));
    error_ = backend.allocate_floats(parameters.size, purpose);
    left_ = backend.allocate_floats(left, purpose);
    right_ = backend.allocate_floats(right_size_, purpose);
    first_factors();
  }

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int round) const override {
    const kernels::Factors f = factors_of(tensor, options_.settings.codec_rank);
    const std::int64_t floats = f.rank > 0   ? std::int64_t{round == 0 ? f.rows : f.cols} * f.rank
                                : round == 0 ? tensor.size
                                             : 0;
    return floats * std::int64_t{sizeof(float)};
  }
  [[nodiscard]] std::string transport() const override { return "sum"; }
  [[nodiscard]] int rounds() const override { return 2; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    auto* const floats = static_cast<float*>(message);
    if (bucket.round == 0) {
      each(backend_.device(), bucket.chunks, kernels::FeedError{factors_, gradients, error_});
      each(backend_.device(), bucket.chunks,
           kernels::LeftFactor{factors_, gradients, error_, right_, floats, bucket.element, bucket.byte});
    } else {
      each(backend_.device(), bucket.chunks,
           kernels::RightFactor{factors_, error_, left_, floats, bucket.element, bucket.byte});
    }
  }

  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    const bool first = bucket.round == 0;
    each(backend_.device(), bucket.chunks,
         kernels::TakeFactor{factors_, static_cast<const float*>(message), factor, first, first ? left_ : right_,
                             gradients, bucket.element, bucket.byte});
    if (first)
      each(backend_.device(), std::int64_t{bucket.end} - bucket.first,
           kernels::Orthonormalise{factors_,
                                   bucket.chunks.first,
                                   bucket.first,
                                   left_,
                                   {options_.seed, static_cast<std::uint32_t>(bucket.step), kReplacement}});
    else
      each(backend_.device(), bucket.chunks,
           kernels::FromFactors{factors_, left_, right_, error_, gradients, bucket.element});
  }

  [[nodiscard]] std::vector<State> state() const override {
    return {{.name = "powersgd_error", .data = error_, .count = parameters_.size, .own = true},
            {.name = "powersgd_q", .data = right_, .count = right_size_, .own = false}};
  }

 private:
  /// Q of the first step: independent standard normal numbers, by Box and Muller.
  void first_factors() {
    std::vector<float> values(static_cast<std::size_t>(right_size_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Philox4 random = kernels::Draw{options_.seed, 0, kFirstFactor}.words(static_cast<std::int64_t>(i));
      const double radius = std::sqrt(-2 * std::log(1 - double(uniform(random.v[0]))));
      values[i] = static_cast<float>(radius * std::cos(2 * std::numbers::pi * double(uniform(random.v[1]))));
    }
    backend_.copy_to_device(right_, values.data(), values.size() * sizeof(float));
  }

  Backend& backend_;
  const Parameters& parameters_;
  CodecOptions options_;
  kernels::Factors* factors_;  ///< [segments], on the device
  float *error_, *left_, *right_;
  std::int64_t right_size_ = 0;
};

}  // namespace

std::unique_ptr<Codec> make_powersgd(Backend& backend, const Parameters& parameters, const CodecOptions& options) {
  return std::make_unique<PowerSgd>(backend, parameters, options);
}

}  // namespace dat
