#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "files/bytes.hpp"

namespace dat {

/// Deflate packs at most so many bytes into one: https://zlib.net/zlib_tech.html.
inline constexpr std::int64_t kMostGrowth = 1032;

/// Format around deflated bytes: none (in zip archives), or the header and checksum of zlib or gzip.
enum class Wrapping : std::uint8_t { none, zlib, gzip };

/// Deflated bytes of a source, which it must not outlive, unpacked. Several gzip members may follow each other, with
/// zeros after the last: they are one. The only door to zlib.h.
class InflateStream final : public ByteStream {
 public:
  /// Unpacks the `packed` bytes from `offset` on. `name` is what messages call these bytes.
  InflateStream(const ByteSource& source, std::int64_t offset, std::int64_t packed, Wrapping wrapping,
                std::string name);
  ~InflateStream() override;

  void read(void* to, std::int64_t bytes) override;
  /// Reads up to `bytes` bytes. Returns the number of bytes that there were: fewer than `bytes` at the end alone.
  [[nodiscard]] std::int64_t read_some(void* to, std::int64_t bytes);
  /// Ends the stream after the last byte has been read. Error(data): more bytes follow, or the checksum is another.
  void end();

 private:
  struct Zlib;

  [[nodiscard]] int next_byte();
  [[nodiscard]] bool next_begins();

  const ByteSource& source_;
  const std::string name_;
  const Wrapping wrapping_;
  std::int64_t at_, end_;
  bool ended_ = false;
  std::unique_ptr<Zlib> zlib_;
};

/// A part of unpacked bytes, with all that must follow it: when its last byte is read, the end is checked.
class InflatedPart final : public ByteStream {
 public:
  /// `before` bytes are skipped, `bytes` can be read, `after` follow.
  InflatedPart(std::unique_ptr<InflateStream> stream, std::int64_t before, std::int64_t bytes, std::int64_t after);
  void read(void* to, std::int64_t bytes) override;

 private:
  std::unique_ptr<InflateStream> stream_;
  std::int64_t left_, after_;
};

/// The CRC-32 of all bytes so far, given the CRC-32 of the bytes before (0 at the beginning).
[[nodiscard]] std::uint32_t crc_of(std::uint32_t before, const void* bytes, std::int64_t count);

}  // namespace dat
