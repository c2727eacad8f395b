#include <algorithm>
#include <utility>

#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"
#include "data/arrays/inflate.hpp"

namespace dat {

namespace {

struct Member {
  std::string name;
  int method = 0;
  std::uint32_t crc = 0;
  std::int64_t stored = 0, size = 0;    ///< bytes in the archive and unpacked
  std::int64_t header = 0, offset = 0;  ///< places of its local header and of its bytes
};

constexpr int kStored = 0, kDeflated = 8;

/// The bytes of a member, unpacked. Their checksum is compared when the last one is read.
class MemberStream final : public ByteStream {
 public:
  MemberStream(const ByteSource& source, const Member& member)
      : name_(source.name() + ": " + member.name + " (from byte " + std::to_string(member.offset) + ")"),
        crc_wanted_(member.crc),
        left_(member.size) {
    if (member.method == kStored)
      bytes_ = std::make_unique<PartStream>(source, member.offset, member.stored);
    else
      bytes_ = std::make_unique<InflateStream>(source, member.offset, member.stored, Wrapping::none, name_);
  }

  void read(void* to, std::int64_t bytes) override {
    require(bytes <= left_, ExitCode::data, name_, " is too short");
    bytes_->read(to, bytes);
    crc_ = crc_of(crc_, to, bytes);
    left_ -= bytes;
    require(left_ != 0 || crc_ == crc_wanted_, ExitCode::data, name_, " is damaged: its checksum is another");
  }

 private:
  std::string name_;
  std::unique_ptr<ByteStream> bytes_;
  std::uint32_t crc_ = 0, crc_wanted_;
  std::int64_t left_;
};

/// Little-endian numbers of a record.
struct Fields {
  const unsigned char* bytes;
  [[nodiscard]] std::uint64_t number(std::size_t at, std::size_t width) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) value |= std::uint64_t{bytes[at + i]} << (8 * i);
    return value;
  }
};

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kLocator64 = 0x07064b50;
constexpr std::int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the number stands in the zip64 field

class Npz final : public NumbersFile {
 public:
  explicit Npz(const ByteSource& source) : NumbersFile(source) { read_directory(); }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const Member& member : members_) names.push_back(array_name(member));
    return names;
  }

  [[nodiscard]] StoredArray array(const std::string& name) const override {
    const auto found = std::ranges::find_if(members_, [&](const Member& m) { return array_name(m) == name; });
    check(found != members_.end(), "has no array ", name);
    const Member member = located(*found);
    StoredArray array;
    array.name = name;
    MemberStream stream(source_, member);
    const std::int64_t header = read_npy_header(stream, member.size, source_.name() + ": " + member.name, array);
    array.open = [&source = source_, member, header] {
      auto elements = std::make_unique<MemberStream>(source, member);
      std::vector<char> skipped(static_cast<std::size_t>(header));
      elements->read(skipped.data(), header);
      return elements;
    };
    return array;
  }

 private:
  static std::string array_name(const Member& member) {
    return member.name.ends_with(".npy") ? member.name.substr(0, member.name.size() - 4) : member.name;
  }

  /// offset: in the file, as position() makes sure.
  std::vector<unsigned char> bytes(std::int64_t offset, std::int64_t count, const char* what) const {
    check(count <= source_.size() - offset, "the ", what, " at byte ", offset,
          " is not wholly in the file: it is cut off or damaged");
    std::vector<unsigned char> read(static_cast<std::size_t>(count));
    source_.read(offset, read.data(), count);
    return read;
  }

  // The directory stands at the end of the archive, found from its last record.
  void read_directory() {
    const std::int64_t tail = std::min<std::int64_t>(source_.size(), kEndBytes + 65535);
    check(tail >= kEndBytes, "too short for an .npz file");
    const std::vector<unsigned char> last = bytes(source_.size() - tail, tail, "end");
    std::int64_t at = tail - kEndBytes;
    while (at >= 0 && Fields{&last[static_cast<std::size_t>(at)]}.number(0, 4) != kEnd) --at;
    check(at >= 0, "has no directory at its end: it is cut off, or no .npz file");
    const Fields end{&last[static_cast<std::size_t>(at)]};
    std::uint64_t entries = end.number(10, 2), size = end.number(12, 4), offset = end.number(16, 4);
    const std::int64_t locator = source_.size() - tail + at - kLocatorBytes;
    if (locator >= 0) {
      const auto found = bytes(locator, kLocatorBytes, "end");
      if (Fields{found.data()}.number(0, 4) == kLocator64) {
        const auto record = bytes(position(Fields{found.data()}.number(8, 8)), kEnd64Bytes, "zip64 directory");
        const Fields end64{record.data()};
        check(end64.number(0, 4) == kEnd64, "has a damaged zip64 directory");
        entries = end64.number(32, 8);
        size = end64.number(40, 8);
        offset = end64.number(48, 8);
      }
    }
    constexpr std::uint64_t kMostEntries = 1024, kMostBytes = 1 << 20;
    check(entries <= kMostEntries && size <= kMostBytes, "has a directory of ", entries, " entries in ", size,
          " bytes; an .npz of images has a few");
    const auto directory = bytes(position(offset), static_cast<std::int64_t>(size), "directory");
    std::size_t next = 0;
    for (std::uint64_t entry = 0; entry < entries; ++entry) next = read_entry(directory, next);
  }

  std::int64_t position(std::uint64_t offset) const {
    check(offset <= static_cast<std::uint64_t>(source_.size()), "refers to byte ", offset, ", but has ",
          source_.size());
    return static_cast<std::int64_t>(offset);
  }

  std::size_t read_entry(const std::vector<unsigned char>& directory, std::size_t begin) {
    const auto whole = [&](std::size_t end) { check(end <= directory.size(), "has a directory that is cut off"); };
    whole(begin + kCentralBytes);
    const Fields entry{&directory[begin]};
    check(entry.number(0, 4) == kCentral, "has a damaged directory");
    const std::size_t name = entry.number(28, 2), extra = entry.number(30, 2), comment = entry.number(32, 2);
    const std::size_t fields = begin + kCentralBytes + name, end = fields + extra + comment;
    whole(end);
    Member member;
    member.name.assign(reinterpret_cast<const char*>(&directory[begin]) + kCentralBytes, name);
    member.method = static_cast<int>(entry.number(10, 2));
    member.crc = static_cast<std::uint32_t>(entry.number(16, 4));
    std::uint64_t stored = entry.number(20, 4), size = entry.number(24, 4), header = entry.number(42, 4);
    for (std::size_t at = fields; at + 4 <= fields + extra;) {
      const Fields field{&directory[at]};
      const std::size_t length = field.number(2, 2);
      if (at + 4 + length > fields + extra) break;
      std::size_t from = 4;
      if (field.number(0, 2) == 1)  // zip64: those of the numbers that do not fit, in this order
        for (std::uint64_t* value : {&size, &stored, &header})
          if (*value == kIn64 && from + 8 <= 4 + length) *value = field.number(std::exchange(from, from + 8), 8);
      at += 4 + length;
    }
    check((entry.number(8, 2) & 1) == 0, member.name, " is encrypted");
    check(member.method == kStored || member.method == kDeflated, member.name, " is packed by method ", member.method,
          "; known are 0 (numpy.savez) and 8 (numpy.savez_compressed)");
    check(stored <= static_cast<std::uint64_t>(source_.size()) &&
              (member.method == kStored ? size == stored : size <= kMostGrowth * stored),
          member.name, " claims ", size, " bytes, packed in ", stored, ", which cannot be");
    member.stored = static_cast<std::int64_t>(stored);
    member.size = static_cast<std::int64_t>(size);
    member.header = position(header);
    members_.push_back(std::move(member));
    return end;
  }

  // The bytes follow the local header, whose extra fields may be others than the directory's.
  Member located(Member member) const {
    const auto header = bytes(member.header, kLocalBytes, "header of a member");
    const Fields local{header.data()};
    check(local.number(0, 4) == kLocal, member.name, ": no header at byte ", member.header);
    member.offset = member.header + kLocalBytes + static_cast<std::int64_t>(local.number(26, 2) + local.number(28, 2));
    check(member.stored <= source_.size() - member.offset, member.name, " is cut off: it needs ", member.stored,
          " bytes from byte ", member.offset, ", the file has ", source_.size());
    return member;
  }

  std::vector<Member> members_;
};

}  // namespace

std::unique_ptr<ArrayFile> open_npz(const ByteSource& source) { return std::make_unique<Npz>(source); }

}  // namespace dat
