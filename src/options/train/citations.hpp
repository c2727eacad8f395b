#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dat/config.hpp"

namespace dat {

/// Publications behind a training, each with the options that it stands behind: "attack pgd", "Madry et al., ...". The
/// first one is behind the program. Members of families and rows of options name their own (Registry, OptionRow).
[[nodiscard]] std::vector<std::pair<std::string, std::string>> citations(const TrainOptions& options);

/// Text of --cite.
[[nodiscard]] std::string citations_text(const TrainOptions& options);

}  // namespace dat
