#include "record/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace dat {

namespace {

/// P(|T| < sqrt(freedom) tan(angle)).
[[nodiscard]] double student_part(double angle, std::int64_t freedom) {
  const bool odd = freedom % 2 == 1;
  const double square = std::cos(angle) * std::cos(angle);
  double sum = 0, term = odd ? std::cos(angle) : 1;
  for (std::int64_t power = odd ? 1 : 0; power <= freedom - 2; power += 2) {
    sum += term;
    term *= square * static_cast<double>(power + 1) / static_cast<double>(power + 2);
  }
  return odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

}  // namespace

ConfidenceInterval wilson(double right, double n) {
  constexpr double kZ = 1.959963984540054;
  const double p = right / n, scale = 1 / (1 + kZ * kZ / n);
  const double middle = scale * (p + kZ * kZ / (2 * n));
  const double half = scale * kZ * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

double student_quantile(std::int64_t freedom) {
  double low = 0, high = std::numbers::pi / 2;
  for (double middle = high / 2; middle > low && middle < high; middle = low + (high - low) / 2)
    (student_part(middle, freedom) < 0.95 ? low : high) = middle;
  return std::sqrt(static_cast<double>(freedom)) * std::tan(low);
}

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  const auto n = static_cast<double>(values.size());
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;  // of none NaN
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (n - 1));
  const double half = student_quantile(std::ssize(values) - 1) * spread.deviation / std::sqrt(n);
  spread.interval = {spread.mean - half, spread.mean + half};
  return spread;
}

}  // namespace dat
