#include <algorithm>
#include <vector>

#include "dat/cheat.hpp"

namespace dat {

namespace {

/// The gradient that it had some steps ago. Where it has none from then, it is honest: in the first steps, for a layer
/// that was not drawn then, and for as many steps after a restart.
class Delayed final : public Cheat {
 public:
  Delayed(const CheatOptions& options, int delay)
      : delay_(delay), parameters_(options.parameters), kept_(static_cast<std::size_t>(delay) + 1) {}

  [[nodiscard]] Sees sees() const override { return Sees::own; }
  [[nodiscard]] int looks_back() const override { return delay_; }
  [[nodiscard]] std::int64_t memory() const override {
    return std::ssize(kept_) * parameters_ * std::int64_t{sizeof(float)};
  }

  void look(const CheatStep& now) override {
    Kept& kept = of(now.step);
    kept.step = now.step;
    kept.tensors.assign(now.tensors.begin(), now.tensors.end());
    kept.gradient.resize(static_cast<std::size_t>(parameters_));
    for (const Segment* tensor : now.tensors)
      std::copy_n(now.own + tensor->begin, tensor->size, kept.gradient.data() + tensor->begin);
  }

  void gradient(const CheatStep& now) override {
    const Kept& then = of(now.step - delay_);
    if (then.step != now.step - delay_) return;
    for (const Segment* tensor : now.tensors)
      if (std::ranges::find(then.tensors, tensor) != then.tensors.end())
        std::copy_n(then.gradient.data() + tensor->begin, tensor->size, now.own + tensor->begin);
  }

 private:
  struct Kept {
    std::int64_t step = -1;
    std::vector<const Segment*> tensors;
    std::vector<float> gradient;  ///< [parameters], from its first use on
  };
  [[nodiscard]] Kept& of(std::int64_t step) { return kept_[static_cast<std::size_t>(step) % kept_.size()]; }

  int delay_;
  std::int64_t parameters_;
  std::vector<Kept> kept_;  ///< gradients of the last steps
};

}  // namespace

std::unique_ptr<Cheat> make_delayed(const CheatOptions& options) {
  return std::make_unique<Delayed>(options, options.delay);
}
/// A free rider, which has done no work, sends what it has sent before.
std::unique_ptr<Cheat> make_free_rider(const CheatOptions& options) { return std::make_unique<Delayed>(options, 1); }

}  // namespace dat
