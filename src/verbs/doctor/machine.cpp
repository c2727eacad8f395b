#include "verbs/doctor/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "dat/number.hpp"
#include "options/values/value.hpp"
#include "replica/control_groups.hpp"
#include "replica/cores.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// The text after the colon of a file's first line that begins with a name; empty: no line does.
[[nodiscard]] std::string line_behind(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(name) && colon != std::string::npos) return trimmed(line.substr(colon + 1));
  }
  return "";
}

[[nodiscard]] std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes / 1e9); }

/// A field of /proc/meminfo in bytes; none: the system does not say.
[[nodiscard]] std::optional<double> meminfo(const std::string& root, const std::string& name) {
  double number = 0;
  const std::string text = line_behind(root + "/proc/meminfo", name);
  return read_number(text.substr(0, text.find(' ')), number) ? std::optional(1024 * number) : std::nullopt;
}

/// Output of a command in lines; none: it cannot be run, or fails.
[[nodiscard]] std::vector<std::string> output_of(const std::string& command) {
  std::string text;
  FILE* const output = popen(("timeout 10 " + command + " 2>&1 </dev/null").c_str(), "r");
  if (output == nullptr) return {};
  char buffer[512];
  while (const std::size_t got = fread(buffer, 1, sizeof buffer, output)) text.append(buffer, got);
  if (pclose(output) != 0) return {};
  std::istringstream all(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(all, line);) lines.push_back(trimmed(line));
  return lines;
}

[[nodiscard]] bool is_open_mpi(const std::string& text) {
  return text.find("Open MPI") != std::string::npos || text.find("OpenRTE") != std::string::npos;
}

/// What Slurm's srun offers, and which of it a rank takes; empty: no Slurm.
[[nodiscard]] std::string slurm_text(bool open_mpi) {
  std::vector<std::string> kinds;  // "MPI plugin types are...", then a name a line
  for (const std::string& line : output_of("srun --mpi=list"))
    if (line.find_first_of(" :") == std::string::npos && !line.empty()) kinds.push_back(line);
  if (kinds.empty()) return "";
  const std::vector<std::string> liked =
      open_mpi ? std::vector<std::string>{"pmix"} : std::vector<std::string>{"pmi2", "pmix"};
  const auto best = std::ranges::find_if(
      liked, [&](const std::string& kind) { return std::ranges::find(kinds, kind) != kinds.end(); });
  return "srun --mpi=list has " + joined(kinds, ", ") +
         (best == liked.end() ? ", not " + liked[0] + ": in a job mpirun starts the ranks"
                              : ": srun --mpi=" + *best + " starts the ranks of a job");
}

}  // namespace

std::string cpu_text() {
  const std::string model = line_behind("/proc/cpuinfo", "model name");
  return fmt::format("{}, {} of its {} cores for this process", model.empty() ? "of an unknown model" : model,
                     cores_allowed(), sysconf(_SC_NPROCESSORS_ONLN));
}

std::string memory_text(const std::string& root) {
  const std::optional<double> all = meminfo(root, "MemTotal"), free = meminfo(root, "MemAvailable"),
                              limit = memory_of_groups(root);
  return (all ? gigabytes(*all) : "not told by the system") + (free ? ", " + gigabytes(*free) + " of it free" : "") +
         (limit && !(all && *limit >= *all) ? "; the control group allows " + gigabytes(*limit) : "") +
         "; dat_hpc validate says what a training takes";
}

std::string disk_text() {
  std::error_code error;
  const fs::space_info space = fs::space(".", error);
  if (error) return "the free space of this folder cannot be told: " + error.message();
  return gigabytes(static_cast<double>(space.available)) + " free in this folder; dat_hpc validate says what a " +
         "checkpoint takes";
}

std::string gnuplot_text() {
  const std::vector<std::string> lines = output_of("gnuplot --version");
  return lines.empty() ? "none: dat_hpc plot draws nothing without it (Debian: gnuplot-nox)" : lines[0];
}

std::string launcher_text(const std::string& library) {
  const std::vector<std::string> lines = output_of("mpirun --version");
  std::string text = lines.empty() ? "no mpirun on the path" : lines[0];
  if (!lines.empty() && is_open_mpi(lines[0]) != is_open_mpi(library))
    text += "; warning: not that of " + library + ", so that each rank would be alone; put that one's mpirun first";
  const std::string slurm = slurm_text(is_open_mpi(library));
  return text + (slurm.empty() ? "" : "; " + slurm);
}

}  // namespace dat
