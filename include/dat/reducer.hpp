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
/// which the backward pass finishes them) into one buffer, sums it with MPI_Allreduce in buckets, unpacks the mean.
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

  [[nodiscard]] std::int64_t bytes_sent() const { return elements_ * std::int64_t{sizeof(float)}; }  ///< of this step
  [[nodiscard]] double seconds_waiting() const { return seconds_waiting_; }  ///< inside MPI, of this step

 private:
  struct Bucket {
    std::int64_t begin = 0, size = 0;
    int missing = 0;  ///< segments not announced yet
  };

  Backend& backend_;
  Communicator& world_;
  Parameters& parameters_;
  ReducerOptions options_;
  std::vector<float> message_;       ///< [parameters.size], host memory
  std::vector<std::int64_t> place_;  ///< [segments] offset in the message, -1: not sent
  std::vector<int> bucket_of_;       ///< [segments]
  std::vector<Bucket> buckets_;
  std::int64_t elements_ = 0;
  double seconds_waiting_ = 0;
};

}  // namespace dat
