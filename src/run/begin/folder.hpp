#pragma once

#include <string>

#include "dat/config.hpp"

namespace dat {

/// The run's folder: --out; else one of the Slurm job, which a job that is queued again finds; else empty: a new one.
[[nodiscard]] std::string folder_of(const TrainOptions& options);
/// Makes a run's new folder, named by the second. On rank 0. Error(io).
[[nodiscard]] std::string make_run_folder();
/// The file in a run's folder that has its options.
[[nodiscard]] std::string config_in(const std::string& folder);

/// Command that continues a run in this folder, for people: "the same command", with --out where nobody has given that.
[[nodiscard]] std::string same_command(const TrainOptions& options, const std::string& folder);

/// Returns whether --resume names another run, or a checkpoint.
[[nodiscard]] bool resumes_elsewhere(const TrainOptions& options);
/// Error(usage): what the run is going to write would replace what it reads; config: the path of --config, empty: none.
/// The run's own config.resolved.toml may be that: it is written again as it was.
void require_apart_from_inputs(const TrainOptions& options, const std::string& config);

}  // namespace dat
