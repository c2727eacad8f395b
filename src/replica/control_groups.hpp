#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dat {

/// The first words of a file, as many as are wanted; empty ones: the file has no more, or cannot be read.
[[nodiscard]] std::vector<std::string> first_words_of(const std::filesystem::path& path, std::size_t count);

/// Limit that a group's folder names, `second`: in version 2; none: the group has no limit.
using GroupLimit = std::function<std::optional<double>(const std::filesystem::path& group, bool second)>;

/// The least limit of the control group of this process and of those above it, in versions 2 and 1. controller: "cpu",
/// "memory". root: the folder in which proc/self and the mounted groups are looked for, "" but in tests.
[[nodiscard]] std::optional<double> least_of_groups(const std::string& controller, const GroupLimit& limit,
                                                    const std::string& root = "");

/// The least limit of the memory of this process in bytes (memory.max; in version 1 memory.limit_in_bytes); none: no
/// group has one.
[[nodiscard]] std::optional<double> memory_of_groups(const std::string& root = "");

}  // namespace dat
