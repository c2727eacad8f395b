#include <algorithm>
#include <numeric>
#include <ranges>

#include "gradients.hpp"
#include "reduce/aggregator/robust.hpp"

namespace dat {

namespace {

/// The mean of all ranks, or what weights make of it. Looks at no number: what is not finite stays so.
class Mean final : public Aggregator {
 public:
  Mean(Backend& backend, const AggregatorOptions& options) : backend_(backend), ranks_(options.ranks) {}

  [[nodiscard]] bool is_mean() const override { return true; }
  [[nodiscard]] bool keeps_one() const override { return true; }
  [[nodiscard]] bool by_parts() const override { return true; }

  void aggregate(const Contributions& all) override {
    const auto differs = [&](double weight) { return weight != all.weights.front(); };
    if (std::ranges::any_of(all.weights, differs)) return weigh(all);
    each(backend_.device(), all.chunks,
         kernels::MeanOfRanks{all.gradients, all.stride, ranks_, 1.0F / static_cast<float>(ranks_), all.result});
  }

 private:
  /// kMostRanks ranks at a time.
  void weigh(const Contributions& all) {
    const double total = std::accumulate(all.weights.begin(), all.weights.end(), 0.0);
    for (int first = 0; first < ranks_; first += kMostRanks) {
      kernels::CountedRanks ranks{all.gradients + first * all.stride, all.stride, 0, {}};
      std::array<double, kMostRanks> factor{};
      for (const double weight : all.weights | std::views::drop(first) | std::views::take(kMostRanks)) {
        ranks.rank[ranks.count] = static_cast<std::uint8_t>(ranks.count);
        factor[static_cast<std::size_t>(ranks.count++)] = weight / total;
      }
      sum_weighted(backend_, all, ranks, factor, first != 0 ? 1 : 0, 0);
    }
  }

  Backend& backend_;
  int ranks_;
};

}  // namespace

std::unique_ptr<Aggregator> make_mean(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<Mean>(backend, options);
}

}  // namespace dat
