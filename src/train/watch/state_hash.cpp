#include "train/watch/state_hash.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "fingerprint.hpp"

namespace dat {

StateHash::StateHash(Backend& backend, std::span<Stateful* const> parts) : backend_(backend) {
  for (Stateful* part : parts) part->replicated(*this);
  planning_ = false;
  values_.resize(names_.size());
  std::int64_t most = 0;
  for (const auto& [count, chunks] : chunks_) most = std::max<std::int64_t>(most, chunks.count);
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count * kSums) * sizeof(double); };
  const char* const purpose = "hash of the state";
  partial_ = static_cast<double*>(backend.allocate(bytes(most), purpose));
  sums_ = static_cast<double*>(backend.allocate(bytes(std::ssize(on_device_)), purpose));
  host_sums_ = static_cast<double*>(backend.allocate_pinned(bytes(std::ssize(on_device_)), purpose));
}

void StateHash::plan_chunks(std::int64_t count) {
  assert(count < std::int64_t{1} << 31);  // above, the three sums would not be exact
  if (chunks_.contains(count)) return;
  std::vector<Chunk> all;
  for (std::int64_t begin = 0; begin < count; begin += kChunk)
    all.push_back({begin, static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, count - begin)), 0});
  const std::int32_t first[] = {0, static_cast<std::int32_t>(all.size())};
  const auto on_device = [this](const void* data, std::size_t bytes) {
    void* const there = backend_.allocate(bytes, "hash of the state");
    backend_.copy_to_device(there, data, bytes);
    return there;
  };
  chunks_[count] = {.data = static_cast<const Chunk*>(on_device(all.data(), all.size() * sizeof(Chunk))),
                    .first = static_cast<const std::int32_t*>(on_device(first, sizeof first)),
                    .count = first[1],
                    .segments = 1};
}

void StateHash::device(const std::string& name, float* data, std::int64_t count) {
  if (planning_) {
    plan_chunks(count);
    on_device_.push_back(names_.size());
    names_.push_back(name);
    return;
  }
  assert(on_device_[next_on_device_] == next_);
  ++next_;
  sum(backend_.device(), chunks_.at(count), kernels::Fingerprint{data}, partial_, sums_ + kSums * next_on_device_++);
}

void StateHash::host(const std::string& name, void* data, std::size_t bytes) {
  if (planning_) return names_.push_back(name);
  std::uint64_t total = 0;
  const auto* const from = static_cast<const char*>(data);
  for (std::size_t at = 0; at + sizeof(std::uint32_t) <= bytes; at += sizeof(std::uint32_t)) {
    std::uint32_t word{};
    std::memcpy(&word, from + at, sizeof word);
    total += kernels::fingerprint_of(static_cast<std::int64_t>(at / sizeof word), word);
  }
  values_[next_++] = total;
}

void StateHash::take(std::span<Stateful* const> parts) {
  next_ = next_on_device_ = 0;
  for (Stateful* part : parts) part->replicated(*this);
  assert(next_ == names_.size());
  backend_.wait_for(backend_.fetch(host_sums_, sums_, on_device_.size() * kSums * sizeof(double)));
  for (std::size_t k = 0; k < on_device_.size(); ++k)
    values_[on_device_[k]] = kernels::fingerprint_of(host_sums_ + kSums * k);
}

std::uint64_t StateHash::value() const {
  std::uint64_t total = 0;
  for (std::size_t k = 0; k < values_.size(); ++k) total += kernels::mix_bits(values_[k] + kernels::mix_bits(k));
  return total;
}

}  // namespace dat
