#pragma once

#include <cstdint>
#include <utility>

#include "replica/replica.hpp"
#include "train/message/stateful.hpp"

namespace dat {

/// The factor of gradients on their way through a network that trains in f16, where small ones would be zero: a power
/// of two, halved where a step has numbers that are not finite, and doubled after many steps that have none
/// (Micikevicius et al., "Mixed precision training", 2018). A part of the run's state, so that a restart has equal
/// bits.
class LossScale final : public Stateful {
 public:
  explicit LossScale(Replica& replica) : replica_(replica) { set(kFirst); }

  static constexpr double kFirst = 1024, kMost = 65536;
  static constexpr std::int64_t kSteps = 2000;  ///< good ones until it is doubled

  [[nodiscard]] double scale() const { return scale_; }
  /// Returns whether the scale has changed since the last call.
  [[nodiscard]] bool has_changed() { return std::exchange(changed_, false); }
  /// The step's numbers are finite.
  void good_step();
  /// They are not. False: the scale is 1 already, and not to blame.
  [[nodiscard]] bool overflow();

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  void replicated(ReplicatedState& state) override;

 private:
  void set(double scale);

  Replica& replica_;
  double scale_ = kFirst;
  bool changed_ = false;
  std::int64_t good_steps_ = 0;  ///< good steps since it has changed
};

}  // namespace dat
