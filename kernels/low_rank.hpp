#pragma once

#include <cmath>
#include <cstdint>

#include "codec.hpp"

// PowerSGD: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019, algorithms 1 and 2. Sums are in double.

namespace dat::kernels {

/// A tensor as a matrix M [rows][cols], and its factors P [rank][rows] and Q [rank][cols]: M is about P^T Q.
struct Factors {
  std::int32_t rows = 0, cols = 0, rank = 0;  // rank 0: the tensor goes as it is
  // Work on P or Q is done by the tensor's elements 0, 1 << shift, 2 << shift, ...: so it is spread over all chunks.
  std::int32_t left_shift = 0, right_shift = 0;
  std::int64_t left = 0, right = 0;  // start of P and of Q among those of all tensors
};

/// error += gradients: what is to be encoded.
struct FeedError {
  const Factors* factors;
  const float* gradients;
  float* error;
  DAT_HD void operator()(int tensor, std::int64_t i) const {
    if (factors[tensor].rank > 0) error[i] += gradients[i];
  }
};

/// P = M Q into the message; of tensors without factors, the gradients.
struct LeftFactor {
  const Factors* factors;
  const float *gradients, *matrices, *right;
  float* message;
  const std::int64_t *element, *byte;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Factors f = factors[tensor];
    const std::int64_t at = i - element[tensor];
    float* const out = message + byte[tensor] / std::int64_t{sizeof(float)};
    if (f.rank == 0) {
      out[at] = gradients[i];
      return;
    }
    const auto item = static_cast<std::int32_t>(at >> f.left_shift);
    if (std::int64_t{item} << f.left_shift != at || item >= f.rows * f.rank) return;
    const std::int32_t row = item / f.rank, k = item % f.rank;
    const float* const m = matrices + element[tensor] + std::int64_t{row} * f.cols;
    const float* const q = right + f.right + std::int64_t{k} * f.cols;
    constexpr int kLanes = 8;
    double lanes[kLanes] = {};
    std::int32_t c = 0;
    for (; c + kLanes <= f.cols; c += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += double(m[c + lane]) * q[c + lane];
    for (int lane = 0; c < f.cols; ++c, ++lane) lanes[lane] += double(m[c]) * q[c];
    double total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
    out[k * f.rows + row] = static_cast<float>(total);
  }
};

/// The mean of the ranks' P, or of Q; of tensors without factors, the result: with `left` only.
struct TakeFactor {
  const Factors* factors;
  const float* message;
  float factor;
  bool left;
  float *to, *gradients;
  const std::int64_t *element, *byte;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Factors f = factors[tensor];
    const std::int64_t at = i - element[tensor];
    const float* const from = message + byte[tensor] / std::int64_t{sizeof(float)};
    if (f.rank == 0) {
      if (left) gradients[i] = factor * from[at];
    } else if (at < std::int64_t{left ? f.rows : f.cols} * f.rank) {
      to[(left ? f.left : f.right) + at] = factor * from[at];
    }
  }
};

/// Makes the rows of each P orthonormal, by Gram-Schmidt, twice for each row. One that depends on those before it, as
/// all do where a gradient is zero, gives way to a random one: Q, from which the next step's P comes, would stay zero.
struct Orthonormalise {
  const Factors* factors;
  const std::int32_t* chunk;  // [.] first chunk of each tensor from `first` on
  int first;
  float* left;
  Draw draw;

  DAT_HD void operator()(std::int64_t t) const {
    const Factors f = factors[first + t];
    if (chunk[t] == chunk[t + 1]) return;
    float* const rows = left + f.left;
    for (std::int32_t k = 0; k < f.rank; ++k) {
      float* const x = rows + std::int64_t{k} * f.rows;
      const double before = dot(x, x, f.rows);
      project(rows, x, k, f.rows);
      if (!(dot(x, x, f.rows) > 1e-12 * before)) {
        for (std::int32_t j = 0; j < f.rows; ++j)
          x[j] = uniform(draw.words(f.left + std::int64_t{k} * f.rows + j).v[0]) - 0.5F;
        project(rows, x, k, f.rows);
      }
      normalise(x, f.rows);  // parts that the second projection removes are then of the size of a rounding
      project(rows, x, k, f.rows);
      normalise(x, f.rows);
    }
  }

 private:
  [[nodiscard]] DAT_HD static double dot(const float* x, const float* y, std::int32_t n) {
    double total = 0;
    for (std::int32_t j = 0; j < n; ++j) total += double(x[j]) * y[j];
    return total;
  }
  DAT_HD static void project(const float* rows, float* x, std::int32_t before, std::int32_t n) {
    for (std::int32_t k = 0; k < before; ++k) {
      const float* const y = rows + std::int64_t{k} * n;
      const double part = dot(x, y, n);
      for (std::int32_t j = 0; j < n; ++j) x[j] = static_cast<float>(x[j] - part * y[j]);
    }
  }
  DAT_HD static void normalise(float* x, std::int32_t n) {
    const double norm = std::sqrt(dot(x, x, n));
    for (std::int32_t j = 0; j < n; ++j) x[j] = static_cast<float>(x[j] / norm);
  }
};

/// Q = M^T P into the message.
struct RightFactor {
  static constexpr int kTile = 16;  // columns that are done together
  const Factors* factors;
  const float *matrices, *left;
  float* message;
  const std::int64_t *element, *byte;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Factors f = factors[tensor];
    const std::int64_t at = i - element[tensor];
    const auto item = static_cast<std::int32_t>(at >> f.right_shift);
    if (f.rank == 0 || std::int64_t{item} << f.right_shift != at) return;
    const std::int32_t first = item / f.rank * kTile, k = item % f.rank;
    if (first >= f.cols) return;
    const std::int32_t width = smaller(f.cols - first, kTile);
    const float* const m = matrices + element[tensor] + first;
    const float* const p = left + f.left + std::int64_t{k} * f.rows;
    double sums[kTile] = {};
    for (std::int32_t row = 0; row < f.rows; ++row) {
      const float* const of = m + std::int64_t{row} * f.cols;
      switch (width) {
        case kTile:
          for (int c = 0; c < kTile; ++c) sums[c] += double(of[c]) * p[row];
          break;
        default:
          for (int c = 0; c < width; ++c) sums[c] += double(of[c]) * p[row];
      }
    }
    float* const out = message + byte[tensor] / std::int64_t{sizeof(float)} + std::int64_t{k} * f.cols + first;
    for (int c = 0; c < width; ++c) out[c] = static_cast<float>(sums[c]);
  }
};

/// gradients = P^T Q, and what that lacks becomes the error.
struct FromFactors {
  const Factors* factors;
  const float *left, *right;
  float *error, *gradients;
  const std::int64_t* element;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Factors f = factors[tensor];
    if (f.rank == 0) return;
    const auto at = static_cast<std::uint32_t>(i - element[tensor]), cols = static_cast<std::uint32_t>(f.cols);
    const std::uint32_t row = at / cols, col = at % cols;
    double total = 0;
    for (std::int32_t k = 0; k < f.rank; ++k)
      total += double(left[f.left + std::int64_t{k} * f.rows + row]) * right[f.right + std::int64_t{k} * f.cols + col];
    gradients[i] = static_cast<float>(total);
    error[i] -= gradients[i];
  }
};

}  // namespace dat::kernels
