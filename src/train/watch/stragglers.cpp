#include "train/watch/stragglers.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "train/plan/clock.hpp"

namespace dat {

StragglerRule::StragglerRule(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
  others_.reserve(ranks_.size());
  changes_.reserve(ranks_.size());
}

std::span<const StragglerRule::Change> StragglerRule::take(std::span<const double> seconds) {
  changes_.clear();
  const std::size_t place = static_cast<std::size_t>(windows_++) % kWindows;
  for (std::size_t k = 0; k < ranks_.size(); ++k) {
    others_.assign(seconds.begin(), seconds.end());
    std::swap(others_[k], others_.back());  // behind the others; a rank without any is measured against itself
    // The upper middle one of an even number: a rank that is as fast as half of the others is not slow.
    const auto end = others_.end() - 1, middle = others_.begin() + (end - others_.begin()) / 2;
    std::nth_element(others_.begin(), middle, end);
    Rank& rank = ranks_[k];
    rank.ratios[place] = seconds[k] - *middle > kLeastSeconds ? seconds[k] / std::max(*middle, 1e-9) : 1.0;
    const auto [least, most] = std::ranges::minmax_element(rank.ratios);
    const double mean = std::accumulate(rank.ratios.begin(), rank.ratios.end(), 0.0) / kWindows;
    const bool slow = rank.slow ? *most >= kEach : *least >= kEach && mean >= kMean;
    if (slow != rank.slow) changes_.push_back({static_cast<int>(k), slow, mean});
    rank.slow = slow;
  }
  return changes_;
}

Stragglers::Stragglers(Communicator& ranks)
    : ranks_(ranks), rule_(ranks.size()), all_(static_cast<std::size_t>(ranks.size())) {}

void Stragglers::begin() {
  began_ = seconds_now();
  waited_ = Communicator::seconds_waited();
}

void Stragglers::end() {
  window_.mine += seconds_now() - began_ - (Communicator::seconds_waited() - waited_);
  ++window_.steps;
}

std::span<const StragglerRule::Change> Stragglers::compare() {
  if (window_.steps < StragglerRule::kWindow) return {};
  const CallLabel label("times of the ranks");
  const double mine = window_.mine / window_.steps;
  ranks_.all_gather(&mine, all_.data(), sizeof mine);
  window_ = {};
  return rule_.take(all_);
}

}  // namespace dat
