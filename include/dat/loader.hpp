#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "dat/batch.hpp"
#include "dat/by_epoch.hpp"
#include "dat/dataset.hpp"
#include "dat/sampler.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// One rank's samples of one step, on the host: micro-batches of one size, one behind the other.
struct HostBatch {
  int count = 0;
  int micro_batches = 1;
  BatchKey key{};                      ///< what the micro-batches have in common
  bool dealt = false;                  ///< each micro-batch is a unit of work of all ranks' (LoaderOptions::dealt)
  int elsewhere = 0;                   ///< samples of other ranks in the step
  std::vector<std::uint8_t> pixels;    ///< [count, size, size, channels]; empty where they are not read
  std::vector<std::int32_t> labels;    ///< [count]
  std::vector<std::int64_t> ids;       ///< [count] sample numbers: keys of the random start
  std::vector<Crop> crops;             ///< [count]
  std::vector<std::int64_t> everyone;  ///< the ids of all ranks, rank by rank; empty without `everyone` in the options
  std::vector<int> begins;             ///< [ranks + 1] where the ids of a rank begin in `everyone`

  /// Makes room for `most` images of `bytes` each, none of them cut.
  void make_room(std::int64_t most, std::int64_t bytes) {
    const auto n = static_cast<std::size_t>(most);
    pixels.resize(n * static_cast<std::size_t>(bytes));
    labels.resize(n);
    ids.resize(n);
    crops.resize(n);
  }
};

struct LoaderOptions {
  int batch = 1, micro_batch = 1;
  /// `batch` is the batch of all ranks, whose micro-batches are dealt to them (dat/dealing.hpp).
  bool dealt = false;
  std::optional<Mix> mix{};  ///< how the dataset is mixed; none: one pool
  /// Random cut from the image zero-padded by 4, mirrored with probability 1/2; else a smaller cut is of the middle.
  bool augment = true;
  ByEpoch<int> sizes = 0;          ///< height = width of the cuts; 0: that of the images
  bool pixels = true;              ///< read the pixels; false: the ids say enough
  bool everyone = false;           ///< name the samples of all ranks
  std::int64_t warmup_epochs = 0;  ///< whole ones, which share the shuffle of the first one after them, as in DAT
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;
};

/// Makes the batch of any rank and step.
class BatchReader {
 public:
  BatchReader(const Dataset& dataset, int ranks, const LoaderOptions& options);
  /// A batch with room for any rank's samples of any step.
  [[nodiscard]] HostBatch batch() const;
  /// Fills a batch that batch() has made. Allocates nothing.
  void fill(HostBatch& batch, std::int64_t step, int rank) { fill(batch, step, rank, ranks_); }
  /// The same, of a rank of a group that has no fewer ranks than this one.
  void fill(HostBatch& batch, std::int64_t step, int rank, int ranks);
  [[nodiscard]] const Sampler& sampler() const { return sampler_; }

 private:
  void choose(HostBatch& batch, std::int64_t step, int rank, int ranks);
  void read(HostBatch& batch);

  const Dataset& dataset_;
  LoaderOptions options_;
  int ranks_;
  Sampler sampler_;
  std::int64_t shuffled_ = -1;
  std::vector<std::int64_t> indices_;
  std::vector<int> order_;  ///< [batch] places in the batch, by the place in the file
};

/// Reads the batches of the coming steps in a thread of its own, one ahead.
class Loader {
 public:
  Loader(const Dataset& dataset, int ranks, int rank, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The batch of the next step; valid until the next call. Waits where the batch is not there yet. Throws what the
  /// reading threw.
  const HostBatch& next();
  [[nodiscard]] const Sampler& sampler() const { return reader_.sampler(); }

 private:
  void work();

  int rank_;
  BatchReader reader_;
  HostBatch batches_[2];
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t produced_, consumed_;  ///< steps
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dat
