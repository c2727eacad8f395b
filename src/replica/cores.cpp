#include "replica/cores.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>
#include <vector>

#include "dat/number.hpp"
#include "replica/control_groups.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

[[nodiscard]] std::optional<double> ratio(const std::string& quota, const std::string& period) {
  double most{}, of{};
  if (!read_number(quota, most) || !read_number(period, of) || !(most > 0) || !(of > 0)) return {};  // "max", "-1"
  return most / of;
}

[[nodiscard]] std::optional<double> quota_of(const fs::path& group, bool second) {
  if (second) {
    const std::vector<std::string> words = first_words_of(group / "cpu.max", 2);
    return ratio(words[0], words[1]);
  }
  return ratio(first_words_of(group / "cpu.cfs_quota_us", 1)[0], first_words_of(group / "cpu.cfs_period_us", 1)[0]);
}

}  // namespace

int cores_allowed(const Affinity& ask) {
  constexpr std::size_t kMost = 1024;  // sets of 1024 cores: a million
  for (std::size_t sets = 1; sets <= kMost; sets *= 2) {
    std::vector<cpu_set_t> cores(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (ask(bytes, cores.data()) == 0) return CPU_COUNT_S(bytes, cores.data());
    if (errno != EINVAL) break;  // else the kernel knows more cores
  }
  return 1;
}

std::optional<double> cores_of_groups(const std::string& root) { return least_of_groups("cpu", quota_of, root); }

std::optional<int> threads_of_openmp(const char* value) {
  if (value == nullptr) return {};
  constexpr int kMost = 4096;  // limit of --threads
  int number{};
  const std::string text = value;
  if (!read_number(trimmed(text.substr(0, text.find(','))), number) || number < 1 || number > kMost) return {};
  return number;
}

Cores cores_of_rank(int ranks_on_node, const KnownCores& known) {
  const int ranks = std::max(1, ranks_on_node);
  const std::string share = ranks == 1 ? "" : ", shared by " + std::to_string(ranks) + " ranks";
  // Bound to some cores: they are this rank's alone. Not bound: all ranks of the node share what there is.
  const bool bound = known.bound < known.all;
  Cores cores{std::max(1, bound ? known.bound : known.all / ranks),
              bound ? "the cores that this rank is bound to" : "the cores of the node" + share};
  if (!known.quota) return cores;
  // More threads than a quota has cores would be stopped together, in the middle of what they wait for.
  const int most = std::max(1, static_cast<int>(std::min<double>(*known.quota / ranks, cores.count)));
  if (most == cores.count) return cores;
  std::ostringstream text;
  text << "a quota of " << *known.quota << (*known.quota == 1 ? " core" : " cores") << " of its control group" << share;
  return {most, text.str()};
}

Cores cores_of_rank(int ranks_on_node) {
  return cores_of_rank(ranks_on_node, {.bound = cores_allowed(),
                                       .all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
                                       .quota = cores_of_groups()});
}

Cores default_threads(int ranks_on_node) {
  if (const std::optional<int> threads = threads_of_openmp(std::getenv("OMP_NUM_THREADS")))
    return {*threads, "OMP_NUM_THREADS"};
  return cores_of_rank(ranks_on_node);
}

int choose_threads(int wanted, int ranks_on_node) { return wanted > 0 ? wanted : default_threads(ranks_on_node).count; }

}  // namespace dat
