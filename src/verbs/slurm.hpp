#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/train/parse.hpp"

namespace dat {

/// Options of `slurm`, beside those of `train`.
struct SlurmOptions {
  int nodes = 1;
  int gpus_per_node = 0;   ///< 0: the ranks compute on CPUs
  int ranks_per_node = 0;  ///< 0: one for each GPU, or one
  int cpus_per_rank = 8;
  std::string time;         ///< time in Slurm's form; empty: from the seconds of a step
  double step_seconds = 0;  ///< 0: not known
  std::string like;         ///< folder of a run whose steps took as long; empty: none
  std::string job_name = "dat_hpc", partition, account, modules;
  std::vector<std::string> train{};  ///< the options of `train` that were given, as words of a command line

  friend bool operator==(const SlurmOptions&, const SlurmOptions&) = default;
};

/// A script that was asked for, and the training in it.
struct SlurmOrder {
  SlurmOptions job;
  TrainOrder training;
};

/// Parser for make_verb().
[[nodiscard]] std::optional<SlurmOrder> parse_slurm(CommandLine& line);

}  // namespace dat
