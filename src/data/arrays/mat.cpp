// MATLAB's files of version 5 (and 7, which packs them), as far as arrays of numbers go.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"
#include "data/arrays/inflate.hpp"

namespace dat {

namespace {

// Types of elements. A matrix is one of several: flags, dimensions, name, numbers.
constexpr std::uint32_t kInt8 = 1, kInt32 = 5, kUint32 = 6, kMatrix = 14, kCompressed = 15;

constexpr NumberType kNumbers[] = {{1, 'i', 1}, {2, 'u', 1}, {3, 'i', 2}, {4, 'u', 2},  {5, 'i', 4},
                                   {6, 'u', 4}, {7, 'f', 4}, {9, 'f', 8}, {12, 'i', 8}, {13, 'u', 8}};

struct Tag {
  std::uint32_t type = 0;
  std::int64_t bytes = 0;
  bool small = false;  ///< true: up to four bytes stand in the tag itself
  std::array<std::uint8_t, 4> own{};
};

/// A variable: where it lies in the file, and where its numbers lie in it, once it is unpacked.
struct Variable {
  std::string name;
  std::vector<std::int64_t> dims;
  bool packed = false, numeric = false;
  std::int64_t offset = 0, stored = 0;             ///< place and bytes in the file
  std::int64_t numbers = 0, bytes = 0, after = 0;  ///< unpacked; `after` bytes follow the numbers
  std::uint32_t type = 0;
};

class Mat final : public NumbersFile {
 public:
  explicit Mat(const ByteSource& source) : NumbersFile(source) {
    check(source.size() >= kHeader, "too short for a MATLAB file");
    std::array<char, 4> end{};
    source.read(kHeader - std::ssize(end), end.data(), std::ssize(end));
    check(end == std::array<char, 4>{0, 1, 'I', 'M'},
          "no MATLAB file of version 5 in little-endian order; save it with", " -v7");
    for (std::int64_t at = kHeader; at < source.size();) {
      constexpr std::size_t kMostVariables = 1024;
      check(variables_.size() < kMostVariables, "holds more than ", kMostVariables, " variables");
      at = read_variable(at);
    }
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const Variable& variable : variables_) names.push_back(variable.name);
    return names;
  }

  [[nodiscard]] StoredArray array(const std::string& name) const override {
    const auto found = std::ranges::find_if(variables_, [&](const Variable& v) { return v.name == name; });
    check(found != variables_.end(), "has no array ", name);
    StoredArray array;
    array.name = name;
    set_type(kNumbers, found->type, array);
    check(found->numeric && array.kind != 0, name, " is no array of numbers");
    // The first dimension runs fastest: of the reversed ones the last does.
    const bool possible = set_shape({found->dims.rbegin(), found->dims.rend()}, array);
    check(possible && array.bytes == found->bytes, name, " is ", array.text(), " and has ", found->bytes,
          " bytes: it is damaged");
    array.open = [&source = source_, variable = *found]() -> std::unique_ptr<ByteStream> {
      if (!variable.packed)
        return std::make_unique<PartStream>(source, variable.offset + variable.numbers, variable.bytes);
      return std::make_unique<InflatedPart>(inflated(source, variable), variable.numbers, variable.bytes,
                                            variable.after);
    };
    return array;
  }

 private:
  static constexpr std::int64_t kHeader = 128, kTag = 8;

  static std::unique_ptr<InflateStream> inflated(const ByteSource& source, const Variable& variable) {
    return std::make_unique<InflateStream>(source, variable.offset, variable.stored, Wrapping::zlib,
                                           source.name() + ": the variable at byte " + std::to_string(variable.offset));
  }

  static std::uint32_t number(const std::uint8_t* digits) {
    return digits[0] | digits[1] << 8 | digits[2] << 16 | std::uint32_t{digits[3]} << 24;
  }
  static Tag read_tag(ByteStream& stream) {
    std::array<std::uint8_t, kTag> bytes{};
    stream.read(bytes.data(), kTag);
    Tag tag{.type = number(bytes.data()), .bytes = number(&bytes[4])};
    tag.small = tag.type >> 16 != 0;
    if (!tag.small) return tag;
    tag.bytes = tag.type >> 16;
    tag.type &= 0xffff;
    std::copy(bytes.begin() + 4, bytes.end(), tag.own.begin());
    return tag;
  }
  /// The bytes of an element of a matrix, at most `most`. `taken` grows by what it occupies.
  std::vector<std::uint8_t> read_element(ByteStream& stream, std::uint32_t type, std::int64_t most,
                                         std::int64_t& taken) const {
    const Tag tag = read_tag(stream);
    taken += kTag;
    check(tag.type == type && tag.bytes <= (tag.small ? std::ssize(tag.own) : most),
          "a variable has a damaged header, or is no array");
    if (tag.small) return {tag.own.begin(), tag.own.begin() + tag.bytes};
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>((tag.bytes + 7) / 8 * 8));
    stream.read(bytes.data(), std::ssize(bytes));
    taken += std::ssize(bytes);
    bytes.resize(static_cast<std::size_t>(tag.bytes));
    return bytes;
  }

  /// Returns where the next one begins.
  std::int64_t read_variable(std::int64_t at) {
    check(source_.size() - at >= kTag, "is cut off at byte ", at);
    PartStream file(source_, at, kTag);
    Tag outer = read_tag(file);
    Variable variable;
    variable.packed = outer.type == kCompressed;
    variable.offset = at + kTag;
    variable.stored = outer.bytes;
    check(!outer.small && (variable.packed || outer.type == kMatrix), "byte ", at, ": no variable begins here");
    check(variable.stored <= source_.size() - variable.offset, "is cut off: the variable at byte ", at, " needs ",
          variable.stored, " bytes, the file has ", source_.size() - variable.offset);
    const std::int64_t next = variable.offset + variable.stored;
    std::unique_ptr<ByteStream> stream = std::make_unique<PartStream>(source_, variable.offset, variable.stored);
    std::int64_t& taken = variable.numbers;
    if (variable.packed) {
      stream = inflated(source_, variable);
      outer = read_tag(*stream);
      taken += kTag;
      check(outer.type == kMatrix && outer.bytes / kMostGrowth <= variable.stored, "byte ", at,
            ": no variable is packed here");
    }
    constexpr std::int64_t kMostDims = 32, kLongestName = 256;
    const std::vector<std::uint8_t> flags = read_element(*stream, kUint32, 8, taken);
    check(flags.size() == 8, "a variable has no flags");
    constexpr int kDouble = 6, kUint64 = 15, kComplex = 8;  // classes of numbers, and the bit of complex ones
    variable.numeric = flags[0] >= kDouble && flags[0] <= kUint64 && (flags[1] & kComplex) == 0;
    const std::vector<std::uint8_t> dims = read_element(*stream, kInt32, 4 * kMostDims, taken);
    for (std::size_t i = 0; i + 4 <= dims.size(); i += 4) variable.dims.push_back(number(&dims[i]));
    const std::vector<std::uint8_t> name = read_element(*stream, kInt8, kLongestName, taken);
    variable.name.assign(name.begin(), name.end());
    if (variable.numeric) {  // others hold variables of their own, or texts
      const Tag numbers = read_tag(*stream);
      taken += numbers.small ? kTag / 2 : kTag;
      variable.type = numbers.type;
      variable.bytes = numbers.bytes;
      const std::int64_t whole = outer.bytes + (variable.packed ? kTag : 0);
      variable.after = whole - taken - variable.bytes;
      check(variable.after >= 0, variable.name, " is larger than its place");
    }
    variables_.push_back(std::move(variable));
    return next;
  }

  std::vector<Variable> variables_;
};

}  // namespace

std::unique_ptr<ArrayFile> open_mat(const ByteSource& source) { return std::make_unique<Mat>(source); }

}  // namespace dat
