#pragma once

#include <cstdint>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "dat/parameters.hpp"

namespace dat {

struct ReducerOptions {
  std::int64_t bucket_elements = 8 << 20;  ///< elements of one MPI_Allreduce; a message goes as soon as it is full
  bool overlap = false;                    ///< start a bucket during the backward pass, as soon as it is complete
};

/// Averages the gradients of the active layers over the ranks: packs their segments (last layer first, the order in
/// which the backward pass finishes them) into one message on the device, sums it with MPI_Allreduce in buckets,
/// unpacks the mean. MPI gets pinned host memory, to which the buckets are copied one after the other while the device
/// goes on; or the message itself, where it lies in host memory or MPI takes device memory.
class GradientReducer {
 public:
  GradientReducer(Backend&, Communicator&, Parameters&, const ReducerOptions&);

  /// Lays out the message of this step. Before the step's last backward pass.
  void begin(const ActiveSet& active);
  /// The gradient of segment `index` of `parameters.segments` is complete. Collective in the sense that all ranks
  /// announce the same segments in the same order.
  void ready(int segment);
  /// Waits for everything and leaves the mean over ranks in parameters.gradients. **Collective.**
  void finish();

  [[nodiscard]] std::int64_t elements() const { return elements_; }  ///< of the active layers, of this step
  /// The message of this step; one rank sends nothing.
  [[nodiscard]] std::int64_t bytes_sent() const {
    return world_.size() > 1 ? elements_ * std::int64_t{sizeof(float)} : 0;
  }
  [[nodiscard]] double seconds_waiting() const { return seconds_waiting_; }  ///< inside MPI, of this step

 private:
  struct Bucket {
    std::int64_t begin = 0, size = 0;
    int lowest = 0, highest = 0;  ///< segments
    int missing = 0;              ///< segments not announced yet
    Backend::Ticket ticket = 0;   ///< of the copy to the host
    bool sent = false;            ///< given to MPI
    Request request{};            ///< of a sum that is under way
  };
  void pack(Bucket& bucket);
  void give(Bucket& bucket);

  Backend& backend_;
  Communicator& world_;
  Parameters& parameters_;
  ReducerOptions options_;
  ChunkTable table_;
  bool staged_;                                 ///< MPI gets a copy in host memory
  float *message_ = nullptr, *host_ = nullptr;  ///< [parameters.size], on the device; what MPI gets. One rank: null
  std::vector<std::int64_t> shift_;             ///< [segments] place in the message - place in the gradients
  std::int64_t* device_shift_;
  std::vector<int> bucket_of_;  ///< [segments]
  std::vector<Bucket> buckets_;
  std::int64_t elements_ = 0;
  double seconds_waiting_ = 0;
};

}  // namespace dat
