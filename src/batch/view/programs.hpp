#pragma once

#include "dat/batch.hpp"
#include "dat/program.hpp"

namespace dat {

class FrozenView;

/// The network's programs, each for images of the size that those at hand have.
class Programs {
 public:
  virtual ~Programs() = default;
  /// How attacks of a training see the network that does not learn.
  [[nodiscard]] virtual FrozenView& attacked() = 0;
  /// In training mode, for so many images.
  [[nodiscard]] virtual TrainingProgram& training(int n) = 0;
  /// Model::frozen, on which recordings of their passes depend.
  [[nodiscard]] virtual int frozen() const = 0;
};

/// Who takes what batch norm has seen in a pass in training mode.
class StatisticsSink {
 public:
  virtual ~StatisticsSink() = default;
  /// Adds the statistics of the program's last forward call as those of pass number `pass` of a micro-batch.
  virtual void add(const TrainingProgram& program, int pass, const BatchPlace& place) = 0;
};

}  // namespace dat
