// The members of groups, in the old form (symbol tables) and the new one (links in a header, or in a heap).

#include <bit>
#include <functional>

#include "hdf5/hdf5_structure.hpp"

namespace dat {

namespace {

// In how many bytes the format keeps numbers up to this one.
int bytes_for(std::uint64_t most) { return (static_cast<int>(std::bit_width(most | 1)) + 7) / 8; }

}  // namespace

void Hdf5Reader::File::link(Cursor& body, Header& header) const {
  check(body.number(1) == 1, "a link has an unknown version");
  const std::uint64_t flags = body.number(1);
  const std::uint64_t kind = (flags & 8) != 0 ? body.number(1) : 0;
  const std::uint64_t order = (flags & 4) != 0 ? body.number(8) : kNowhere;
  body.skip((flags & 0x10) != 0 ? 1 : 0);
  const auto name = body.take(body.number(1 << (flags & 3)));
  if (kind != 0) not_plain("has a soft or external link");
  add_link({name.begin(), name.end()}, body.number(8), order, header);
}

void Hdf5Reader::File::add_link(std::string name, std::uint64_t address, std::uint64_t order, Header& header) const {
  check(!name.empty() && std::ranges::none_of(
                             name, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f || c == '/'; }),
        "the name of an object is none");
  header.links.push_back({std::move(name), address, order});
}

void Hdf5Reader::File::symbols(std::uint64_t tree, int level, std::span<const std::uint8_t> names,
                               Header& header) const {
  Cursor prefix = at(tree, 24);
  prefix.expect("TREE");
  check(prefix.number(1) == 0, "a group's tree is of another kind");
  const auto found = static_cast<int>(prefix.number(1));
  check(level < 0 || found == level, "a group's tree has steps of its own");
  const std::uint64_t entries = prefix.number(2);
  Cursor children = at(tree + 24, entries * 16);
  for (std::uint64_t i = 0; i < entries; ++i) {
    children.skip(8);
    const std::uint64_t child = children.number(8);
    if (found > 0) {
      symbols(child, found - 1, names, header);
      continue;
    }
    Cursor node = at(child, 8);
    node.expect("SNOD");
    node.skip(2);
    const std::uint64_t count = node.number(2);
    constexpr std::uint64_t kEntryBytes = 40;
    Cursor entry = at(child + 8, count * kEntryBytes);
    for (std::uint64_t k = 0; k < count; ++k) {
      const std::uint64_t begin = entry.number(8), address = entry.number(8), cache = entry.number(4);
      entry.skip(20);
      const auto name = names.subspan(std::min(begin, names.size()));
      const auto end = std::ranges::find(name, 0);
      check(end != name.end(), "a name lies outside of its heap");
      if (cache == 2) not_plain("has a soft link");
      add_link({name.begin(), end}, address, kNowhere, header);
    }
  }
}

Hdf5Reader::File::FractalHeap Hdf5Reader::File::fractal_heap(std::uint64_t address) const {
  Cursor h = at(address, 142);
  h.expect("FRHP");
  check(h.number(1) == 0, "a heap has an unknown version");
  FractalHeap found;
  found.id_bytes = h.number(2);
  if (h.number(2) != 0) not_plain("has a group whose links are compressed");
  h.skip(1);
  const std::uint64_t most_managed = h.number(4);
  h.skip(96);
  const std::uint64_t width = found.width = h.number(2), start = found.start = h.number(8);
  const std::uint64_t most_direct = found.most_direct = h.number(8), bits = h.number(2);
  h.skip(2);
  found.root = h.number(8);
  found.rows = h.number(2);
  check(std::has_single_bit(width) && std::has_single_bit(start) && std::has_single_bit(most_direct) &&
            start <= most_direct && most_direct <= (std::uint64_t{1} << 32) && bits <= 64 && most_managed > 0,
        "a heap's sizes are no sizes");
  found.offset_bytes = static_cast<int>((bits + 7) / 8);
  found.length_bytes = std::min(static_cast<int>((std::bit_width(most_direct) + 6) / 8), bytes_for(most_managed));
  return found;
}

std::uint64_t Hdf5Reader::File::place_in(const FractalHeap& heap, std::uint64_t offset, std::uint64_t length) const {
  std::uint64_t block = heap.root, rows_here = heap.rows, size = heap.start;
  const std::uint64_t first_row = heap.width * heap.start;
  for (int depth = 0; rows_here > 0; ++depth) {
    check(depth < 8, "a heap has no ground");
    const auto row = static_cast<std::uint64_t>(std::bit_width(offset / first_row));
    check(row < rows_here && row < 64, "a heap's object lies outside of it");
    size = row == 0 ? heap.start : heap.start << (row - 1);
    const std::uint64_t before = row == 0 ? 0 : first_row << (row - 1);
    const std::uint64_t column = (offset - before) / size;
    offset -= before + column * size;
    const std::uint64_t prefix = 4 + 1 + 8 + static_cast<std::uint64_t>(heap.offset_bytes);
    at(block, 4).expect("FHIB");
    block = at(block + prefix + 8 * (row * heap.width + column), 8).number(8);
    rows_here = size <= heap.most_direct ? 0 : static_cast<std::uint64_t>(std::bit_width(size / first_row));
  }
  check(offset < size && length <= size - offset, "a heap's object lies outside of its block");
  at(block, 4).expect("FHDB");
  return block + offset;
}

// The new form of a large group: links in a fractal heap, which a tree points to.
void Hdf5Reader::File::dense_links(const FractalHeap& heap, std::uint64_t tree, Header& header) const {
  Cursor t = at(tree, 34);
  t.expect("BTHD");
  t.skip(1);
  check(t.number(1) == 5, "a group's tree is of another kind");
  const std::uint64_t node_bytes = t.number(4), record_bytes = t.number(2), depth = t.number(2);
  t.skip(2);
  const std::uint64_t tree_root = t.number(8), root_records = t.number(2);
  check(record_bytes == 4 + heap.id_bytes && node_bytes >= 10 + record_bytes && depth < 16,
        "a group's tree has no sizes");
  // Bytes of a pointer to a node: its address, its number of records, and that of all records below it.
  const std::uint64_t leaf_records = (node_bytes - 10) / record_bytes;
  const int count_bytes = bytes_for(leaf_records);
  std::vector<int> total_bytes = {0};
  for (std::uint64_t level = 1, below = leaf_records; level < depth; ++level) {
    const auto pointer = static_cast<std::uint64_t>(8 + count_bytes + total_bytes.back());
    check(node_bytes > 10 + pointer, "a group's tree has no sizes");
    const std::uint64_t most = (node_bytes - 10 - pointer) / (record_bytes + pointer);
    check(!__builtin_mul_overflow(below, most + 1, &below), "a group's tree is larger than anything");
    below += most;
    total_bytes.push_back(bytes_for(below));
  }
  const std::function<void(std::uint64_t, std::uint64_t, std::uint64_t)> visit = [&](std::uint64_t node,
                                                                                     std::uint64_t records,
                                                                                     std::uint64_t level) {
    const std::uint64_t pointer = level == 0 ? 0 : static_cast<std::uint64_t>(8 + count_bytes + total_bytes[level - 1]);
    Cursor n = at(node, 6 + records * record_bytes + (level == 0 ? 0 : (records + 1) * pointer));
    n.expect(level == 0 ? "BTLF" : "BTIN");
    n.skip(2);
    for (std::uint64_t i = 0; i < records; ++i) {
      n.skip(4);
      Cursor id = n.part(heap.id_bytes);
      check((id.number(1) & 0xf0) == 0, "a link is in no block of its heap");
      const std::uint64_t offset = id.number(heap.offset_bytes), length = id.number(heap.length_bytes);
      Cursor body = at(place_in(heap, offset, length), length);
      link(body, header);
    }
    for (std::uint64_t i = 0; level > 0 && i <= records; ++i) {
      const std::uint64_t child = n.number(8), count = n.number(count_bytes);
      n.skip(static_cast<std::uint64_t>(total_bytes[level - 1]));
      visit(child, count, level - 1);
    }
  };
  if (tree_root != kNowhere) visit(tree_root, root_records, depth);
}

}  // namespace dat
