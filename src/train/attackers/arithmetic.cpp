#include "train/attackers/arithmetic.hpp"

#include <cmath>

namespace dat {

namespace {

/// The number below which a standard normal number is with this probability, by bisection.
[[nodiscard]] double normal_quantile(double probability) {
  double low = -40, high = 40;
  for (int k = 0; k < 100; ++k) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double deviations_allowed(int ranks, int attackers) {
  const int honest = ranks - attackers, needed = ranks / 2 + 1 - attackers;
  return normal_quantile(static_cast<double>(honest - needed) / honest);
}

}  // namespace dat
