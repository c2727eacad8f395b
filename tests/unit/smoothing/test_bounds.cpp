#include "catch.hpp"
#include "smoothing/bounds.hpp"

using namespace dat;

// Vectors computed in wide arithmetic: lower bounds at alpha = 0.001.
TEST_CASE("Clopper and Pearson's lower bound", "[smoothing]") {
  const auto lower = [](std::int64_t k, std::int64_t n) { return clopper_pearson_lower(k, n, 0.001); };
  CHECK((std::abs(lower(99, 100) - 0.9113731113) < 1e-10 && std::abs(lower(100, 100) - 0.9332543008) < 1e-10));
  CHECK((std::abs(lower(990, 1000) - 0.9760361872) < 1e-10 && std::abs(lower(50'500, 100'000) - 0.5001089517) < 1e-10));
  CHECK(std::abs(lower(80'000, 100'000) - 0.7960660712) < 1e-10);
  CHECK(std::abs(lower(99'000, 100'000) - 0.9889893404) < 1e-10);
  CHECK((std::abs(lower(100'000, 100'000) - 0.9999309248) < 1e-10 && lower(0, 100) == 0));
  CHECK(std::abs(clopper_pearson_upper(1, 100, 0.001) - (1 - 0.9113731113)) < 1e-10);  // of the 99 others
  CHECK(std::abs(certified_radius(lower(100'000, 100'000), 0.25) - 0.9528641) < 1e-7);
  // A network with margin .3 around an image, at the expected count.
  for (const auto& [sigma, radius] : {std::pair{0.25, 0.2959840}, std::pair{0.5, 0.2934435}})
    CHECK(std::abs(certified_radius(lower(static_cast<std::int64_t>(1e5 * normal_cdf(0.3 / sigma)), 100'000), sigma) -
                   radius) < 2e-6);
}

TEST_CASE("The least count that does not abstain", "[smoothing]") {
  for (const auto& [k, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{66, 100}, {550, 1000}, {5156, 10'000}, {50'490, 100'000}}) {
    CHECK((clopper_pearson_lower(k, n, 0.001) > 0.5 && clopper_pearson_lower(k - 1, n, 0.001) <= 0.5));
  }
}

TEST_CASE("The p-value of a fair coin", "[smoothing]") {
  CHECK(std::abs(fair_coin_p_value(67, 100) - 0.000873719) < 1e-8);
  CHECK(std::abs(fair_coin_p_value(66, 100) - 0.001789931) < 1e-8);
  CHECK((std::abs(fair_coin_p_value(10, 10) - 0.001953125) < 1e-12 && fair_coin_p_value(5, 10) == 1));
  CHECK(fair_coin_p_value(0, 0) == 1);
}

TEST_CASE("The tail of a binomial distribution is the sum of its masses", "[smoothing]") {
  for (const double p : {0.02, 0.4, 0.93}) {
    const std::int64_t n = 40;
    std::vector<double> mass(n + 1);
    for (std::int64_t k = 0; k <= n; ++k)
      mass[static_cast<std::size_t>(k)] = std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) *
                                          std::pow(p, static_cast<double>(k)) *
                                          std::pow(1 - p, static_cast<double>(n - k));
    double sum = 0;
    for (std::int64_t k = n; k >= 0; --k) {
      sum += mass[static_cast<std::size_t>(k)];
      CHECK(std::abs(binomial_tail(k, n, p) - sum) < 1e-12);
    }
  }
  // From the side that is far from the mode.
  CHECK((binomial_tail(50'500, 100'000, 0.75) == 1 && binomial_tail(50'500, 100'000, 0.25) == 0));
}

TEST_CASE("The normal quantile undoes the normal distribution", "[smoothing]") {
  CHECK((std::abs(normal_quantile(0.975) - 1.959963984540054) < 1e-14 && std::abs(normal_quantile(0.5)) < 1e-15));
  for (const double z : {-8.0, -2.5, -0.1, 0.3, 1.7, 4.0}) CHECK(std::abs(normal_quantile(normal_cdf(z)) - z) < 1e-10);
  CHECK(normal_quantile(1) == std::numeric_limits<double>::infinity());
  CHECK(normal_quantile(0) == -std::numeric_limits<double>::infinity());
}

TEST_CASE("The mixture's lower bound is where its evidence reaches the level", "[smoothing]") {
  for (const auto& [k, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{256, 256}, {200, 256}, {90'000, 100'000}}) {
    const double q = mixture_lower(k, n, 0.001);
    CHECK((q > 0 && q < static_cast<double>(k) / static_cast<double>(n)));
    CHECK(std::abs(mixture_evidence(k, n, q) - std::log(1000)) < 1e-6);
    // It is worth less than all samples at once.
    CHECK(q < clopper_pearson_lower(k, n, 0.001));
  }
  CHECK(mixture_lower(0, 100, 0.001) == 0);
  CHECK(mixture_evidence(2, 3, 0.25) == Approx(std::log(16 / 9.0)));  // B(3, 2) = 1/12
  CHECK(mixture_evidence(0, 2, 0.5) == Approx(std::log(4 / 3.0)));    // B(1, 3) = 1/3
}

namespace {

/// How often a part `alpha` of all experiments may at most be exceeded in `runs` of them: five deviations.
[[nodiscard]] double allowed(double alpha, int runs) {
  return alpha * runs + 5 * std::sqrt(alpha * (1 - alpha) * runs);
}

}  // namespace

TEST_CASE("The true probability is below the bounds as rarely as promised", "[smoothing]") {
  constexpr int kRuns = 100'000;
  constexpr double kAlpha = 0.01;
  for (const double p : {0.4, 0.5, 0.7, 0.9, 0.99, 0.9999}) {
    std::mt19937_64 words(7);
    // Of fixed n: every count that may come about has one bound.
    constexpr std::int64_t kSamples = 1000, kLook = 256;
    std::binomial_distribution<std::int64_t> fixed(kSamples, p), block(kLook, p);
    std::vector<double> bounds(kSamples + 1, -1);
    int fixed_misses = 0, sequence_misses = 0;
    for (int run = 0; run < kRuns; ++run) {
      const std::int64_t k = fixed(words);
      double& bound = bounds[static_cast<std::size_t>(k)];
      if (bound < 0) bound = clopper_pearson_lower(k, kSamples, kAlpha);
      fixed_misses += bound > p;
      // Of a sequence: ruled out at any of its looks, on either side.
      std::int64_t votes = 0;
      bool missed = false;
      for (std::int64_t look = 1; look <= 12; ++look) {
        votes += block(words);
        missed = missed || mixture_evidence(votes, look * kLook, p) >= std::log(1 / kAlpha);
      }
      sequence_misses += missed;
    }
    INFO("p = " << p << ": " << fixed_misses << " and " << sequence_misses << " of " << kRuns);
    CHECK((fixed_misses <= allowed(kAlpha, kRuns) && sequence_misses <= allowed(kAlpha, kRuns)));
    if (p > 0.45 && p < 0.95) CHECK(fixed_misses > 0.5 * kAlpha * kRuns);  // and not much more rarely
  }
}
