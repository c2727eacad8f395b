#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "dat/parameters.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// A fingerprint of 64 bits of each array of replicated state (kernels::fingerprint_of), computed where the array lies.
/// Any change of a single word changes the fingerprint, and so do other changes but for one in 2^64. Bits count: -0 and
/// 0 differ.
class StateHash final : public ReplicatedState {
 public:
  /// Plans for the state that these parts have, and takes memory on the backend's device.
  StateHash(Backend& backend, std::span<Stateful* const> parts);

  /// Takes the fingerprints of what the parts hold now; waits for the device once.
  void take(std::span<Stateful* const> parts);
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }      ///< [arrays]
  [[nodiscard]] const std::vector<std::uint64_t>& values() const { return values_; }  ///< [arrays]
  /// A fingerprint of all arrays together, which differs where a single array's does.
  [[nodiscard]] std::uint64_t value() const;

  void device(const std::string& name, float* data, std::int64_t count) override;
  void host(const std::string& name, void* data, std::size_t bytes) override;

 private:
  Backend& backend_;
  bool planning_ = true;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> values_;
  std::map<std::int64_t, ArrayInChunks> arrays_;  ///< by the number of elements
  std::vector<std::size_t> on_device_;            ///< numbers of the arrays that lie on the device
  std::size_t next_ = 0, next_on_device_ = 0;
  double *partial_ = nullptr, *sums_ = nullptr, *host_sums_ = nullptr;  ///< sums: [arrays on the device][kSums]
};

}  // namespace dat
