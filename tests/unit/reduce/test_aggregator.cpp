#include "aggregation_reference.hpp"
#include "allocations.hpp"
#include "catch.hpp"
#include "dat/aggregator.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "reduce/aggregator/iterate.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();
const std::vector<std::string> kRobust = {"median", "trimmed_mean", "geometric_median",
                                          "krum",   "multi_krum",   "centered_clip"};

/// Random numbers, in the order in which they are asked for.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : words_(seed) {}
  [[nodiscard]] int below(int n) { return static_cast<int>(words_() % static_cast<std::uint32_t>(n)); }
  [[nodiscard]] float number() { return static_cast<float>(words_() >> 8) * 0x1p-23F - 1; }

 private:
  std::mt19937 words_;
};

/// Gradients of `ranks` ranks in a block of three tensors, the middle one of which does not take part.
class Rig {
 public:
  explicit Rig(std::int64_t coordinates, int threads = 2) : backend_(test_backend(threads)) {
    parameters_.size = 0;
    const std::int64_t first = (coordinates + 1) / 2;
    for (const std::int64_t size : {first, std::int64_t{3}, coordinates - first}) {
      const auto k = std::ssize(parameters_.segments);
      parameters_.segments.push_back({.name = "t",
                                      .shape = {},
                                      .module = {},
                                      .block = {},
                                      .begin = parameters_.size,
                                      .size = size,
                                      .layer = static_cast<int>(k)});
      parameters_.layer_names.push_back("t");
      parameters_.layer_sizes.push_back(size);
      parameters_.size += (size + 15) / 16 * 16;
    }
    table_ = std::make_unique<ChunkTable>(*backend_, parameters_);
    (void)table_->select({{1, 1, 1}});  // leaves a chunk after those that count
    chunks_ = table_->select({{1, 0, 1}});
    for (const std::size_t k : {0, 2})
      for (std::int64_t i = 0; i < parameters_.segments[k].size; ++i)
        places_.push_back(static_cast<std::size_t>(parameters_.segments[k].begin + i));
  }

  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] std::unique_ptr<Aggregator> make(const std::string& name, const AggregatorOptions& options) {
    return aggregators().at(name)(*backend_, parameters_, options);
  }
  /// Puts the gradients of the ranks on the device. What does not take part there is NaN.
  void load(const std::vector<std::vector<float>>& gradients) {
    const auto ranks = static_cast<std::int64_t>(gradients.size());
    std::vector<float> all(static_cast<std::size_t>(ranks * parameters_.size), kNaN);
    for (std::size_t rank = 0; rank < gradients.size(); ++rank)
      for (std::size_t d = 0; d < places_.size(); ++d)
        all[rank * static_cast<std::size_t>(parameters_.size) + places_[d]] = gradients[rank][d];
    if (ranks > ranks_) {
      device_ = backend_->allocate_floats(ranks * parameters_.size, "test");
      ranks_ = ranks;
      result_ = backend_->allocate_floats(parameters_.size, "test");
    }
    backend_->copy_to_device(device_, all.data(), all.size() * sizeof(float));
  }
  void queue(Aggregator& aggregator, std::span<const double> weights) {
    aggregator.aggregate({.chunks = chunks_,
                          .gradients = device_,
                          .stride = parameters_.size,
                          .step = 3,
                          .result = result_,
                          .weights = weights});
  }
  [[nodiscard]] std::vector<float> run(Aggregator& aggregator, const std::vector<double>& weights = {}) {
    std::vector<float> before(static_cast<std::size_t>(parameters_.size), 4711), given = before;
    for (const std::size_t at : places_) given[at] = kNaN;
    backend_->copy_to_device(result_, given.data(), given.size() * sizeof(float));
    queue(aggregator, weights);
    std::vector<float> all = to_host(*backend_, result_, parameters_.size), result;
    for (const std::size_t at : places_) result.push_back(std::exchange(all[at], 4711.0F));
    CHECK(all == before);  // what does not take part is left alone
    return result;
  }
  [[nodiscard]] std::vector<float> run(const std::string& name, const AggregatorOptions& options,
                                       const std::vector<std::vector<float>>& gradients,
                                       const std::vector<double>& weights = {}) {
    load(gradients);
    return run(*make(name, options), weights);
  }

 private:
  std::unique_ptr<Backend> backend_;
  Parameters parameters_;
  std::unique_ptr<ChunkTable> table_;
  Chunks chunks_;
  std::vector<std::size_t> places_;
  float *device_ = nullptr, *result_ = nullptr;
  std::int64_t ranks_ = 0;
};

/// A case of a kind: grids (ties, zero distances), any numbers, equal gradients, gradients of 1e38, some not finite.
[[nodiscard]] AggregationCase random_case(Dice& dice, std::size_t coordinates, int ranks) {
  AggregationCase all;
  all.faults = dice.below((ranks - 1) / 2 + 1);
  all.tau = std::vector<double>{0, 0.1, 1, 10, HUGE_VAL}[static_cast<std::size_t>(dice.below(5))];
  all.iterations = std::vector<int>{1, 3, 500}[static_cast<std::size_t>(dice.below(3))];
  all.mixing = dice.below(2) == 0;
  const int kind = dice.below(5);
  for (int rank = 0; rank < ranks; ++rank) {
    Vector gradient;
    for (std::size_t d = 0; d < coordinates; ++d)
      gradient.push_back(kind == 0 ? static_cast<float>(dice.below(3) - 1) : dice.number());
    if (kind == 2 && rank > 0 && dice.below(2) == 0) gradient = all.gradients.back();
    // As many as may be false.
    if (kind == 3 && rank < all.faults)
      for (double& value : gradient) value = static_cast<float>(1e38) * (2 + static_cast<float>(value));
    if (kind == 4 && dice.below(5) == 0)
      gradient[static_cast<std::size_t>(dice.below(static_cast<int>(coordinates)))] =
          std::vector<double>{kNaN, kInfinite, -kInfinite}[static_cast<std::size_t>(dice.below(3))];
    all.gradients.push_back(gradient);
    all.weights.push_back(1);
  }
  if (kind != 3 && dice.below(3) == 0)
    for (double& weight : all.weights) weight = std::vector<double>{0, 1, 2.5}[static_cast<std::size_t>(dice.below(3))];
  return all;
}

[[nodiscard]] std::vector<std::vector<float>> as_floats(const Vectors& gradients) {
  std::vector<std::vector<float>> all;
  for (const Vector& one : gradients) all.emplace_back(one.begin(), one.end());
  return all;
}

[[nodiscard]] AggregatorOptions options_of(const AggregationCase& all) {
  return {.ranks = static_cast<int>(all.gradients.size()),
          .faults = all.faults,
          .settings = {all.tau, all.iterations, all.mixing}};
}

/// Whether the result is one of those; both NaN are equal.
[[nodiscard]] bool is_one_of(const std::vector<float>& result, const Vectors& right) {
  return std::any_of(right.begin(), right.end(), [&](const Vector& one) {
    for (std::size_t d = 0; d < one.size(); ++d) {
      if (std::isnan(one[d]) && std::isnan(result[d])) continue;
      // Gradients are about 1. The result is rounded to f32, as mixed ones are before they are sorted; iterations end
      // with steps of 1e-6, and may have one more.
      if (!(std::abs(result[d] - one[d]) <= 3e-6 + 2e-7 * std::abs(one[d]))) return false;
    }
    return true;
  });
}

/// Where several points are equally good, the iterations may end at another one.
[[nodiscard]] bool is_as_good(const std::vector<float>& result, const Vector& right, const AggregationCase& all) {
  const std::optional<CountedGradients> of = counted(all);
  if (!of) return false;
  const double best = sum_of_distances(*of, right);
  return std::abs(sum_of_distances(*of, Vector(result.begin(), result.end())) - best) <= 1e-6 * (best + 1);
}

}  // namespace

TEST_CASE("the mean of equal gradients is at each of them, whatever is rounded", "[aggregator]") {
  for (int n = 1; n <= 64; ++n) {
    PairMatrix products(n);
    products.resize(n);
    Iterate v(n);
    v.begin(products, n);
    for (int i = 0; i < n; ++i) {
      v.step(i) = 1.0 / n;
      for (int j = 0; j < n; ++j) products.at(i, j) = 0x1p-60 * 0.7;
    }
    v.move(1);
    v.measure();
    CHECK(v.distances() == std::vector<double>(static_cast<std::size_t>(n)));
    v.move(-0x1p-10);  // and off it, by a thousandth of its length
    v.measure();
    for (const double one : v.distances()) CHECK(one == Approx(std::sqrt(0.7) * 0x1p-40));
  }
}

TEST_CASE("Every aggregator makes what its formula says of any gradients and weights", "[reducer]") {
  Dice dice(7);
  const int all_cases = std::getenv("DAT_ALL_CASES") != nullptr ? 1000 : cases(300, 60), of_a_backend = all_cases / 20;
  for (int first = 0; first < all_cases; first += of_a_backend) {
    const std::size_t coordinates = 1 + static_cast<std::size_t>(first / of_a_backend) % 10;
    Rig rig(static_cast<std::int64_t>(coordinates));
    for (int k = first; k < first + of_a_backend; ++k) {
      const AggregationCase all = random_case(dice, coordinates, 1 + dice.below(16));
      rig.load(as_floats(all.gradients));
      for (const std::string& name : kRobust) {
        const std::vector<float> result = rig.run(*rig.make(name, options_of(all)), all.weights);
        const Vectors right = right_results(name, all);
        if (is_one_of(result, right) || (name == "geometric_median" && is_as_good(result, right.front(), all)))
          continue;
        INFO(name << " of case " << k << ": " << all.gradients.size() << " ranks, f = " << all.faults << ", tau "
                  << all.tau << ", " << all.iterations << " iterations" << (all.mixing ? ", mixed" : ""));
        CHECK(result == std::vector<float>(right.front().begin(), right.front().end()));
      }
    }
  }
}

TEST_CASE("CenteredClip ends where the clipped differences cancel out", "[reducer]") {
  Rig rig(2);
  const std::vector<std::vector<float>> x = {{1, 0}, {0, 1}, {1, 1}, {100, 100}};
  const auto clip = [&](double tau, int iterations) {
    return rig.run("centered_clip", {.ranks = 4, .faults = 1, .settings = {tau, iterations}}, x);
  };
  // algorithms of the literature, in double precision: 10 iterations from the lower median (1, 1).
  for (const float value : clip(1, 10)) CHECK(value == Approx(0.90236902).epsilon(1e-7));
  for (const float value : clip(10, 500)) CHECK(value == Approx(3.02368915).epsilon(1e-6));
  for (const float value : clip(HUGE_VAL, 1)) CHECK(value == Approx(25.5).epsilon(1e-7));
  // Most ranks with most of the weight are within it, without those that have none.
  const auto longest = [](const std::vector<double>& weights) {
    return clip_length(std::vector<double>{3, 1, 2, 4}, weights);
  };
  CHECK((longest({1, 1, 1, 1}) == 3 && longest({1, 5, 1, 1}) == 3 && longest({0, 1, 1, 1}) == 2));
  CHECK((longest({1, 1, 1, 2.5}) == 3 && longest({1, 1, 1, 4.5}) == 4));

  // Whole gradients of more than a share: nothing is left of the sum, but what the last step may be, and rounding.
  constexpr std::int64_t kSize = 20000;
  Rig large(kSize);
  std::vector<std::vector<float>> gradients;
  for (std::uint32_t rank = 0; rank < 9; ++rank)
    gradients.push_back(random_values(kSize, rank, rank < 2 ? 20.0F : -1.0F, rank < 2 ? 25.0F : 1.0F));
  const auto result =
      large.run("centered_clip", {.ranks = 9, .faults = 2, .settings = {.aggregator_tau = 60}}, gradients);
  CountedGradients of;
  for (const auto& one : gradients) of.x.emplace_back(one.begin(), one.end());
  of.w.assign(9, 1.0);
  CHECK(length(clipped_step(of, Vector(result.begin(), result.end()), 60)) <= 1e-5);
}

TEST_CASE("CenteredClip without a tau stays with the honest gradients, whatever the others are", "[reducer]") {
  // If the honest ones, of weight h, are within s of a point, the result is within s (h + b) / (h - b) of that point, b
  // being the weight of the others: the honest ones cut to tau pull back by more than the others can push. Nor does it
  // matter how long gradients are.
  constexpr std::int64_t kSize = 40;
  Rig rig(kSize);
  Dice dice(21);
  for (int k = 0; k < cases(200, 50); ++k) {
    const int ranks = 3 + dice.below(14), faults = dice.below((ranks - 1) / 2 + 1);
    const float unit = std::pow(10.0F, static_cast<float>(dice.below(7) - 3));
    const float away = unit * std::pow(10.0F, static_cast<float>(dice.below(8) - 2));
    std::vector<std::vector<float>> gradients;
    std::vector<double> weights;
    const bool alike = dice.below(2) == 0;  // the liars
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> one;
      for (std::int64_t d = 0; d < kSize; ++d)
        one.push_back(unit * static_cast<float>(dice.number()) +
                      (rank < faults ? away : 0) * (alike ? 1 : static_cast<float>(dice.number())));
      gradients.push_back(one);
      weights.push_back(rank < faults ? 1 : 1 + dice.below(2));
    }
    const auto result = rig.run("centered_clip", {.ranks = ranks, .faults = faults}, gradients, weights);
    double radius = 0, off = 0, honest = 0, all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      all += weights[static_cast<std::size_t>(rank)];
      if (rank < faults) continue;
      honest += weights[static_cast<std::size_t>(rank)];
      double square = 0;
      for (const float value : gradients[static_cast<std::size_t>(rank)]) square += double(value) * value;
      radius = std::max(radius, std::sqrt(square));
    }
    for (const float value : result) off += double(value) * value;
    INFO(ranks << " ranks, " << faults << " of them false, " << away / unit << " away");
    // A last step of 1e-6 is so far from the end at the slowest rate, 1 - 1 / all.
    CHECK(std::sqrt(off) <= radius * all / (2 * honest - all) + 1e-6 * all);
  }
}

TEST_CASE("At the geometric median the directions to the gradients cancel out, whatever some of them are",
          "[reducer]") {
  constexpr std::int64_t kSize = 3000;
  Rig rig(kSize);
  std::vector<std::vector<float>> gradients;
  CountedGradients of;
  for (std::uint32_t rank = 0; rank < 12; ++rank) {
    gradients.push_back(random_values(kSize, rank, -1, rank < 4 ? 1e20F : 1.0F));
    of.x.emplace_back(gradients.back().begin(), gradients.back().end());
    of.w.push_back(0x1p-20 * (1 + rank % 3));
  }
  const auto result = rig.run("geometric_median", {.ranks = 12, .faults = 5}, gradients, of.w);
  Vector pull(kSize, 0.0);
  for (std::size_t i = 0; i < of.x.size(); ++i)
    for (std::size_t d = 0; d < kSize; ++d)
      pull[d] += of.w[i] * (of.x[i][d] - result[d]) / distance(of.x[i], Vector(result.begin(), result.end()));
  CHECK(length(pull) <= 1e-5 * 0x1p-20 * 24);
  // From the median of each coordinate, (0, 0), the distances are 3, 5, e, 5, 5: it is at the third one, whose pull the
  // others' does not exceed, where e is at most 5e-6. Of the other four none is near, and together they pull by 3/4 e:
  // that is nothing up to 1e-6 of their weights.
  Rig small(2);
  for (const float e : {4e-6F, 6e-6F}) {
    const auto found = small.run("geometric_median", {.ranks = 5, .settings = {.aggregator_iterations = 1}},
                                 {{3, 0}, {-3, -4}, {0, e}, {3, 4}, {-3, -4}});
    CHECK((found == std::vector<float>(2)) == (e < 5e-6F));
    // One step to sum x/d over sum 1/d, of which 1/e is nearly all.
    if (e > 5e-6F) CHECK((found[0] == Approx(0.4 * e) && found[1] == Approx(0.2 * e)));
    const auto cross = small.run("geometric_median", {.ranks = 4}, {{1, 0.75F * e}, {-1, 0}, {0, 1}, {0, -1}});
    CHECK((cross == std::vector<float>(2)) == (e < 5e-6F));
  }
}

TEST_CASE("Of gradients with equal scores Krum takes the first, and Multi-Krum the first ones", "[reducer]") {
  Rig rig(1);
  for (const float one : {1.0F, -1.0F}) {
    CHECK(rig.run("krum", {.ranks = 2}, {{one}, {-one}}) == std::vector{one});
    // The nearest one is at a distance of 2 from each.
    CHECK(rig.run("multi_krum", {.ranks = 3, .faults = 1}, {{one}, {-one}, {-3 * one}}) == std::vector{0.0F});
  }
}

TEST_CASE("Sums over pairs, and the search for what is not finite, reach the last elements of large gradients",
          "[reducer]") {
  // Two tensors of 64 whole chunks: the last elements are in the last share.
  constexpr std::int64_t kSize = 2 * 64 * std::int64_t{kChunk};
  Rig rig(kSize);
  std::vector<std::vector<float>> gradients(4, std::vector<float>(kSize, 0.0F));
  const float x[4][2] = {{1, 0}, {0, 1}, {1, 1}, {100, 100}};
  for (std::size_t rank = 0; rank < 4; ++rank) std::copy_n(x[rank], 2, gradients[rank].end() - 2);
  const auto clipped =
      rig.run("centered_clip", {.ranks = 4, .faults = 1, .settings = {.aggregator_tau = 10}}, gradients);
  CHECK(clipped[kSize - 3] == 0);
  for (std::size_t d = kSize - 2; d < kSize; ++d) CHECK(clipped[d] == Approx(3.02368915).epsilon(1e-6));
  CHECK((rig.run("krum", {.ranks = 4}, gradients) == gradients[2]));
  gradients[2].back() = kNaN;
  CHECK((rig.run("krum", {.ranks = 4, .faults = 1}, gradients) == gradients[0]));
}

TEST_CASE("The weighted mean of more ranks than other aggregators take leaves out those of weight 0", "[reducer]") {
  constexpr int kRanks = 129;  // 64, 64 and 1
  Rig rig(20);
  std::vector<std::vector<float>> gradients;
  std::vector<double> weights;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    gradients.push_back(rank % 7 == 0 ? std::vector<float>(20, kNaN) : random_values(20, rank));
    weights.push_back(rank % 7);
  }
  const auto mean = rig.run("mean", {.ranks = kRanks}, gradients, weights);
  for (std::size_t d = 0; d < mean.size(); ++d) {
    double total = 0, all = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (weights[rank] == 0) continue;
      total += weights[rank] * gradients[rank][d];
      all += weights[rank];
    }
    CHECK(std::abs(mean[d] - total / all) <= 0x1p-23);
  }
  // Equal weights leave the bits that a mean without any has.
  const std::vector<std::vector<float>> few(gradients.begin() + 1, gradients.begin() + 7);
  CHECK(rig.run("mean", {.ranks = 6}, few, std::vector<double>(6, 2.5)) == rig.run("mean", {.ranks = 6}, few));
}

TEST_CASE("What is not finite, or of weight 0, never reaches a result; of more than f ranks nothing is left",
          "[reducer]") {
  constexpr int kRanks = 7;
  Rig rig(40);
  std::vector<std::vector<float>> good;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) good.push_back(random_values(40, rank));
  for (const std::string& name : kRobust)
    for (const bool mixing : {false, true})
      for (const float bad : {kNaN, kInfinite, -kInfinite}) {
        const AggregatorOptions options{.ranks = kRanks, .faults = 2, .settings = {.aggregator_mixing = mixing}};
        INFO(name << (mixing ? ", mixed, " : ", ") << bad);
        auto gradients = good;
        gradients[1][39] = gradients[4][0] = bad;
        std::vector<double> weights(kRanks, 1.0);
        weights[1] = weights[4] = 0;
        const auto result = rig.run(name, options, gradients);
        CHECK(std::all_of(result.begin(), result.end(), [](float value) { return std::isfinite(value); }));
        CHECK(rig.run(name, options, good, weights) == result);
        CHECK(rig.run(name, options, gradients, weights) == result);
        gradients[6][20] = bad;
        for (const float value : rig.run(name, options, gradients)) CHECK(std::isnan(value));
        // Those of weight 0 are not among the f.
        const auto fewer = rig.run(name, options, gradients, weights);
        CHECK(std::all_of(fewer.begin(), fewer.end(), [](float value) { return std::isfinite(value); }));
      }
}

TEST_CASE("The largest numbers neither overflow nor move what is robust", "[reducer]") {
  constexpr int kRanks = 9;
  constexpr float kLargest = std::numeric_limits<float>::max();
  Rig rig(30);
  std::vector<std::vector<float>> gradients;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) gradients.push_back(random_values(30, rank));
  for (const std::size_t rank : {0, 4, 5}) gradients[rank].assign(30, rank == 4 ? -kLargest : kLargest);
  for (const std::string& name : kRobust)
    for (const bool mixing : {false, true}) {
      INFO(name << (mixing ? ", mixed" : ""));
      for (const float value :
           rig.run(name, {.ranks = kRanks, .faults = 3, .settings = {.aggregator_mixing = mixing}}, gradients))
        CHECK(std::abs(value) <= (name == "centered_clip" ? 10 : 1));
    }
  const std::vector<std::vector<float>> all(kRanks, std::vector<float>(30, kLargest));
  for (const std::string& name : kRobust) CHECK(rig.run(name, {.ranks = kRanks, .faults = 3}, all) == all.front());
}

TEST_CASE("Neither the number of threads nor another call changes a bit", "[reducer]") {
  constexpr std::int64_t kSize = 50000;
  constexpr int kRanks = 13;
  std::vector<std::vector<float>> gradients;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) gradients.push_back(random_values(kSize, rank));
  Rig one(kSize, 1), two(kSize, 2);
  one.load(gradients);
  two.load(gradients);
  for (const std::string& name : kRobust) {
    const AggregatorOptions options{
        .ranks = kRanks, .faults = 5, .settings = {.aggregator_tau = 100, .aggregator_mixing = name != "median"}};
    const auto aggregator = two.make(name, options);
    const auto result = two.run(*aggregator);
    INFO(name);
    CHECK((two.run(*aggregator) == result && one.run(*one.make(name, options)) == result));
  }
}

TEST_CASE("As many ranks as there may be have the median in their middle, and more are refused", "[reducer]") {
  Rig rig(17);
  std::vector<std::vector<float>> gradients;
  for (int rank = 0; rank < kMostRanks; ++rank)
    gradients.emplace_back(17, static_cast<float>(rank * 37 % kMostRanks));  // each number once
  const int faults = faults_of("median", -1, kMostRanks);
  CHECK(faults == 31);
  for (const bool mixing : {false, true}) {
    for (const float value : rig.run(
             "median", {.ranks = kMostRanks, .faults = faults, .settings = {.aggregator_mixing = mixing}}, gradients))
      CHECK(value == 31.0F);
    for (const float value :
         rig.run("trimmed_mean", {.ranks = kMostRanks, .faults = faults, .settings = {.aggregator_mixing = mixing}},
                 gradients))
      CHECK(value == 31.5F);
  }
  CHECK(error_of([] { (void)faults_of("median", -1, kMostRanks + 1); }).starts_with("2: "));
  CHECK(faults_of("mean", -1, kMostRanks + 1) == 0);
}

TEST_CASE("Faults: as many as the aggregator is made for, and always less than half of the ranks", "[reducer]") {
  for (const int ranks : {1, 2, 3, 4, 5, 16}) {
    CHECK(faults_of("mean", -1, ranks) == 0);
    for (const std::string name : {"median", "trimmed_mean", "geometric_median", "centered_clip"}) {
      CHECK((faults_of(name, -1, ranks) == (ranks - 1) / 2 && fault_warning(name, -1, ranks).empty()));
    }
    for (const std::string name : {"krum", "multi_krum"})
      CHECK(faults_of(name, -1, ranks) == std::max(0, (ranks - 3) / 2));
    for (const std::string& name : kRobust) {
      for (const int asked : {0, (ranks - 1) / 2}) CHECK(faults_of(name, asked, ranks) == asked);
      CHECK(error_of([&] { (void)faults_of(name, (ranks + 1) / 2, ranks); }).starts_with("2: "));
    }
  }
  CHECK((fault_warning("krum", -1, 16) + fault_warning("krum", 6, 16) + fault_warning("mean", -1, 1)).empty());
  CHECK(fault_warning("multi_krum", 7, 16) ==
        "--aggregator multi_krum is proven for 2 f + 3 ranks, 17 with f = 7 of --faults, and there are 16: start more, "
        "or lower --faults");
}

TEST_CASE("Aggregators say what they remember, what they want to see, and what memory they take", "[reducer]") {
  Rig rig(10);
  for (const std::string& name : aggregators().names()) {
    for (const bool mixing : {false, true}) {
      INFO(name);
      const auto bytes = [&] {
        std::int64_t total = 0;
        for (const auto& one : rig.backend().allocations())
          total += one.purpose == "aggregator" ? static_cast<std::int64_t>(one.bytes) : 0;
        return total;
      };
      const std::int64_t before = bytes();
      const auto aggregator = rig.make(name, {.ranks = 6, .faults = 2, .settings = {.aggregator_mixing = mixing}});
      CHECK(bytes() - before == aggregator->memory(6));
      CHECK((aggregator->keeps_one() && !aggregator->unfinished() && aggregator->state().empty()));
      CHECK(aggregator->is_mean() == (name == "mean"));
      const bool by_coordinates = name == "median" || name == "trimmed_mean" || name == "centered_clip";
      CHECK(aggregator->by_parts() == (name == "mean" || (by_coordinates && !mixing)));
      // Sums of 1024 shares and of all: of each rank, or of three tiles of pairs, of which the median and the trimmed
      // mean look at none but for mixing.
      const bool pairs = mixing || (name != "median" && name != "trimmed_mean");
      CHECK(aggregator->memory(6) == (name == "mean" ? 0 : 8 * 1025 * (pairs ? 48 : 6)));
    }
  }
}

TEST_CASE("An aggregator allocates nothing", "[reducer][cpu]") {
  if (test_device() != "cpu") return;  // the double of CUDA's libraries allocates
  Rig rig(3000);
  std::vector<std::vector<float>> gradients;
  for (std::uint32_t rank = 0; rank < 8; ++rank) gradients.push_back(random_values(3000, rank));
  rig.load(gradients);
  const std::vector<double> weights = {1, 1, 2, 0, 1, 1, 1, 1};
  for (const std::string& name : aggregators().names()) {
    const auto aggregator = rig.make(
        name, {.ranks = 8, .faults = 3, .settings = {.aggregator_mixing = name != "median" && name != "mean"}});
    INFO(name);
    CHECK(allocations_in(2, [&] { rig.queue(*aggregator, weights); }) == 0);
  }
}

TEST_CASE("A single rank's gradient is the result, bit for bit", "[reducer]") {
  Rig rig(100);
  const std::vector<std::vector<float>> gradients = {random_values(100, 3, -1e30F, 1e30F)};
  for (const std::string& name : aggregators().names())
    for (const bool mixing : {false, true})
      CHECK(rig.run(name, {.ranks = 1, .settings = {.aggregator_mixing = mixing}}, gradients) == gradients.front());
}
