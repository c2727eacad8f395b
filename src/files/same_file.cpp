#include <filesystem>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace fs = std::filesystem;

namespace {

/// Returns whether two paths lead to one file or folder (device and inode): also through links, and under two names of
/// it.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b) {
  std::error_code unreadable;  // a file that is not there counts as none
  return fs::equivalent(a, b, unreadable);
}

}  // namespace

void require_apart(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  std::error_code unreadable;
  for (const std::string& output : outputs) {
    if (!fs::exists(output, unreadable)) continue;
    const auto check = [&](const std::string& input) {
      require(!same_file(output, input), ExitCode::usage, output, ": would be written over ",
              input == output ? "the file that is read" : input + ", which is read and is the same file",
              "; give the result another name");
    };
    for (const std::string& input : inputs) {
      if (input.empty()) continue;
      check(input);
      for (fs::directory_iterator entry(input, unreadable), end; !unreadable && entry != end;
           entry.increment(unreadable))
        if (entry->is_regular_file(unreadable)) check(entry->path().string());
    }
  }
}

std::vector<std::string> files_in(const std::string& folder, std::initializer_list<const char*> names) {
  std::vector<std::string> files;
  for (const char* name : names) files.push_back((fs::path(folder) / name).string());
  return files;
}

}  // namespace dat
