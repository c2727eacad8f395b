#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace dat {

/// Exchange of messages among ranks that may lie. A message to all is the same for all, and nobody speaks for another
/// one; messages may say anything. All calls are **collective**, and lengths are the same on all ranks.
class Assembly {
 public:
  virtual ~Assembly() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The number in the launch of a rank of the group.
  [[nodiscard]] virtual int launch_rank(int rank) const = 0;
  /// Brings each rank's `bytes` to all: rank r's stand at `all` + r * bytes.
  virtual void all_gather(const void* mine, void* all, std::size_t bytes) = 0;
  /// Brings `bytes` from each rank to each rank: what rank r gets stands at `to` + r * bytes, what it has for this one
  /// goes to `from` + r * bytes.
  virtual void exchange(const void* to, void* from, std::size_t bytes) = 0;
  /// Brings bytes of one rank to all.
  virtual void broadcast(void* data, std::size_t bytes, int from) = 0;
};

/// Message of one rank: of the length that is due, or not.
struct Heard {
  enum class How : std::uint8_t { well, nothing, malformed };
  How how = How::nothing;
  std::span<const std::byte> bytes;  ///< empty unless it is well
};

/// A message of a length that everybody knows, with its length in front: so a rank that sends nothing, or something
/// else, says so in a block of the same size, and nobody reads beyond it.
class Letter {
 public:
  explicit Letter(std::size_t bytes) : block_(kHead + bytes) {}
  [[nodiscard]] std::span<std::byte> bytes() { return std::span(block_).subspan(kHead); }
  /// Sets the length; called when the bytes are there.
  void seal() { length() = static_cast<std::uint32_t>(block_.size() - kHead); }
  /// The length that the message says it has; a cheat may say another one.
  [[nodiscard]] std::uint32_t& length() { return *reinterpret_cast<std::uint32_t*>(block_.data()); }
  [[nodiscard]] std::byte* block() { return block_.data(); }
  [[nodiscard]] std::size_t block_bytes() const { return block_.size(); }

  static constexpr std::size_t kHead = 8;
  /// Message in a block of this length where so many bytes are due.
  [[nodiscard]] static Heard read(const std::byte* block, std::size_t due) {
    std::uint32_t length;
    std::memcpy(&length, block, sizeof length);
    if (length == 0) return {};
    if (length != due) return {.how = Heard::How::malformed, .bytes = {}};
    return {.how = Heard::How::well, .bytes = {block + kHead, due}};
  }

 private:
  std::vector<std::byte> block_;
};

/// A round in which every rank says something to all.
class Round {
 public:
  Round(int ranks, std::size_t bytes) : mine(bytes), all_(static_cast<std::size_t>(ranks) * mine.block_bytes()) {}
  Letter mine;
  void meet(Assembly& assembly) { assembly.all_gather(mine.block(), all_.data(), mine.block_bytes()); }
  [[nodiscard]] Heard of(int rank) const {
    const std::size_t block = mine.block_bytes();
    return Letter::read(all_.data() + static_cast<std::size_t>(rank) * block, block - Letter::kHead);
  }

 private:
  std::vector<std::byte> all_;
};

}  // namespace dat
