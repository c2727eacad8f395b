#include "dat/loader.hpp"

#include <algorithm>
#include <numeric>
#include <system_error>

#include "dat/dealing.hpp"
#include "dat/error.hpp"
#include "dat/random.hpp"
#include "data/images/view.hpp"
#include "data/on_threads.hpp"

namespace dat {

Augment augment_of(const std::string& word) {
  if (word == "none") return Augment::none;
  return word == "resized" ? Augment::resized : Augment::crop;
}

BatchReader::BatchReader(const Dataset& dataset, int ranks, const LoaderOptions& options)
    : dataset_(dataset),
      options_(options),
      ranks_(ranks),
      sampler_(options.mix.value_or(Mix(dataset.size())), options.dealt ? 1 : ranks, options.batch, options.micro_batch,
               options.seed),
      indices_(static_cast<std::size_t>(options.batch)) {
  const EpochPlan& plan = sampler_.plan();
  most_ = options.dealt ? (plan.micro_batches + ranks - 1) / ranks * plan.micro_batch() : options.batch;
}

HostBatch BatchReader::batch() const {
  HostBatch batch;
  batch.make_room(most_, options_.pixels ? static_cast<std::int64_t>(dataset_.info().image_bytes()) : 0);
  if (options_.everyone) batch.everyone.resize(static_cast<std::size_t>(options_.dealt ? 1 : ranks_) * indices_.size());
  batch.begins.resize(static_cast<std::size_t>(ranks_) + 1);
  return batch;
}

void BatchReader::fill(HostBatch& batch, std::int64_t step, int rank, int ranks) {
  choose(batch, step, rank, ranks);
  if (options_.pixels) on_threads(threads(), batch.count, [&](int k) { read(batch, k); });
}

void BatchReader::choose(HostBatch& batch, std::int64_t step, int rank, int ranks) {
  const std::int64_t steps = sampler_.plan().steps(), epoch = step / steps;
  const std::int64_t shuffle = epoch < options_.warmup_epochs ? 0 : epoch - options_.warmup_epochs;
  if (shuffle != shuffled_) {
    sampler_.shuffle(static_cast<std::uint32_t>(shuffle));
    shuffled_ = shuffle;
  }
  choose_samples(batch, step % steps, rank, ranks);
  const int whole = dataset_.info().size, cut = options_.sizes.at(epoch), size = cut != 0 ? cut : whole;
  batch.key = {.seed = options_.seed, .epoch = static_cast<std::uint32_t>(epoch), .step = step, .size = size};
  batch.side = options_.augment == Augment::resized ? size : whole;
  for (int i = 0; i < batch.count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const std::int64_t sample = indices_[k];
    batch.labels.at(k) = dataset_.label(sample);  // more than there is room for are an error
    batch.ids[k] = sample;
    const auto middle = static_cast<std::int16_t>((batch.side - size) / 2);
    batch.crops[k] = {middle, middle};
    if (options_.augment == Augment::none) continue;
    const Philox4 words = random_words(options_.seed, Purpose::augmentation, static_cast<std::uint32_t>(epoch),
                                       static_cast<std::uint64_t>(sample), 0);
    batch.crops[k].flip = static_cast<std::int16_t>(words.v[2] & 1U);
    if (options_.augment == Augment::resized) continue;
    constexpr int kPadding = 4;
    const int places = whole + 2 * kPadding - size + 1;  // on either axis
    const auto shift = [&](std::uint32_t word) {
      return static_cast<std::int16_t>(static_cast<int>(word % static_cast<std::uint32_t>(places)) - kPadding);
    };
    batch.crops[k].top = shift(words.v[0]);
    batch.crops[k].left = shift(words.v[1]);
  }
  // A disk that turns, and a file system that fetches more than was asked for, like the order of the file better.
  const auto end = batch.order.begin() + batch.count;
  std::iota(batch.order.begin(), end, 0);
  std::sort(batch.order.begin(), end, [&](int a, int b) {
    return batch.ids[static_cast<std::size_t>(a)] < batch.ids[static_cast<std::size_t>(b)];
  });
}

/// Chooses the rank's samples in a step of the epoch.
void BatchReader::choose_samples(HostBatch& batch, std::int64_t step, int rank, int ranks) {
  const int count = sampler_.batch(step, options_.dealt ? 0 : rank, indices_.data());
  const int all = sampler_.plan().micro_batches;
  batch.begins.resize(static_cast<std::size_t>(ranks) + 1);
  for (int one = 1; one <= ranks; ++one)
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
  if (options_.everyone)
    for (int one = 0; one < ranks; ++one)
      (void)sampler_.batch(step, one, batch.everyone.data() + std::ptrdiff_t{one} * count);
}

void BatchReader::read_image(HostBatch& batch, std::size_t k) const {
  const std::int64_t sample = batch.ids[k];
  const auto side = static_cast<std::size_t>(batch.side);
  std::uint8_t* const to = batch.pixels.data() + k * side * side * static_cast<std::size_t>(dataset_.info().channels);
  if (options_.augment != Augment::resized) return dataset_.read(sample, to);
  const auto epoch = static_cast<std::uint32_t>(batch.key.epoch);
  dataset_.see(sample, random_view(dataset_.shape(sample), batch.side, options_.seed, epoch, sample), to);
}

void BatchReader::read(HostBatch& batch, int order) const {
  read_image(batch, static_cast<std::size_t>(batch.order[static_cast<std::size_t>(order)]));
}

void BatchReader::read_micro_batch(HostBatch& batch, int index) const {
  const int count = batch.count / batch.micro_batches;
  on_threads(threads(), count, [&](int k) { read_image(batch, static_cast<std::size_t>(index * count + k)); });
}

void read_images(const Dataset& dataset, HostBatch& batch, int threads) {
  const std::size_t bytes = dataset.info().image_bytes();
  on_threads(dataset.info().decoded ? threads : 1, batch.count, [&](int image) {
    const auto k = static_cast<std::size_t>(image);
    dataset.read(batch.ids[k], batch.pixels.data() + k * bytes);
  });
}

/// Images that a thread takes at a time.
static int piece_of(int most, int threads) { return std::max(1, most / (4 * threads)); }

Loader::Loader(const Dataset& dataset, int ranks, int rank, const LoaderOptions& options)
    : rank_(rank),
      reader_(dataset, ranks, options),
      piece_(piece_of(reader_.most(), options.threads)),
      chosen_(options.first_step),
      consumed_(options.first_step) {
  for (int k = 0; k <= options.prefetch; ++k) places_.push_back({.batch = reader_.batch()});
  try {
    for (int k = 0; k < options.threads; ++k) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    end();
    fail(ExitCode::device, "cannot start ", options.threads,
         " threads that read images (--data-threads): ", error.what());
  }
}

Loader::~Loader() { end(); }

void Loader::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& one : threads_) one.join();
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  while (!stop_)
    if (!read_some(lock) && !choose_next(lock)) changed_.wait(lock);
}

bool Loader::read_some(std::unique_lock<std::mutex>& lock) {
  for (std::int64_t step = consumed_; step < chosen_; ++step) {
    Place& here = place(step);
    if (here.handed_out == here.wanted) continue;
    const int first = here.handed_out, end = std::min(first + piece_, here.wanted);
    here.handed_out = end;
    lock.unlock();
    std::exception_ptr failure;
    try {
      for (int order = first; order < end; ++order) reader_.read(here.batch, order);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && (!here.failure || first < here.failed)) {
      here.failure = failure;
      here.failed = first;
    }
    here.done += end - first;
    if (here.done == here.wanted) changed_.notify_all();
    return true;
  }
  return false;
}

bool Loader::choose_next(std::unique_lock<std::mutex>& lock) {
  // The batch handed out last is still in use: its place is free when the next one is.
  if (choosing_ || chosen_ - consumed_ >= std::ssize(places_) - 1) return false;
  choosing_ = true;
  Place& next = place(chosen_);
  lock.unlock();
  next.failure = nullptr;
  try {
    reader_.choose(next.batch, chosen_, rank_, reader_.ranks());
  } catch (...) {
    next.failure = std::current_exception();
  }
  lock.lock();
  next.handed_out = next.done = 0;
  next.wanted = reader_.reads_pixels() && !next.failure ? next.batch.count : 0;
  ++chosen_;
  choosing_ = false;
  changed_.notify_all();
  return true;
}

const HostBatch& Loader::next() {
  std::unique_lock lock(mutex_);
  Place& here = place(consumed_);
  changed_.wait(lock, [&] { return chosen_ > consumed_ && here.done == here.wanted; });
  if (here.failure) std::rethrow_exception(here.failure);
  ++consumed_;
  lock.unlock();
  changed_.notify_all();
  return here.batch;
}

}  // namespace dat
