#include "dat/sampler.hpp"

#include <algorithm>

#include "dat/random.hpp"

namespace dat {

Sampler::Sampler(std::int64_t samples, int ranks, int rank, int batch, int micro_batch, std::uint64_t seed)
    : samples_(samples),
      per_rank_((samples + ranks - 1) / ranks),
      ranks_(ranks),
      rank_(rank),
      batch_(batch),
      micro_batch_(micro_batch),
      seed_(seed),
      deck_(static_cast<std::size_t>(samples)) {}

void Sampler::shuffle(std::uint32_t number) {
  for (std::int64_t i = 0; i < samples_; ++i) {
    const Philox4 words = random_words(seed_, Purpose::shuffle, number, static_cast<std::uint64_t>(i), 0);
    deck_[static_cast<std::size_t>(i)] = {std::uint64_t{words.v[0]} << 32 | words.v[1], i};
  }
  std::sort(deck_.begin(), deck_.end(),
            [](const Card& a, const Card& b) { return a.key != b.key ? a.key < b.key : a.sample < b.sample; });
}

int Sampler::batch(std::int64_t step, int rank, std::int64_t* indices) const {
  const std::int64_t first = step * batch_;
  const int count = static_cast<int>(std::min<std::int64_t>(batch_, per_rank_ - first));
  const int micro_batches = count == batch_ ? batch_ / micro_batch_ : 1;
  const int size = count / micro_batches;
  for (int m = 0; m < micro_batches; ++m)
    for (int i = 0; i < size; ++i) {
      const std::int64_t entry = (first + std::int64_t{i} * micro_batches + m) * ranks_ + rank;
      indices[m * size + i] = deck_[static_cast<std::size_t>(entry % samples_)].sample;
    }
  return count;
}

}  // namespace dat
