#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dat/options/attack.hpp"
#include "dat/options/attackers.hpp"
#include "dat/options/data.hpp"
#include "dat/options/evaluation.hpp"
#include "dat/options/fine_tuning.hpp"
#include "dat/options/generators.hpp"
#include "dat/options/jointspar.hpp"
#include "dat/options/loss.hpp"
#include "dat/options/machine.hpp"
#include "dat/options/network.hpp"
#include "dat/options/optimizer.hpp"
#include "dat/options/reduction.hpp"
#include "dat/options/run.hpp"
#include "dat/options/schedule.hpp"

namespace dat {

/// Options of a training, as `train`, `validate` and `slurm` take them: one field per option, named like it (`_` for
/// `-`), in a struct for each group of the help. A value that an option calls "auto" is the sentinel given there.
struct TrainOptions : DataSettings,
                      NetworkSettings,
                      AttackSettings,
                      LossSettings,
                      EvaluationSettings,
                      OptimizerSettings,
                      ScheduleSettings,
                      FineTuningSettings,
                      JointSparSettings,
                      ReductionSettings,
                      AttackerSettings,
                      GeneratorSettings,
                      RunSettings,
                      MachineSettings {
  /// Returns whether a step may end without an update, so that what it has changed must be reset.
  [[nodiscard]] bool steps_may_be_left_out() const {
    return max_bad_steps > 0 || on_corruption == "repair" || precision == "f16";
  }
  /// The epochs from part_begin up to part_end that these options are for (train/plan/parts.hpp). No options of a user:
  /// a parsed command has all epochs.
  std::int64_t part_begin = 0, part_end = kMostEpochs;
  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// Returns whether all sums over the ranks are added in an order of the micro-batches of all ranks, so that the result
/// is the same on any number of ranks: --deterministic, unless the ranks bring something of their own
/// (ordering_refused), which a parsed command does not have then. But for the gradient, where the aggregator looks at
/// what each rank has brought (repeats()): a rank's is the mean of its own micro-batches then, and the result repeats
/// at an equal number of ranks.
[[nodiscard]] bool sums_are_ordered(const TrainOptions& options);
/// Returns whether some ranks may send anything: the aggregator withstands that (repeats()). Then no single rank, not
/// even rank 0, decides about a step.
[[nodiscard]] bool ranks_may_be_false(const TrainOptions& options);
/// An option by which ranks differ in more than their micro-batches, such as "--codec int8"; empty: there is none.
[[nodiscard]] std::string ordering_refused(const TrainOptions& options);

/// "lr = 0.1 (default 0.01)": the options of a parsed command that differ from those of `train` without any.
/// `paths`: files and folders among them.
[[nodiscard]] std::vector<std::string> differences_from_defaults(const TrainOptions& options, bool paths = true);
/// "lr = 0.1 (recipe 0.01)": those that differ from a recipe, but for the data and the folder, which no recipe names.
[[nodiscard]] std::vector<std::string> differences_from_recipe(const TrainOptions& options, const std::string& recipe);

/// Every option, `key = value` a line, readable with --config.
[[nodiscard]] std::string toml_of(const TrainOptions& options);

/// Gives those that count nowhere beside the others, as a budget with --selector all, their defaults back.
void put_back_unused(TrainOptions& options);

/// Every option, name and value.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> settings_of(const TrainOptions& options);

/// The options written in `toml` (as by `toml_of`), defaults for the rest. `where` names the text in messages.
/// Error(usage): an unknown key, a wrong type, a value out of range, options that do not fit together.
[[nodiscard]] TrainOptions parse_train_options(const std::string& toml, const std::string& where);

}  // namespace dat
