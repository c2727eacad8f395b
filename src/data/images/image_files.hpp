#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "files/bytes.hpp"

namespace dat {

/// The files that images lie in, below a folder: containers, and files of their own. Thread-safe.
class ImageFiles {
 public:
  /// containers: paths in the folder. Error(data): one is not there.
  ImageFiles(std::string folder, std::vector<std::string> containers);
  ~ImageFiles();
  ImageFiles(ImageFiles&&) = default;

  [[nodiscard]] std::int64_t container_bytes(std::size_t number) const { return bytes_[number]; }
  /// Place of an image in words: in a container, or a file of its own (-1) that has this path.
  [[nodiscard]] std::string place(int container, const std::string& path) const;
  /// Reads so many bytes from `offset` on; a file of its own has no others. Error(data): they are not there; the path
  /// leaves the folder.
  void read(int container, const std::string& path, std::int64_t offset, std::int64_t bytes,
            std::vector<std::uint8_t>& to) const;

 private:
  std::string folder_;
  std::vector<std::string> containers_;
  std::vector<std::int64_t> bytes_;
  std::vector<std::unique_ptr<ByteSource>> open_;  ///< sources of the first containers
};

}  // namespace dat
