#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dat/shell.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {

/// The structure of a whole HDF5 file, read and checked when it is made: objects by path, where the elements of each
/// dataset lie, attributes.
class Hdf5Reader::File {
 public:
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};  ///< the format's address of what is not there
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
    /// Bytes of the elements; at most those of the file, once an object is known.
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
    const std::string word = shell_quoted(name()), quote = word == name() ? "'" : "";
    fail(code_, name(), ": ", what, "; ", quote, "dat_hpc data convert ", word, " NEW", quote,
         " makes a plain file of it, which can be read");
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
    if (path.starts_with('/')) path.erase(0, 1);
    const auto found = objects_.find(path);
    return found == objects_.end() ? nullptr : &found->second;
  }
  /// Attribute of an object; null: there is none.
  [[nodiscard]] const Data* attribute(const std::string& object, const std::string& key) const {
    const Object* found = find(object);
    if (found == nullptr) return nullptr;
    const auto data = found->attributes.find(key);
    return data == found->attributes.end() ? nullptr : &data->second;
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
    source_->read(static_cast<std::int64_t>(offset), to, static_cast<std::int64_t>(count));
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
      const std::uint64_t begin = offset();
      const auto found = take(4);
      if (!std::equal(found.begin(), found.end(), signature))
        file_->damaged(std::string("no ") + signature + " at byte " + std::to_string(begin));
    }
    [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }
    [[nodiscard]] std::uint64_t offset() const { return offset_ + at_; }  ///< offset in the file
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
    std::uint64_t order = kNowhere;
  };
  /// Content of an object's header that has been read so far.
  struct Header {
    Object object;
    std::vector<Link> links;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;  ///< continuations to be read
    bool space = false, type = false, layout = false, group = false;
    bool ordered = false;      ///< the group knows in which order its members were made
    std::uint64_t stored = 0;  ///< bytes that the layout has for the elements
  };

  /// Sizes of a heap whose blocks stand in rows of equal width.
  struct FractalHeap {
    std::uint64_t id_bytes = 0, width = 0, start = 0, most_direct = 0, root = 0, rows = 0;
    int offset_bytes = 0, length_bytes = 0;
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
  [[nodiscard]] FractalHeap fractal_heap(std::uint64_t address) const;
  /// Place of the heap's byte `offset`: in the root, or below it in the block of a row and column, whose size doubles
  /// from row to row.
  [[nodiscard]] std::uint64_t place_in(const FractalHeap& heap, std::uint64_t offset, std::uint64_t length) const;
  void dense_links(const FractalHeap& heap, std::uint64_t tree, Header& header) const;
  /// Bytes of a collection's object.
  [[nodiscard]] std::span<const std::uint8_t> heap_object(std::uint64_t collection, std::uint32_t index) const;

  std::unique_ptr<ByteSource> source_;
  ExitCode code_;
  std::uint64_t size_, base_ = 0;              ///< size of the file; start of its addresses
  mutable std::int64_t budget_;                ///< bytes of structure that may still be read: the end of every loop
  std::uint64_t stored_ = 0;                   ///< bytes of all datasets
  std::map<std::string, Object> objects_;      ///< objects by path; "": the root
  std::map<std::uint64_t, std::string> seen_;  ///< objects by address
  struct Heap {
    std::vector<std::uint8_t> bytes;
    std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> objects;  ///< begin and length
  };
  mutable std::map<std::uint64_t, Heap> heaps_;
};

}  // namespace dat
