#pragma once

#include <cmath>
#include <cstdint>

#include "dat/half.hpp"
#include "launch.hpp"
#include "pointwise.hpp"

// Batch norm in NHWC with the statistics of the batch: sums of each channel (cuda_channel_sums), and a pass that uses
// them, each way. Sums are f32, of pieces of 16 bytes; those of the parts of a tensor are added up in double.

namespace dat::kernels {

/// Numbers that the passes over a batch norm's tensors have for each channel, [c] each.
struct NormChannels {
  const float *gamma, *beta;
  float *mean, *variance;   ///< mean and variance of the batch
  float* scale;             ///< gamma / standard deviation
  float *slope, *constant;  ///< coefficients of the gradient: dx = scale*dy + slope*(x - mean) + constant
  float *dgamma, *dbeta;    ///< null: not wanted
  float epsilon;
};

/// Values [c] of the channels of piece k of a tensor [rows][c] on a GPU, where the channels are whole pieces. Divided
/// in 32 bits: 64-bit divisions would take longer than the rest of the kernel.
template <int N>
[[nodiscard]] DAT_HD inline Piece<N> row_values(const float* values, int c, std::int64_t k) {
  return Piece<N>::load(values + static_cast<std::uint32_t>(k) % static_cast<std::uint32_t>(c / N) * N, N);
}

/// Mean and variance, from sums of the differences from each channel's first element, which loses no digits where the
/// mean is large.
template <class T>
struct NormStatistics {
  using Element = T;
  const T* x;
  std::int64_t rows;  ///< samples times pixels
  int c;
  NormChannels channels;
  const T* addend = nullptr;  ///< summand: the norm is of x + addend; null: of x
  T* sum_of_both = nullptr;   ///< destination of x + addend
  template <int N>
  DAT_HD void add(std::int64_t k, Piece<N>& sum, Piece<N>& square) const {
    const std::int64_t top = k % (c / N) * N;
    auto a = Piece<N>::load(x + k * N, N);
    auto first = Piece<N>::load(x + top, N);
    if (addend != nullptr) {
      a.add(addend + k * N, N);
      a.store(sum_of_both + k * N, N);
      first.add(addend + top, N);
      DAT_SIMD
      for (int j = 0; j < N; ++j) {  // elements in stored order
        a.v[j] = to_float(Stored<T>::from(a.v[j]));
        first.v[j] = to_float(Stored<T>::from(first.v[j]));
      }
    }
    DAT_SIMD
    for (int j = 0; j < N; ++j) {
      const float difference = a.v[j] - first.v[j];
      sum.v[j] += difference;
      square.v[j] += difference * difference;
    }
  }
  DAT_HD void finish(int channel, double sum, double square) const {
    const double count = static_cast<double>(rows), shifted = sum / count;
    const double variance = larger(0.0, square / count - shifted * shifted);  // NaN stays NaN
    float first = to_float(x[channel]);
    if (addend != nullptr) first = to_float(Stored<T>::from(first + to_float(addend[channel])));
    channels.mean[channel] = static_cast<float>(double(first) + shifted);
    channels.variance[channel] = static_cast<float>(variance);
    channels.scale[channel] =
        static_cast<float>(double(channels.gamma[channel]) / sqrt(variance + double(channels.epsilon)));
  }
};

/// y = scale*(x - mean) + beta + residual, then the ReLU. residual may be null. n: elements.
template <class T>
struct NormForward {
  using Element = T;
  const T *x, *residual;
  T* y;
  std::uint16_t* bits;  ///< places where the ReLU is open; may be null
  NormChannels channels;
  int c;
  std::int64_t n;
  bool relu;
  template <int N>
  DAT_HD std::uint32_t piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto a = Piece<N>::load(x + at, count);
    const auto mean = row_values<N>(channels.mean, c, k), scale = row_values<N>(channels.scale, c, k),
               beta = row_values<N>(channels.beta, c, k);
    DAT_SIMD
    for (int j = 0; j < N; ++j) a.v[j] = (a.v[j] - mean.v[j]) * scale.v[j] + beta.v[j];
    if (residual != nullptr) a.add(residual + at, count);
    const std::uint32_t open = a.positive();
    if (relu) a.relu();
    a.store(y + at, count);
    return open;
  }
};

/// The gradients of gamma and beta, and what the gradient of x needs: the sums of dy, and of dy*(x - mean), where the
/// ReLU was open.
template <class T>
struct NormGradientSums {
  using Element = T;
  const T *x, *dy;
  const std::uint16_t* bits;  ///< null: no ReLU
  std::int64_t rows;
  int c;
  NormChannels channels;
  const float* factor;  ///< factor of dgamma and dbeta; null: 1
  bool accumulate;      ///< dgamma and dbeta are added to what is there
  template <int N>
  DAT_HD void add(std::int64_t k, Piece<N>& sum, Piece<N>& product) const {
    auto d = Piece<N>::load(dy + k * N, N);
    const auto a = Piece<N>::load(x + k * N, N);
    const auto mean = Piece<N>::load(channels.mean + k % (c / N) * N, N);
    if (bits != nullptr) d.mask(mask_of_piece<N>(bits, k));
    DAT_SIMD
    for (int j = 0; j < N; ++j) {
      sum.v[j] += d.v[j];
      product.v[j] += d.v[j] * (a.v[j] - mean.v[j]);
    }
  }
  DAT_HD void finish(int channel, double sum, double product) const {
    const double inverse = 1 / sqrt(double(channels.variance[channel]) + double(channels.epsilon)),
                 scale = double(channels.gamma[channel]) * inverse, count = static_cast<double>(rows);
    channels.scale[channel] = static_cast<float>(scale);
    channels.slope[channel] = static_cast<float>(-scale * inverse * inverse * product / count);
    channels.constant[channel] = static_cast<float>(-scale * sum / count);
    const double f = double(factor_of(factor));
    const auto write = [&](float* to, double value) {
      if (to != nullptr) to[channel] = static_cast<float>(f * value) + (accumulate ? to[channel] : 0.0F);
    };
    write(channels.dgamma, inverse * product);
    write(channels.dbeta, sum);
  }
};

/// dx = scale*dy + slope*(x - mean) + constant + addend, where dy counts as zero where the ReLU was not open; dresidual
/// = that dy. addend, dresidual and bits may be null; dresidual or dx may be dy. n: elements.
template <class T>
struct NormBackward {
  using Element = T;
  const T *x, *dy, *addend;
  const std::uint16_t* bits;
  T *dx, *dresidual;
  NormChannels channels;
  int c;
  std::int64_t n;
  template <int N>
  DAT_HD void piece(std::int64_t k) const {
    const int count = piece_size<N>(k, n);
    const std::int64_t at = k * N;
    auto d = Piece<N>::load(dy + at, count);
    auto a = Piece<N>::load(x + at, count);
    if (bits != nullptr) d.mask(mask_of_piece<N>(bits, k));
    if (dresidual != nullptr) d.store(dresidual + at, count);
    const auto mean = row_values<N>(channels.mean, c, k), scale = row_values<N>(channels.scale, c, k),
               slope = row_values<N>(channels.slope, c, k), constant = row_values<N>(channels.constant, c, k);
    DAT_SIMD
    for (int j = 0; j < N; ++j) a.v[j] = (a.v[j] - mean.v[j]) * slope.v[j] + d.v[j] * scale.v[j] + constant.v[j];
    if (addend != nullptr) a.add(addend + at, count);
    a.store(dx + at, count);
  }
};

}  // namespace dat::kernels
