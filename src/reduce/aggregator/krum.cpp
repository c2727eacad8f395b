#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "reduce/aggregator/robust.hpp"

namespace dat {

namespace {

/// Krum (Blanchard et al., NeurIPS 2017): a gradient's score is the sum of its squared distances to the n - f - 2
/// nearest others, of which there is one at least; the result is the gradient of the lowest score. Multi-Krum: the
/// weighted mean of the n - f gradients of the lowest scores. The first of equal scores.
class Krum final : public Robust {
 public:
  Krum(Backend& backend, const AggregatorOptions& options, bool several)
      : Robust(backend, options, true), several_(several) {
    const auto ranks = static_cast<std::size_t>(options.ranks);
    for (std::vector<double>* numbers : {&scores_, &row_, &factor_}) numbers->reserve(ranks);
    order_.reserve(ranks);
  }

 private:
  void make() override {
    score(squared_distances());
    order_.resize(scores_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::sort(order_, {}, [&](int i) { return std::pair(scores_[static_cast<std::size_t>(i)], i); });
    order_.resize(static_cast<std::size_t>(several_ ? n() - faults() : 1));
    double total = 0;
    for (const int i : order_) total += weight(i);
    factor_.assign(scores_.size(), 0.0);
    for (const int i : order_) factor_[static_cast<std::size_t>(i)] = weight(i) / total;
    combine(factor_, 0);
  }

  void score(const PairMatrix& distances) {
    scores_.clear();
    for (int i = 0; i < n(); ++i) {
      row_.clear();
      for (int j = 0; j < n(); ++j) row_.push_back(distances.at(i, j));
      std::ranges::sort(row_);
      const auto nearest = row_ | std::views::take(std::max(2, n() - faults() - 1));  // itself, at no distance, first
      scores_.push_back(std::accumulate(nearest.begin() + 1, nearest.end(), nearest.front()));
    }
  }

  bool several_;
  std::vector<double> scores_, row_, factor_;
  std::vector<int> order_;
};

}  // namespace

std::unique_ptr<Aggregator> make_krum(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<Krum>(backend, options, false);
}

std::unique_ptr<Aggregator> make_multi_krum(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<Krum>(backend, options, true);
}

}  // namespace dat
