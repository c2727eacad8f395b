#pragma once

#include <optional>
#include <set>
#include <string>

#include "dat/config.hpp"
#include "options/command_line.hpp"

namespace dat {

/// A training that was asked for.
struct TrainOrder {
  TrainOptions options;
  std::set<std::string> given{};  ///< options that the command line, a file or a recipe has set, by name
  /// The recipe that says --batch, where nobody has said how large a batch is nearer to the user; empty: none does.
  std::string batch_of_recipe{};
};

/// Value of TrainOrder::batch_of_recipe.
[[nodiscard]] std::string batch_of_recipe(const CommandLine& line, const Bound& bound);

/// A recipe says how many images a rank has in a step, for as many ranks as it is written for: what becomes of that
/// where another number of ranks trains, and what keeps it. Empty: nothing is to be said.
[[nodiscard]] std::string other_ranks(const TrainOrder& order, int ranks);

/// Reads the options of a training; `about` begins the help. Nothing: something is to be printed instead
/// (CommandLine::read). `take`: what options take from files that they name, before a configuration is printed.
/// `more`: options that the verb has beside those of a training. Error(usage), and those of `take`.
[[nodiscard]] std::optional<TrainOrder> parse_training(CommandLine& line, const std::string& about,
                                                       void (*take)(TrainOrder& order) = nullptr,
                                                       Bound* more = nullptr);

/// Applies all rules to options that were typed: what is typed must mean something, what a run has written is taken as
/// it is. `bound`: to `options`.
void settle_typed(Bound& bound, TrainOptions& options);

}  // namespace dat
