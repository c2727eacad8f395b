#pragma once

#include <memory>

#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "replica/replica.hpp"
#include "train/attackers/cheating.hpp"
#include "train/examples/example_source.hpp"
#include "train/plan/phase_timer.hpp"
#include "train/plan/plan.hpp"
#include "train/plan/step_method.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

/// Parts from which a source of examples is made. All of it outlives the source but the struct itself.
struct ExampleParts {
  Communicator& ranks;
  const Dataset& images;  ///< the training set
  const TrainOptions& options;
  const Plan& plan;
  const StepMethod& method;
  Replica& replica;
  BatchStatistics& statistics;  ///< statistics of the attack's passes in training mode
  PhaseTimer& timer;
  const Cheating& cheating;
};

/// The source that the options ask for. Error(usage): they do not fit the images.
[[nodiscard]] std::unique_ptr<ExampleSource> make_examples(const ExampleParts& parts);

}  // namespace dat
