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
  for (const auto& [count, array] : arrays_) most = std::max(most, array.table.largest());
  const char* const purpose = "hash of the state";
  partial_ = backend.allocate_array<double>(most * kSums, purpose);
  sums_ = backend.allocate_array<double>(std::ssize(on_device_) * kSums, purpose);
  host_sums_ = backend.allocate_pinned_array<double>(std::ssize(on_device_) * kSums, purpose);
}

void StateHash::device(const std::string& name, float* data, std::int64_t count) {
  if (planning_) {
    assert(count < std::int64_t{1} << 31);  // above, the three sums would not be exact
    arrays_.try_emplace(count, backend_, count);
    on_device_.push_back(names_.size());
    names_.push_back(name);
    return;
  }
  assert(on_device_[next_on_device_] == next_);
  ++next_;
  sum(backend_.device(), arrays_.at(count).chunks, kernels::Fingerprint{data}, partial_,
      sums_ + kSums * next_on_device_++);
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
