#include "replica/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "dat/number.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// The first words of a file, as many as are wanted; fewer: the file has no more, or cannot be read.
[[nodiscard]] std::vector<std::string> words_of(const fs::path& path, std::size_t most) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; words.size() < most && file >> word;) words.push_back(word);
  return words;
}

[[nodiscard]] std::optional<double> ratio(const std::string& quota, const std::string& period) {
  double most = 0, of = 0;
  if (!read_number(quota, most) || !read_number(period, of) || !(most > 0) || !(of > 0)) return {};  // "max", "-1"
  return most / of;
}

[[nodiscard]] std::optional<double> quota_of(const fs::path& group, bool second) {
  if (second) {
    const std::vector<std::string> words = words_of(group / "cpu.max", 2);
    return words.size() == 2 ? ratio(words[0], words[1]) : std::nullopt;
  }
  const std::vector<std::string> quota = words_of(group / "cpu.cfs_quota_us", 1),
                                 period = words_of(group / "cpu.cfs_period_us", 1);
  return quota.size() == 1 && period.size() == 1 ? ratio(quota[0], period[0]) : std::nullopt;
}

[[nodiscard]] bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// A hierarchy that is mounted: where, which part of it, and of which version.
struct Mount {
  std::string root, point;
  bool second = false;
};

/// The hierarchies that have a say about time.
[[nodiscard]] std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> all;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // 36 35 98:0 ROOT POINT OPTIONS ... - TYPE SOURCE SUPER
    std::istringstream front(line), back(line.substr(std::min(line.find(" - "), line.size() - 1) + 1));
    std::string skipped, type, options;
    Mount one;
    front >> skipped >> skipped >> skipped >> one.root >> one.point;
    back >> skipped >> type >> skipped >> options;
    one.second = type == "cgroup2";
    if (one.second || (type == "cgroup" && has_word(options, "cpu"))) all.push_back(one);
  }
  return all;
}

/// The group of this process in that hierarchy, as a path below its root.
[[nodiscard]] std::string group_of(const std::string& root, bool second) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b", "4:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':'), next = line.find(':', first + 1);
    if (next == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, next - first - 1);
    if (second ? controllers.empty() : has_word(controllers, "cpu")) return line.substr(next + 1);
  }
  return "/";
}

}  // namespace

std::optional<double> cores_of_groups(const std::string& root) {
  std::optional<double> least;
  for (const Mount& mount : mounts(root)) {
    const fs::path top = (root + mount.point);
    // A group of another namespace has no place below what is mounted, which is all there is to see then.
    const fs::path inside = fs::path(group_of(root, mount.second)).lexically_relative(mount.root);
    fs::path group = inside.empty() || *inside.begin() == ".." ? top : (top / inside).lexically_normal();
    for (;; group = group.parent_path()) {
      if (const std::optional<double> quota = quota_of(group, mount.second))
        least = std::min(least.value_or(*quota), *quota);
      if (group.native().size() <= top.native().size()) break;
    }
  }
  return least;
}

std::optional<int> threads_of_openmp(const char* value) {
  if (value == nullptr) return {};
  constexpr int kMost = 4096;  // limit of --threads
  int number = 0;
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
  const int most = std::max(1, static_cast<int>(std::min(*known.quota / ranks, 1e6)));
  if (most >= cores.count) return cores;
  std::ostringstream text;
  text << "a quota of " << *known.quota << (*known.quota == 1 ? " core" : " cores") << " of its control group" << share;
  return {most, text.str()};
}

Cores cores_of_rank(int ranks_on_node) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return cores_of_rank(ranks_on_node,
                       {.bound = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1,
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
