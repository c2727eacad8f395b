#include "dat/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "dat/error.hpp"
#include "dat/number.hpp"
#include "dat/random.hpp"

namespace dat {

Mix::Mix(std::int64_t labelled_samples, std::int64_t extra_samples, double share, int micro_batch)
    : labelled(labelled_samples), extra(extra_samples) {
  require(labelled > 0 && extra > 0, ExitCode::usage, "--mix balanced has ", labelled, " labelled and ", extra,
          " extra images; give --data the labelled file and at least one more");
  const auto whole = static_cast<int>(std::lround(share * micro_batch));
  const double off = std::abs(share * micro_batch - whole);
  require(whole > 0 && whole < micro_batch && off < 1e-6 * micro_batch, ExitCode::usage, "a micro-batch of ",
          micro_batch, " images cannot hold the share ", share, " of --mix: that are ", share * micro_batch,
          " images; choose another batch, or a share such as ", std::clamp(whole, 1, std::max(1, micro_batch - 1)), "/",
          micro_batch);
  const int common = std::gcd(whole, micro_batch);
  group = micro_batch / common;
  labelled_of_group = whole / common;
}

double read_mix(const std::string& word) {
  constexpr std::string_view kBalanced = "balanced:";
  if (word == "pool") return 1;
  double share{};
  const bool read =
      word.starts_with(kBalanced) && read_fraction(word.substr(kBalanced.size()), share) && share > 0 && share < 1;
  require(read, ExitCode::usage,
          "--mix is pool or balanced:SHARE, with a share of labelled images above 0 and below 1 ",
          "such as balanced:0.5, not '", word, "'");
  return share;
}

EpochPlan::EpochPlan(const Mix& mix, int ranks, int batch_size, int micro_batch)
    : micro_batches(micro_batch > 0 ? batch_size / micro_batch : 1) {
  const std::int64_t groups = (mix.labelled + mix.labelled_of_group - 1) / mix.labelled_of_group;
  const std::int64_t share = (groups + ranks - 1) / ranks;
  micro_batches = static_cast<int>(std::min<std::int64_t>(micro_batches, share));
  const std::int64_t hands = std::int64_t{ranks} * micro_batches;
  per_rank = (groups + hands - 1) / hands * micro_batches * mix.group;
  batch = static_cast<int>(std::min<std::int64_t>(batch_size, per_rank));
}

Sampler::Sampler(const Mix& mix, int ranks, int batch, int micro_batch, std::uint64_t seed)
    : mix_(mix),
      plan_(mix, ranks, batch, micro_batch),
      ranks_(ranks),
      seed_(seed),
      extra_entries_(plan_.per_rank / mix.group * ranks * (mix.group - mix.labelled_of_group)),
      deck_(static_cast<std::size_t>(mix.labelled)),
      extra_(static_cast<std::size_t>(mix.extra)) {}

void Sampler::draw(std::vector<Card>& deck, std::int64_t first, std::uint32_t number) const {
  for (std::int64_t i = 0; i < std::ssize(deck); ++i) {
    const Philox4 words = random_words(seed_, Purpose::shuffle, number, static_cast<std::uint64_t>(first + i), 0);
    deck[static_cast<std::size_t>(i)] = {std::uint64_t{words.v[0]} << 32 | words.v[1], first + i};
  }
  std::ranges::sort(deck);
}

void Sampler::shuffle(std::uint32_t number) {
  draw(deck_, 0, number);
  if (mix_.extra == 0) return;
  const std::int64_t epochs = std::max<std::int64_t>(1, mix_.extra / extra_entries_);  // epochs of one permutation
  extra_first_ = number % epochs * extra_entries_;
  if (extra_number_ == number / epochs) return;  // the extra set may be many times what an epoch takes
  extra_number_ = number / epochs;
  draw(extra_, mix_.labelled, static_cast<std::uint32_t>(extra_number_));
}

int Sampler::batch(std::int64_t step, int rank, std::int64_t* indices) const {
  const std::int64_t first = step * (plan_.batch / mix_.group);
  const int count = static_cast<int>(std::min<std::int64_t>(plan_.batch, plan_.per_rank - step * plan_.batch));
  const int size = count / plan_.micro_batches / mix_.group;
  const int labelled = mix_.labelled_of_group, extra = mix_.group - labelled;
  std::int64_t* next = indices;
  for (int m = 0; m < plan_.micro_batches; ++m)
    for (int i = 0; i < size; ++i) {
      const std::int64_t entry = (first + std::int64_t{i} * plan_.micro_batches + m) * ranks_ + rank;
      for (int k = 0; k < labelled; ++k)
        *next++ = deck_[static_cast<std::size_t>((entry * labelled + k) % mix_.labelled)].sample;
      for (int k = 0; k < extra; ++k)
        *next++ = extra_[static_cast<std::size_t>((extra_first_ + entry * extra + k) % mix_.extra)].sample;
    }
  return count;
}

}  // namespace dat
