#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Places the buffers of one program in one block: buffers that are never alive at the same time share memory.
/// A buffer lives from the instruction that first writes it to the one that last reads it (both included).
class Planner {
 public:
  using Buffer = int;

  [[nodiscard]] Buffer add(std::size_t bytes);
  void touch(Buffer buffer, int instruction);  ///< the buffer is alive at this instruction

  /// First fit by decreasing size (Greedy by size: Pisarchyk, Lee, "Efficient Memory Management for Deep Neural Net
  /// Inference", 2020). Returns the bytes of the block.
  std::size_t place();
  [[nodiscard]] std::size_t offset(Buffer buffer) const { return items_[static_cast<std::size_t>(buffer)].offset; }

 private:
  struct Item {
    std::size_t bytes, offset;
    int first, last;
  };
  std::vector<Item> items_;
};

}  // namespace dat
