#include "hdf5/hdf5_reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "dat/half.hpp"

namespace dat {

namespace {

constexpr std::uint64_t kUndefined = ~std::uint64_t{0};
constexpr std::int64_t kBlock = 1 << 16;  // elements that are converted at a time
constexpr std::size_t kMaxObjects = 1 << 17;
constexpr int kMaxDepth = 16;

// In how many bytes the format keeps numbers up to this one.
int bytes_for(std::uint64_t most) { return most == 0 ? 1 : static_cast<int>((std::bit_width(most) - 1) / 8 + 1); }

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

/// The structure of a file.
class Hdf5Reader::File {
 public:
  File(std::unique_ptr<ByteSource> source, ExitCode code);

  struct Type {
    enum class Kind : std::uint8_t { unsigned_integer, signed_integer, real, text, text_in_heap, other };
    Kind kind = Kind::other;
    std::uint64_t size = 0;  ///< bytes of an element
    bool big_endian = false;
  };
  /// Elements of a dataset or of an attribute.
  struct Data {
    Type type;
    Shape shape;
    std::uint64_t elements = 0, offset = 0;  ///< offset: byte in the file where they begin
    /// No more than the file has, once an object is known.
    [[nodiscard]] std::uint64_t bytes() const { return elements * type.size; }
  };
  struct Object {
    bool group = true;
    std::vector<std::string> members;
    Data data;
    std::map<std::string, Data> attributes;
  };

  [[noreturn]] void damaged(const std::string& what) const { fail(code_, name(), ": is damaged: ", what); }
  [[noreturn]] void not_plain(const std::string& what) const {
    fail(code_, name(), ": ", what, "; 'dat_hpc data convert ", name(), " NEW' makes a plain file of it, which can be ",
         "read");
  }
  void check(bool condition, const char* what) const {
    if (!condition) damaged(what);
  }
  /// Accounts for what is read or kept: the end of every loop, and the limit of memory.
  void spend(std::uint64_t bytes) const {
    constexpr std::int64_t kOverhead = 128;
    budget_ -= static_cast<std::int64_t>(bytes) + kOverhead;
    check(budget_ >= 0, "its parts overlap or lead in a circle");
  }
  [[nodiscard]] const std::string& name() const { return source_->name(); }
  [[nodiscard]] ExitCode code() const { return code_; }

  [[nodiscard]] const Object* find(std::string path) const {
    if (!path.empty() && path[0] == '/') path.erase(0, 1);
    const auto found = objects_.find(path);
    return found == objects_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const Object& get(const std::string& path) const {
    const Object* found = find(path);
    require(found != nullptr, code_, name(), ": there is no ", path);
    return *found;
  }
  [[nodiscard]] const Data& dataset(const std::string& path) const {
    const Object& found = get(path);
    require(!found.group, code_, name(), ": ", path, " is a group, not a dataset");
    return found.data;
  }

  /// Bytes of data, which the structure has vouched for.
  void read(std::uint64_t offset, void* to, std::uint64_t count) const {
    try {
      source_->read(static_cast<std::int64_t>(offset), to, static_cast<std::int64_t>(count));
    } catch (const Error& error) {
      throw Error(code_, error.what());
    }
  }
  /// All strings of an attribute.
  [[nodiscard]] std::vector<std::string> texts(const Data& data) const;

 private:
  /// Bytes of the structure, read from first to last.
  class Cursor {
   public:
    Cursor(const File& file, std::vector<std::uint8_t> bytes, std::uint64_t offset)
        : file_(&file), bytes_(std::move(bytes)), offset_(offset) {}
    std::uint64_t number(int bytes) {
      const auto raw = take(static_cast<std::uint64_t>(bytes));
      std::uint64_t value = 0;
      for (std::size_t i = raw.size(); i-- > 0;) value = value << 8 | raw[i];
      return value;
    }
    std::span<const std::uint8_t> take(std::uint64_t count) {
      file_->check(count <= left(), "a part of it is shorter than it says");
      at_ += count;
      return {bytes_.data() + (at_ - count), static_cast<std::size_t>(count)};
    }
    void skip(std::uint64_t count) { static_cast<void>(take(count)); }
    void expect(const char* signature) {
      const auto found = take(4);
      if (!std::equal(found.begin(), found.end(), signature))
        file_->damaged(std::string("no ") + signature + " at byte " + std::to_string(offset() - 4));
    }
    [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }
    [[nodiscard]] std::uint64_t offset() const { return offset_ + at_; }  ///< in the file
    /// The next bytes as a cursor of their own.
    Cursor part(std::uint64_t count) {
      const std::uint64_t begin = offset();
      const auto raw = take(count);
      return {*file_, {raw.begin(), raw.end()}, begin};
    }

   private:
    const File* file_;
    std::vector<std::uint8_t> bytes_;
    std::uint64_t offset_, at_ = 0;
  };
  struct Link {
    std::string name;
    std::uint64_t address = 0;
    std::uint64_t order = kUndefined;
  };
  /// What an object's header has told so far.
  struct Header {
    Object object;
    std::vector<Link> links;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;  ///< continuations to be read
    bool space = false, type = false, layout = false, group = false;
    bool ordered = false;      ///< the group knows in which order its members were made
    std::uint64_t stored = 0;  ///< bytes that the layout has for the elements
  };

  [[nodiscard]] Cursor at(std::uint64_t address, std::uint64_t count) const;
  void add(const std::string& path, std::uint64_t address, int depth);
  [[nodiscard]] Header header(std::uint64_t address) const;
  void messages(Cursor& block, bool second_version, bool ordered, Header& header) const;
  void message(int type, int flags, Cursor& body, Header& header) const;
  void link(Cursor& body, Header& header) const;
  void add_link(std::string name, std::uint64_t address, std::uint64_t order, Header& header) const;
  void attribute(Cursor& body, Header& header) const;
  void layout(Cursor& body, Header& header) const;
  [[nodiscard]] Type type(Cursor body) const;
  void space(Cursor body, Data& data) const;
  void symbols(std::uint64_t tree, int level, std::span<const std::uint8_t> names, Header& header) const;
  void dense_links(std::uint64_t heap, std::uint64_t tree, Header& header) const;
  /// Where a collection's objects lie.
  [[nodiscard]] std::span<const std::uint8_t> heap_object(std::uint64_t collection, std::uint32_t index) const;

  std::unique_ptr<ByteSource> source_;
  ExitCode code_;
  std::uint64_t size_, base_ = 0;              ///< of the file; where its addresses begin
  mutable std::int64_t budget_;                ///< bytes of structure that may still be read: the end of every loop
  std::uint64_t stored_ = 0;                   ///< bytes of all datasets
  std::map<std::string, Object> objects_;      ///< by path; "": the root
  std::map<std::uint64_t, std::string> seen_;  ///< objects by address
  struct Heap {
    std::vector<std::uint8_t> bytes;
    std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> objects;  ///< begin and length
  };
  mutable std::map<std::uint64_t, Heap> heaps_;
};

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
  std::sort(found.links.begin(), found.links.end(), [&](const Link& a, const Link& b) {
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
  switch (type) {
    case 0x01:
    case 0x03:
    case 0x08:
    case 0x0B:
    case 0x0C:
      if ((flags & kShared) != 0) not_plain("has objects that share a type or a shape");
      break;
    default:
      break;
  }
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
      if (heap != kUndefined) dense_links(heap, names, header);
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
      if (body.number(8) != kUndefined) not_plain("has an object with very many attributes");
      return;
    }
    default:  // times, fill values, comments, ...: of no interest
      return;
  }
}

void Hdf5Reader::File::link(Cursor& body, Header& header) const {
  check(body.number(1) == 1, "a link has an unknown version");
  const std::uint64_t flags = body.number(1);
  const std::uint64_t kind = (flags & 8) != 0 ? body.number(1) : 0;
  const std::uint64_t order = (flags & 4) != 0 ? body.number(8) : kUndefined;
  body.skip((flags & 0x10) != 0 ? 1 : 0);
  const auto name = body.take(body.number(1 << (flags & 3)));
  if (kind != 0) not_plain("has a soft or external link");
  add_link({name.begin(), name.end()}, body.number(8), order, header);
}

void Hdf5Reader::File::add_link(std::string name, std::uint64_t address, std::uint64_t order, Header& header) const {
  check(!name.empty() &&
            std::none_of(name.begin(), name.end(),
                         [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f || c == '/'; }),
        "the name of an object is none");
  header.links.push_back({std::move(name), address, order});
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
  if (address == kUndefined) return;  // nothing was ever written: only an empty shape fits it
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
  if (version > 1 && (flags & 3) != 0) return;  // of a type that has a name: none of ours
  const auto length = [&](std::uint64_t bytes) { return version == 1 ? padded(bytes) : bytes; };
  const auto raw = body.take(length(name_bytes)).first(static_cast<std::size_t>(name_bytes));
  const std::string name(raw.begin(), std::find(raw.begin(), raw.end(), 0));
  spend(name.size());
  Data data;
  data.type = type(body.part(length(type_bytes)));
  space(body.part(length(space_bytes)), data);
  data.offset = body.offset();
  check(data.elements <= body.left() / data.type.size, "an attribute is larger than its place");
  header.object.attributes[name] = std::move(data);
}

// The old form of a group: a tree of nodes with names in a heap.
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
    Cursor entry = at(child + 8, count * 40);
    for (std::uint64_t k = 0; k < count; ++k) {
      const std::uint64_t begin = entry.number(8), address = entry.number(8), cache = entry.number(4);
      entry.skip(20);
      check(begin < names.size(), "a name lies outside of its heap");
      if (cache == 2) not_plain("has a soft link");
      const auto end = std::find(names.begin() + static_cast<std::ptrdiff_t>(begin), names.end(), 0);
      check(end != names.end(), "a name has no end");
      add_link({names.begin() + static_cast<std::ptrdiff_t>(begin), end}, address, kUndefined, header);
    }
  }
}

// The new form of a large group: links in a fractal heap, which a tree points to.
void Hdf5Reader::File::dense_links(std::uint64_t heap, std::uint64_t tree, Header& header) const {
  Cursor h = at(heap, 142);
  h.expect("FRHP");
  check(h.number(1) == 0, "a heap has an unknown version");
  const std::uint64_t id_bytes = h.number(2);
  if (h.number(2) != 0) not_plain("has a group whose links are compressed");
  h.skip(1);
  const std::uint64_t most_managed = h.number(4);
  h.skip(96);
  const std::uint64_t width = h.number(2), start = h.number(8), most_direct = h.number(8), bits = h.number(2);
  h.skip(2);
  const std::uint64_t root = h.number(8), rows = h.number(2);
  check(width > 0 && std::has_single_bit(width) && start > 0 && std::has_single_bit(start) &&
            std::has_single_bit(most_direct) && start <= most_direct && most_direct <= (std::uint64_t{1} << 32) &&
            bits <= 64 && most_managed > 0,
        "a heap's sizes are no sizes");
  const auto offset_bytes = static_cast<int>((bits + 7) / 8);
  const int length_bytes = std::min(static_cast<int>((std::bit_width(most_direct) + 6) / 8), bytes_for(most_managed));
  check(id_bytes >= static_cast<std::uint64_t>(1 + offset_bytes + length_bytes), "a heap's numbers are too short");

  // Where the heap's byte `offset` lies: in the root, or below it in the block of a row and column, whose size doubles
  // from row to row.
  const auto find = [&](std::uint64_t offset, std::uint64_t length) -> std::uint64_t {
    std::uint64_t block = root, rows_here = rows, size = start;
    const std::uint64_t first_row = width * start;
    for (int depth = 0; rows_here > 0; ++depth) {
      check(depth < 8, "a heap has no ground");
      const auto row = offset < first_row ? 0 : static_cast<std::uint64_t>(std::bit_width(offset / first_row));
      check(row < rows_here && row < 64, "a heap's object lies outside of it");
      size = row == 0 ? start : start << (row - 1);
      const std::uint64_t before = row == 0 ? 0 : first_row << (row - 1);
      const std::uint64_t column = (offset - before) / size;
      offset -= before + column * size;
      const std::uint64_t prefix = 4 + 1 + 8 + static_cast<std::uint64_t>(offset_bytes);
      at(block, 4).expect("FHIB");
      block = at(block + prefix + 8 * (row * width + column), 8).number(8);
      rows_here = size <= most_direct ? 0 : static_cast<std::uint64_t>(std::bit_width(size / first_row));
    }
    check(offset < size && length <= size - offset, "a heap's object lies outside of its block");
    at(block, 4).expect("FHDB");
    return block + offset;
  };

  Cursor t = at(tree, 34);
  t.expect("BTHD");
  t.skip(1);
  check(t.number(1) == 5, "a group's tree is of another kind");
  const std::uint64_t node_bytes = t.number(4), record_bytes = t.number(2), depth = t.number(2);
  t.skip(2);
  const std::uint64_t tree_root = t.number(8), root_records = t.number(2);
  check(record_bytes == 4 + id_bytes && node_bytes >= 10 + record_bytes && depth < 16, "a group's tree has no sizes");
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
    if (records == 0 && level == 0) return;
    const std::uint64_t pointer = level == 0 ? 0 : static_cast<std::uint64_t>(8 + count_bytes + total_bytes[level - 1]);
    Cursor n = at(node, 6 + records * record_bytes + (level == 0 ? 0 : (records + 1) * pointer));
    n.expect(level == 0 ? "BTLF" : "BTIN");
    n.skip(2);
    for (std::uint64_t i = 0; i < records; ++i) {
      n.skip(4);
      Cursor id = n.part(id_bytes);
      check((id.number(1) & 0xf0) == 0, "a link is in no block of its heap");
      const std::uint64_t offset = id.number(offset_bytes), length = id.number(length_bytes);
      Cursor body = at(find(offset, length), length);
      link(body, header);
    }
    for (std::uint64_t i = 0; level > 0 && i <= records; ++i) {
      const std::uint64_t child = n.number(8), count = n.number(count_bytes);
      n.skip(static_cast<std::uint64_t>(total_bytes[level - 1]));
      visit(child, count, level - 1);
    }
  };
  if (tree_root != kUndefined) visit(tree_root, root_records, depth);
}

std::span<const std::uint8_t> Hdf5Reader::File::heap_object(std::uint64_t collection, std::uint32_t index) const {
  const auto known = heaps_.find(collection);
  if (known == heaps_.end()) {
    Cursor prefix = at(collection, 16);
    prefix.expect("GCOL");
    prefix.skip(4);
    const std::uint64_t bytes = prefix.number(8);
    check(bytes >= 16, "a heap has no size");
    Cursor all = at(collection, bytes);
    Heap heap;
    const auto raw = all.take(bytes);
    heap.bytes.assign(raw.begin(), raw.end());
    Cursor objects(*this, heap.bytes, 0);
    objects.skip(16);
    while (objects.left() >= 16) {
      const auto number = static_cast<std::uint32_t>(objects.number(2));
      objects.skip(6);
      const std::uint64_t length = objects.number(8);
      if (number == 0) break;  // what is free
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
  Cursor raw = at(data.offset - base_, data.bytes());
  for (std::uint64_t i = 0; i < data.elements; ++i) {
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
    all.emplace_back(text.begin(), std::find(text.begin(), text.end(), 0));
  }
  return all;
}

Hdf5Reader::Hdf5Reader(std::unique_ptr<ByteSource> source, ExitCode code)
    : file_(std::make_unique<File>(std::move(source), code)) {}
Hdf5Reader::Hdf5Reader(Hdf5Reader&&) noexcept = default;
Hdf5Reader::~Hdf5Reader() = default;

Hdf5Reader Hdf5Reader::open(const std::string& path, ExitCode code) {
  std::unique_ptr<ByteSource> source;
  try {
    source = open_bytes(path);
  } catch (const Error& error) {
    throw Error(code, error.what());
  }
  return {std::move(source), code};
}

const std::string& Hdf5Reader::path() const { return file_->name(); }

bool Hdf5Reader::has(const std::string& name) const { return file_->find(name) != nullptr; }
bool Hdf5Reader::is_group(const std::string& name) const { return file_->get(name).group; }

std::vector<std::string> Hdf5Reader::list(const std::string& group) const {
  const File::Object& found = file_->get(group);
  require(found.group, file_->code(), path(), ": ", group, " is no group");
  return found.members;
}

Hdf5Info Hdf5Reader::info(const std::string& name) const {
  const File::Data& data = file_->dataset(name);
  Hdf5Info info;
  info.shape = data.shape;
  info.offset = static_cast<std::int64_t>(data.offset);
  info.element = static_cast<std::int64_t>(data.type.size);
  using Kind = File::Type::Kind;
  switch (data.type.kind) {
    case Kind::unsigned_integer:
    case Kind::signed_integer:
      info.kind = data.type.kind == Kind::unsigned_integer && data.type.size == 1 ? Hdf5Info::Kind::u8
                                                                                  : Hdf5Info::Kind::integer;
      break;
    case Kind::real:
      info.kind = Hdf5Info::Kind::real;
      break;
    case Kind::text:
    case Kind::text_in_heap:
      info.kind = Hdf5Info::Kind::text;
      break;
    case Kind::other:
      break;
  }
  return info;
}

std::size_t Hdf5Reader::elements(const std::string& name) const {
  return static_cast<std::size_t>(file_->dataset(name).elements);
}

namespace {

// A stored number, its bytes in the machine's order.
template <class T>
T number_of(const std::uint8_t* raw, std::uint64_t size, bool is_signed, bool real) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, raw, static_cast<std::size_t>(size));
  if (real) {
    if (size == 2) return static_cast<T>(to_float(Half{static_cast<std::uint16_t>(bits)}));
    if (size == 4) return static_cast<T>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    return static_cast<T>(std::bit_cast<double>(bits));
  }
  const auto unused = static_cast<int>(64 - 8 * size);
  if (is_signed) return static_cast<T>(static_cast<std::int64_t>(bits << unused) >> unused);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<T>(std::min(bits, kMost));
}

}  // namespace

template <class T>
void Hdf5Reader::read_blocks(const std::string& name, const std::function<void(std::span<const T>)>& use) const {
  static_assert(std::endian::native == std::endian::little);
  const File::Data& data = file_->dataset(name);
  constexpr bool kReal = std::is_floating_point_v<T>;
  using Kind = Hdf5Info::Kind;
  const Kind kind = info(name).kind;
  const bool fits =
      kReal ? kind == Kind::real : kind == Kind::u8 || (kHdf5Type<T> == Hdf5Type::i64 && kind == Kind::integer);
  require(fits, file_->code(), path(), ": dataset ", name, " must hold ",
          kReal                           ? "real numbers"
          : kHdf5Type<T> == Hdf5Type::i64 ? "integers"
                                          : "unsigned bytes");
  const std::uint64_t size = data.type.size;
  const bool is_signed = data.type.kind == File::Type::Kind::signed_integer;
  std::vector<std::uint8_t> raw;
  std::vector<T> values;
  for (std::uint64_t done = 0; done < data.elements;) {
    const std::uint64_t count = std::min<std::uint64_t>(kBlock, data.elements - done);
    raw.resize(static_cast<std::size_t>(count * size));
    values.resize(static_cast<std::size_t>(count));
    file_->read(data.offset + done * size, raw.data(), raw.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint8_t* element = raw.data() + i * size;
      if (data.type.big_endian) std::reverse(element, element + size);
      values[i] = number_of<T>(element, size, is_signed, kReal);
    }
    use(values);
    done += count;
  }
}
template void Hdf5Reader::read_blocks(const std::string&,
                                      const std::function<void(std::span<const std::uint8_t>)>&) const;
template void Hdf5Reader::read_blocks(const std::string&,
                                      const std::function<void(std::span<const std::int64_t>)>&) const;
template void Hdf5Reader::read_blocks(const std::string&, const std::function<void(std::span<const float>)>&) const;
template void Hdf5Reader::read_blocks(const std::string&, const std::function<void(std::span<const double>)>&) const;

std::optional<std::vector<std::string>> Hdf5Reader::texts(const std::string& object, const std::string& key) const {
  const File::Object* found = file_->find(object);
  if (found == nullptr) return std::nullopt;
  const auto attribute = found->attributes.find(key);
  if (attribute == found->attributes.end()) return std::nullopt;
  using Kind = File::Type::Kind;
  const Kind kind = attribute->second.type.kind;
  if (kind != Kind::text && kind != Kind::text_in_heap) return std::nullopt;
  return file_->texts(attribute->second);
}

std::optional<std::string> Hdf5Reader::text(const std::string& object, const std::string& key) const {
  auto values = texts(object, key);
  if (!values || values->size() != 1) return std::nullopt;
  return std::move(values->front());
}

std::optional<std::int64_t> Hdf5Reader::integer(const std::string& object, const std::string& key) const {
  const File::Object* found = file_->find(object);
  if (found == nullptr) return std::nullopt;
  const auto attribute = found->attributes.find(key);
  if (attribute == found->attributes.end()) return std::nullopt;
  const File::Data& data = attribute->second;
  const bool is_signed = data.type.kind == File::Type::Kind::signed_integer;
  if ((!is_signed && data.type.kind != File::Type::Kind::unsigned_integer) || data.elements != 1) return std::nullopt;
  std::uint8_t raw[8];
  file_->read(data.offset, raw, data.type.size);
  if (data.type.big_endian) std::reverse(raw, raw + data.type.size);
  return number_of<std::int64_t>(raw, data.type.size, is_signed, false);
}

std::vector<std::string> Hdf5Reader::attribute_names(const std::string& object) const {
  std::vector<std::string> names;
  if (const File::Object* found = file_->find(object))
    for (const auto& [name, data] : found->attributes) names.push_back(name);
  return names;
}

}  // namespace dat
