#include "dat/planner.hpp"

#include <algorithm>
#include <functional>

namespace dat {

Planner::Buffer Planner::add(std::size_t bytes) {
  items_.push_back({.bytes = (bytes + 63) / 64 * 64});
  return static_cast<Buffer>(items_.size()) - 1;
}

void Planner::touch(Buffer buffer, int instruction) {
  Item& item = items_[static_cast<std::size_t>(buffer)];
  item.first = std::min(item.first, instruction);
  item.last = std::max(item.last, instruction);
}

std::size_t Planner::place() {
  std::vector<Item*> order;
  for (Item& item : items_) order.push_back(&item);
  std::ranges::stable_sort(order, std::greater<>(), &Item::bytes);
  std::size_t total = 0;
  std::vector<const Item*> placed, rivals;
  for (Item* const item : order) {
    rivals.clear();
    for (const Item* other : placed)
      if (other->first <= item->last && item->first <= other->last) rivals.push_back(other);
    std::ranges::sort(rivals, {}, &Item::offset);
    for (const Item* other : rivals) {
      if (item->offset + item->bytes <= other->offset) break;
      item->offset = std::max(item->offset, other->offset + other->bytes);
    }
    placed.push_back(item);
    total = std::max(total, item->offset + item->bytes);
  }
  return total;
}

}  // namespace dat
