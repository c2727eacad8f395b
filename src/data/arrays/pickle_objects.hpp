#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"

/// Content of a pickle: objects, and the bytes of those that were written as text.
namespace dat::pickle {

/// Meaning of a name in a pickle.
enum class Known : std::uint8_t { reconstruct, frombuffer, scalar, ndarray, dtype, encode, bytes };

struct KnownName {
  std::string_view module, name;
  Known what;
};
inline constexpr KnownName kKnown[] = {
    {"numpy.core.multiarray", "_reconstruct", Known::reconstruct},
    {"numpy._core.multiarray", "_reconstruct", Known::reconstruct},
    {"numpy.core.numeric", "_frombuffer", Known::frombuffer},
    {"numpy._core.numeric", "_frombuffer", Known::frombuffer},
    {"numpy.core.multiarray", "scalar", Known::scalar},
    {"numpy._core.multiarray", "scalar", Known::scalar},
    {"numpy", "ndarray", Known::ndarray},
    {"numpy", "dtype", Known::dtype},
    {"_codecs", "encode", Known::encode},
    {"__builtin__", "bytes", Known::bytes},
    {"builtins", "bytes", Known::bytes},
};

using NodeId = std::uint32_t;
inline constexpr std::int64_t kBlock = 1 << 16;  ///< bytes that are read at once

/// An object. Objects that hold others name them, so that neither depth nor cycles cost anything.
struct Node {
  enum class Kind : std::uint8_t { other, integer, bytes, text, latin1, tuple, list, dict, known, dtype, array };
  Kind kind = Kind::other;
  std::int64_t value = 0;   ///< integer, truth value; the Known; where bytes, text and latin1 begin in the file
  std::int64_t length = 0;  ///< bytes of bytes and text; latin1: of its UTF-8
  std::vector<NodeId>
      items{};  ///< dict: key, value, ...; dtype: name, byte order; array: shape, dtype, elements, order
};

/// Reads `count` bytes that were written as text (protocol 2): Latin-1, as UTF-8 of `bytes` bytes.
class Latin1Stream final : public ByteStream {
 public:
  Latin1Stream(const ByteSource& source, std::int64_t offset, std::int64_t bytes, std::int64_t count)
      : source_(source), at_(offset), end_(offset + bytes), left_(count) {}

  void read(void* to, std::int64_t bytes) override {
    auto* out = static_cast<std::uint8_t*>(to);
    for (std::int64_t i = 0; i < bytes; ++i) {
      const std::uint8_t first = next();
      if (first < 0x80) {
        out[i] = first;
        continue;
      }
      const std::uint8_t second = next();
      require((first & 0xfe) == 0xc2 && (second & 0xc0) == 0x80, ExitCode::data, source_.name(),
              ": the text before byte ", at_ - std::ssize(block_) + begin_, " holds no bytes: damaged");
      out[i] = static_cast<std::uint8_t>((first & 3) << 6 | (second & 0x3f));
    }
    left_ -= bytes;
    require(left_ != 0 || (at_ == end_ && begin_ == std::ssize(block_)), ExitCode::data, source_.name(),
            ": the array that ends at byte ", end_, " is too long");
  }

 private:
  std::uint8_t next() {
    if (begin_ == std::ssize(block_)) {
      require(at_ < end_, ExitCode::data, source_.name(), ": the array that ends at byte ", end_, " is too short");
      block_.resize(static_cast<std::size_t>(std::min(kBlock, end_ - at_)));
      source_.read(at_, block_.data(), std::ssize(block_));
      at_ += std::ssize(block_);
      begin_ = 0;
    }
    return block_[static_cast<std::size_t>(begin_++)];
  }

  const ByteSource& source_;
  std::int64_t at_, end_, left_, begin_ = 0;
  std::vector<std::uint8_t> block_;
};

}  // namespace dat::pickle
