#pragma once

#include "catch.hpp"
#include "files/bytes.hpp"

namespace dat::test {

/// A file that is in memory.
class MemoryBytes final : public ByteSource {
 public:
  explicit MemoryBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(bytes_); }
  void read(std::int64_t offset, void* to, std::int64_t bytes) const override {
    // The reader has to know what is there: beyond it, this is a fault of the reader.
    if (offset < 0 || bytes < 0 || offset > size() || bytes > size() - offset)
      throw std::out_of_range("beyond the end");
    std::copy_n(bytes_.begin() + offset, bytes, static_cast<char*>(to));
  }

 private:
  std::string bytes_, name_ = "memory";
};

}  // namespace dat::test
