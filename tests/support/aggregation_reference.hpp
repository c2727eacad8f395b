#pragma once

#include "catch.hpp"

/// What aggregators shall make of the gradients of all ranks, in double precision, from the formulas: on whole vectors,
/// by differences of vectors, one after the other.
namespace dat::test {

using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;

[[nodiscard]] inline double squared_distance(const Vector& a, const Vector& b) {
  double total = 0;
  for (std::size_t d = 0; d < a.size(); ++d) total += (a[d] - b[d]) * (a[d] - b[d]);
  return total;
}
[[nodiscard]] inline double distance(const Vector& a, const Vector& b) { return std::sqrt(squared_distance(a, b)); }
[[nodiscard]] inline double length(const Vector& a) { return distance(a, Vector(a.size(), 0.0)); }

struct AggregationCase {
  Vectors gradients;  ///< [ranks]
  Vector weights;     ///< [ranks]
  int faults = 0;
  double tau = 10;
  int iterations = 2000;
  bool mixing = false;
};

/// The gradients that count, mixed where that is asked for, and what counts with them.
struct CountedGradients {
  Vectors x;
  Vector w;
  int f = 0;
  [[nodiscard]] int n() const { return static_cast<int>(x.size()); }
};

/// Each by the mean of its n - f nearest ones.
[[nodiscard]] inline Vectors mixed(const Vectors& x, int f) {
  Vectors all;
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<std::size_t> order(x.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return a == i ? b != i : b != i && squared_distance(x[i], x[a]) < squared_distance(x[i], x[b]);
    });
    Vector mean(x[i].size(), 0.0);
    const std::size_t count = x.size() - static_cast<std::size_t>(f);
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
    for (std::size_t k = 0; k < count; ++k)
      for (std::size_t d = 0; d < mean.size(); ++d) mean[d] += x[order[k]][d];
    for (double& value : mean) value /= static_cast<double>(count);
    all.push_back(mean);
  }
  return all;
}

/// None: the result is NaN.
[[nodiscard]] inline std::optional<CountedGradients> counted(const AggregationCase& all) {
  CountedGradients of;
  int bad = 0;
  for (std::size_t rank = 0; rank < all.gradients.size(); ++rank) {
    if (all.weights[rank] == 0) continue;
    const Vector& g = all.gradients[rank];
    if (!std::all_of(g.begin(), g.end(), [](double value) { return std::isfinite(value); })) {
      ++bad;
      continue;
    }
    of.x.push_back(g);
    of.w.push_back(all.weights[rank]);
  }
  if (of.n() == 0 || bad > all.faults) return std::nullopt;
  of.f = std::min(all.faults, (of.n() - 1) / 2);
  if (all.mixing) of.x = mixed(of.x, of.f);
  return of;
}

/// Of each coordinate, the mean of the numbers first .. last of the sorted ones.
[[nodiscard]] inline Vector ordered(const Vectors& x, int first, int last) {
  Vector result;
  for (std::size_t d = 0; d < x.front().size(); ++d) {
    Vector values;
    for (const Vector& one : x) values.push_back(one[d]);
    std::sort(values.begin(), values.end());
    double total = 0;
    for (int k = first; k <= last; ++k) total += values[static_cast<std::size_t>(k)];
    result.push_back(total / (last - first + 1));
  }
  return result;
}

[[nodiscard]] inline Vector lower_median(const CountedGradients& of) {
  return ordered(of.x, (of.n() - 1) / 2, (of.n() - 1) / 2);
}
[[nodiscard]] inline Vector trimmed_mean(const CountedGradients& of) { return ordered(of.x, of.f, of.n() - 1 - of.f); }

[[nodiscard]] inline Vector weighted_mean(const CountedGradients& of, const std::vector<std::size_t>& some) {
  Vector mean(of.x.front().size(), 0.0);
  double total = 0;
  for (const std::size_t i : some) total += of.w[i];
  for (const std::size_t i : some)
    for (std::size_t d = 0; d < mean.size(); ++d) mean[d] += of.w[i] / total * of.x[i][d];
  return mean;
}

/// The least distance from v within which more than half of the weight is, and more than half of the gradients.
[[nodiscard]] inline double median_distance(const CountedGradients& of, const Vector& v) {
  std::vector<std::pair<double, double>> far;
  for (std::size_t i = 0; i < of.x.size(); ++i) far.emplace_back(distance(of.x[i], v), of.w[i]);
  std::sort(far.begin(), far.end());
  double total = 0, within = 0;
  for (const double w : of.w) total += w;
  std::size_t k = 0;
  for (within = far[0].second; within <= total / 2 || 2 * (k + 1) <= far.size(); within += far[k].second) ++k;
  return far[k].first;
}

/// (1 / sum w) sum_i w_i (x_i - v) min(1, tau / |x_i - v|); tau 0: median_distance().
[[nodiscard]] inline Vector clipped_step(const CountedGradients& of, const Vector& v, double tau) {
  Vector step(v.size(), 0.0);
  double total = 0;
  for (const double w : of.w) total += w;
  if (tau == 0) tau = median_distance(of, v);
  for (std::size_t i = 0; i < of.x.size(); ++i) {
    const double far = distance(of.x[i], v), factor = far > tau ? tau / far : 1;
    for (std::size_t d = 0; d < v.size(); ++d) step[d] += of.w[i] / total * factor * (of.x[i][d] - v[d]);
  }
  return step;
}

[[nodiscard]] inline Vector centered_clip(const CountedGradients& of, double tau, int iterations) {
  Vector v = lower_median(of);
  for (int k = 0; k < iterations; ++k) {
    const Vector step = clipped_step(of, v, tau);
    for (std::size_t d = 0; d < v.size(); ++d) v[d] += step[d];
    if (length(step) <= 1e-6) break;
  }
  return v;
}

/// sum_i w_i |x_i - v|.
[[nodiscard]] inline double sum_of_distances(const CountedGradients& of, const Vector& v) {
  double total = 0;
  for (std::size_t i = 0; i < of.x.size(); ++i) total += of.w[i] * distance(of.x[i], v);
  return total;
}

/// Weiszfeld's iteration as Vardi and Zhang have it.
[[nodiscard]] inline Vector geometric_median(const CountedGradients& of, int iterations) {
  Vector v = lower_median(of);
  for (int k = 0; k < iterations; ++k) {
    Vector pull(v.size(), 0.0);  // sum_i w_i (x_i - v) / |x_i - v|, and the weights of those that are v
    double inverse = 0, here = 0, total = 0;
    Vector distances;
    for (const Vector& x : of.x) distances.push_back(distance(x, v));
    std::sort(distances.begin(), distances.end());
    for (std::size_t i = 0; i < of.x.size(); ++i) {
      const double far = distance(of.x[i], v);
      total += of.w[i];
      if (far <= 1e-6 * distances[distances.size() / 2]) {
        here += of.w[i];
        continue;
      }
      inverse += of.w[i] / far;
      for (std::size_t d = 0; d < v.size(); ++d) pull[d] += of.w[i] * (of.x[i][d] - v[d]) / far;
    }
    const double r = length(pull);
    if (inverse == 0 || r <= std::max(here, 1e-6 * total)) break;
    for (std::size_t d = 0; d < v.size(); ++d) v[d] += (1 - here / r) * pull[d] / inverse;
  }
  return v;
}

/// The sum of squared distances to the n - f - 2 nearest others, one at least.
[[nodiscard]] inline Vector krum_scores(const CountedGradients& of) {
  Vector scores;
  for (std::size_t i = 0; i < of.x.size(); ++i) {
    Vector others;
    for (std::size_t j = 0; j < of.x.size(); ++j)
      if (j != i) others.push_back(squared_distance(of.x[i], of.x[j]));
    std::sort(others.begin(), others.end());
    const int nearest = std::min(of.n() - 1, std::max(1, of.n() - of.f - 2));
    scores.push_back(std::accumulate(others.begin(), others.begin() + nearest, 0.0));
  }
  return scores;
}

/// What Krum may choose: means of `count` gradients of the lowest scores, in all ways that differ in scores by no more
/// than rounding.
[[nodiscard]] inline Vectors krum_choices(const CountedGradients& of, int count) {
  const Vector scores = krum_scores(of);
  Vector sorted = scores;
  std::sort(sorted.begin(), sorted.end());
  const double last = sorted[static_cast<std::size_t>(count - 1)], slack = 1e-9 * last + 1e-12;
  std::vector<std::size_t> sure, maybe;
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (scores[i] < last - slack)
      sure.push_back(i);
    else if (scores[i] <= last + slack)
      maybe.push_back(i);
  Vectors choices;
  std::vector<char> taken(maybe.size(), 0);
  std::fill_n(taken.begin(), count - static_cast<int>(sure.size()), char{1});
  do {
    std::vector<std::size_t> some = sure;
    for (std::size_t k = 0; k < maybe.size(); ++k)
      if (taken[k] != 0) some.push_back(maybe[k]);
    choices.push_back(weighted_mean(of, some));
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return choices;
}

/// All results that are right, of which there are several where gradients are equally good.
[[nodiscard]] inline Vectors right_results(const std::string& aggregator, const AggregationCase& all) {
  const std::optional<CountedGradients> of = counted(all);
  if (!of) return {Vector(all.gradients.front().size(), std::numeric_limits<double>::quiet_NaN())};
  if (aggregator == "mean") {
    std::vector<std::size_t> all_of(of->x.size());
    std::iota(all_of.begin(), all_of.end(), std::size_t{0});
    return {weighted_mean(*of, all_of)};
  }
  if (aggregator == "median") return {lower_median(*of)};
  if (aggregator == "trimmed_mean") return {trimmed_mean(*of)};
  if (aggregator == "geometric_median") return {geometric_median(*of, all.iterations)};
  if (aggregator == "krum") return krum_choices(*of, 1);
  if (aggregator == "multi_krum") return krum_choices(*of, of->n() - of->f);
  return {centered_clip(*of, all.tau, all.iterations)};
}

/// From the nearest of the results that are right.
[[nodiscard]] inline double distance_to_right(const std::string& aggregator, const AggregationCase& all,
                                              const Vector& result) {
  double nearest = HUGE_VAL;
  for (const Vector& right : right_results(aggregator, all)) nearest = std::min(nearest, distance(result, right));
  return nearest;
}

}  // namespace dat::test
