#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dat {

/// Writes a tar archive (POSIX.1-1988, ustar) that is a function of what is added. Error(io).
class TarWriter {
 public:
  static constexpr std::int64_t kBlock = 512;
  static constexpr std::size_t kLongestName = 100;

  explicit TarWriter(const std::string& path);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;
  /// A file. name: of kLongestName bytes at most, which the caller knows.
  void add(const std::string& name, std::span<const std::uint8_t> bytes);
  void close();

  /// Bytes of a file with `bytes` bytes in a tar.
  [[nodiscard]] static std::int64_t room_for(std::int64_t bytes) {
    return kBlock + (bytes + kBlock - 1) / kBlock * kBlock;
  }

 private:
  std::string path_;
  int file_;
};

}  // namespace dat
