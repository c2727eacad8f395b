#include "run/begin/folder.hpp"

#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <sstream>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/file.hpp"
#include "dat/run_lock.hpp"
#include "dat/shell.hpp"

namespace dat {

std::string folder_of(const TrainOptions& options) {
  if (!options.out.empty()) return options.out;
  const char* const job = std::getenv("SLURM_JOB_ID");
  return job != nullptr ? std::string("runs/slurm-") + job : "";
}

std::string make_run_folder() {
  const std::time_t now = std::time(nullptr);
  std::ostringstream name;
  name << "runs/" << std::put_time(std::gmtime(&now), "%Y%m%dT%H%M%SZ");
  return make_new_folder(name.str());
}

std::string config_in(const std::string& folder) { return folder + "/config.resolved.toml"; }

std::string same_command(const TrainOptions& options, const std::string& folder) {
  return options.out.empty() ? "the same command with --out " + shell_quoted(folder) : "the same command";
}

bool resumes_elsewhere(const TrainOptions& options) { return options.resume != "auto" && options.resume != "never"; }

void require_apart_from_inputs(const TrainOptions& options, const std::string& config) {
  const std::string folder = folder_of(options);
  if (folder.empty()) return;  // it will be a new one
  std::vector<std::string> inputs = options.data;
  inputs.push_back(options.calibration);
  inputs.push_back(place_of_checkpoint(options.initialize));
  if (resumes_elsewhere(options)) inputs.push_back(place_of_checkpoint(options.resume));
  require_apart({config_in(folder)}, inputs);
  inputs.push_back(config);
  require_apart(files_in(folder, {"metrics.jsonl", "results.h5", "SUMMARY.txt", "provenance.json", "report.html",
                                  "ckpt/best.h5"}),
                inputs);
}

}  // namespace dat
