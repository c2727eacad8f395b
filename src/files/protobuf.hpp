#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dat {

/// A message of Protocol Buffers, written field by field. The message's bytes are in pieces, so that messages within
/// messages do not copy large fields. (Google's library would ask for its compiler and for headers of one version, to
/// write the few messages of ONNX and of TensorBoard.) Source: "Encoding",
/// https://protobuf.dev/programming-guides/encoding.
class ProtobufMessage {
 public:
  // Fields by their number. An int64, int32 or enum; a float; a double; doubles, packed; a string or bytes; a message.
  void integer(int field, std::int64_t value);
  void real(int field, float value);
  void real64(int field, double value);
  void reals(int field, std::span<const double> values);
  void bytes(int field, std::string value);
  void message(int field, ProtobufMessage value);
  // A string and a message as copies. With clear() a small message is written again and again in the same memory.
  void text(int field, std::string_view value);
  void copy(int field, const ProtobufMessage& value);
  /// Removes all fields, and keeps the memory.
  void clear();

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  void key(int field, unsigned wire_type);
  void varint(std::uint64_t value);
  void add(std::string_view bytes);
  void append(std::string piece);

  std::vector<std::string> pieces_;
  std::int64_t size_ = 0;
};

// The first field of this number in an encoded message, which may be anybody's: a string, bytes or a message; an
// integer. Empty: there is none before the message ends or is damaged.
[[nodiscard]] std::optional<std::string_view> bytes_in(std::string_view message, int field);
[[nodiscard]] std::optional<std::int64_t> integer_in(std::string_view message, int field);

}  // namespace dat
