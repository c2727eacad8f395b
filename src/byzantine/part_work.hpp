#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "byzantine/work.hpp"
#include "dat/aggregator.hpp"
#include "dat/backend.hpp"
#include "dat/parameters.hpp"
#include "reduce/transport/part_layout.hpp"

namespace dat {

/// Sums for claims: over runs of gradients beside a result (kernels::ClaimSums), in an order that follows from a run's
/// length alone.
class RunSums {
 public:
  /// A run of x, where it begins in v, and the key of its direction.
  struct Run {
    std::int64_t x = 0, elements = 0, v = 0;
    std::uint64_t key = 0;
  };

  /// Sums over at most so many runs, with at most so many elements in all.
  RunSums(Backend& backend, std::int64_t most, int runs);
  [[nodiscard]] static std::int64_t memory(std::int64_t most, int runs);

  /// Chunks of runs, a segment each. Valid until the next call of a member.
  [[nodiscard]] Chunks chunks_of(std::span<const Run> runs);
  /// [runs][kSums] on the host, valid until the next call. Waits for the device.
  [[nodiscard]] const double* of(std::span<const Run> runs, const float* x, const float* v);

 private:
  Backend& backend_;
  std::vector<Chunk> chunks_;
  std::vector<std::int32_t> first_;
  Chunk* device_chunks_;
  std::int32_t* device_first_;
  double *partial_, *sums_, *host_;
};

/// A contribution that has been made once more.
struct Redone {
  const float* message = nullptr;  ///< message on the device
  const float* result = nullptr;   ///< result of its step, on the device
  std::int64_t elements = 0;
  std::span<const double> numbers;
};

/// The work of a step on gradients as a transport has them in memory.
class PartWork final : public Work {
 public:
  /// most: elements of a step's message, at most. redo: does the work of a check's target once more.
  PartWork(Backend& backend, int ranks, int rank, std::int64_t most,
           std::function<Redone(const PendingChecks&, const PendingCheck&)> redo);
  [[nodiscard]] static std::int64_t memory(int ranks, std::int64_t most);

  /// Sets the aggregator that makes a result of contributions.
  void use(Aggregator& aggregator) { aggregator_ = &aggregator; }

  /// Begins a step with this rank's message, on the device; a copy is kept.
  void begin(std::int64_t step, std::int64_t elements, const float* message);
  /// everyone: of all ranks, what they have for this one's part, one after the other, on the device; place: for a part
  /// of the result.
  void exchanged(float* everyone, float* place) {
    everyone_ = everyone;
    place_ = place;
  }
  /// Called when this rank's part of the result has been made.
  void aggregated() { unfinished_ = aggregator_->unfinished(); }
  /// The step's message of the result, on the device.
  void gathered(const float* result) { result_ = result; }
  void weigh(std::span<const double> weights) { weights_.assign(weights.begin(), weights.end()); }

  [[nodiscard]] std::size_t part_bytes(int part) const override;
  [[nodiscard]] std::span<const std::byte> own_part(int part) const override;
  void own_roots(std::span<Sha256Digest> of_parts) override;
  void received_roots(std::span<Sha256Digest> of_ranks) override;
  [[nodiscard]] Sha256Digest root(std::span<const std::byte> shown) override;
  void replace(int rank, std::span<const std::byte> shown) override;
  [[nodiscard]] bool unfinished() const override { return unfinished_; }
  void claims(std::span<const std::uint64_t> keys, std::span<Claim> of_parts, std::span<double> norms) override;
  void claims_received(std::uint64_t key, std::span<Claim> of_ranks) override;
  [[nodiscard]] Claim claim(int part, std::uint64_t key, std::span<const std::byte> shown) override;
  [[nodiscard]] bool aggregated(int part, std::span<const std::byte> shown, bool& unfinished) override;
  [[nodiscard]] const Contribution& redo(const PendingChecks& of, const PendingCheck& check) override;

 private:
  [[nodiscard]] static Claim claim_of(const double* sums);
  /// Sums of each part, compared with that of the result: [parts][kSums].
  [[nodiscard]] const double* sums_of_parts(const PartLayout& layout, std::span<const std::uint64_t> keys,
                                            const float* message, const float* result);
  void roots_of_parts(const PartLayout& layout, const float* message, std::span<Sha256Digest> out);

  Backend& backend_;
  int rank_;
  Aggregator* aggregator_ = nullptr;
  std::function<Redone(const PendingChecks&, const PendingCheck&)> redo_;
  RunHasher hasher_;
  RunSums sums_;
  PartLayout layout_;
  std::int64_t step_ = 0;
  float *own_, *shown_;  ///< [most] on the device: this rank's message; a part that is shown
  float *everyone_ = nullptr, *place_ = nullptr;
  const float* result_ = nullptr;
  bool unfinished_ = false;
  std::vector<double> weights_;
  std::vector<RunSums::Run> runs_;
  std::vector<RunHasher::Run> hashed_;
  mutable std::vector<std::byte> host_;  ///< a part of the own message
  std::vector<std::byte> made_;
  Contribution contribution_;
};

}  // namespace dat
