#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace dat {

/// Interval that covers a quantity with 95 % confidence; NaN: there is none.
struct ConfidenceInterval {
  double low = std::numeric_limits<double>::quiet_NaN(), high = low;
};

/// Interval of the part of `right` among n, as a part. Wilson, "Probable inference, the law of succession, and
/// statistical inference", JASA 1927.
[[nodiscard]] ConfidenceInterval wilson(double right, double n);

/// The t with P(|T| < t) = 0.95 of Student's distribution, to rounding. freedom: at least 1. Abramowitz and Stegun,
/// "Handbook of mathematical functions", 26.7.3 and 26.7.4: finite sums for whole degrees of freedom.
[[nodiscard]] double student_quantile(std::int64_t freedom);

/// Values of one quantity, as of runs that differ in their seeds.
struct Spread {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = mean;        ///< standard deviation of the sample (n - 1); NaN of less than two values
  ConfidenceInterval interval{};  ///< of the mean, by Student's distribution; NaN of less than two values
};
[[nodiscard]] Spread spread_of(const std::vector<double>& values);

}  // namespace dat
