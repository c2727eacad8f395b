#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/train/sweep.hpp"

namespace dat {

/// Longest step of which a script is made, in seconds.
inline constexpr double kLongestStep = 1e6;

/// Options of `slurm`, beside those of `train`.
struct SlurmOptions {
  int nodes = 1;
  int gpus_per_node = 0;   ///< 0: the ranks compute on CPUs
  int ranks_per_node = 0;  ///< 0: one for each GPU, or one
  int cpus_per_rank = 8;
  std::string time;         ///< time in Slurm's form; empty: from the seconds of a step
  double step_seconds = 0;  ///< 0: not known
  std::string like;         ///< folder of a run whose steps took as long; empty: none
  std::string job_name = "dat_hpc", modules;
  std::string sbatch;                ///< further options of sbatch, "--NAME=VALUE" between blanks
  std::string sweep;                 ///< what differs between the tasks of an array; empty: one training
  std::vector<std::string> train{};  ///< options of `train` that were given, as words of a command line; of a sweep
                                     ///< those of all points, without --out

  friend bool operator==(const SlurmOptions&, const SlurmOptions&) = default;
};

/// A script that was asked for, and the training in it.
struct SlurmOrder {
  SlurmOptions job;
  TrainOrder training;
  std::vector<SweptTraining> points{};  ///< trainings of a sweep; empty: there is none
};

/// The text of jobs/slurm/common.sh, as it was when the program was configured.
extern const char* const kSlurmCommon;

/// Parser for make_verb().
[[nodiscard]] std::optional<SlurmOrder> parse_slurm(CommandLine& line);

/// The script. Error: a training cannot begin in the job.
[[nodiscard]] std::string script_of(const SlurmOrder& order);
/// The options in SlurmOptions::sbatch. Error(usage): one would not be read by Slurm as it is meant, or is the
/// script's.
[[nodiscard]] std::vector<std::string> sbatch_words(const std::string& text);
/// Whether a word is --mem, --mem-per-cpu or --mem-per-gpu, of which Slurm takes one only, or their beginning.
[[nodiscard]] bool sets_memory(const std::string& word);

}  // namespace dat
