#include "replica/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "dat/number.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

[[nodiscard]] bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// A hierarchy that is mounted: where, which part of it, and of which version.
struct Mount {
  std::string root, point;
  bool second = false;
};

/// A path of mountinfo: blanks, tabulators, newlines and backslashes stand there as "\040" (proc(5)).
[[nodiscard]] std::string decoded(const std::string& path) {
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::string digits = path[i] == '\\' ? path.substr(i + 1, 3) : "";
    if (digits.size() != 3 || digits.find_first_not_of("01234567") != std::string::npos) {
      text += path[i];
      continue;
    }
    text += static_cast<char>(std::stoi(digits, nullptr, 8));
    i += digits.size();
  }
  return text;
}

/// The hierarchies in which a controller may have a say.
[[nodiscard]] std::vector<Mount> mounts(const std::string& root, const std::string& controller) {
  std::vector<Mount> all;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // 36 35 98:0 ROOT POINT OPTIONS ... - TYPE SOURCE SUPER
    std::istringstream front(line), back(line.substr(std::min(line.find(" - "), line.size())));
    std::string skipped, type, options;
    Mount one;
    front >> skipped >> skipped >> skipped >> one.root >> one.point;
    back >> skipped >> type >> skipped >> options;
    one.root = decoded(one.root);
    one.point = decoded(one.point);
    one.second = type == "cgroup2";
    if (one.second || (type == "cgroup" && has_word(options, controller))) all.push_back(one);
  }
  return all;
}

/// The group of this process in that hierarchy, as a path below its root.
[[nodiscard]] std::string group_of(const std::string& root, const std::string& controller, bool second) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b", "4:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':'), next = line.find(':', first + 1);
    if (next == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, next - first - 1);
    if (second ? controllers.empty() : has_word(controllers, controller)) return line.substr(next + 1);
  }
  return "/";
}

}  // namespace

std::vector<std::string> first_words_of(const fs::path& path, std::size_t count) {
  std::ifstream file(path);
  std::vector<std::string> words(count);
  for (std::string& word : words) file >> word;
  return words;
}

std::optional<double> least_of_groups(const std::string& controller, const GroupLimit& limit, const std::string& root) {
  std::optional<double> least;
  for (const Mount& mount : mounts(root, controller)) {
    const fs::path top = (root + mount.point);
    // A group of another namespace has no place below what is mounted, which is all there is to see then.
    const fs::path inside = fs::path(group_of(root, controller, mount.second)).lexically_relative(mount.root);
    fs::path group = inside.empty() || *inside.begin() == ".." ? top : (top / inside).lexically_normal();
    for (;; group = group.parent_path()) {
      if (const std::optional<double> own = limit(group, mount.second)) least = std::min(least.value_or(*own), *own);
      if (group.native().size() <= top.native().size()) break;
    }
  }
  return least;
}

std::optional<double> memory_of_groups(const std::string& root) {
  const auto limit = [](const fs::path& group, bool second) -> std::optional<double> {
    double bytes{};
    const auto words = first_words_of(group / (second ? "memory.max" : "memory.limit_in_bytes"), 1);
    return read_number(words[0], bytes) ? std::optional(bytes) : std::nullopt;  // "max"
  };
  return least_of_groups("memory", limit, root);
}

}  // namespace dat
