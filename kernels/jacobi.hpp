#pragma once

#include <cmath>
#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

DAT_HD inline void rotate(double& x, double& y, double cosine, double sine) {
  const double old = x;
  x = cosine * old - sine * y;
  y = sine * old + cosine * y;
}

/// Jacobi's rotations, cyclic: g [n][n], symmetric, becomes diagonal but for numbers up to `small`, the columns of v
/// its eigenvectors. Where `small` is not finite, nothing is turned, and v = 1.
DAT_HD inline void diagonalise(double* g, double* v, std::int32_t n, double small) {
  for (std::int32_t i = 0; i < n * n; ++i) v[i] = i / n == i % n ? 1 : 0;
  constexpr int kMostSweeps = 30;
  bool turned = true;
  for (int sweep = 0; sweep < kMostSweeps && turned; ++sweep) {
    turned = false;
    for (std::int32_t p = 0; p < n; ++p)
      for (std::int32_t q = p + 1; q < n; ++q) {
        const double off = g[p * n + q];
        if (!(std::fabs(off) > small)) continue;
        turned = true;
        const double theta = (g[q * n + q] - g[p * n + p]) / (2 * off);
        const double tangent = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double cosine = 1 / std::sqrt(tangent * tangent + 1), sine = tangent * cosine;
        for (std::int32_t k = 0; k < n; ++k) rotate(g[k * n + p], g[k * n + q], cosine, sine);
        for (std::int32_t k = 0; k < n; ++k) rotate(g[p * n + k], g[q * n + k], cosine, sine);
        for (std::int32_t k = 0; k < n; ++k) rotate(v[k * n + p], v[k * n + q], cosine, sine);
      }
  }
}

}  // namespace dat::kernels
