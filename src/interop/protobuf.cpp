#include "interop/protobuf.hpp"

#include <bit>
#include <utility>

namespace dat {

namespace {

constexpr unsigned kVarint = 0, kLengthDelimited = 2, kFixed32 = 5;
constexpr std::size_t kLargePiece = 1 << 16;  ///< bytes of a piece that is moved, not copied

}  // namespace

void ProtobufMessage::append(std::string piece) {
  size_ += std::ssize(piece);
  if (piece.size() >= kLargePiece || pieces_.empty() || pieces_.back().size() >= kLargePiece)
    pieces_.push_back(std::move(piece));
  else
    pieces_.back() += piece;
}

void ProtobufMessage::varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7U) text += static_cast<char>(0x80U | (value & 0x7fU));
  append(text + static_cast<char>(value));
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
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::string text;
  for (unsigned shift = 0; shift < 32; shift += 8) text += static_cast<char>(bits >> shift & 0xffU);
  append(std::move(text));
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

}  // namespace dat
