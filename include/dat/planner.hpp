#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace dat {

/// Places the buffers of one program in one block of memory. Buffers that are never alive at the same time share
/// memory.
///
/// First every buffer is announced (`add`), with each instruction that writes or reads it (`touch`). Then `place`
/// decides once where all of them lie; after that, `offset` and `at` return the places. Instructions are numbered by
/// the caller, in the order in which they will run.
class Planner {
 public:
  /// The number of a buffer. Negative numbers stand for no buffer.
  using Buffer = int;

  /// Announces a buffer of this size, which must be touched at least once before `place`.
  [[nodiscard]] Buffer add(std::size_t bytes);
  /// Says that the buffer is alive at this instruction. A buffer lives from the lowest to the highest instruction it
  /// was touched at, both included, and keeps its contents in between.
  void touch(Buffer buffer, int instruction);

  /// Gives every buffer its place, first fit by decreasing size (Greedy by size: Pisarchyk, Lee, "Efficient Memory
  /// Management for Deep Neural Net Inference", 2020). Returns the bytes of the block.
  std::size_t place();

  /// Offset of the buffer in the block, in bytes; a multiple of 64. Only after `place`.
  [[nodiscard]] std::size_t offset(Buffer buffer) const { return items_[static_cast<std::size_t>(buffer)].offset; }
  /// The address of the buffer in the block that begins at `block`; null for no buffer.
  template <class T>
  [[nodiscard]] T* at(void* block, Buffer buffer) const {
    return buffer < 0 ? nullptr : reinterpret_cast<T*>(static_cast<char*>(block) + offset(buffer));
  }

 private:
  struct Item {
    std::size_t bytes, offset = 0;
    int first = std::numeric_limits<int>::max(), last = -1;
  };
  std::vector<Item> items_;
};

}  // namespace dat
