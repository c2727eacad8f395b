#include "run/begin/beginning.hpp"

#include <algorithm>
#include <utility>

#include "dat/shell.hpp"
#include "interop/source.hpp"
#include "interop/state_dict.hpp"
#include "options/values/value.hpp"
#include "printed.hpp"
#include "replica/model_state.hpp"
#include "run/begin/folder.hpp"
#include "run/begin/left.hpp"
#include "train/plan/parts.hpp"

namespace dat {

namespace {

using Way = Beginning::Way;

/// Returns whether a run that continues must have the option as it was. Where images are held out an evaluation chooses
/// the best checkpoint, the early end and what overfits, so that those of two attacks must not be compared. Options
/// that take no part may be anything.
[[nodiscard]] bool must_stay(const OptionRow& row, const Bound& now) {
  const bool held_out = now.asked(*now.table().find("holdout"));
  return (row.restart == Restart::fixed || (row.restart == Restart::evaluation && held_out)) &&
         (!row.falls_back || now.takes_part(row));
}

/// --max-steps counts steps, and with another number of ranks an epoch has others: the number that ended the run where
/// the user wanted it would end it elsewhere.
void require_same_end(const TrainOptions& earlier, const TrainOptions& now, std::int64_t steps_then, const Plan& plan) {
  const std::int64_t steps = plan.steps_per_epoch;
  if (steps == steps_then || now.max_steps == 0 || now.max_steps != earlier.max_steps) return;
  if (now.max_steps / std::max(steps, steps_then) >= plan.epochs) return;  // it ends no run
  fail(ExitCode::usage, "--max-steps ", now.max_steps, " was given for epochs of ", steps_then, " steps, and with ",
       plan.ranks, plan.ranks == 1 ? " rank" : " ranks", " they have ", steps, ": give --max-steps ",
       std::max<std::int64_t>(1, at_same_place(now.max_steps, steps_then, steps)),
       " for the same end, or another number");
}

/// A later end of a run whose rates or layers depend on its end is another run from here on. steps_then: of an epoch at
/// the checkpoint. Error(usage): --max-steps must be another number now.
void compare_ends(const TrainOptions& options, const Written& earlier, std::int64_t steps_then, const Plan& plan,
                  std::vector<std::string>& warnings) {
  require_same_end(earlier.options, options, steps_then, plan);
  const auto compare = [&](const std::string& name, auto before, auto now) {
    if (!earlier.said.contains(name) || before == now) return;
    const auto warn = [&](const std::string& what) {
      warnings.push_back("--" + name + " was " + number_text(before) + " and is " + number_text(now) +
                         " from here on: " + what +
                         " depends on it, and the run is not the one that would have been planned so from the start");
    };
    if (options.schedule != "step") warn("the learning rate of --schedule " + options.schedule);
    if (options.stale_attack > 0) warn("the first attack after the earlier end, by --stale-attack,");
    if (options.selector == "freezeout" || options.selector == "autofreeze")
      warn("what --selector " + options.selector + " freezes");
  };
  compare("epochs", earlier.options.epochs, options.epochs);
  compare("max-steps", at_same_place(earlier.options.max_steps, steps_then, plan.steps_per_epoch), options.max_steps);
}

/// The ranks that had left at a checkpoint, where they stay away: in the same run, on as many ranks. Else all take
/// part, and a warning says so.
[[nodiscard]] std::vector<LeftRecord> staying_away(std::vector<LeftRecord> left, const Checkpoint& checkpoint, bool own,
                                                   int ranks, std::vector<std::string>& warnings) {
  const std::int64_t then = integer_of(checkpoint, "ranks") + std::ssize(left);
  if (left.empty() || (own && then == ranks)) return left;
  warnings.push_back(std::to_string(left.size()) + " of " + std::to_string(then) +
                     " ranks had left at the checkpoint; " +
                     (own ? "with " + std::to_string(ranks) + " ranks" : "in another run") + " all take part again");
  return {};
}

/// The images of a run that are others than at its checkpoint, in words; empty: none. Images that it had not, as those
/// that are held out now, are no others.
[[nodiscard]] std::string other_images(const Checkpoint& checkpoint, const std::map<std::string, std::string>& hashes) {
  std::string others;
  for (const auto& [split, hash] : hashes) {
    const auto then = checkpoint.texts.find("hash_" + split);
    if (then == checkpoint.texts.end() || then->second == hash) continue;
    others += (others.empty() ? "" : ", ") + std::string("other ") + images_text(split);
  }
  return others;
}

/// "PATH: what is wrong with it", of a checkpoint of another run.
[[nodiscard]] Error about_resume(const TrainOptions& options, const Error& error) {
  return {error.code(), options.resume + ": " + error.what() + " (--initialize takes the weights alone)"};
}

/// A run in the folder is not begun anew; with the same --resume PATH the same command goes on, as with any other
/// option.
void require_free(const Found& found, const Written& earlier, const TrainOptions& options) {
  const bool same_start =
      resumes_elsewhere(options) && earlier.said.contains("resume") && earlier.options.resume == options.resume;
  require(!found.occupied || options.resume == "auto" || same_start, ExitCode::usage, "--out ", found.folder,
          " holds a run already: choose another folder, or --resume auto to go on");
}

void decide_without_checkpoint(const Found& found, const TrainOptions& options, Beginning& result) {
  if (options.initialize.empty()) return;
  const GivenWeights& weights = found.weights;
  if (weights.failure) throw Error(*weights.failure);
  try {
    require_same_function(read_written(weights.config, options.initialize), options);
  } catch (const Error& error) {
    throw about_weights(options.initialize, error);
  }
  result.way = Way::weights;
  result.warnings.insert(result.warnings.end(), weights.warnings.begin(), weights.warnings.end());
  result.what = ", beginning with the weights of " + options.initialize;
}

void decide_with_checkpoint(const Found& found, const Written& earlier, const Written& known,
                            const TrainOptions& options, const Planned& now, Beginning& result) {
  const Checkpoint& checkpoint = *found.checkpoint;
  const bool own = found.own;
  const std::string &folder = found.folder, others = other_images(checkpoint, now.hashes);
  std::int64_t done{};
  try {
    done = steps_done_at(checkpoint, now.plan, now.images);
  } catch (const Error& error) {
    throw own ? error : about_resume(options, error);
  }
  require(
      !own || others.empty(), ExitCode::usage, folder, " was made with other images: --data has ", others,
      " now, under whatever name; give the files that the run began with, or choose another --out (there, --resume ",
      folder, " goes on from it with these)");
  const std::int64_t steps_then = integer_of(checkpoint, "steps_per_epoch"), total = now.plan.steps;
  if (own) compare_ends(options, known, steps_then, now.plan, result.warnings);
  require(done <= total, ExitCode::usage, folder, " has ", done, " steps done, and the options end the run after ",
          total, "; raise --epochs or --max-steps");
  result.left = staying_away(left_at(checkpoint, own ? folder + "/ckpt" : options.resume), checkpoint, own,
                             now.plan.ranks, result.warnings);
  result.evaluation_due = value_of(checkpoint.integers, "evaluation_due");
  result.what = ", going on after step " + std::to_string(done);
  if (!own) {
    std::string told =
        differences(known, options, [](const OptionRow& row, const Bound&) { return row.restart == Restart::fixed; });
    told += (told.empty() || others.empty() ? "" : ", ") + others;
    result.way = Way::branch;
    result.other_options = !told.empty();
    result.what += " of " + options.resume + (told.empty() ? "" : " with other options: " + told);
    return;
  }
  result.way = Way::go_on;
  result.step = integer_of(checkpoint, "step");
  result.counted_anew = steps_then != now.plan.steps_per_epoch;
  result.recorded = value_of(checkpoint.integers, "evaluation_recorded") != 0;
  result.best = BestRecord::of(checkpoint);
  result.since_best = value_of(checkpoint.integers, "since_best");
  result.metrics_bytes = integer_of(checkpoint, "metrics_bytes");
  result.behind = value_of(checkpoint.texts, "metrics_behind");
  const bool at_end = done == total || value_of(checkpoint.integers, "stopped_early") != 0;
  if (at_end && toml_of(earlier.options) == toml_of(options)) result.summary = found.summary;
  result.finished = !result.summary.empty();
}

/// Differences from the file of --initialize, for people; empty: none.
[[nodiscard]] std::string new_text(const GivenWeights& weights, const TrainOptions& options, int image_size) {
  std::string text;
  if (options.new_head != 0) text += ", with a new last layer of " + std::to_string(options.new_head) + " classes";
  const std::string there = std::to_string(weights.image_size), here = std::to_string(image_size);
  if (weights.image_size > 0 && there != here)
    text += ", of images of " + there + "x" + there + ", where these are " + here + "x" + here;
  return text;
}

/// Puts the weights of --initialize into the network.
void load(GivenWeights weights, const TrainOptions& options, Model& model) {
  const std::string& path = options.initialize;
  try {
    const std::string network = options.network + " of width " + std::to_string(options.width);
    const StateDict state =
        fitted(model.graph, weights.checkpoint ? state_dict_of(*weights.checkpoint) : std::move(*weights.state),
               {.file = path, .network = network, .new_head = options.new_head != 0, .seed = options.seed});
    check_values(state, path);
    load_network(checkpoint_of(state), model);
  } catch (const Error& error) {
    throw about_weights(path, error);
  }
}

void act(Found found, const TrainOptions& options, Trainer& trainer, Beginning& beginning) {
  if (beginning.way == Way::fresh) return;
  if (beginning.way == Way::weights) return load(std::move(found.weights), options, trainer.replica().model());
  // A later part needs a trainer of its own; and one of all ranks cannot hold what belongs to each of the fewer ones.
  if (beginning.part == 0 || !beginning.left.empty()) take_up(*found.checkpoint, options, trainer, beginning);
  if (beginning.part != 0 || !beginning.left.empty()) beginning.state = std::move(found.checkpoint);
}

}  // namespace

std::int64_t epoch_at(const Checkpoint& checkpoint) {
  const std::int64_t steps = integer_of(checkpoint, "steps_per_epoch"), done = integer_of(checkpoint, "step"),
                     next = done - (value_of(checkpoint.integers, "evaluation_due") != 0 ? 1 : 0);
  return steps > 0 ? std::max<std::int64_t>(next, 0) / steps : 0;
}

void take_up(const Checkpoint& checkpoint, const TrainOptions& options, Trainer& trainer, Beginning& beginning) {
  try {
    trainer.restore(checkpoint, beginning.other_options);
  } catch (const Error& error) {
    if (beginning.own()) throw;
    throw about_resume(options, error);
  }
  const std::string dropped = trainer.examples().dropped();
  if (beginning.left.empty() && !dropped.empty()) beginning.warnings.push_back(dropped);
}

Beginning decide(const Found& found, const TrainOptions& options, const Planned& now) {
  Beginning result;
  result.warnings = found.warnings;
  const Written earlier = read_written(found.config, config_in(found.folder));
  require_free(found, earlier, options);
  if (found.failure) throw Error(*found.failure);
  const Written known = found.checkpoint ? read_written(value_of(found.checkpoint->texts, "config_toml"),
                                                        found.own ? found.folder + "/ckpt" : options.resume)
                                         : earlier;
  if (found.own || (found.occupied && !resumes_elsewhere(options))) {
    const std::string differing = differences(known, options, must_stay);
    require(differing.empty(), ExitCode::usage, found.folder, " was made with other options: ", differing,
            "; repeat them, or choose another --out (there, --resume ", shell_quoted(found.folder),
            " goes on from it with other options)");
  }
  if (found.checkpoint)
    decide_with_checkpoint(found, earlier, known, options, now, result);
  else
    decide_without_checkpoint(found, options, result);
  return result;
}

Beginning begin(const TrainOptions& options, const std::string& folder, GivenWeights weights, Trainer& trainer) {
  Found found = look(options, folder, std::move(weights));
  const Splits& splits = trainer.splits();
  const std::int64_t epoch = found.checkpoint ? epoch_at(*found.checkpoint) : 0;
  const TrainOptions part = part_of(options, epoch);
  const Plan plan(part, mix_of(part, *splits.train, trainer.plan().ranks), trainer.plan().ranks);
  Beginning beginning;
  try {
    beginning = decide(found, options, {plan, splits.train->size(), splits.hashes});
    beginning.part = part_at(options, epoch);
  } catch (const Error&) {
    if (found.failure)  // there is no report yet that would say what has been passed over
      for (const std::string& warning : found.warnings) say("warning: " + warning);
    throw;
  }
  if (beginning.way == Way::weights) beginning.what += new_text(found.weights, options, splits.train->info().size);
  act(std::move(found), options, trainer, beginning);
  return beginning;
}

}  // namespace dat
