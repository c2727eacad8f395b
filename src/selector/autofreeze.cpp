#include <algorithm>
#include <cassert>
#include <cmath>

#include "dat/selector.hpp"

namespace dat {

namespace {

/// Freezing by the change of gradient norms: the test of AutoFreeze (Liu, Agarwal, Venkataraman, 2021,
/// arXiv:2102.01386). The run has ten intervals. At the end of each but the first, every layer that still takes part
/// has the change rho_l = |D_l before - D_l| / D_l before of its norm. The first of them whose rho_l reaches the
/// percentile of them all becomes the first layer that is trained, and those below it rest for good. So the last layer
/// never rests, and at the median at most half of them do at a time.
///
/// D_l is here the mean norm of the layer's gradient over the steps of the interval from which selectors learn. The
/// published D_l is the L1 norm of the sum of the gradients, for which a second array of gradients would be needed.
class AutofreezeSelector final : public LayerSelector {
 public:
  explicit AutofreezeSelector(const SelectorOptions& options)
      : steps_(options.steps), percentile_(options.freeze_percentile) {
    assert(options.steps > 0);
    const auto layers = static_cast<std::size_t>(options.layers);
    p_.assign(layers, 1.0);
    sums_.assign(layers, 0.0);
    before_.assign(layers, kUnknown);
    changes_.resize(layers);
    sorted_.reserve(layers);
  }

  void begin(std::int64_t step) override {
    const std::int64_t interval = step * kIntervals / steps_;
    if (interval == interval_) return;
    interval_ = interval;
    if (learned_ > 0) close();
  }

  void learn(const ActiveSet& active, const std::vector<double>& norms) override {
    ++learned_;
    for (std::size_t l = 0; l < p_.size(); ++l)
      if (active.scale[l] != 0.0F && std::isfinite(norms[l])) sums_[l] += norms[l];
  }

  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }

  [[nodiscard]] std::vector<double> state() const override {
    std::vector<double> all = sums_;
    all.insert(all.end(), before_.begin(), before_.end());
    for (const std::int64_t number : {interval_, learned_, static_cast<std::int64_t>(first_)})
      all.push_back(static_cast<double>(number));
    return all;
  }

  void restore(const std::vector<double>& state) override {
    const std::size_t layers = p_.size();
    require_fitting(state);
    std::copy_n(state.begin(), layers, sums_.begin());
    std::copy_n(state.begin() + static_cast<std::ptrdiff_t>(layers), layers, before_.begin());
    interval_ = static_cast<std::int64_t>(state[2 * layers]);
    learned_ = static_cast<std::int64_t>(state[2 * layers + 1]);
    freeze_below(static_cast<std::size_t>(state[2 * layers + 2]));
  }

 private:
  static constexpr std::int64_t kIntervals = 10;
  static constexpr double kUnknown = -1;

  /// Ends an interval: compares it with the one before.
  void close() {
    const bool known = before_.back() != kUnknown;
    for (std::size_t l = first_; l < p_.size(); ++l) {
      const double now = sums_[l] / static_cast<double>(learned_);
      changes_[l] = now == before_[l] ? 0 : std::fabs(before_[l] - now) / before_[l];  // from zero: infinite
      before_[l] = now;
    }
    std::ranges::fill(sums_, 0.0);
    learned_ = 0;
    if (!known) return;
    // Percentile of numpy.percentile: linear between the two neighbours.
    sorted_.assign(changes_.begin() + static_cast<std::ptrdiff_t>(first_), changes_.end());
    std::ranges::sort(sorted_);
    const double place = percentile_ / 100 * static_cast<double>(sorted_.size() - 1);
    const auto lower = static_cast<std::size_t>(place);
    const double part = place - static_cast<double>(lower);
    const double threshold = part > 0 ? sorted_[lower] + part * (sorted_[lower + 1] - sorted_[lower]) : sorted_[lower];
    std::size_t first = first_;
    while (first + 1 < p_.size() && !(changes_[first] >= threshold)) ++first;
    freeze_below(first);
  }

  void freeze_below(std::size_t first) {
    first_ = first;
    for (std::size_t l = 0; l < p_.size(); ++l) p_[l] = l < first ? 0.0 : 1.0;
  }

  std::int64_t steps_;
  double percentile_;
  std::int64_t interval_ = 0, learned_ = 0;
  std::size_t first_ = 0;              ///< first of the layers that take part
  std::vector<double> sums_, before_;  ///< [layers] of the norms in this interval; means of the last one
  std::vector<double> p_, changes_, sorted_;
};

}  // namespace

std::unique_ptr<LayerSelector> make_autofreeze_selector(const SelectorOptions& options) {
  return std::make_unique<AutofreezeSelector>(options);
}

}  // namespace dat
