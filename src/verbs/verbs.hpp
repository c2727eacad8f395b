#pragma once

#include "dat/config.hpp"

namespace dat {

// One function for each verb of the command line, in a file of its own. All return the exit code. Those that need a
// launch initialise MPI, are collective over its ranks, and print their messages themselves; the others work on rank 0
// alone, and may throw.

/// `train`: plans, trains, evaluates, writes the run's folder; goes on from a checkpoint where there is one.
/// **Collective.**
[[nodiscard]] int run_training(const Command& command, int argc, char** argv);
/// `eval`: accuracy of a checkpoint's network, clean and attacked. **Collective.**
[[nodiscard]] int run_evaluation(const Command& command, int argc, char** argv);
/// `bench`: what this machine and this launch reach, as a table, a file and a picture. **Collective.**
[[nodiscard]] int run_bench(const Command& command, int argc, char** argv);
/// `doctor`: what this machine and this launch offer, and what is wrong with it, for a person. **Collective.**
[[nodiscard]] int run_doctor(const Command& command, int argc, char** argv);
/// `forecast`: step time against ranks, network, codec and budget, from a calibration that is measured (**collective**)
/// or read.
[[nodiscard]] int run_forecast(const Command& command, int argc, char** argv);
/// `validate`: plans the run on one rank and says what it will need. Error as `train` would end with.
[[nodiscard]] int run_validation(const Command& command, int argc, char** argv);
/// `slurm`: prints a batch script that trains with the given options.
[[nodiscard]] int run_slurm(const Command& command, int argc, char** argv);
/// `data convert`, `data synthetic`, `data inspect`: makes and describes files of images.
[[nodiscard]] int run_data(const Command& command, int argc, char** argv);
/// `export`: the network of a checkpoint in a form that other programs read.
[[nodiscard]] int run_export(const Command& command, int argc, char** argv);
/// `import`: a checkpoint of a network that another program has trained.
[[nodiscard]] int run_import(const Command& command, int argc, char** argv);
/// `plot`: draws runs.
[[nodiscard]] int run_plot(const Command& command, int argc, char** argv);

}  // namespace dat
