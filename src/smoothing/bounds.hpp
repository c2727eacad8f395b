#pragma once

#include <cstdint>

namespace dat {

// Bounds of a probability q from k successes in n independent trials, and of a radius from q. All in double.

/// The standard normal distribution: P(Z <= z).
[[nodiscard]] double normal_cdf(double z);
/// The z with P(Z <= z) = p, to rounding; -infinity at 0, infinity at 1.
[[nodiscard]] double normal_quantile(double p);

/// P(X >= k) of a binomial distribution with n trials of probability p, k <= n and 0 < p < 1.
[[nodiscard]] double binomial_tail(std::int64_t k, std::int64_t n, double p);

/// One-sided bounds of Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
/// binomial", Biometrika 1934: q is below the lower one (above the upper one) in at most a part `alpha` of all
/// experiments. Lower: the alpha quantile of Beta(k, n - k + 1), 0 where k is 0; rounded down, the other one up.
[[nodiscard]] double clopper_pearson_lower(std::int64_t k, std::int64_t n, double alpha);
[[nodiscard]] double clopper_pearson_upper(std::int64_t k, std::int64_t n, double alpha);

/// The two-sided p-value of k successes in n trials where q = 1/2: the probability of all results that are no more
/// probable than k.
[[nodiscard]] double fair_coin_p_value(std::int64_t k, std::int64_t n);

/// The logarithm of the uniform mixture's likelihood ratio against q, ln B(k + 1, n - k + 1) - k ln q - (n - k)
/// ln(1 - q). For the true q its exponential is a martingale that begins at 1, so it ever reaches 1/alpha with a
/// probability of at most alpha (Ville 1939; Robbins, "Statistical methods related to the law of the iterated
/// logarithm", Annals of Mathematical Statistics 1970): where it does, q is ruled out, whenever one looks. q in (0, 1).
[[nodiscard]] double mixture_evidence(std::int64_t k, std::int64_t n, double q);
/// The least q that mixture_evidence does not rule out at this level, rounded down; 0 where it rules out none below
/// k/n. n > 0.
[[nodiscard]] double mixture_lower(std::int64_t k, std::int64_t n, double alpha);

/// sigma times the quantile of p: the L2 radius within which a network smoothed with N(0, sigma^2) gives the same
/// class, where p, above 1/2, bounds the class's probability from below (Cohen, Rosenfeld, Kolter, "Certified
/// Adversarial Robustness via Randomized Smoothing", ICML 2019, section 3.2.2).
[[nodiscard]] double certified_radius(double p, double sigma);

}  // namespace dat
