#include <algorithm>
#include <cmath>
#include <numeric>

#include "dat/selector.hpp"

namespace dat {

std::vector<double> costs_of_mean_one(std::vector<double> costs) {
  constexpr double kLeast = 1e-6;
  const auto divide_by_mean = [&] {
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
    require(mean > 0 && std::isfinite(mean), ExitCode::usage, "the layers' costs have no mean above 0");
    for (double& cost : costs) cost /= mean;
  };
  require(std::all_of(costs.begin(), costs.end(), [](double cost) { return cost >= 0 && std::isfinite(cost); }),
          ExitCode::usage, "a layer's cost is negative or not finite");
  divide_by_mean();
  for (double& cost : costs) cost = std::max(cost, kLeast);
  divide_by_mean();
  return costs;
}

}  // namespace dat
