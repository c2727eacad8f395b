#include "dat/planner.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace dat {

Planner::Buffer Planner::add(std::size_t bytes) {
  items_.push_back({(bytes + 63) / 64 * 64, 0, std::numeric_limits<int>::max(), -1});
  return static_cast<Buffer>(items_.size()) - 1;
}

void Planner::touch(Buffer buffer, int instruction) {
  Item& item = items_[static_cast<std::size_t>(buffer)];
  item.first = std::min(item.first, instruction);
  item.last = std::max(item.last, instruction);
}

std::size_t Planner::place() {
  std::vector<int> order(items_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    return items_[static_cast<std::size_t>(a)].bytes > items_[static_cast<std::size_t>(b)].bytes;
  });
  std::size_t total = 0;
  std::vector<const Item*> placed, rivals;
  for (const int index : order) {
    Item& item = items_[static_cast<std::size_t>(index)];
    rivals.clear();
    for (const Item* other : placed)
      if (other->first <= item.last && item.first <= other->last) rivals.push_back(other);
    std::ranges::sort(rivals, [](const Item* a, const Item* b) { return a->offset < b->offset; });
    item.offset = 0;
    for (const Item* other : rivals) {
      if (item.offset + item.bytes <= other->offset) break;
      item.offset = std::max(item.offset, other->offset + other->bytes);
    }
    placed.push_back(&item);
    total = std::max(total, item.offset + item.bytes);
  }
  return total;
}

}  // namespace dat
