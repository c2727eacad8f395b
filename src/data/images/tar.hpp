#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "files/bytes.hpp"

namespace dat {

/// A file in a tar archive, and where its bytes lie.
struct TarEntry {
  std::string path;
  std::int64_t offset = 0, bytes = 0;  ///< offset and size; a link has -1 bytes
};

/// Calls `use` with the files and links of a tar archive that is not compressed, in their order; folders and devices
/// are passed over. Contents are not read. Error(data): it is none, or is cut off or damaged; sparse files, whose bytes
/// do not lie in one piece.
void for_each_in_tar(const ByteSource& archive, const std::function<void(const TarEntry& entry)>& use);

}  // namespace dat
