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
  std::string recipe{};           ///< the recipe that it begins with, by name; empty: none
};

/// Reads the options of a training; `about` begins the help. Nothing: something is to be printed instead
/// (CommandLine::read). `take`: what options take from files that they name, before a configuration is printed.
/// `more`: options that the verb has beside those of a training. `sweep`: the text of --sweep, if the verb has one;
/// where it says something, options are left as they were typed: each point has to fit, not what all of them have.
/// Error(usage), and those of `take`.
[[nodiscard]] std::optional<TrainOrder> parse_training(CommandLine& line, const std::string& about,
                                                       void (*take)(TrainOrder& order) = nullptr, Bound* more = nullptr,
                                                       const std::string* sweep = nullptr);

/// Applies all rules to options that were typed: what is typed must mean something, what a run has written is taken as
/// it is. `bound`: to `options`.
void settle_typed(Bound& bound, TrainOptions& options);

}  // namespace dat
