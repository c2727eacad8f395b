#pragma once

#include <optional>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/report.hpp"
#include "train/watch/recompute.hpp"

namespace dat {

/// Choice of the micro-batch of a step that is recomputed, and of the rank that does so: a function of seed and step
/// that every rank knows.
struct VerificationPlan {
  MicroBatch of;
  int verifier = -1;  ///< another rank than of.rank
  int third = -1;     ///< decides where the two differ; -1: there are two ranks
};
/// The plan of a step. Any micro-batch of the step may be chosen where each has a gradient of its own
/// (--deterministic); else the first one of any rank, since the gradients of a rank's other micro-batches are added to
/// it. There are at least two ranks.
[[nodiscard]] VerificationPlan verification_of(std::uint64_t seed, std::int64_t step, const Plan& plan);

/// The largest distance of two computations of a gradient, in parts of its norm, where the order of their sums differs.
/// Derivation: docs/design.md, "Silent corruption".
[[nodiscard]] double verification_tolerance(int attack_steps);

/// The distance of two claims of a gradient, each fingerprint, loss, sketch by chunks [chunks][kSums], in parts of its
/// norm; 0: the bits are equal.
[[nodiscard]] double distance_of_claims(const std::vector<double>& one, const std::vector<double>& other);

/// Every N steps, has one micro-batch of one rank recomputed by another one, and compares gradient and loss: by bits
/// where algorithms are deterministic, else by their distance. Where the two differ and there is a third rank, the
/// third one says which is wrong.
class Verification {
 public:
  /// The reference arguments must outlive the object.
  Verification(Communicator& ranks, const TrainOptions& options, const Plan& plan, const StepMethod& method,
               Replica& replica, Recompute& recompute);

  /// Begins step number `step`.
  void begin(std::int64_t step);
  /// The gradient of this rank's examples is at `gradients`, and nothing has been added to it: where these examples are
  /// the micro-batch in question, queues what has to be kept of the gradient.
  void keep(const Batch& batch, const float* gradients, const ActiveSet& active);
  /// Once the message of the step has been summed, before anything is updated: whether the step's gradient may be used.
  /// learner: the step's. Empty: nothing was wrong. **Collective** where a verification is due: a message from the rank
  /// in question to the other one, and two numbers of all. Waits for the device on these two ranks. Allocates nothing
  /// where nothing is wrong.
  struct Finding {
    CorruptionRecord record;
    bool usable = false;  ///< the gradient of the step was right: the recomputed one was wrong
  };
  [[nodiscard]] std::optional<Finding> verify(const Learner& learner, const ActiveSet& active);
  /// Bytes that this rank has sent for the verification in this step.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  [[nodiscard]] bool due() const { return ranks_.size() > 1 && (step_ + 1) % every_ == 0; }
  void sketch(const float* gradients, const ActiveSet& active);
  /// Fetches what a rank claims of the gradient: its fingerprint, the loss, the sketch by chunks. To be called when
  /// these have been queued.
  void fetch_claim(double loss, std::vector<double>& claim);
  void recompute_claim(const ActiveSet& active, std::vector<double>& claim);
  [[nodiscard]] bool agree(const std::vector<double>& one, const std::vector<double>& other) const {
    return distance_of_claims(one, other) <= tolerance_;  // NaN is no distance
  }
  [[nodiscard]] Finding decide(double distance, const ActiveSet& active);

  Communicator& ranks_;
  Plan plan_;
  std::uint64_t seed_;
  int every_;
  double tolerance_;  ///< largest distance in parts of the norm; 0: bits must be equal
  Backend& backend_;
  Recompute& recompute_;
  ChunkTable table_;
  Chunks chunks_;
  double *scratch_, *fingerprints_;  ///< [chunks][kSums], [segments][kSums]
  double *sketches_, *sums_;         ///< [chunks][kSums], [segments][kSums]
  double* host_;                     ///< numbers fetched from fingerprints_, then from sketches_
  std::int64_t step_ = 0, bytes_sent_ = 0;
  VerificationPlan chosen_;
  int first_ = 0, count_ = 0;         ///< images of the micro-batch, on the rank that has it
  std::vector<double> mine_, other_;  ///< claims
};

}  // namespace dat
