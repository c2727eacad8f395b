#pragma once

#include <set>
#include <string>

#include "dat/config.hpp"
#include "options/bound.hpp"

namespace dat {

/// The options of a training: every group's rows and rules.
[[nodiscard]] const TableOf<TrainOptions>& train_table();

/// Gives what is called 'auto' the value that follows from other options, and refuses what does not go together then.
/// For options that the table has checked.
void settle(TrainOptions& options);

/// A configuration that a run has written down, or a part of one.
struct Written {
  TrainOptions options;        ///< defaults where it says nothing
  std::set<std::string> said;  ///< options that it has
};
/// Reads a configuration as it stands: nothing follows from other options but what falls back. `where` names it in
/// messages. Error(usage): it has something that is no option of a training.
[[nodiscard]] Written read_written(const std::string& toml, const std::string& where);

/// "lr (was 0.1, is 0.2), ...": the options in which a run differs from what it was before, in the order of their
/// names; only those that `matters` of. An option that the earlier configuration does not have does not differ.
[[nodiscard]] std::string differences(const Written& earlier, const TrainOptions& now,
                                      bool (*matters)(const OptionRow& row, const Bound& now));

}  // namespace dat
