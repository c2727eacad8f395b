#include "smoothing/bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace dat {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// ln of B(a, b) = Gamma(a) Gamma(b) / Gamma(a + b).
[[nodiscard]] double log_beta(double a, double b) { return std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b); }

/// ln P(X = k). 0 < p < 1.
[[nodiscard]] double log_mass(std::int64_t k, std::int64_t n, double p) {
  const auto hits = static_cast<double>(k), all = static_cast<double>(n);
  return -std::log1p(all) - log_beta(hits + 1, all - hits + 1) + hits * std::log(p) + (all - hits) * std::log1p(-p);
}

/// Terms from k on in the direction of `step`, which must lead away from the mode, until they count no more.
[[nodiscard]] double sum_of_masses(std::int64_t k, std::int64_t n, double p, int step) {
  double term = 1, sum = 0;
  const double odds = p / (1 - p);
  for (std::int64_t at = k; at >= 0 && at <= n && term > 0x1p-60 * sum; at += step) {
    sum += term;
    const auto hits = static_cast<double>(at), misses = static_cast<double>(n - at);
    term *= step > 0 ? misses / (hits + 1) * odds : hits / (misses + 1) / odds;
  }
  return std::exp(log_mass(k, n, p)) * sum;
}

/// Last double for which a function that falls from true to false holds, by bisection.
template <class Holds>
[[nodiscard]] double last_that_holds(double low, double high, const Holds& holds) {
  for (;;) {
    const double middle = std::midpoint(low, high);
    if (middle <= low || middle >= high) return low;
    (holds(middle) ? low : high) = middle;
  }
}

}  // namespace

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

double normal_quantile(double p) {
  if (p <= 0) return -kInfinity;
  if (p >= 1) return kInfinity;
  // The smaller tail, which is known to full precision.
  const double tail = std::min(p, 1 - p);
  const double z = last_that_holds(-40, 0, [tail](double at) { return normal_cdf(at) < tail; });
  return p <= 0.5 ? z : -z;
}

double binomial_tail(std::int64_t k, std::int64_t n, double p) {
  const double tail = static_cast<double>(k) > static_cast<double>(n) * p ? sum_of_masses(k, n, p, 1)
                                                                          : 1 - sum_of_masses(k - 1, n, p, -1);
  return std::clamp(tail, 0.0, 1.0);
}

double clopper_pearson_lower(std::int64_t k, std::int64_t n, double alpha) {
  return last_that_holds(0, 1, [=](double p) { return binomial_tail(k, n, p) < alpha; });
}

double clopper_pearson_upper(std::int64_t k, std::int64_t n, double alpha) {
  return 1 - clopper_pearson_lower(n - k, n, alpha);
}

double fair_coin_p_value(std::int64_t k, std::int64_t n) {
  return std::min(1.0, 2 * binomial_tail(std::max(k, n - k), n, 0.5));
}

double mixture_evidence(std::int64_t k, std::int64_t n, double q) {
  const auto hits = static_cast<double>(k), misses = static_cast<double>(n - k);
  return log_beta(hits + 1, misses + 1) - hits * std::log(q) - misses * std::log1p(-q);
}

double mixture_lower(std::int64_t k, std::int64_t n, double alpha) {
  return last_that_holds(0, static_cast<double>(k) / static_cast<double>(n),
                         [=](double q) { return mixture_evidence(k, n, q) >= std::log(1 / alpha); });
}

double certified_radius(double p, double sigma) { return sigma * normal_quantile(p); }

}  // namespace dat
