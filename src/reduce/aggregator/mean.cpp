#include "dat/aggregator.hpp"
#include "dat/backend.hpp"
#include "gradients.hpp"

namespace dat {

namespace {

class Mean final : public Aggregator {
 public:
  Mean(Backend& backend, const AggregatorOptions& options) : backend_(backend), ranks_(options.ranks) {}

  [[nodiscard]] bool is_mean() const override { return true; }
  [[nodiscard]] bool keeps_one() const override { return true; }

  void aggregate(const Contributions& all) override {
    each(backend_.device(), all.chunks,
         kernels::MeanOfRanks{all.gradients, all.stride, ranks_, 1.0F / static_cast<float>(ranks_), all.result});
  }

 private:
  Backend& backend_;
  int ranks_;
};

}  // namespace

std::unique_ptr<Aggregator> make_mean(Backend& backend, const Parameters&, const AggregatorOptions& options) {
  return std::make_unique<Mean>(backend, options);
}

}  // namespace dat
