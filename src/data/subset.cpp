#include <algorithm>
#include <numeric>
#include <utility>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/random.hpp"

namespace dat {

namespace {

/// Some samples of another set, which it owns.
class Subset final : public Dataset {
 public:
  Subset(std::unique_ptr<Dataset> whole, std::vector<std::int64_t> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {}
  [[nodiscard]] const DatasetInfo& info() const override { return whole_->info(); }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  [[nodiscard]] std::int64_t first_file() const override {
    return std::lower_bound(samples_.begin(), samples_.end(), whole_->first_file()) - samples_.begin();
  }
  [[nodiscard]] int label(std::int64_t index) const override { return whole_->label(at(index)); }
  [[nodiscard]] ImageShape shape(std::int64_t index) const override { return whole_->shape(at(index)); }
  void read(std::int64_t index, std::uint8_t* pixels) const override { whole_->read(at(index), pixels); }
  void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const override {
    whole_->see(at(index), view, pixels);
  }

 private:
  [[nodiscard]] std::int64_t at(std::int64_t index) const { return samples_[static_cast<std::size_t>(index)]; }

  std::unique_ptr<Dataset> whole_;
  std::vector<std::int64_t> samples_;  ///< increasing
};

}  // namespace

std::unique_ptr<Dataset> held_out(std::unique_ptr<Dataset> whole, std::int64_t among, std::int64_t count,
                                  std::uint64_t seed, bool kept) {
  require(count < among, ExitCode::usage, "--holdout ", count, " leaves nothing of ", among,
          among < whole->size() ? " labelled" : "", " training images; lower it");
  std::vector<std::pair<std::uint64_t, std::int64_t>> cards;
  for (std::int64_t i = 0; i < among; ++i) {
    const Philox4 words = random_words(seed, Purpose::held_out, 0, static_cast<std::uint64_t>(i), 0);
    cards.emplace_back(std::uint64_t{words.v[0]} << 32 | words.v[1], i);
  }
  std::sort(cards.begin(), cards.end());
  std::vector<std::int64_t> samples;
  for (std::size_t k = 0; k < cards.size(); ++k)
    if ((k < static_cast<std::size_t>(count)) != kept) samples.push_back(cards[k].second);
  std::sort(samples.begin(), samples.end());
  for (std::int64_t i = among; i < whole->size() && kept; ++i) samples.push_back(i);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

std::unique_ptr<Dataset> first_of(std::unique_ptr<Dataset> whole, std::int64_t count) {
  if (count == 0 || count >= whole->size()) return whole;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

std::unique_ptr<Dataset> first_of_first_file(std::unique_ptr<Dataset> whole, std::int64_t count) {
  const std::int64_t all = whole->first_file();
  if (count == 0 || count >= all) return whole;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count + whole->size() - all));
  std::iota(samples.begin(), samples.begin() + count, 0);
  std::iota(samples.begin() + count, samples.end(), all);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

}  // namespace dat
