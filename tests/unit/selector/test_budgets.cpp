#include <numbers>

#include "allocations.hpp"
#include "catch.hpp"
#include "dat/selector.hpp"
#include "selector/breakpoints.hpp"

using namespace dat;

namespace {

using Vector = std::vector<double>;
constexpr double kUlp = 0x1p-53;

Vector clipped(const Vector& log_w, const Vector& costs, double budget, double p_min) {
  Vector q, scratch;
  clip_to_budget(log_w, costs, budget, p_min, q, scratch);
  return q;
}

Vector projected(const Vector& log_w, const Vector& costs, double budget, double p_min) {
  Vector q, scratch;
  project_kl(log_w, costs, budget, p_min, q, scratch);
  return q;
}

double cost_of(const Vector& q, const Vector& costs) {
  return std::inner_product(q.begin(), q.end(), costs.begin(), 0.0);
}

double largest_difference(const Vector& a, const Vector& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t d = 0; d < a.size(); ++d) largest = std::max(largest, std::fabs(a[d] - b[d]));
  return largest;
}

/// A problem: weights, costs of mean 1, and a budget that can be met.
struct Case {
  Vector log_w, costs;
  double budget, p_min;
};

class Cases {
 public:
  explicit Cases(std::uint64_t seed) : generator_(seed) {}
  /// Costs over `spread` in the logarithm, weights over `range`.
  Case draw(std::size_t layers, double range, double spread) {
    Case one;
    for (std::size_t d = 0; d < layers; ++d) {
      one.log_w.push_back(between(-range, 0));
      one.costs.push_back(std::exp(between(-spread, 0)));
    }
    one.costs = costs_of_mean_one(one.costs);
    one.p_min = std::exp(between(std::log(1e-3), std::log(0.5)));
    const double all = std::accumulate(one.costs.begin(), one.costs.end(), 0.0);
    one.budget = std::lerp(one.p_min * all, all, between(0, 1));
    return one;
  }
  double between(double low, double high) { return std::uniform_real_distribution<>(low, high)(generator_); }

 private:
  std::mt19937_64 generator_;
};

/// The point of the constraint set where a sum of convex functions, one of each layer, is least: by exchanges between
/// two layers at a time, each as far as a golden-section search over the values of the functions says. It knows nothing
/// of derivatives, multipliers or the form of the solution.
template <class Term>
Vector least_by_exchanges(const Case& of, const Term& term) {
  const std::size_t layers = of.log_w.size();
  Vector q(layers, of.budget / static_cast<double>(layers));
  constexpr double kGolden = 0.6180339887498949;
  for (int sweep = 0; sweep < 400; ++sweep)
    for (std::size_t i = 0; i < layers; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        // t more of the budget for layer i, t less for layer j.
        const double a = of.costs[i], b = of.costs[j];
        double low = std::max((of.p_min - q[i]) * a, (q[j] - 1) * b);
        double high = std::min((1 - q[i]) * a, (q[j] - of.p_min) * b);
        const auto value = [&](double t) { return term(i, q[i] + t / a) + term(j, q[j] - t / b); };
        double x = high - kGolden * (high - low), y = low + kGolden * (high - low), at_x = value(x), at_y = value(y);
        for (int k = 0; k < 60; ++k) {
          if (at_x < at_y) {
            high = y, y = x, at_y = at_x;
            x = high - kGolden * (high - low), at_x = value(x);
          } else {
            low = x, x = y, at_x = at_y;
            y = low + kGolden * (high - low), at_y = value(y);
          }
        }
        const double t = (low + high) / 2;
        if (value(t) >= value(0)) continue;
        q[i] = std::clamp(q[i] + t / a, of.p_min, 1.0);
        q[j] = std::clamp(q[j] - t / b, of.p_min, 1.0);
      }
  return q;
}

/// clip(exp(x + slope*mu), p_min, 1) with the mu that meets the budget, by bisection in more digits.
Vector by_bisection(const Case& of, const Vector& slopes) {
  const auto at = [&](long double mu) {
    std::vector<long double> q;
    for (std::size_t d = 0; d < of.log_w.size(); ++d) {
      const long double x = static_cast<long double>(of.log_w[d]) + slopes[d] * mu;
      q.push_back(std::clamp<long double>(std::exp(std::min(x, 0.0L)), of.p_min, 1.0L));
    }
    return q;
  };
  long double low = 0, high = 0;
  for (std::size_t d = 0; d < of.log_w.size(); ++d) {
    low = std::min(low, (std::log(static_cast<long double>(of.p_min)) - of.log_w[d]) / slopes[d]);
    high = std::max(high, -static_cast<long double>(of.log_w[d]) / slopes[d]);
  }
  for (int k = 0; k < 300; ++k) {
    const long double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    long double total = 0;
    const std::vector<long double> q = at(middle);
    for (std::size_t d = 0; d < q.size(); ++d) total += of.costs[d] * q[d];
    (total < of.budget ? low : high) = middle;
  }
  const std::vector<long double> q = at(high);
  return {q.begin(), q.end()};
}

SelectorOptions options(int layers, double budget, double p_min) {
  SelectorOptions all;
  all.layers = layers;
  all.budget = budget;
  all.p_min = p_min;
  all.steps = 1000;
  return all;
}

}  // namespace

TEST_CASE("Costs of mean one keep their ratios; one that is nothing counts a millionth", "[budgets]") {
  const Vector costs = costs_of_mean_one({2, 6, 4});
  CHECK(largest_difference(costs, {.5, 1.5, 1}) < 4 * kUlp);
  const Vector with_none = costs_of_mean_one({0, 3});
  CHECK((std::fabs(with_none[0] - 1e-6) < 1e-11 && std::fabs(with_none[0] + with_none[1] - 2) < 4 * kUlp));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Vector& wrong : {Vector{0, 0}, Vector{1e308, 1e308}, Vector{1, -1e-9}, Vector{1, nan}})
    CHECK(code_of([&] { (void)costs_of_mean_one(wrong); }) == ExitCode::usage);
}

TEST_CASE("Both roots are the optimum that a search finds which knows no formula", "[budgets]") {
  Cases cases(1);
  for (int trial = 0; trial < 12; ++trial) {
    const Case one = cases.draw(3 + static_cast<std::size_t>(trial) % 4, 4, 3);
    INFO("trial " << trial << ", p_min " << one.p_min << ", budget " << one.budget);
    // D_KL(q || w), of which what q does not change is left out.
    const Vector nearest =
        least_by_exchanges(one, [&](std::size_t d, double q) { return q * (std::log(q) - one.log_w[d]) - q; });
    // The values of a smooth function say its argument to the root of their rounding, 1e-8, times the conditioning of
    // the exchanges.
    CHECK(largest_difference(projected(one.log_w, one.costs, one.budget, one.p_min), nearest) < 2e-6);
    // sum g^2/q, of which the solution is clip(c*g/sqrt(cost), p_min, 1).
    Vector log_w;
    for (std::size_t d = 0; d < one.log_w.size(); ++d) log_w.push_back(one.log_w[d] - std::log(one.costs[d]) / 2);
    const Vector least =
        least_by_exchanges(one, [&](std::size_t d, double q) { return std::exp(2 * one.log_w[d]) / q; });
    CHECK(largest_difference(clipped(log_w, one.costs, one.budget, one.p_min), least) < 2e-6);
  }
}

TEST_CASE("Both roots meet the budget, keep the bounds, and are those of a bisection in more digits", "[budgets]") {
  Cases cases(2);
  const double ranges[] = {1e-9, 1, 30, 1e4}, spreads[] = {1e-9, 2, 9};
  for (int trial = 0; trial < 1200; ++trial) {
    const double range = ranges[trial % 4], spread = spreads[trial / 4 % 3];
    const Case one = cases.draw(static_cast<std::size_t>(cases.between(1, 80)), range, spread);
    INFO("trial " << trial << ", layers " << one.log_w.size() << ", range " << range << ", spread " << spread
                  << ", p_min " << one.p_min << ", budget " << one.budget);
    const Vector flat(one.log_w.size(), 1.0);
    for (const bool kl : {true, false}) {
      const Vector q = kl ? projected(one.log_w, one.costs, one.budget, one.p_min)
                          : clipped(one.log_w, one.costs, one.budget, one.p_min);
      CHECK(std::fabs(cost_of(q, one.costs) - one.budget) < 1e-12 * static_cast<double>(q.size()));
      CHECK((*std::min_element(q.begin(), q.end()) >= one.p_min && *std::max_element(q.begin(), q.end()) <= 1));
      // A logarithm of 1e4 is rounded by 1e4 ulp; what is left of the budget for layers that cost little is the
      // difference of sums of 80 that are rounded, divided by what they cost together, at least p_min times the least.
      const Vector right = by_bisection(one, kl ? one.costs : flat);
      const double least = *std::min_element(one.costs.begin(), one.costs.end());
      const double share = 80 * static_cast<double>(q.size()) * kUlp / (one.p_min * least);
      CHECK(largest_difference(q, right) < 8 * range * kUlp + std::max(8 * kUlp, share));
    }
  }
}

TEST_CASE("Equal costs change no bit of the projection, and nearly equal ones nearly nothing", "[budgets]") {
  Cases cases(3);
  for (int trial = 0; trial < 200; ++trial) {
    Case one = cases.draw(54, 3, 1);
    one.costs.assign(54, 1.0);
    one.budget = std::lerp(54 * one.p_min, 54.0, cases.between(0, 1));
    const Vector q = projected(one.log_w, {}, one.budget, one.p_min);
    CHECK(clipped(one.log_w, {}, one.budget, one.p_min) == q);
    CHECK(projected(one.log_w, one.costs, one.budget, one.p_min) == q);
    CHECK(clipped(one.log_w, one.costs, one.budget, one.p_min) == q);
    // The other code: Newton's method, with costs that differ in the last bit.
    one.costs[7] += 0x1p-52;
    CHECK(largest_difference(projected(one.log_w, one.costs, one.budget, one.p_min), q) < 1e-13);
  }
}

TEST_CASE("Roots at the extremes: one layer costs nearly all, budgets at both ends, one layer", "[budgets]") {
  Vector costs(20, 1e-5);
  costs[4] = 1;
  costs = costs_of_mean_one(costs);
  const Vector log_w(20, -1.0);
  for (const double p_min : {1e-4, 0.2, 1.0})
    for (const double where : {0.0, 1e-9, 0.5, 1 - 1e-9, 1.0}) {
      const double budget = std::lerp(20 * p_min, 20.0, where);
      INFO(p_min << " " << where);
      for (const Vector& q : {projected(log_w, costs, budget, p_min), clipped(log_w, costs, budget, p_min)}) {
        CHECK((std::fabs(cost_of(q, costs) - budget) < 1e-12 * 20 && *std::min_element(q.begin(), q.end()) >= p_min));
        if (where == 0) CHECK(largest_difference(q, Vector(20, p_min)) < 1e-7);  // ulps of the budget, over 2e-4
        if (where == 1) CHECK(largest_difference(q, Vector(20, 1.0)) < 1e-7);
      }
    }
  // In the middle it is the expensive layer that gives way.
  const Vector middle = projected(log_w, costs, 10, 0.01);
  CHECK((middle[4] < 0.51 && middle[0] > 0.3 && projected({-3.0}, {1.0}, 0.7, 0.1) == Vector{0.7}));
  CHECK(clipped(Vector(49, 0.0), {}, 49, 0.1) == Vector(49, 1.0));  // not 49 shares in 49
  CHECK(projected({-1, -1}, {1e-20, 2}, 0.1, 0.05)[0] >= 0.05);     // nothing is left for what costs nothing
  // Beside 64 layers that are at one, each of ten shares of 1e-14 is rounded up to an ulp: more is left than they take.
  Vector shares(65, 5.0), unequal(75, 1.0);
  shares.back() = 0;
  shares.resize(75, std::log(1e-14));
  unequal[0] = 2;
  for (const Vector& q :
       {projected(shares, unequal, 66 + 9 * 0x1p-46, 1e-20), clipped(shares, unequal, 66 + 9 * 0x1p-46, 1e-20)})
    CHECK((std::ranges::max(q) == 1 && q[64] == 1));
  // Where they are at the floor until the others have taken all of it, they stay there.
  std::fill(shares.begin() + 65, shares.end(), -60.0);
  for (const Vector& q : {projected(shares, unequal, 66, 1e-20), clipped(shares, unequal, 66, 1e-20)})
    CHECK((q[0] == 1 && q[64] == 1 && q[65] == 1e-20 && q[74] == 1e-20));
  // Above the last breakpoint there is none, whatever lies behind it.
  Vector points{1, 0, 7};
  points.pop_back();
  const auto at = [&](double budget) { return bracket(points, budget, [](double x) { return x; }); };
  CHECK((at(1).below == 1 && std::isinf(at(1).above) && at(.5).below == 0 && at(.5).above == 1));
}

TEST_CASE("Selectors meet a budget of costs in every step, and what they draw is unbiased", "[budgets]") {
  std::mt19937_64 generator(5);
  std::normal_distribution<> normal;
  auto all = options(30, 9, 0.05);
  for (int d = 0; d < 30; ++d) all.costs.push_back(std::exp(2 * normal(generator)));
  all.costs = costs_of_mean_one(all.costs);
  Vector norms(30);
  for (double& norm : norms) norm = std::exp(normal(generator));
  for (const std::string name : {"uniform", "exp3", "oracle"}) {
    INFO(name);
    const auto selector = selectors().at(name)(all);
    ActiveSet active;
    Vector noisy(30), mean(30);
    double spent = 0, square = 0;
    constexpr int kSteps = 4000;
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      selector->begin(static_cast<std::int64_t>(t));
      const Vector& p = selector->probabilities();
      CHECK(std::fabs(cost_of(p, all.costs) - 9) < 1e-12 * 30);
      draw_layers(11, t, p, active);
      double cost = 0, excess = 0;
      for (std::size_t d = 0; d < 30; ++d) {
        cost += active.active(static_cast<int>(d)) ? all.costs[d] : 0;
        mean[d] += double(active.scale[d]) / kSteps;
        excess += p[d] * (1 - p[d]) * all.costs[d] * all.costs[d];
        noisy[d] = norms[d] * std::fabs(1 + 0.3 * normal(generator));
      }
      spent += cost / kSteps;
      square += excess / kSteps;
      selector->learn(active, noisy);
    }
    // Five deviations of sums of independent draws.
    CHECK(std::fabs(spent - 9) < 5 * std::sqrt(square / kSteps));
    for (std::size_t d = 0; d < 30; ++d) CHECK(std::fabs(mean[d] - 1) < 5 * std::sqrt((1 / 0.05 - 1) / kSteps));
  }
}

TEST_CASE(
    "With constant norms the oracle has the least variance that the budget of costs allows, and the bandit comes near",
    "[budgets]") {
  auto all = options(12, 5, 0.1);
  Vector norms;
  for (int d = 0; d < 12; ++d) {
    norms.push_back(std::pow(0.7, d));
    all.costs.push_back(std::pow(1.5, d * 5 % 12));
  }
  all.costs = costs_of_mean_one(all.costs);
  const auto variance = [&](const Vector& p) {
    double total = 0;
    for (std::size_t d = 0; d < 12; ++d) total += norms[d] * norms[d] / p[d];
    return total;
  };
  Vector log_w;
  for (std::size_t d = 0; d < 12; ++d) log_w.push_back(std::log(norms[d]) - std::log(all.costs[d]) / 2);
  Case problem{log_w, all.costs, 5, 0.1};
  const double least = variance(by_bisection(problem, Vector(12, 1.0)));
  const auto oracle = selectors().at("oracle")(all);
  oracle->learn(ActiveSet::all(12), norms);
  CHECK(std::fabs(variance(oracle->probabilities()) / least - 1) < 1e-12);
  CHECK(variance(Vector(12, 5.0 / 12)) > 1.2 * least);

  all.bandit_rate = 1e-3;  // small, so the noise is, too
  const auto bandit = selectors().at("exp3")(all);
  ActiveSet active;
  Vector mean(12);
  constexpr std::uint64_t kSteps = 80000;
  for (std::uint64_t t = 0; t < kSteps; ++t) {
    draw_layers(3, t, bandit->probabilities(), active);
    bandit->learn(active, norms);
    for (std::size_t d = 0; t >= kSteps / 2 && d < 12; ++d) mean[d] += bandit->probabilities()[d] * 2 / kSteps;
  }
  // The largest drawn layer, in whose units the loss is, depends on the draw.
  CHECK(variance(mean) < 1.05 * least);
}

TEST_CASE("FreezeOut: layers rest in their order after phi of the run, and their rates are annealed until then",
          "[budgets]") {
  const struct {
    const char *schedule, *lr;
    int power;
  } forms[] = {{"linear", "scaled", 1}, {"squared", "unscaled", 2}, {"cubic", "scaled", 3}, {"cubic", "constant", 3}};
  for (const auto& form : forms) {
    auto all = options(5, 0, 0.1);
    all.freeze_t0 = 0.5;
    all.freeze_schedule = form.schedule;
    all.freeze_lr = form.lr;
    const auto selector = selectors().at("freezeout")(all);
    ActiveSet active;
    for (std::int64_t j = 0; j < 1000; ++j) {
      selector->begin(j);
      draw_layers(1, static_cast<std::uint64_t>(j), selector->probabilities(), active);
      CHECK((selector->rates() == nullptr) == (std::string(form.lr) == "constant"));
      for (int i = 0; i < 5; ++i) {
        const auto d = static_cast<std::size_t>(i);
        const double phi = std::pow(0.5 + 0.5 * i / 4, form.power);
        const bool rests = static_cast<double>(j) >= phi * 1000;
        INFO(form.schedule << " " << form.lr << ", step " << j << ", layer " << i);
        CHECK(active.scale[d] == (rests ? 0.0F : 1.0F));
        if (selector->rates() == nullptr) continue;
        const double annealed = (1 + std::cos(std::numbers::pi * static_cast<double>(j) / (phi * 1000))) / 2;
        const double expected = rests ? 0 : annealed / (std::string(form.lr) == "scaled" ? phi : 1);
        CHECK(std::fabs((*selector->rates())[d] - expected) < 1e-12);
      }
    }
    selector->begin(1000);
    CHECK(selector->probabilities() == Vector{0, 0, 0, 0, 1});  // the last layer never rests
    CHECK((active.scale.back() == 1.0F && selector->state().empty()));
  }
  // A run that is as long as its first layer's time, and a network of one layer.
  auto one = options(1, 0, 0.1);
  one.steps = 1;
  const auto selector = selectors().at("freezeout")(one);
  CHECK((selector->probabilities() == Vector{1} && *selector->rates() == Vector{1}));
}

TEST_CASE("AutoFreeze: layers below the first whose norm changes as much as the median of them rest for good",
          "[budgets]") {
  auto all = options(5, 0, 0.1);
  all.steps = 100;  // intervals of ten
  const auto selector = selectors().at("autofreeze")(all);
  const auto interval = [&](std::int64_t number, const Vector& norms, const ActiveSet& active) {
    for (std::int64_t j = 10 * number; j < 10 * number + 10; ++j) {
      selector->begin(j);
      // Their mean counts.
      Vector noisy = norms;
      for (double& norm : noisy) norm *= j % 2 == 0 ? 0.5 : 1.5;
      selector->learn(active, noisy);
    }
    selector->begin(10 * number + 10);
    return selector->probabilities();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(interval(0, {1, 1, 1, 1, 1}, ActiveSet::all(5)) == Vector(5, 1.0));
  // Changes .1, .2, .5, .3, .9: the median is .3, and layer 2 the first that reaches it.
  CHECK(interval(1, {1.1, .8, 1.5, 1.3, .1}, ActiveSet::all(5)) == Vector{0, 0, 1, 1, 1});
  // Changes 0, .1, .2 of those that are left.
  CHECK(interval(2, {nan, nan, 1.5, 1.43, .08}, {{0, 0, 1, 1, 1}}) == Vector{0, 0, 0, 1, 1});
  // Of two, the median is between them: the first if it is the larger.
  CHECK(interval(3, {nan, nan, nan, 2.86, .08}, {{0, 0, 0, 1, 1}}) == Vector{0, 0, 0, 1, 1});
  CHECK(interval(4, {nan, nan, nan, 2.86, .16}, {{0, 0, 0, 1, 1}}) == Vector{0, 0, 0, 0, 1});
  CHECK(interval(5, {nan, nan, nan, nan, 9}, {{0, 0, 0, 0, 1}}) == Vector{0, 0, 0, 0, 1});
  CHECK(selector->rates() == nullptr);

  // The lowest percentile freezes nothing, the highest all but the layer that changes most; of changes 1, 2, 0, 4, 1
  // one above the median those at the median.
  for (const double percentile : {0.0, 50.1, 100.0}) {
    all.freeze_percentile = percentile;
    const auto other = selectors().at("autofreeze")(all);
    other->learn(ActiveSet::all(5), {1, 1, 0, 1, 1});
    other->begin(10);
    CHECK(other->probabilities() == Vector(5, 1.0));  // nothing to compare with
    other->learn(ActiveSet::all(5), {2, 3, 0, 5, 2});
    other->begin(20);
    // From zero to zero is no change.
    CHECK(other->probabilities() == (percentile == 0     ? Vector(5, 1.0)
                                     : percentile == 100 ? Vector{0, 0, 0, 1, 1}
                                                         : Vector{0, 1, 1, 1, 1}));
  }
  // Changes from zero have no percentile between them; the last layer never rests.
  all.layers = 4;
  for (const double percentile : {0.0, 50.0}) {
    all.freeze_percentile = percentile;
    const auto sudden = selectors().at("autofreeze")(all);
    for (const int ten : {1, 2}) {
      sudden->learn(ActiveSet::all(4), ten == 1 ? Vector{1, 0, 0, 0} : Vector(4, 1.0));
      sudden->begin(10 * ten);
    }
    CHECK(sudden->probabilities() == (percentile == 0 ? Vector(4, 1.0) : Vector{0, 0, 0, 1}));
  }
  all.layers = 5;
  // Nobody has learned in the warm-up: its intervals say nothing.
  const auto late = selectors().at("autofreeze")(all);
  for (std::int64_t j = 0; j < 100; ++j) late->begin(j);
  CHECK(late->probabilities() == Vector(5, 1.0));
}

TEST_CASE("A restored selector goes on bit for bit", "[budgets]") {
  for (const std::string name : {"uniform", "exp3", "paper", "oracle", "freezeout", "autofreeze"}) {
    auto all = options(12, 6, 0.1);
    if (name == "paper") all.bandit_loss = "paper";
    const auto& make = selectors().at(name == "paper" ? "exp3" : name);
    all.steps = 40;
    for (int d = 0; d < 12; ++d) all.costs.push_back(1 + d % 5);
    all.costs = costs_of_mean_one(all.costs);
    const auto run = [&](LayerSelector& selector, std::int64_t from, std::int64_t to) {
      ActiveSet active;
      Vector seen;
      for (std::int64_t t = from; t < to; ++t) {
        selector.begin(t);
        draw_layers(7, static_cast<std::uint64_t>(t), selector.probabilities(), active);
        seen.insert(seen.end(), active.scale.begin(), active.scale.end());
        Vector norms(12);
        for (std::size_t d = 0; d < 12; ++d)
          norms[d] = 1 + std::sin(static_cast<double>(t * 12) + static_cast<double>(d));
        selector.learn(active, norms);
      }
      return seen;
    };
    for (const std::int64_t at : {3, 17, 24}) {
      const auto whole = make(all), first = make(all), second = make(all);
      run(*whole, 0, at);
      const Vector wanted = run(*whole, at, 40);
      run(*first, 0, at);
      second->restore(first->state());
      INFO(name << " at " << at);
      CHECK((second->state() == first->state() && run(*second, at, 40) == wanted && second->state() == whole->state()));
      for (const std::size_t size : {std::size_t{7}, whole->state().size() + 1})
        CHECK(code_of([&] { second->restore(Vector(size)); }) == ExitCode::checkpoint);
    }
  }
}

TEST_CASE("Drawing and learning allocate nothing", "[budgets]") {
  for (const std::string& name : selectors().names())
    for (const bool with_costs : {false, true}) {
      auto all = options(54, 20, 0.1);
      for (int d = 0; with_costs && d < 54; ++d) all.costs.push_back(1 + d % 7);
      if (with_costs) all.costs = costs_of_mean_one(all.costs);
      const auto selector = selectors().at(name)(all);
      ActiveSet active = ActiveSet::all(54);
      Vector norms(54);
      for (std::size_t d = 0; d < 54; ++d) norms[d] = static_cast<double>(d + 1);
      const auto before = allocations.load();
      for (std::int64_t step = 0; step < 1000; step += 50) {
        selector->begin(step);
        draw_layers(1, 0, selector->probabilities(), active);
        selector->learn(active, norms);
      }
      const auto after = allocations.load();
      INFO(name);
      CHECK(after == before);
      (void)selectors().at(name)(all);
      CHECK(allocations.load() > before);
    }
}
