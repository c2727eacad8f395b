#pragma once

#include <string>
#include <vector>

namespace dat {

/// What a bare `dat_hpc` and `dat_hpc --help` print: at most 45 lines of 80 columns.
[[nodiscard]] std::string first_screen();
/// What `dat_hpc data --help` prints.
[[nodiscard]] std::string data_screen();

/// The verbs, in the order of the help; "data" stands for its three.
[[nodiscard]] const std::vector<std::string>& verbs();

/// Options of `train` that its short help shows.
[[nodiscard]] const std::vector<std::string>& main_options();
/// And that of `slurm`.
[[nodiscard]] std::vector<std::string> main_options_of_slurm();

/// What `train --help` begins with.
[[nodiscard]] std::string about_training();

}  // namespace dat
