#include "data/arrays/inflate.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dat/error.hpp"

namespace dat {

struct InflateStream::Zlib {
  z_stream stream{};
  std::array<unsigned char, 1 << 16> packed{};
};

InflateStream::InflateStream(const ByteSource& source, std::int64_t offset, std::int64_t packed, Wrapping wrapping,
                             std::string name)
    : source_(source),
      name_(std::move(name)),
      wrapping_(wrapping),
      at_(offset),
      end_(offset + packed),
      zlib_(std::make_unique<Zlib>()) {
  constexpr int kGzip = 16;  // zlib.h, inflateInit2: added to the bits of the window; negative bits: nothing around
  const int bits = wrapping == Wrapping::none ? -MAX_WBITS : wrapping == Wrapping::zlib ? MAX_WBITS : MAX_WBITS + kGzip;
  require(inflateInit2(&zlib_->stream, bits) == Z_OK, ExitCode::data, name_, ": zlib cannot begin");
}

InflateStream::~InflateStream() { inflateEnd(&zlib_->stream); }

/// The next packed byte, which stays; -1: there is none.
int InflateStream::next_byte() {
  z_stream& stream = zlib_->stream;
  if (stream.avail_in == 0 && at_ != end_) {
    const std::int64_t more = std::min<std::int64_t>(std::ssize(zlib_->packed), end_ - at_);
    source_.read(at_, zlib_->packed.data(), more);
    at_ += more;
    stream.next_in = zlib_->packed.data();
    stream.avail_in = static_cast<uInt>(more);
  }
  return stream.avail_in > 0 ? *stream.next_in : -1;
}

/// Returns whether another gzip member follows the one that has ended, and begins it. Zeros are passed over.
bool InflateStream::next_begins() {
  constexpr int kMagic = 0x1f;
  if (wrapping_ != Wrapping::gzip) return false;
  for (; next_byte() == 0; ++zlib_->stream.next_in) --zlib_->stream.avail_in;
  return next_byte() == kMagic && inflateReset(&zlib_->stream) == Z_OK;
}

std::int64_t InflateStream::read_some(void* to, std::int64_t bytes) {
  z_stream& stream = zlib_->stream;
  std::int64_t done = 0;
  constexpr std::int64_t kPiece = 1 << 20;
  while (done < bytes && !ended_) {
    const auto piece = static_cast<uInt>(std::min(bytes - done, kPiece));
    stream.next_out = static_cast<unsigned char*>(to) + done;
    stream.avail_out = piece;
    static_cast<void>(next_byte());
    const int result = inflate(&stream, Z_NO_FLUSH);
    require(result != Z_BUF_ERROR, ExitCode::data, name_, " is cut off");
    require(result == Z_OK || result == Z_STREAM_END, ExitCode::data, name_, " is damaged: it cannot be unpacked");
    ended_ = result == Z_STREAM_END && !next_begins();
    done += piece - stream.avail_out;
  }
  return done;
}

void InflateStream::read(void* to, std::int64_t bytes) {
  require(read_some(to, bytes) == bytes, ExitCode::data, name_, " is too short");
}

void InflateStream::end() {
  char more{};
  require(read_some(&more, sizeof more) == 0 && at_ == end_ && zlib_->stream.avail_in == 0, ExitCode::data, name_,
          " is longer than it says");
}

namespace {

void skip(ByteStream& stream, std::int64_t bytes) {
  std::array<char, 512> skipped{};
  for (; bytes > 0; bytes -= std::ssize(skipped))
    stream.read(skipped.data(), std::min<std::int64_t>(bytes, std::ssize(skipped)));
}

}  // namespace

InflatedPart::InflatedPart(std::unique_ptr<InflateStream> stream, std::int64_t before, std::int64_t bytes,
                           std::int64_t after)
    : stream_(std::move(stream)), left_(bytes), after_(after) {
  skip(*stream_, before);
}

void InflatedPart::read(void* to, std::int64_t bytes) {
  stream_->read(to, bytes);
  left_ -= bytes;
  if (left_ != 0) return;
  skip(*stream_, after_);
  stream_->end();
}

std::uint32_t crc_of(std::uint32_t before, const void* bytes, std::int64_t count) {
  return static_cast<std::uint32_t>(
      crc32_z(before, static_cast<const unsigned char*>(bytes), static_cast<z_size_t>(count)));
}

}  // namespace dat
