#pragma once

#include "dat/batch.hpp"
#include "dat/program.hpp"

namespace dat {

class FrozenView;

/// The network's programs, each for images of the size that those at hand have.
class Programs {
 public:
  virtual ~Programs() = default;
  /// View of the frozen network for attacks of a training.
  [[nodiscard]] virtual FrozenView& attacked() = 0;
  /// The program in training mode, for n images.
  [[nodiscard]] virtual TrainingProgram& training(int n) = 0;
  /// What it has frozen is in recordings of their passes.
  [[nodiscard]] virtual const Model& model() const = 0;
};

/// Receiver of the batch statistics of passes in training mode.
class StatisticsSink {
 public:
  virtual ~StatisticsSink() = default;
  /// Adds the statistics of the program's last forward call as those of pass number `pass` of a micro-batch.
  virtual void add(const TrainingProgram& program, int pass, const BatchPlace& place) = 0;
};

}  // namespace dat
