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

  void aggregate(const Chunks& chunks, const float* gradients, std::int64_t stride, float* result) override {
    each(backend_.device(), chunks,
         kernels::MeanOfRanks{gradients, stride, ranks_, 1.0F / static_cast<float>(ranks_), result});
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
