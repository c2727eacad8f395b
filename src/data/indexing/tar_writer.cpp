#include "data/indexing/tar_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace {

/// The header of a file, all of whose fields are at fixed places. Numbers are octal.
[[nodiscard]] std::array<char, TarWriter::kBlock> header_of(const std::string& name, std::size_t bytes) {
  std::array<char, TarWriter::kBlock> header{};
  const auto put = [&](std::size_t at, const char* text) { std::memcpy(header.data() + at, text, std::strlen(text)); };
  std::ranges::copy(name, header.begin());
  std::array<char, 13> number{};
  put(100, "0000644");  // mode
  put(108, "0000000");  // owner
  put(116, "0000000");  // group
  std::snprintf(number.data(), number.size(), "%011llo", static_cast<unsigned long long>(bytes));
  put(124, number.data());
  put(136, "00000000000");  // time
  put(148, "        ");     // the sum of all bytes, of which it counts as blanks
  put(156, "0");            // a file
  put(257, "ustar");
  put(263, "00");
  const unsigned sum = std::accumulate(header.begin(), header.end(), 0U,
                                       [](unsigned all, char c) { return all + static_cast<unsigned char>(c); });
  std::snprintf(number.data(), number.size(), "%06o", sum);
  std::memcpy(header.data() + 148, number.data(), 7);
  return header;
}

}  // namespace

TarWriter::TarWriter(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  require(file_ != -1, ExitCode::io, "cannot write ", path_, ": ", system_reason(errno));
}

TarWriter::~TarWriter() { ::close(file_); }

void TarWriter::add(const std::string& name, std::span<const std::uint8_t> bytes) {
  assert(!name.empty() && name.size() <= kLongestName);
  const auto header = header_of(name, bytes.size());
  std::string file(header.data(), header.size());
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file.resize(static_cast<std::size_t>(room_for(std::ssize(bytes))), '\0');
  write_bytes(file_, file, path_);
}

void TarWriter::close() {
  write_bytes(file_, std::string(2 * kBlock, '\0'), path_);
  require(::close(std::exchange(file_, -1)) == 0, ExitCode::io, "cannot write ", path_, ": ", system_reason(errno));
}

}  // namespace dat
