#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "communicate/hang/beside.hpp"
#include "communicate/nccl/library.hpp"
#include "dat/communicator.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// Ranks with a GPU each that add up device memory by NCCL. Where a sum fails or a rank is gone, its kernels would wait
/// for ever: the hang watch asks for errors, and ends them before it ends the process.
class NcclGroup final : public Beside {
 public:
  /// Null: NCCL cannot be used, as `why` says, alike on all ranks. gpu: the name of this rank's GPU
  /// (Backend::device_id); empty: it has none. **Collective.**
  [[nodiscard]] static std::unique_ptr<NcclGroup> join(Communicator& ranks, const std::string& gpu, std::string& why);
  ~NcclGroup() override;

  /// Queues the sum over all ranks of `count` numbers of this type on the device, in place, on a stream of the device.
  /// **Collective.** Error(communication).
  void sum(void* data, std::int64_t count, DType type, void* stream);
  /// Error(communication): a sum that was queued has failed.
  void check();

  /// false: it has been aborted, and what was queued has come to no result.
  [[nodiscard]] bool alive();

  [[nodiscard]] std::string failure() override;
  void abort() override;

 private:
  NcclGroup(const nccl::Library& library, nccl::Communication* communication)
      : library_(library), communication_(communication) {}
  [[nodiscard]] std::string text_of(const char* call, nccl::Result result);
  /// Error of a sum; empty: none. Under the lock.
  [[nodiscard]] std::string error();
  /// Error(communication): this; empty: nothing.
  void end(const std::string& why);

  const nccl::Library& library_;
  std::mutex mutex_;                    ///< guards the next member, which the hang watch ends
  nccl::Communication* communication_;  ///< null: aborted
};

}  // namespace dat
