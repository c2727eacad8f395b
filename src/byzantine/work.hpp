#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "byzantine/digest.hpp"

namespace dat {

/// Claim of a rank about its part of a gradient once the result is known: with the difference d between the two and a
/// random direction z, <z, d>; and |d|.
struct Claim {
  double product = 0, norm = 0;
};

/// Contribution of a rank to a step, as anybody who recomputes its work finds it.
struct Contribution {
  std::vector<Sha256Digest> roots;  ///< roots of its gradient's parts
  std::vector<double> numbers;      ///< batch statistics and losses
  std::vector<Claim> claims;        ///< one for each part
};

/// Data with which a rank's work in a step can be checked in the next one. All of it has been sent to all.
struct PendingCheck {
  int validator = 0, target = 0;          ///< ranks in the launch
  int rank = 0;                           ///< rank of the target in the group of the step
  std::vector<Sha256Digest> commitments;  ///< commitments to its parts
  std::vector<double> numbers;
  std::vector<Claim> claims;
};

/// The checks of a step that come in the next one.
struct PendingChecks {
  std::int64_t step = -1;           ///< step whose work is checked
  int ranks = 0;                    ///< size of the group then
  std::vector<std::uint64_t> keys;  ///< keys of the directions, one for each part
  std::vector<PendingCheck> checks;
};

/// The work of a step, as the protocol sees it: gradients in parts, one for each rank of the group. A contribution's
/// part j is what rank j has been given of it. "Shown" are the bytes of one part.
class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual std::size_t part_bytes(int part) const = 0;
  /// The part of this rank's contribution, as it stands in the message.
  [[nodiscard]] virtual std::span<const std::byte> own_part(int part) const = 0;
  virtual void own_roots(std::span<Sha256Digest> of_parts) = 0;
  /// Roots of the contributions that the ranks have sent, for this rank's part. [ranks]
  virtual void received_roots(std::span<Sha256Digest> of_ranks) = 0;
  [[nodiscard]] virtual Sha256Digest root(std::span<const std::byte> shown) = 0;
  /// Takes what was shown in place of what a rank has sent.
  virtual void replace(int rank, std::span<const std::byte> shown) = 0;

  /// Once the result v is there. Returns whether this rank's iteration ended before it came to rest.
  [[nodiscard]] virtual bool unfinished() const = 0;
  /// Claims about this rank's contribution, one for each part; and |v|, part by part, which is the same on all ranks.
  virtual void claims(std::span<const std::uint64_t> keys, std::span<Claim> of_parts, std::span<double> norms) = 0;
  /// Claims that the ranks should make for this rank's part.
  virtual void claims_received(std::uint64_t key, std::span<Claim> of_ranks) = 0;
  /// Claim that a rank should make for a part that it has shown.
  [[nodiscard]] virtual Claim claim(int part, std::uint64_t key, std::span<const std::byte> shown) = 0;
  /// Returns whether a part of the result has the bits that follow from the contributions that all ranks have shown,
  /// one after the other; of ranks whose weight is 0, zeros. unfinished: whether the iteration ended before it came to
  /// rest.
  [[nodiscard]] virtual bool aggregated(int part, std::span<const std::byte> shown, bool& unfinished) = 0;

  /// Recomputes the work of a check's target. The reference is valid until the next call.
  [[nodiscard]] virtual const Contribution& redo(const PendingChecks& of, const PendingCheck& check) = 0;
};

}  // namespace dat
