#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace dat {

/// Assignment of a trainer's micro-batches to generators: each goes to the one that will be through with it first, as
/// far as the trainer knows. It decides nothing that numbers depend on. `now`: seconds of any one clock.
class Dealing {
 public:
  /// first: which of the generators begins, so that trainers do not all begin with the same.
  Dealing(int generators, int first);

  /// Deals a micro-batch of a step, and returns the generator that gets it.
  int deal(std::int64_t step, double now);
  /// Returns another generator for a micro-batch that should be dealt again, for which the trainer has waited so long:
  /// it takes several times what all that its generator has to do should take, and the other generator has nothing of
  /// this trainer but what is wanted in later steps, which may wait for weights to come. Then that one has it, and is
  /// returned.
  std::optional<int> deal_again(int generator, std::int64_t step, double waited, double now);
  /// A generator has answered: seconds that it has worked for the micro-batch of this step; waiting: micro-batches of
  /// anybody that it still has to do.
  void answered(int generator, std::int64_t step, double seconds, int waiting, double now);

  [[nodiscard]] const std::vector<std::int64_t>& outstanding(int generator) const {
    return all_[static_cast<std::size_t>(generator)].outstanding;
  }

 private:
  static constexpr double kLate = 4;       ///< times what is expected
  static constexpr double kForget = 0.98;  ///< part of its seconds that remains with each micro-batch it is not given
  struct One {
    std::vector<std::int64_t> outstanding{};  ///< steps of micro-batches of this trainer
    int waiting = 0;                          ///< micro-batches of all trainers that waited when it answered last
    double last = 0;                          ///< seconds of the micro-batch that it answered last; 0: none
    double seconds = 0;  ///< the lesser of the last two, as one may have met a hindrance; 0: not known yet
    double free_at = 0;  ///< time when it should be through with all that it has
    /// Micro-batches that it still has to do, as far as is known.
    [[nodiscard]] int has() const { return std::max(static_cast<int>(std::ssize(outstanding)), waiting); }
  };
  [[nodiscard]] One& of(int generator) { return all_[static_cast<std::size_t>(generator)]; }
  static void give(One& one, std::int64_t step, double end);
  /// Seconds of a micro-batch; where it is not known, those of the slowest that is.
  [[nodiscard]] double seconds(const One& one) const;

  std::vector<One> all_;
  int first_;
};

}  // namespace dat
