#pragma once

#include <vector>

#include "dat/communicator.hpp"
#include "dat/report.hpp"
#include "train/images.hpp"

namespace dat {

/// Accuracy on a data set, clean and attacked, spread over the ranks: rank r takes samples r, r + ranks, ...; every
/// sample counts once.
class Evaluator {
 public:
  /// all: the dataset's pixels on the device, or null.
  Evaluator(Communicator& world, const Dataset& dataset, const std::uint8_t* all, Images& images,
            FrozenObjective& objective);
  /// **Collective.** Fills accuracies, losses and image count of the record.
  void run(const Attack& attack, std::uint64_t seed, EvaluationRecord& record);

 private:
  Communicator& world_;
  const Dataset& dataset_;
  const std::uint8_t* all_;
  Images& images_;
  FrozenObjective& objective_;
  HostBatch batch_;
  float *loss_, *correct_;
  std::vector<float> host_;
};

}  // namespace dat
