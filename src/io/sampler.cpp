#include "dat/sampler.hpp"

#include <algorithm>

#include "dat/random.hpp"

namespace dat {

EpochPlan::EpochPlan(std::int64_t samples, int ranks, int batch_size, int micro_batch)
    : micro_batches(micro_batch > 0 ? batch_size / micro_batch : 1) {
  const std::int64_t share = (samples + ranks - 1) / ranks;
  micro_batches = static_cast<int>(std::min<std::int64_t>(micro_batches, share));
  const std::int64_t hands = std::int64_t{ranks} * micro_batches;
  per_rank = (samples + hands - 1) / hands * micro_batches;
  batch = static_cast<int>(std::min<std::int64_t>(batch_size, per_rank));
}

Sampler::Sampler(std::int64_t samples, int ranks, int rank, int batch, int micro_batch, std::uint64_t seed)
    : plan_(samples, ranks, batch, micro_batch),
      samples_(samples),
      ranks_(ranks),
      rank_(rank),
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
  const std::int64_t first = step * plan_.batch;
  const int count = static_cast<int>(std::min<std::int64_t>(plan_.batch, plan_.per_rank - first));
  const int size = count / plan_.micro_batches;
  for (int m = 0; m < plan_.micro_batches; ++m)
    for (int i = 0; i < size; ++i) {
      const std::int64_t entry = (first + std::int64_t{i} * plan_.micro_batches + m) * ranks_ + rank;
      indices[m * size + i] = deck_[static_cast<std::size_t>(entry % samples_)].sample;
    }
  return count;
}

}  // namespace dat
