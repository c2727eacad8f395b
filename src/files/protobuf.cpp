#include "files/protobuf.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace dat {

namespace {

constexpr unsigned kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
constexpr std::size_t kLargePiece = 1 << 16;  ///< bytes of a piece that is moved, not copied

/// The bytes of a fixed-width number, the lowest first.
template <class Bits>
[[nodiscard]] std::string little_endian(Bits bits) {
  std::string text;
  for (std::size_t k = 0; k < sizeof bits; ++k) text += static_cast<char>(bits >> 8 * k & 0xffU);
  return text;
}

/// A field of an encoded message.
struct EncodedField {
  int number = 0;
  unsigned wire_type = 0;
  std::uint64_t integer = 0;
  std::string_view bytes{};
};

/// Takes a varint off `rest`. value: 0. False: there is none that is whole.
[[nodiscard]] bool take_varint(std::string_view& rest, std::uint64_t& value) {
  for (unsigned k = 0; k < 10 && !rest.empty(); ++k) {
    const auto byte = static_cast<unsigned char>(rest[0]);
    rest.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << 7 * k;
    if (byte < 0x80) return true;
  }
  return false;
}

/// Takes the next field off `rest`. False: there is none, or none that is whole.
[[nodiscard]] bool take_field(std::string_view& rest, EncodedField& field) {
  std::uint64_t key = 0, length = 0;
  if (!take_varint(rest, key)) return false;
  field = {.number = static_cast<int>(key >> 3U & 0x1fffffffU), .wire_type = static_cast<unsigned>(key & 7U)};
  if (field.wire_type == kVarint) return take_varint(rest, field.integer);
  if (field.wire_type == kFixed64)
    length = 8;
  else if (field.wire_type == kFixed32)
    length = 4;
  else if (field.wire_type != kLengthDelimited || !take_varint(rest, length))
    return false;
  if (length > rest.size()) return false;
  field.bytes = rest.substr(0, length);
  rest.remove_prefix(length);
  return true;
}

[[nodiscard]] std::optional<EncodedField> find_field(std::string_view message, int number, unsigned wire_type) {
  for (EncodedField field; take_field(message, field);)
    if (field.number == number && field.wire_type == wire_type) return field;
  return {};
}

}  // namespace

void ProtobufMessage::add(std::string_view bytes) {
  size_ += std::ssize(bytes);
  if (pieces_.empty() || pieces_.back().size() >= kLargePiece) pieces_.emplace_back();
  pieces_.back() += bytes;
}

void ProtobufMessage::append(std::string piece) {
  if (piece.size() < kLargePiece) return add(piece);
  size_ += std::ssize(piece);
  pieces_.push_back(std::move(piece));
}

void ProtobufMessage::clear() {
  pieces_.resize(std::min<std::size_t>(pieces_.size(), 1));
  for (std::string& piece : pieces_) piece.clear();
  size_ = 0;
}

void ProtobufMessage::varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7U) text += static_cast<char>(0x80U | (value & 0x7fU));
  add(text += static_cast<char>(value));
}

void ProtobufMessage::key(int field, unsigned wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3U | wire_type);
}

void ProtobufMessage::integer(int field, std::int64_t value) {
  key(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
}

void ProtobufMessage::real(int field, float value) {
  key(field, kFixed32);
  add(little_endian(std::bit_cast<std::uint32_t>(value)));
}

void ProtobufMessage::real64(int field, double value) {
  key(field, kFixed64);
  add(little_endian(std::bit_cast<std::uint64_t>(value)));
}

void ProtobufMessage::reals(int field, std::span<const double> values) {
  key(field, kLengthDelimited);
  varint(values.size() * sizeof(double));
  for (const double value : values) add(little_endian(std::bit_cast<std::uint64_t>(value)));
}

void ProtobufMessage::bytes(int field, std::string value) {
  key(field, kLengthDelimited);
  varint(value.size());
  append(std::move(value));
}

void ProtobufMessage::message(int field, ProtobufMessage value) {
  key(field, kLengthDelimited);
  varint(static_cast<std::uint64_t>(value.size_));
  for (std::string& piece : value.pieces_) append(std::move(piece));
}

void ProtobufMessage::text(int field, std::string_view value) {
  key(field, kLengthDelimited);
  varint(value.size());
  add(value);
}

void ProtobufMessage::copy(int field, const ProtobufMessage& value) {
  key(field, kLengthDelimited);
  varint(static_cast<std::uint64_t>(value.size_));
  for (const std::string& piece : value.pieces_) add(piece);
}

std::optional<std::string_view> bytes_in(std::string_view message, int field) {
  const std::optional<EncodedField> found = find_field(message, field, kLengthDelimited);
  return found ? std::optional(found->bytes) : std::nullopt;
}

std::optional<std::int64_t> integer_in(std::string_view message, int field) {
  const std::optional<EncodedField> found = find_field(message, field, kVarint);
  return found ? std::optional(static_cast<std::int64_t>(found->integer)) : std::nullopt;
}

}  // namespace dat
