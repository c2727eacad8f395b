#pragma once

#include <vector>

#include "byzantine/assembly.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// The protocol's meetings, of a group of ranks.
class RanksAssembly final : public Assembly {
 public:
  explicit RanksAssembly(Communicator& ranks) : ranks_(ranks), bytes_(static_cast<std::size_t>(ranks.size())) {}
  [[nodiscard]] int rank() const override { return ranks_.rank(); }
  [[nodiscard]] int size() const override { return ranks_.size(); }
  [[nodiscard]] int launch_rank(int rank) const override { return ranks_.launch_rank(rank); }
  void all_gather(const void* mine, void* all, std::size_t bytes) override {
    const CallLabel label("what ranks say of their gradients");
    ranks_.all_gather(mine, all, bytes);
  }
  void exchange(const void* to, void* from, std::size_t bytes) override {
    const CallLabel label("salts of parts of gradients");
    bytes_.assign(bytes_.size(), static_cast<int>(bytes));
    ranks_.exchange(to, bytes_, from, bytes_);
  }
  void broadcast(void* data, std::size_t bytes, int from) override {
    const CallLabel label("a part of a gradient that is disputed");
    bytes_.assign(bytes_.size(), 0);
    bytes_[static_cast<std::size_t>(from)] = static_cast<int>(bytes);
    all_.resize(bytes);
    ranks_.all_gather(data, all_.data(), bytes_);
    std::ranges::copy(all_, static_cast<std::byte*>(data));
  }

 private:
  Communicator& ranks_;
  std::vector<int> bytes_;
  std::vector<std::byte> all_;
};

}  // namespace dat
