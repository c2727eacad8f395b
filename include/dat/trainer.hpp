#pragma once

#include <string>

#include "dat/config.hpp"

namespace dat {

/// `train`: plans, trains, evaluates, writes the run's folder; goes on from a checkpoint where there is one.
/// **Collective** over the ranks of the launch. Returns the exit code; messages are printed by one rank.
[[nodiscard]] int run_training(const Command& command, int argc, char** argv);

/// `eval`: accuracy of a checkpoint's network, clean and attacked. **Collective.** Returns the exit code.
[[nodiscard]] int run_evaluation(const Command& command, int argc, char** argv);

/// `bench`: what this machine and this launch reach, as a table, a file and a picture. **Collective.** Returns the exit
/// code.
[[nodiscard]] int run_bench(const Command& command, int argc, char** argv);

/// `doctor`: what this machine and this launch offer, and what is wrong with it, for a person. **Collective.** Returns
/// the exit code.
[[nodiscard]] int run_doctor();

/// `validate`: plans the run on one rank and says what it will need. Error as `train` would end with.
[[nodiscard]] std::string validate_text(const Command& command);

}  // namespace dat
