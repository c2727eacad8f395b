#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "dat/error.hpp"

namespace dat {

/// Bytes that can be read at any place: the bytes of a file, or of memory in tests.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Name of the source in messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Reads `bytes` bytes from `offset` on. Error(data): the bytes are not all there, or the system cannot read them.
  virtual void read(std::int64_t offset, void* to, std::int64_t bytes) const = 0;
};

/// The bytes of a file. Error(code), here and where they are read: `path` is missing, or no file.
[[nodiscard]] std::unique_ptr<ByteSource> open_bytes(const std::string& path, ExitCode code = ExitCode::data);

/// The first `most` bytes of a source, or as many as there are. Error(data).
[[nodiscard]] std::string beginning_of(const ByteSource& source, std::int64_t most);

/// Number of rows of so many bytes that are in memory at a time where all would be too many.
[[nodiscard]] constexpr std::int64_t rows_at_once(std::int64_t bytes) {
  return std::max<std::int64_t>(1, (std::int64_t{1} << 19) / bytes);
}

/// Bytes that come one after the other.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Reads the next `bytes` bytes. Error(data): there are no more, or they are damaged.
  virtual void read(void* to, std::int64_t bytes) = 0;
};

/// A part of a source, which it must not outlive.
class PartStream final : public ByteStream {
 public:
  PartStream(const ByteSource& source, std::int64_t offset, std::int64_t bytes)
      : source_(source), at_(offset), end_(offset + bytes) {}
  void read(void* to, std::int64_t bytes) override;

 private:
  const ByteSource& source_;
  std::int64_t at_, end_;
};

}  // namespace dat
