#include <algorithm>
#include <cmath>
#include <numeric>

#include "dat/random.hpp"
#include "dat/selector.hpp"

namespace dat {

std::vector<double> costs_of_mean_one(std::vector<double> costs) {
  constexpr double kLeast = 1e-6;
  const auto divide_by_mean = [&] {
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
    require(mean > 0 && std::isfinite(mean), ExitCode::usage, "the layers' costs have no mean above 0");
    for (double& cost : costs) cost /= mean;
  };
  require(std::ranges::all_of(costs, [](double cost) { return cost >= 0 && std::isfinite(cost); }), ExitCode::usage,
          "a layer's cost is negative or not finite");
  divide_by_mean();
  for (double& cost : costs) cost = std::max(cost, kLeast);
  divide_by_mean();
  return costs;
}

double probability_of_any(const std::vector<double>& p) {
  double none = 1;
  for (const double one : p) none *= 1 - one;
  return 1 - none;
}

bool draw_layers(std::uint64_t seed, std::uint64_t draw_number, const std::vector<double>& p, ActiveSet& active,
                 int rank) {
  active.scale.resize(p.size());
  const double any_layer = probability_of_any(p);
  if (!(any_layer > 0)) return false;
  bool any = false;
  for (std::uint32_t attempt = 0; !any; ++attempt)
    for (std::size_t d = 0; d < p.size(); ++d) {
      const std::uint64_t number = static_cast<std::uint64_t>(rank) << 32 | d;
      const Philox4 words =
          random_words(seed, Purpose::layer_draw, static_cast<std::uint32_t>(draw_number), number, attempt);
      const bool drawn = uniform(words.v[0]) < p[d];
      active.scale[d] = drawn ? static_cast<float>(any_layer / p[d]) : 0.0F;
      any |= drawn;
    }
  return true;
}

}  // namespace dat
