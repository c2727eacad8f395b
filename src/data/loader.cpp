#include "dat/loader.hpp"

#include <algorithm>
#include <numeric>

#include "dat/dealing.hpp"
#include "dat/random.hpp"

namespace dat {

BatchReader::BatchReader(const Dataset& dataset, int ranks, const LoaderOptions& options)
    : dataset_(dataset),
      options_(options),
      ranks_(ranks),
      sampler_(options.mix.value_or(Mix(dataset.size())), options.dealt ? 1 : ranks, 0, options.batch,
               options.micro_batch, options.seed),
      indices_(static_cast<std::size_t>(options.batch)) {
  const EpochPlan& plan = sampler_.plan();
  const int most = options.dealt ? (plan.micro_batches + ranks - 1) / ranks * plan.micro_batch() : options.batch;
  order_.resize(static_cast<std::size_t>(most));
}

HostBatch BatchReader::batch() const {
  HostBatch batch;
  batch.make_room(std::ssize(order_), options_.pixels ? static_cast<std::int64_t>(dataset_.info().image_bytes()) : 0);
  if (options_.everyone) batch.everyone.resize(static_cast<std::size_t>(options_.dealt ? 1 : ranks_) * indices_.size());
  batch.begins.resize(static_cast<std::size_t>(ranks_) + 1);
  return batch;
}

Loader::Loader(const Dataset& dataset, int ranks, int rank, const LoaderOptions& options)
    : rank_(rank),
      reader_(dataset, ranks, options),
      batches_{reader_.batch(), reader_.batch()},
      produced_(options.first_step),
      consumed_(options.first_step) {
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchReader::fill(HostBatch& batch, std::int64_t step, int rank, int ranks) {
  const std::int64_t steps = sampler_.plan().steps(), epoch = step / steps;
  const std::int64_t shuffle = epoch < options_.warmup_epochs ? 0 : epoch - options_.warmup_epochs;
  if (shuffle != shuffled_) {
    sampler_.shuffle(static_cast<std::uint32_t>(shuffle));
    shuffled_ = shuffle;
  }
  choose(batch, step % steps, rank, ranks);
  if (options_.pixels) read(batch);
  const int whole = dataset_.info().size, cut = options_.sizes.at(epoch), size = cut > 0 ? cut : whole;
  batch.key = {.seed = options_.seed, .epoch = static_cast<std::uint32_t>(epoch), .step = step, .size = size};
  for (int i = 0; i < batch.count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const std::int64_t sample = indices_[k];
    batch.labels[k] = dataset_.label(sample);
    batch.ids[k] = sample;
    const auto middle = static_cast<std::int16_t>((whole - size) / 2);
    batch.crops[k] = {middle, middle};
    if (!options_.augment) continue;
    constexpr int kPadding = 4;
    const int places = whole + 2 * kPadding - size + 1;  // on either axis
    const Philox4 words = random_words(options_.seed, Purpose::augmentation, static_cast<std::uint32_t>(epoch),
                                       static_cast<std::uint64_t>(sample), 0);
    const auto shift = [&](std::uint32_t word) {
      return static_cast<std::int16_t>(static_cast<int>(word % static_cast<std::uint32_t>(places)) - kPadding);
    };
    batch.crops[k] = {shift(words.v[0]), shift(words.v[1]), static_cast<std::int16_t>(words.v[2] & 1U)};
  }
}

/// Which samples the rank has in a step of the epoch.
void BatchReader::choose(HostBatch& batch, std::int64_t step, int rank, int ranks) {
  const int count = sampler_.batch(step, options_.dealt ? 0 : rank, indices_.data());
  const int all = sampler_.plan().micro_batches;
  batch.begins.resize(static_cast<std::size_t>(ranks) + 1);
  for (int one = 0; one <= ranks; ++one)
    batch.begins[static_cast<std::size_t>(one)] =
        options_.dealt ? count / all * first_micro_batch(all, ranks, one) : count * one;
  batch.dealt = options_.dealt;
  batch.micro_batches =
      options_.dealt ? first_micro_batch(all, ranks, rank + 1) - first_micro_batch(all, ranks, rank) : all;
  const int begin = batch.begins[static_cast<std::size_t>(rank)];
  batch.count = batch.begins[static_cast<std::size_t>(rank) + 1] - begin;
  batch.elsewhere = batch.begins.back() - batch.count;
  if (options_.dealt) {
    if (options_.everyone) std::copy_n(indices_.begin(), count, batch.everyone.begin());
    std::copy_n(indices_.begin() + begin, batch.count, indices_.begin());
    return;
  }
  for (int one = 0; options_.everyone && one < ranks; ++one)
    (void)sampler_.batch(step, one, batch.everyone.data() + std::ptrdiff_t{one} * count);
}

// In the order of the file: a disk that turns, and a file system that fetches more than was asked for, like it better.
void BatchReader::read(HostBatch& batch) {
  const std::size_t bytes = dataset_.info().image_bytes();
  const auto end = order_.begin() + batch.count;
  std::iota(order_.begin(), end, 0);
  std::sort(order_.begin(), end, [this](int a, int b) {
    return indices_[static_cast<std::size_t>(a)] < indices_[static_cast<std::size_t>(b)];
  });
  for (auto at = order_.begin(); at != end; ++at) {
    const auto k = static_cast<std::size_t>(*at);
    dataset_.read(indices_[k], batch.pixels.data() + k * bytes);
  }
}

void Loader::work() {
  for (;;) {
    std::int64_t step = 0;
    {
      std::unique_lock lock(mutex_);
      // The batch handed out last is still in use: one further ahead, no more.
      changed_.wait(lock, [this] { return stop_ || produced_ < consumed_ + 1; });
      if (stop_) return;
      step = produced_;
    }
    try {
      reader_.fill(batches_[step % 2], step, rank_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      ++produced_;
      if (failure_) stop_ = true;
    }
    changed_.notify_all();
  }
}

const HostBatch& Loader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return produced_ > consumed_; });
  if (failure_) std::rethrow_exception(failure_);
  const HostBatch& batch = batches_[consumed_ % 2];
  ++consumed_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

}  // namespace dat
