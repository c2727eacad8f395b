#pragma once

#include "dat/config.hpp"
#include "options/table.hpp"

namespace dat {

// The groups of the options of a training, a file each: NAME.cpp has the group's rows and what is refused of them
// (add_NAME), and settles what its options called 'auto' become (settle_NAME), which may refuse what has to be computed
// for that. Where two options of different groups do not go together, the rule stands with the group of the one that
// gives way.

using TrainTable = TableOf<TrainOptions>;

/// The part of the group of the attack that is about noise.
void add_noise(TrainTable& table);

void add_data(TrainTable& table);
void add_network(TrainTable& table);
void add_fine_tuning(TrainTable& table);
void add_attack(TrainTable& table);
void add_evaluation(TrainTable& table);
void add_optimizer(TrainTable& table);
void add_schedule(TrainTable& table);
void add_jointspar(TrainTable& table);
void add_reduction(TrainTable& table);
void add_attackers(TrainTable& table);
void add_generators(TrainTable& table);
void add_run(TrainTable& table);

void settle_schedule(TrainOptions& options);
void settle_data(TrainOptions& options);
void settle_network(TrainOptions& options);
void settle_attack(TrainOptions& options);
void settle_evaluation(TrainOptions& options);
void settle_optimizer(TrainOptions& options);
void settle_jointspar(TrainOptions& options);

}  // namespace dat
