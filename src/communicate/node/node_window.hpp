#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/communicator.hpp"

namespace dat {

/// Memory that all ranks of a node have: a block of each rank, and some counters of each rank, which only this rank
/// raises and for which the others wait.
///
/// A block is an anonymous file in memory (memfd_create), which the others open through /proc while its rank waits for
/// them. It has no name in /dev/shm: nothing can be left there, whenever a rank is killed, and its size is no matter.
/// All of it is there before it is mapped (fallocate), on the rank's own side of the machine, so that no access can
/// fail.
class NodeWindow {
 public:
  /// Takes `bytes` bytes on this rank, zeroed, from the beginning of a page on. `ranks` all run on one node. Null: the
  /// memory cannot be had, or cannot be shared, on some rank; `why` says why, alike on all of them. **Collective.**
  [[nodiscard]] static std::unique_ptr<NodeWindow> make(Communicator& ranks, std::int64_t bytes, std::string& why);
  ~NodeWindow();
  NodeWindow(const NodeWindow&) = delete;
  NodeWindow& operator=(const NodeWindow&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] std::byte* block(int rank) const { return blocks_[static_cast<std::size_t>(rank)].data + kPage; }
  /// Bytes of this rank's block; whole pages.
  [[nodiscard]] std::size_t bytes() const { return blocks_[static_cast<std::size_t>(rank_)].bytes - kPage; }

  /// Sets a counter of this rank, and wakes up who sleeps until then. Numbers that the rank has written before are seen
  /// by those who see the counter.
  void say(int counter, std::uint32_t value);
  /// Returns whether the rank's counter has reached the value. Counters wrap around: values are compared in half a
  /// circle.
  [[nodiscard]] bool has(int rank, int counter, std::uint32_t value) const;
  /// Returns when has(), or after two milliseconds. Where there is a core for each rank, it looks all the time, as MPI
  /// does, and lets other programs have the core now and then. Else it sleeps, after a millisecond of letting the
  /// others have it.
  void nap(int rank, int counter, std::uint32_t value) const;

 private:
  static constexpr std::size_t kPage = 1 << 16, kLine = 128;  // the longest pages that machines have
  using Counter = std::atomic<std::uint32_t>;
  static_assert(Counter::is_always_lock_free && sizeof(Counter) == sizeof(std::uint32_t));
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  NodeWindow(int rank, int ranks) : rank_(rank), blocks_(static_cast<std::size_t>(ranks)) {}
  [[nodiscard]] Counter& counter(int rank, int number) const {
    return *reinterpret_cast<Counter*>(blocks_[static_cast<std::size_t>(rank)].data +
                                       static_cast<std::size_t>(number) * kLine);
  }

  int rank_;
  bool crowded_ = false;       ///< there are more ranks than cores
  std::vector<Block> blocks_;  ///< [ranks] two counters, 0 at first, then the block
};

}  // namespace dat
