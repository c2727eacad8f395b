#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <utility>

#include "dat/error.hpp"
#include "dat/number.hpp"
#include "data/arrays/arrays.hpp"

namespace dat {

std::string StoredArray::text() const {
  const std::string type = kind == 'u'   ? "uint"
                           : kind == 'i' ? "int"
                           : kind == 'f' ? "float"
                                         : std::string("type ") + kind;
  std::string text = type + std::to_string(kind == 'u' || kind == 'i' || kind == 'f' ? 8 * item_bytes : item_bytes);
  if (kind == 'U' || kind == 'S') text = "strings";
  if (kind == 'V') text = "neither numbers nor strings";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? " [" : ", ") + std::to_string(shape[i]);
  return text + (shape.empty() ? " []" : "]");
}

bool read_type(const std::string& text, StoredArray& array) {
  std::size_t at = 0;
  if (at < text.size() && std::strchr("<>|=", text[at]) != nullptr) array.big_endian = text[at++] == '>';
  if (std::isalpha(static_cast<unsigned char>(text[at])) == 0) return false;  // at its end it is none
  array.kind = text[at++];
  if (!read_number(std::string_view(text).substr(at), array.item_bytes)) return false;
  constexpr std::int64_t kMostBytes = 4096, kCharacter = 4;
  if (array.item_bytes < 0 || array.item_bytes > kMostBytes) return false;
  if (array.kind == 'U') array.item_bytes *= kCharacter;  // counts characters
  return array.item_bytes >= 1;
}

void set_type(std::span<const NumberType> types, std::uint32_t code, StoredArray& array) {
  const auto found = std::ranges::find(types, code, &NumberType::code);
  if (found == types.end()) return;
  array.kind = found->kind;
  array.item_bytes = found->bytes;
}

bool set_shape(std::vector<std::int64_t> shape, StoredArray& array) {
  array.bytes = array.item_bytes;
  for (const std::int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(array.bytes, dim, &array.bytes)) return false;
  array.shape = std::move(shape);
  return true;
}

std::int64_t integer_of(const std::uint8_t* digits, const StoredArray& type) {
  std::uint64_t value = 0;
  for (std::int64_t i = 0; i < type.item_bytes; ++i)
    value = value << 8 | digits[type.big_endian ? i : type.item_bytes - 1 - i];
  const auto unused = static_cast<unsigned>(64 - 8 * type.item_bytes);
  return type.kind == 'u' ? static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value << unused) >> unused;
}

std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

namespace {

/// Reads the header's text: a Python dictionary of a string, a truth value and a tuple of integers.
class Header {
 public:
  Header(std::string text, const std::string& where) : text_(std::move(text)), where_(where) {}

  void read(StoredArray& array) {
    bool type = false, order = false, shape = false;
    expect('{');
    while (!next_is('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !type) {
        check(next() != '[', "is an array of records");
        const std::string descr = quoted();
        check(read_type(descr, array), "has the unknown type '" + descr + "'");
        type = true;
      } else if (key == "fortran_order" && !order) {
        array.column_major = truth();
        order = true;
      } else if (key == "shape" && type && !shape) {
        check(set_shape(tuple(), array), "claims an impossible size");
        shape = true;
      } else {
        check(false, "has an unknown header");
      }
      if (!next_is('}')) expect(',');
    }
    check(type && order && shape, "has an incomplete header");
  }

 private:
  void check(bool condition, const std::string& reason) const {
    require(condition, ExitCode::data, where_, ": ", reason);
  }
  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    check(at_ < text_.size(), "has a header that is cut off");
    return text_[at_];
  }
  bool next_is(char c) { return next() == c; }
  void expect(char c) {
    check(next_is(c), std::string("has a damaged header: no '") + c + "' where it should be");
    ++at_;
  }
  std::string quoted() {
    const char quote = next();
    check(quote == '\'' || quote == '"', "has a damaged header: no name where it should be");
    const std::size_t end = text_.find(quote, at_ + 1);
    check(end != std::string::npos, "has a header that is cut off");
    std::string word = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return word;
  }
  bool truth() {
    (void)next();
    const bool yes = text_.compare(at_, 4, "True") == 0;
    check(yes || text_.compare(at_, 5, "False") == 0, "has a damaged header: fortran_order");
    at_ += yes ? 4 : 5;
    return yes;
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> numbers;
    expect('(');
    while (!next_is(')')) {
      std::int64_t number{};
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      check(error == std::errc() && numbers.size() < 32, "has a damaged header: shape");
      numbers.push_back(number);
      at_ = static_cast<std::size_t>(end - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
      if (!next_is(')')) expect(',');
    }
    ++at_;
    return numbers;
  }

  std::string text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace

// numpy/lib/format.py: "\x93NUMPY", major and minor version, the header's length in two bytes (version 1) or four, the
// header. Its keys come sorted: descr, fortran_order, shape. NumPy itself reads no header above 10,000 bytes.
std::int64_t read_npy_header(ByteStream& stream, std::int64_t size, const std::string& where, StoredArray& array) {
  constexpr std::int64_t kPreamble = 8, kLongest = 10000;
  unsigned char bytes[kPreamble + 4] = {};
  require(size >= kPreamble + 2, ExitCode::data, where, ": too short for a .npy file");
  stream.read(bytes, kPreamble);
  require(std::memcmp(bytes, "\x93NUMPY", 6) == 0, ExitCode::data, where, ": no .npy file");
  require(bytes[6] >= 1 && bytes[6] <= 3, ExitCode::data, where, ": has the .npy version ", int{bytes[6]},
          ", known are 1 to 3");
  const std::int64_t width = bytes[6] == 1 ? 2 : 4;
  require(size >= kPreamble + width, ExitCode::data, where, ": too short for a .npy file");
  stream.read(bytes + kPreamble, width);
  std::int64_t length = 0;
  for (std::int64_t i = 0; i < width; ++i) length |= std::int64_t{bytes[kPreamble + i]} << (8 * i);
  const std::int64_t header = kPreamble + width + length;
  require(length <= kLongest && header <= size, ExitCode::data, where, ": claims a header of ", length, " bytes");
  std::string text(static_cast<std::size_t>(length), ' ');
  stream.read(text.data(), length);
  Header(std::move(text), where).read(array);
  require(array.bytes == size - header, ExitCode::data, where, ": holds ", size - header, " bytes of numbers, but ",
          array.text(), " needs ", array.bytes);
  return header;
}

StoredArray open_npy(const ByteSource& source) {
  StoredArray array;
  array.name = source.name();
  PartStream stream(source, 0, source.size());
  const std::int64_t header = read_npy_header(stream, source.size(), source.name(), array);
  array.open = [&source, header, bytes = array.bytes] { return std::make_unique<PartStream>(source, header, bytes); };
  return array;
}

}  // namespace dat
