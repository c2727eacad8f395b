#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dat/backend.hpp"

/// Convolutions and batch norms by their definitions, in double. Activations lie in NHWC, weights as [out][kh][kw][in].
namespace dat::test {

[[nodiscard]] inline std::int64_t x_count(const ConvSpec& s) { return std::int64_t{s.n} * s.h * s.w * s.c_in; }
[[nodiscard]] inline std::int64_t y_count(const ConvSpec& s) {
  return std::int64_t{s.n} * s.h_out() * s.w_out() * s.c_out;
}
[[nodiscard]] inline std::int64_t w_count(const ConvSpec& s) {
  return std::int64_t{s.c_out} * s.kernel * s.kernel * s.c_in;
}

[[nodiscard]] inline std::string name(const ConvSpec& s) {
  return std::to_string(s.kernel) + "x" + std::to_string(s.kernel) + " stride " + std::to_string(s.stride) + ", " +
         std::to_string(s.c_in) + " to " + std::to_string(s.c_out) + " channels, " + std::to_string(s.n) + " of " +
         std::to_string(s.h) + "x" + std::to_string(s.w) + ", padded by " + std::to_string(s.pad) + " and " +
         std::to_string(s.extra_pad) + " more";
}

/// f(x, w, y) for the places of all numbers that belong to one term.
template <class F>
void for_each_term(const ConvSpec& s, F f) {
  const int taps = s.kernel * s.kernel;
  for (int n = 0; n < s.n; ++n)
    for (int p = 0; p < s.h_out(); ++p)
      for (int q = 0; q < s.w_out(); ++q)
        for (int tap = 0; tap < taps; ++tap) {
          const int y = p * s.stride - s.pad + tap / s.kernel, x = q * s.stride - s.pad + tap % s.kernel;
          if (y < 0 || y >= s.h || x < 0 || x >= s.w) continue;
          for (int o = 0; o < s.c_out; ++o)
            for (int c = 0; c < s.c_in; ++c)
              f(((std::size_t(n) * s.h + y) * s.w + x) * s.c_in + c, (std::size_t(o) * taps + tap) * s.c_in + c,
                ((std::size_t(n) * s.h_out() + p) * s.w_out() + q) * s.c_out + o);
        }
}

/// What a batch norm with the statistics of the batch makes of x, of the gradient of its result, and of the residual
/// that it adds (null: none).
struct NormReference {
  std::vector<double> y, dx, d;  ///< d: the gradient through the ReLU
  std::vector<double> mean, variance, dgamma, dbeta;
  double largest = 0;  ///< of the normalized x

  NormReference(const BatchNormSpec& spec, const std::vector<double>& x, const std::vector<double>& dy,
                const std::vector<double>* residual, const std::vector<float>& gamma, const std::vector<float>& beta)
      : y(x.size()), dx(y), d(y) {
    const std::size_t c = gamma.size();
    const double count = double(x.size() / c);
    for (std::size_t k = 0; k < c; ++k) {
      double m = 0, square = 0, dg = 0, db = 0;
      for (std::size_t i = k; i < x.size(); i += c) m += x[i] / count;
      for (std::size_t i = k; i < x.size(); i += c) square += std::pow(x[i] - m, 2) / count;
      const double inverse = 1 / std::sqrt(square + double(spec.epsilon)), g = double(gamma[k]);
      for (std::size_t i = k; i < x.size(); i += c) {
        const double hat = (x[i] - m) * inverse;
        y[i] = g * hat + double(beta[k]) + (residual != nullptr ? (*residual)[i] : 0);
        d[i] = spec.relu && y[i] <= 0 ? 0 : dy[i];
        if (spec.relu) y[i] = std::max(y[i], 0.0);
        largest = std::max(largest, std::abs(hat));
        dg += d[i] * hat;
        db += d[i];
      }
      for (std::size_t i = k; i < x.size(); i += c)
        dx[i] = g * inverse * (d[i] - db / count - (x[i] - m) * inverse * dg / count);
      mean.push_back(m);
      variance.push_back(square);
      dgamma.push_back(dg);
      dbeta.push_back(db);
    }
  }
};

}  // namespace dat::test
