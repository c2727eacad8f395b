#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dat {

/// A message of Protocol Buffers, written field by field. The message's bytes are in pieces, so that messages within
/// messages do not copy large fields. (Google's library would ask for its compiler and for headers of one version, to
/// write the few messages of ONNX and to read none.) Source: "Encoding",
/// https://protobuf.dev/programming-guides/encoding.
class ProtobufMessage {
 public:
  // Fields by their number. An int64, int32 or enum; a float; a string or bytes; a message.
  void integer(int field, std::int64_t value);
  void real(int field, float value);
  void bytes(int field, std::string value);
  void message(int field, ProtobufMessage value);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  void key(int field, unsigned wire_type);
  void varint(std::uint64_t value);
  void append(std::string piece);

  std::vector<std::string> pieces_;
  std::int64_t size_ = 0;
};

}  // namespace dat
