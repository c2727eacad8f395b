#include "reduce/aggregator/robust.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <tuple>

namespace dat {

namespace {

static_assert(kMostRanks == kernels::kMostRanks);
constexpr int kPairTile = kernels::PairSums<true>::kTile;
constexpr std::int64_t kTileSize = kPairTile * kPairTile;

/// Numbers that a pass leaves of each share.
[[nodiscard]] std::int64_t numbers_of(int ranks, bool pairs) {
  return pairs ? std::max<std::int64_t>(ranks, kernels::PairSums<true>::tiles(ranks) * kTileSize) : ranks;
}

/// Runs the functor that make<number of neighbours in a group>() returns over all groups.
template <class Make>
void each_group(const Device& device, const Chunks& chunks, const Make& make) {
  if (device.kind == DeviceKind::cuda)
    each(device, std::int64_t{chunks.count} * kernels::Neighbours<1>::kGroups, make.template operator()<1>());
  else
    each(device, std::int64_t{chunks.count} * kernels::Neighbours<16>::kGroups, make.template operator()<16>());
}

}  // namespace

void sum_weighted(Backend& backend, const Contributions& all, const kernels::CountedRanks& ranks,
                  const std::array<double, kMostRanks>& factor, double of_result, double base) {
  each_group(backend.device(), all.chunks, [&]<int kLanes>() {
    kernels::WeightedSum<kLanes> f{{all.chunks.data}, ranks, {}, of_result, base, all.result};
    std::ranges::copy(factor, f.factor);
    return f;
  });
}

Robust::Robust(Backend& backend, const AggregatorOptions& options, bool pairs)
    : backend_(backend),
      options_(options),
      pairs_(pairs || options.settings.aggregator_mixing),
      plain_(options.ranks),
      matrix_(options.ranks) {
  assert(options.ranks <= kMostRanks);
  const char* const purpose = "aggregator";
  const auto count = static_cast<std::size_t>(numbers_of(options.ranks, pairs_));
  partial_ = static_cast<double*>(backend.allocate(count * kernels::Shares::kShares * sizeof(double), purpose));
  sums_ = static_cast<double*>(backend.allocate(count * sizeof(double), purpose));
  host_ = static_cast<double*>(backend.allocate_pinned(count * sizeof(double), "sums for the aggregator"));
  weights_.reserve(static_cast<std::size_t>(options.ranks));
  sorted_.reserve(static_cast<std::size_t>(options.ranks));
}

std::int64_t Robust::memory(int ranks) const {
  return numbers_of(ranks, pairs_) * (kernels::Shares::kShares + 1) * std::int64_t{sizeof(double)};
}

void Robust::aggregate(const Contributions& all) {
  all_ = all;
  mixed_ = false;
  if (!count_ranks()) return sum_weighted(backend_, all_, counted_, {}, 0, std::numeric_limits<double>::quiet_NaN());
  if (options_.settings.aggregator_mixing) choose_near();
  make();
}

/// Adds up what the shares of a pass have left, and waits until the sums are on the host.
void Robust::fetch_joined(std::int64_t count) {
  each(backend_.device(), count, kernels::JoinShares{partial_, count, sums_});
  backend_.wait_for(backend_.fetch(host_, sums_, static_cast<std::size_t>(count) * sizeof(double)));
}

/// Returns whether there is a result: no more than f ranks are not finite, and some are left.
bool Robust::count_ranks() {
  const int ranks = options_.ranks;
  each(backend_.device(), std::int64_t{kernels::Shares::kShares} * ranks,
       kernels::NotFinite{{all_.chunks.data, all_.chunks.count}, all_.gradients, all_.stride, ranks, partial_});
  fetch_joined(ranks);
  counted_ = {.gradients = all_.gradients, .stride = all_.stride, .count = 0, .rank = {}};
  weights_.clear();
  int bad = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double weight = all_.weights.empty() ? 1 : all_.weights[static_cast<std::size_t>(rank)];
    if (weight == 0) continue;
    if (host_[rank] != 0) {
      ++bad;
      continue;
    }
    counted_.rank[counted_.count++] = static_cast<std::uint8_t>(rank);
    weights_.push_back(weight);
  }
  faults_ = std::min(options_.faults, (counted_.count - 1) / 2);
  return bad <= options_.faults && counted_.count > 0;
}

/// The n - f nearest ones of each, itself first; of equally near ones, the first.
void Robust::choose_near() {
  const PairMatrix& distances = squared_distances();
  for (int i = 0; i < n(); ++i) {
    sorted_.resize(static_cast<std::size_t>(n()));
    std::iota(sorted_.begin(), sorted_.end(), 0);
    std::ranges::sort(sorted_, {}, [&](int k) { return std::tuple(k != i, distances.at(i, k), k); });
    std::uint64_t near = 0;
    for (int k = 0; k < n() - faults_; ++k) near |= std::uint64_t{1} << sorted_[static_cast<std::size_t>(k)];
    near_[static_cast<std::size_t>(i)] = near;
  }
  mixed_ = true;
}

void Robust::order(int first, int last) {
  each_group(backend_.device(), all_.chunks, [&]<int kLanes>() {
    kernels::MeanOfOrdered<kLanes> f{{all_.chunks.data}, counted_, mixed_, {}, first, last, all_.result};
    std::ranges::copy(near_, f.near);
    return f;
  });
}

template <bool kDistances>
void Robust::sum_pairs() {
  using Pass = kernels::PairSums<kDistances>;
  const std::int64_t tiles = Pass::tiles(n());
  each(backend_.device(), kernels::Shares::kShares * tiles,
       Pass{{all_.chunks.data, all_.chunks.count}, counted_, all_.result, partial_});
  fetch_joined(tiles * kTileSize);
  plain_.resize(n());
  for (int j = 0; j < n(); ++j)
    for (int i = 0; i <= j; ++i) {
      const int a = i / kPairTile, b = j / kPairTile, tile = b * (b + 1) / 2 + a;
      plain_.at(i, j) = plain_.at(j, i) = host_[tile * kTileSize + i % kPairTile * kPairTile + j % kPairTile];
    }
}

/// The matrix of mixed gradients: of(i, j), which is of sums of n - f gradients each, as of their means.
template <class F>
const PairMatrix& Robust::of_means(const F& of) {
  const double square = static_cast<double>(n() - faults_) * (n() - faults_);
  matrix_.resize(n());
  for (int i = 0; i < n(); ++i)
    for (int j = i; j < n(); ++j) matrix_.at(i, j) = matrix_.at(j, i) = of(i, j) / square;
  return matrix_;
}

const PairMatrix& Robust::products_around_median() {
  lower_median();
  sum_pairs<false>();
  if (!mixed_) return plain_;
  return of_means([&](int i, int j) {
    double total = 0;
    for (int p = 0; p < n(); ++p)
      for (int q = 0; q < n(); ++q)
        if (near(i, p) && near(j, q)) total += plain_.at(p, q);
    return total;
  });
}

const PairMatrix& Robust::squared_distances() {
  if (!mixed_) {
    sum_pairs<true>();
    return plain_;
  }
  // With a_p = +1 where only i's mean has p, -1 where only j's has, these add up to 0:
  // |sum_p a_p x_p|^2 = - sum_{p < q} a_p a_q |x_p - x_q|^2.
  return of_means([&](int i, int j) {
    double total = 0;
    for (int p = 0; p < n(); ++p)
      for (int q = p; q < n(); ++q)  // a gradient is at no distance from itself
        if (near(i, p) != near(j, p) && near(i, q) != near(j, q))
          total += (near(i, p) == near(i, q) ? -1 : 1) * plain_.at(p, q);
    return std::max(0.0, total);
  });
}

void Robust::combine(const std::vector<double>& factor, double of_result) {
  std::array<double, kMostRanks> plain{};
  for (int i = 0; i < n(); ++i) {
    const double mine = factor[static_cast<std::size_t>(i)];
    if (!mixed_) plain[static_cast<std::size_t>(i)] = mine;
    for (int p = 0; p < n() && mixed_; ++p)
      if (near(i, p)) plain[static_cast<std::size_t>(p)] += mine / (n() - faults_);
  }
  sum_weighted(backend_, all_, counted_, plain, of_result, 0);
}

}  // namespace dat
