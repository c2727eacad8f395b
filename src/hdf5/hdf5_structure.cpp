#include "hdf5/hdf5_structure.hpp"

namespace dat {

namespace {

constexpr std::size_t kMaxObjects = 1 << 17;
constexpr int kMaxDepth = 16;

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

Hdf5Reader::File::File(std::unique_ptr<ByteSource> source, ExitCode code)
    : source_(std::move(source)), code_(code), size_(static_cast<std::uint64_t>(source_->size())) {
  constexpr std::int64_t kAlwaysFine = 16 << 20, kMost = 256 << 20;
  budget_ = kAlwaysFine + 2 * std::min(source_->size(), kMost);
  constexpr std::uint8_t kSignature[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const auto begins = [&](std::uint64_t offset) {
    std::uint8_t found[sizeof kSignature];
    read(offset, found, sizeof found);
    return std::equal(std::begin(kSignature), std::end(kSignature), found);
  };
  for (std::uint64_t offset = 0;; offset = offset == 0 ? 512 : 2 * offset) {
    require(offset + 64 <= size_, code_, name(), ": not a whole HDF5 file");
    base_ = offset;
    if (begins(offset)) break;
  }
  Cursor block = at(0, std::min<std::uint64_t>(size_ - base_, 104));
  block.skip(sizeof kSignature);
  const std::uint64_t version = block.number(1);
  check(version <= 3, "its version is none that there is");
  if (version <= 1) block.skip(4);
  const std::uint64_t offset_bytes = block.number(1), length_bytes = block.number(1);
  check(offset_bytes == 8 && length_bytes == 8, "its addresses have not 8 bytes");
  block.skip(version <= 1 ? 9 + (version == 1 ? 4 : 0) : 1);
  // The library looks for the base where it has found the signature, too.
  const std::uint64_t base = block.number(8);
  check(base == base_, "its base address is not where it begins");
  block.skip(8);
  const std::uint64_t end = block.number(8);
  require(end <= size_, code_, name(), ": is cut off: it has ", size_, " bytes instead of ", end);
  block.skip(version <= 1 ? 16 : 0);
  add("", block.number(8), 0);
}

Hdf5Reader::File::Cursor Hdf5Reader::File::at(std::uint64_t address, std::uint64_t count) const {
  check(address <= size_ - base_ && count <= size_ - base_ - address, "an address is beyond its end");
  spend(count);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  read(base_ + address, bytes.data(), count);
  return {*this, std::move(bytes), base_ + address};
}

void Hdf5Reader::File::add(const std::string& path, std::uint64_t address, int depth) {
  spend(path.size());
  check(depth <= kMaxDepth && objects_.size() < kMaxObjects, "it has more groups or objects than there can be");
  if (!seen_.emplace(address, path).second) not_plain("/" + path + " is a second name of /" + seen_.at(address));
  Header found = header(address);
  const bool data = found.space && found.type && found.layout;
  check(data || found.group || !(found.space || found.layout), "an object is neither a group nor a dataset");
  Object& object = found.object;
  object.group = !data;
  if (data) {
    check(!found.group, "an object is a group and a dataset");
    check(object.data.elements <= found.stored / object.data.type.size,
          "a dataset's shape is larger than what is stored of it");
    stored_ += object.data.bytes();
    check(stored_ <= size_, "its datasets overlap");
  }
  std::ranges::sort(found.links, [&](const Link& a, const Link& b) {
    return found.ordered && a.order != b.order ? a.order < b.order : a.name < b.name;
  });
  for (const Link& link : found.links) object.members.push_back(link.name);
  objects_[path] = std::move(object);
  for (const Link& link : found.links) {
    const std::string child = path.empty() ? link.name : path + "/" + link.name;
    check(!objects_.contains(child), "two members of a group have one name");
    add(child, link.address, depth + 1);
  }
}

Hdf5Reader::File::Header Hdf5Reader::File::header(std::uint64_t address) const {
  constexpr std::size_t kMaxBlocks = 4096;
  Header header;
  const bool second = at(address, 4).take(4)[0] == 'O';
  bool ordered = false;
  if (second) {
    Cursor prefix = at(address, std::min<std::uint64_t>(34, size_ - base_ - address));
    const std::uint64_t begin = prefix.offset();
    prefix.expect("OHDR");
    check(prefix.number(1) == 2, "an object's header has an unknown version");
    const std::uint64_t flags = prefix.number(1);
    ordered = (flags & 4) != 0;
    prefix.skip(((flags & 0x20) != 0 ? 16 : 0) + ((flags & 0x10) != 0 ? 4 : 0));
    const std::uint64_t bytes = prefix.number(1 << (flags & 3));
    Cursor block = at(address + (prefix.offset() - begin), bytes);
    messages(block, true, ordered, header);
  } else {
    Cursor prefix = at(address, 16);
    check(prefix.number(1) == 1, "an object's header has an unknown version");
    prefix.skip(7);
    Cursor block = at(address + 16, prefix.number(4));
    messages(block, false, false, header);
  }
  for (std::size_t i = 0; i < header.blocks.size(); ++i) {
    check(i < kMaxBlocks, "an object's header has no end");
    const auto [begin, bytes] = header.blocks[i];
    Cursor block = at(begin, bytes);
    if (second) {
      block.expect("OCHK");
      check(block.left() >= 4, "a part of it is shorter than it says");
      block = block.part(block.left() - 4);  // without the checksum
    }
    messages(block, second, ordered, header);
  }
  return header;
}

void Hdf5Reader::File::messages(Cursor& block, bool second_version, bool ordered, Header& header) const {
  const std::uint64_t prefix = second_version ? (ordered ? 6 : 4) : 8;
  while (block.left() >= prefix) {
    const auto type = static_cast<int>(block.number(second_version ? 1 : 2));
    const std::uint64_t bytes = block.number(2);
    const auto flags = static_cast<int>(block.number(1));
    block.skip(prefix - (second_version ? 4 : 5));
    Cursor body = block.part(bytes);
    message(type, flags, body, header);
  }
}

void Hdf5Reader::File::message(int type, int flags, Cursor& body, Header& header) const {
  constexpr int kShared = 2;
  const bool may_share = type == 0x01 || type == 0x03 || type == 0x08 || type == 0x0B || type == 0x0C;
  if (may_share && (flags & kShared) != 0) not_plain("has objects that share a type or a shape");
  switch (type) {
    case 0x01:
      check(!std::exchange(header.space, true), "a dataset has two shapes");
      return space(body, header.object.data);
    case 0x02: {  // link info
      header.group = true;
      body.skip(1);
      const std::uint64_t tracked = body.number(1);
      header.ordered = (tracked & 2) != 0;
      body.skip((tracked & 1) != 0 ? 8 : 0);
      const std::uint64_t heap = body.number(8), names = body.number(8);
      if (heap != kNowhere) dense_links(fractal_heap(heap), names, header);
      return;
    }
    case 0x03:
      check(!std::exchange(header.type, true), "a dataset has two types");
      header.object.data.type = this->type(body);
      return;
    case 0x06:
      header.group = true;
      return link(body, header);
    case 0x07:
      return not_plain("has a dataset that lies in other files");
    case 0x08:
      check(!std::exchange(header.layout, true), "a dataset has two layouts");
      return layout(body, header);
    case 0x0A:
      header.group = true;
      return;
    case 0x0B:
      return not_plain("has a dataset that is compressed or otherwise filtered");
    case 0x0C:
      return attribute(body, header);
    case 0x10: {  // continuation
      const std::uint64_t address = body.number(8);
      header.blocks.emplace_back(address, body.number(8));
      return;
    }
    case 0x11: {  // symbol table
      header.group = true;
      const std::uint64_t tree = body.number(8), address = body.number(8);
      Cursor heap = at(address, 32);
      heap.expect("HEAP");
      heap.skip(4);
      const std::uint64_t bytes = heap.number(8);
      heap.skip(8);
      Cursor names = at(heap.number(8), bytes);
      return symbols(tree, -1, names.take(bytes), header);
    }
    case 0x15: {  // attribute info
      body.skip(1);
      body.skip((body.number(1) & 1) != 0 ? 2 : 0);
      if (body.number(8) != kNowhere) not_plain("has an object with very many attributes");
      return;
    }
    default:  // times, fill values, comments, ...: of no interest
      return;
  }
}

void Hdf5Reader::File::layout(Cursor& body, Header& header) const {
  const std::uint64_t version = body.number(1);
  if (version != 3 && version != 4) not_plain("has a dataset in the layout of HDF5 1.4");
  const std::uint64_t kind = body.number(1);
  if (kind == 0) {  // compact
    header.stored = body.number(2);
    header.object.data.offset = body.offset();
    body.skip(header.stored);
    return;
  }
  if (kind != 1) not_plain("has a dataset in chunks");
  const std::uint64_t address = body.number(8), bytes = body.number(8);
  if (address == kNowhere) return;  // nothing was ever written: only an empty shape fits it
  check(address <= size_ - base_ && bytes <= size_ - base_ - address, "a dataset is cut off");
  header.stored = bytes;
  header.object.data.offset = base_ + address;
}

Hdf5Reader::File::Type Hdf5Reader::File::type(Cursor body) const {
  const std::uint64_t kind = body.number(1) & 0xf, bits = body.number(3);
  Type type;
  type.size = body.number(4);
  check(type.size > 0, "a type has no size");
  using Kind = Type::Kind;
  if (kind == 0) {
    const std::uint64_t first = body.number(2), width = body.number(2);
    type.big_endian = (bits & 1) != 0;
    const bool whole = first == 0 && width == 8 * type.size && type.size <= 8 && std::has_single_bit(type.size);
    if (whole) type.kind = (bits & 8) != 0 ? Kind::signed_integer : Kind::unsigned_integer;
  } else if (kind == 1) {
    const std::uint64_t first = body.number(2), width = body.number(2);
    const std::uint64_t exponent_at = body.number(1), exponent = body.number(1), mantissa_at = body.number(1),
                        mantissa = body.number(1);
    // Sign, exponent, mantissa with a hidden bit, without gaps: IEEE 754.
    const std::uint64_t wanted = type.size == 2 ? 5 : type.size == 4 ? 8 : type.size == 8 ? 11 : 0;
    type.big_endian = (bits & 1) != 0;
    const bool ieee = wanted > 0 && first == 0 && width == 8 * type.size && exponent == wanted &&
                      mantissa == width - 1 - wanted && mantissa_at == 0 && exponent_at == mantissa &&
                      (bits & 0x40) == 0 && (bits >> 4 & 3) == 2 && (bits >> 8 & 0xff) == width - 1 &&
                      body.number(4) == (std::uint64_t{1} << (wanted - 1)) - 1;
    if (ieee) type.kind = Kind::real;
  } else if (kind == 3) {
    type.kind = Kind::text;
  } else if (kind == 9 && (bits & 0xf) == 1 && type.size == 16) {
    type.kind = Kind::text_in_heap;
  }
  return type;
}

void Hdf5Reader::File::space(Cursor body, Data& data) const {
  const std::uint64_t version = body.number(1), rank = body.number(1);
  body.skip(1);
  check(version == 1 || version == 2, "a shape has an unknown version");
  const std::uint64_t kind = version == 1 ? 1 : body.number(1);
  body.skip(version == 1 ? 5 : 0);
  check(rank <= 32 && kind <= 2, "a shape has too many dimensions");
  data.elements = kind == 2 ? 0 : 1;
  data.shape.clear();
  if (kind == 2) data.shape.push_back(0);
  for (std::uint64_t i = 0; i < rank; ++i) {
    const std::uint64_t dim = body.number(8);
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    check(dim <= kMost && !__builtin_mul_overflow(data.elements, dim, &data.elements),
          "a shape is larger than anything");
    data.shape.push_back(static_cast<std::int64_t>(dim));
  }
}

void Hdf5Reader::File::attribute(Cursor& body, Header& header) const {
  const std::uint64_t version = body.number(1), flags = body.number(1);
  check(version >= 1 && version <= 3, "an attribute has an unknown version");
  const std::uint64_t name_bytes = body.number(2), type_bytes = body.number(2), space_bytes = body.number(2);
  body.skip(version == 3 ? 1 : 0);
  if (version > 1 && (flags & 3) != 0) return;  // its type has a name: none of ours
  const auto length = [&](std::uint64_t bytes) { return version == 1 ? padded(bytes) : bytes; };
  const auto raw = body.take(length(name_bytes)).first(static_cast<std::size_t>(name_bytes));
  const std::string name(raw.begin(), std::ranges::find(raw, 0));
  spend(name.size());
  Data data;
  data.type = type(body.part(length(type_bytes)));
  space(body.part(length(space_bytes)), data);
  data.offset = body.offset();
  check(data.elements <= body.left() / data.type.size, "an attribute is larger than its place");
  header.object.attributes[name] = std::move(data);
}

// The old form of a group: a tree of nodes with names in a heap.
std::span<const std::uint8_t> Hdf5Reader::File::heap_object(std::uint64_t collection, std::uint32_t index) const {
  constexpr std::uint64_t kHead = 16;  // bytes in front of a heap, and of each text in it
  const auto known = heaps_.find(collection);
  if (known == heaps_.end()) {
    Cursor prefix = at(collection, kHead);
    prefix.expect("GCOL");
    prefix.skip(4);
    const std::uint64_t bytes = prefix.number(8);
    check(bytes >= kHead, "a heap has no size");
    Cursor all = at(collection, bytes);
    Heap heap;
    const auto raw = all.take(bytes);
    heap.bytes.assign(raw.begin(), raw.end());
    Cursor objects(*this, heap.bytes, 0);
    objects.skip(kHead);
    while (objects.left() >= kHead) {
      const auto number = static_cast<std::uint32_t>(objects.number(2));
      objects.skip(6);
      const std::uint64_t length = objects.number(8);
      if (number == 0) break;  // the space is free
      const auto begin = static_cast<std::size_t>(objects.offset());
      check(length <= objects.left(), "a text is longer than its heap");
      heap.objects[number] = {begin, static_cast<std::size_t>(length)};
      objects.skip(std::min(padded(length), objects.left()));
    }
    heaps_[collection] = std::move(heap);
  }
  const Heap& heap = heaps_.at(collection);
  const auto found = heap.objects.find(index);
  check(found != heap.objects.end(), "a text is not in its heap");
  return std::span(heap.bytes).subspan(found->second.first, found->second.second);
}

std::vector<std::string> Hdf5Reader::File::texts(const Data& data) const {
  std::vector<std::string> all;
  for (Cursor raw = at(data.offset - base_, data.bytes()); raw.left() > 0;) {
    Cursor element = raw.part(data.type.size);
    std::span<const std::uint8_t> text;
    if (data.type.kind == Type::Kind::text) {
      text = element.take(data.type.size);
    } else {
      const std::uint64_t length = element.number(4), collection = element.number(8);
      const auto index = static_cast<std::uint32_t>(element.number(4));
      if (length > 0) {
        text = heap_object(collection, index);
        check(length <= text.size(), "a text is longer than what is stored of it");
        text = text.first(static_cast<std::size_t>(length));
        spend(length);
      }
    }
    all.emplace_back(text.begin(), std::ranges::find(text, 0));
  }
  return all;
}

}  // namespace dat
