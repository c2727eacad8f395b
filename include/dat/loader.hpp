#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dat/batch.hpp"
#include "dat/by_epoch.hpp"
#include "dat/dataset.hpp"
#include "dat/sampler.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// One rank's samples of one step, on the host: micro-batches of one size, one after the other.
struct HostBatch {
  int count = 0;
  int micro_batches = 1;
  BatchKey key{};                      ///< properties that the micro-batches share
  bool dealt = false;                  ///< each micro-batch is a unit of work of all ranks' (LoaderOptions::dealt)
  int elsewhere = 0;                   ///< samples of other ranks in the step
  int side = 0;                        ///< height = width of the pixels; 0: that of what networks see
  std::vector<std::uint8_t> pixels;    ///< [count, side, side, channels]; empty where they are not read
  std::vector<std::int32_t> labels;    ///< [count]
  std::vector<std::int64_t> ids;       ///< [count] sample numbers: keys of the random start
  std::vector<Crop> crops;             ///< [count]
  std::vector<std::int64_t> everyone;  ///< the ids of all ranks, rank by rank; empty without `everyone` in the options
  std::vector<int> begins;             ///< [ranks + 1] where the ids of a rank begin in `everyone`
  std::vector<int> order;              ///< [count] places in the batch, by the place in the file

  /// Makes room for `most` images of `bytes` each, none of them cut.
  void make_room(std::int64_t most, std::int64_t bytes) {
    const auto n = static_cast<std::size_t>(most);
    pixels.resize(n * static_cast<std::size_t>(bytes));
    labels.resize(n);
    ids.resize(n);
    crops.resize(n);
    order.resize(n);
  }
};

/// Augmentation of training images: the cut; each is mirrored with probability 1/2.
enum class Augment {
  none,     ///< cut from the middle
  crop,     ///< cut at random from the image zero-padded by 4
  resized,  ///< random windows of the image as it is stored, resized (data/images/view.hpp)
};
/// "none", "crop" or "resized".
[[nodiscard]] Augment augment_of(const std::string& word);

struct LoaderOptions {
  int batch = 1, micro_batch = 1;
  /// `batch` is the batch of all ranks, whose micro-batches are dealt to them (dat/dealing.hpp).
  bool dealt = false;
  std::optional<Mix> mix{};  ///< mixture of the dataset; none: one pool
  Augment augment = Augment::crop;
  ByEpoch<int> sizes = 0;          ///< height = width of the cuts; 0: that of the images
  bool pixels = true;              ///< read the pixels; false: the ids say enough
  bool everyone = false;           ///< name the samples of all ranks
  std::int64_t warmup_epochs = 0;  ///< whole ones, which share the shuffle of the first one after them, as in DAT
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;
  int threads = 1;   ///< threads that read images
  int prefetch = 1;  ///< batches that are read ahead
};

/// Pixels of a batch that has its ids, as evaluations see them; on several threads where images are decoded.
void read_images(const Dataset& dataset, HostBatch& batch, int threads);

/// Makes the batch of any rank and step.
class BatchReader {
 public:
  BatchReader(const Dataset& dataset, int ranks, const LoaderOptions& options);
  /// A batch with room for any rank's samples of any step.
  [[nodiscard]] HostBatch batch() const;
  /// Fills a batch that batch() has made. On one thread it allocates nothing.
  void fill(HostBatch& batch, std::int64_t step, int rank) { fill(batch, step, rank, ranks_); }
  /// Fills the batch as rank `rank` of a group that has no fewer ranks than this one would.
  void fill(HostBatch& batch, std::int64_t step, int rank, int ranks);
  /// All of a batch but the pixels, which are added by read(), image by image, the order-th in the order of the file,
  /// or by read_micro_batch(). read() may be called by several threads.
  void choose(HostBatch& batch, std::int64_t step, int rank, int ranks);
  void read(HostBatch& batch, int order) const;
  void read_micro_batch(HostBatch& batch, int index) const;
  [[nodiscard]] bool reads_pixels() const { return options_.pixels; }
  [[nodiscard]] int ranks() const { return ranks_; }
  /// Samples of a rank in a step.
  [[nodiscard]] int most() const { return most_; }
  [[nodiscard]] const Sampler& sampler() const { return sampler_; }

 private:
  void choose_samples(HostBatch& batch, std::int64_t step, int rank, int ranks);
  void read_image(HostBatch& batch, std::size_t k) const;
  /// Threads that read a batch, where images are decoded.
  [[nodiscard]] int threads() const { return dataset_.info().decoded ? options_.threads : 1; }

  const Dataset& dataset_;
  LoaderOptions options_;
  int ranks_;
  Sampler sampler_;
  std::int64_t shuffled_ = -1;
  std::vector<std::int64_t> indices_;
  int most_;  ///< samples of a rank in a step
};

/// Reads the batches of the coming steps ahead, in threads of its own: which samples are in a batch one of them says,
/// its images all of them read. Batches come in their order, equal at any number of threads.
class Loader {
 public:
  Loader(const Dataset& dataset, int ranks, int rank, const LoaderOptions& options);
  ~Loader();

  /// The batch of the next step; valid until the next call. Waits where the batch is not there yet. Throws what the
  /// reading threw.
  const HostBatch& next();
  [[nodiscard]] const Sampler& sampler() const { return reader_.sampler(); }

 private:
  /// A batch that is read.
  struct Place {
    HostBatch batch;
    int handed_out = 0, done = 0, wanted = 0;  ///< images
    std::exception_ptr failure{};              ///< error of the first image that could not be read...
    int failed = 0;                            ///< ...which is in the piece that begins here
  };
  void work();
  void end();
  /// Each does a piece of work without the lock; false: there is none.
  bool read_some(std::unique_lock<std::mutex>& lock);
  bool choose_next(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Place& place(std::int64_t step) { return places_[static_cast<std::size_t>(step) % places_.size()]; }

  int rank_;
  BatchReader reader_;
  int piece_;                  ///< images that a thread takes at once
  std::vector<Place> places_;  ///< the batch that is in use, and those ahead
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t chosen_, consumed_;  ///< steps
  bool choosing_ = false, stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dat
