#include "data/images/tar.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "dat/error.hpp"
#include "dat/tick.hpp"

namespace dat {

namespace {

/// Source from which the library reads. Errors of the source wait until the library has returned.
struct TarReading {
  const ByteSource& source;
  std::int64_t at = 0;
  std::vector<char> block = std::vector<char>(1U << 12U);  // heads alone are read: no more than one
  std::exception_ptr failure{};
};

la_ssize_t read_block(archive*, void* data, const void** block) {
  auto* reading = static_cast<TarReading*>(data);
  *block = reading->block.data();
  la_ssize_t bytes = ARCHIVE_FATAL;
  try {
    const std::int64_t next = std::min(std::ssize(reading->block), reading->source.size() - reading->at);
    reading->source.read(reading->at, reading->block.data(), next);
    reading->at += next;
    bytes = next;
  } catch (...) {
    reading->failure = std::current_exception();
  }
  return bytes;
}

la_int64_t skip_bytes(archive*, void* data, la_int64_t bytes) {
  auto* reading = static_cast<TarReading*>(data);
  const std::int64_t skipped = std::min<std::int64_t>(bytes, reading->source.size() - reading->at);
  reading->at += skipped;
  return skipped;
}

}  // namespace

void for_each_in_tar(const ByteSource& source, const std::function<void(const TarEntry& entry)>& use) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader(archive_read_new(), archive_read_free);
  require(reader != nullptr, ExitCode::data, source.name(), ": no memory to read it");
  TarReading reading{.source = source};
  const auto check = [&](int status) {
    if (reading.failure) std::rethrow_exception(reading.failure);
    require(status == ARCHIVE_OK || status == ARCHIVE_WARN || status == ARCHIVE_EOF, ExitCode::data, source.name(),
            ": no whole tar archive, or a compressed one: ",
            archive_error_string(reader.get()) != nullptr ? archive_error_string(reader.get()) : "unknown");
    return status;
  };
  check(archive_read_support_format_tar(reader.get()));
  check(archive_read_open2(reader.get(), &reading, nullptr, read_block, skip_bytes, nullptr));
  for (archive_entry* entry = nullptr; check(archive_read_next_header(reader.get(), &entry)) != ARCHIVE_EOF;) {
    tick();
    const char* const path = archive_entry_pathname(entry);
    const bool link = archive_entry_hardlink(entry) != nullptr || archive_entry_filetype(entry) == AE_IFLNK;
    if (archive_entry_filetype(entry) != AE_IFREG && !link) continue;
    require(path != nullptr, ExitCode::data, source.name(), ": has a file whose name cannot be read");
    if (link) {
      use({.path = path, .bytes = -1});
      continue;
    }
    require(archive_entry_sparse_count(entry) == 0, ExitCode::data, source.name(), ": ", in_one_line(path),
            " is a sparse file, which cannot be read where it lies");
    const TarEntry found{path, archive_filter_bytes(reader.get(), 0), archive_entry_size(entry)};
    require(found.bytes >= 0 && found.bytes <= source.size() - found.offset, ExitCode::data, source.name(),
            ": is cut off in ", in_one_line(path));
    use(found);
  }
  // The library takes the end of the file for the tar's.
  require(archive_filter_bytes(reader.get(), 0) > archive_read_header_position(reader.get()), ExitCode::data,
          source.name(), ": is cut off: nothing ends it after its last file; copy it anew");
}

}  // namespace dat
