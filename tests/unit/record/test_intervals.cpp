// Intervals, against published values.

#include <cmath>
#include <set>
#include <string>

#include "catch.hpp"
#include "record/intervals.hpp"
#include "record/pictures/chart.hpp"

namespace dat {
namespace {

TEST_CASE("Wilson's intervals are those of Newcombe's table", "[intervals]") {
  // Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 1998, table I,
  // method 3.
  const auto [right, n, low, high] = GENERATE(table<double, double, double, double>(
      {{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}}));
  CHECK(wilson(right, n).low == Approx(low).margin(5e-5));
  CHECK(wilson(right, n).high == Approx(high).margin(5e-5));
  CHECK(wilson(n - right, n).low == Approx(1 - high).margin(5e-5));
}

TEST_CASE("Student's quantiles are those of the tables", "[intervals]") {
  const auto [freedom, t] = GENERATE(table<std::int64_t, double>({{1, 12.7062047364},
                                                                  {2, 4.3026527297},
                                                                  {3, 3.1824463053},
                                                                  {4, 2.7764451052},
                                                                  {5, 2.5705818356},
                                                                  {9, 2.2621571628},
                                                                  {10, 2.2281388520},
                                                                  {30, 2.0422724563},
                                                                  {100, 1.9839715185},
                                                                  {1000, 1.9623390808}}));
  CHECK(student_quantile(freedom) == Approx(t).epsilon(1e-9));
}

TEST_CASE("A spread is that of Student's sleep data", "[intervals]") {
  // Student, "The probable error of a mean", Biometrika 1908: hours of sleep gained.
  const Spread spread = spread_of({1.2, 2.4, 1.3, 1.3, 0, 1, 1.8, 0.8, 4.6, 1.4});
  CHECK(spread.mean == Approx(1.58));
  CHECK(spread.deviation == Approx(1.229995).epsilon(1e-6));
  CHECK(spread.interval.low == Approx(0.7001142).epsilon(1e-6));
  CHECK(spread.interval.high == Approx(2.4598858).epsilon(1e-6));
  CHECK(spread_of({3}).mean == 3);
  CHECK(std::isnan(spread_of({3}).interval.low));
  CHECK(std::isnan(spread_of({}).mean));
  CHECK(std::isnan(spread_of({}).deviation));
}

TEST_CASE("Lines have colours of their own, and accuracies an axis that ends at 100 %", "[intervals]") {
  std::set<std::string> colours;
  for (std::size_t k = 0; k < 100; ++k) {
    colours.insert(colour_of(k));
    if (k >= kColours.size()) CHECK(colour_of(k).size() == 7);
  }
  CHECK(colours.size() == 100);
  for (const auto& [highest, range] :
       {std::pair(100.0, "0:100"), {98.6, "0:100"}, {43.0, "0:50"}, {0.4, "0:0.6"}, {0.0, "0:0.2"}})
    CHECK(accuracy_axis(highest).range == range);
}

}  // namespace
}  // namespace dat
