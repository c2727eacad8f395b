#include "run/beginning.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "dat/file.hpp"
#include "dat/run_lock.hpp"
#include "dat/shell.hpp"
#include "interop/source.hpp"
#include "options/train/table.hpp"
#include "options/value.hpp"
#include "printed.hpp"
#include "replica/model_state.hpp"
#include "run/membership.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Whether a run that goes on must have the option as it was. Where images are kept aside an evaluation chooses the
/// best checkpoint, the early end and what overfits, so that those of two attacks must not be compared. Options of
/// another selector may stand in what an earlier version has written.
[[nodiscard]] bool must_stay(const OptionRow& row, const Bound& now) {
  const bool held_out = now.asked(*now.table().find("holdout"));
  return (row.restart == Restart::fixed || (row.restart == Restart::evaluation && held_out)) &&
         (!row.falls_back || now.takes_part(row));
}

/// Whether a run that begins with another one's checkpoint is told that it differs in the option.
[[nodiscard]] bool is_told(const OptionRow& row, const Bound&) { return row.restart == Restart::fixed; }

[[nodiscard]] std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
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
    if (options.stale_attack > 0) warn("the first attack behind the earlier end, by --stale-attack,");
    if (options.selector == "freezeout" || options.selector == "autofreeze")
      warn("what --selector " + options.selector + " freezes");
  };
  compare("epochs", earlier.options.epochs, options.epochs);
  compare("max-steps", at_same_place(earlier.options.max_steps, steps_then, plan.steps_per_epoch), options.max_steps);
}

/// A network of the same parameters may compute something else: with another activation, or of images that are
/// normalized in another way. A file that does not say is believed.
void require_same_function(const Written& there, const TrainOptions& here) {
  TrainOptions earlier = there.options, now = here;
  const Bound before(train_table(), earlier), after(train_table(), now);
  for (const OptionRow& row : train_table().rows()) {
    if (!row.function || !there.said.contains(row.name)) continue;
    const auto unreadable = there.unreadable.find(row.name);
    const std::string was = unreadable == there.unreadable.end() ? before.text(row) : unreadable->second;
    require(was == after.text(row), ExitCode::usage, "the network there was trained with --", row.name, " ", was,
            ", this run has --", row.name, " ", after.text(row), "; give --", row.name, " ", was, " or leave it off");
  }
}

/// Whether those who had left at a checkpoint stay away: in the same run, on as many ranks. Else all take part, and
/// `warn` is told.
[[nodiscard]] bool stay_away(const std::vector<LeftRecord>& left, const Checkpoint& checkpoint, bool own, int ranks,
                             const std::function<void(const std::string&)>& warn) {
  if (left.empty()) return true;
  const std::int64_t then = integer_of(checkpoint, "ranks") + std::ssize(left);
  if (own && then == ranks) return true;
  warn(std::to_string(left.size()) + " of " + std::to_string(then) + " ranks had left at the checkpoint; " +
       (own ? "with " + std::to_string(ranks) + " ranks" : "in another run") + " all take part again");
  return false;
}

/// The images of a run that are others than at its checkpoint, in words; empty: none. A checkpoint of an earlier
/// version does not say which it had.
[[nodiscard]] std::string other_images(const Checkpoint& checkpoint, const Splits& splits) {
  std::string others;
  for (const auto& [split, hash] : splits.hashes) {
    const auto then = checkpoint.texts.find("hash_" + split);
    if (then == checkpoint.texts.end() || then->second == hash) continue;
    others += (others.empty() ? "" : ", ") + std::string("other ") + images_text(split);
  }
  return others;
}

/// "--initialize PATH: what is wrong with it".
[[nodiscard]] Error about_weights(const std::string& path, const Error& error) {
  const std::string what = error.what();
  return {error.code(), "--initialize " + (what.starts_with(path + ": ") ? "" : path + ": ") + what};
}

/// Puts the weights of --initialize into the network.
void begin_with_weights(const TrainOptions& options, const std::function<void(const std::string&)>& warn,
                        Model& model) {
  const std::string& path = options.initialize;
  std::error_code unreadable;
  const bool folder = fs::is_directory(path, unreadable);
  if (folder || is_hdf5_of_weights(path)) {
    const Checkpoint weights = folder ? find_checkpoint(path, warn) : read_weights(path);
    const auto said = weights.texts.find("config_toml");
    if (said != weights.texts.end()) require_same_function(read_written(said->second), options);
    return load_network(weights, model);
  }
  Source source = read_source(path, warn);
  require_same_function(read_written(source.config), options);
  const std::string network = options.network + " of width " + std::to_string(options.width);
  const StateDict state = fitted(model.graph, std::move(source.state), {.file = path, .network = network});
  check_values(state, path);
  load_network(checkpoint_of(state), model);
}

/// Restores the trainer. own: the checkpoint is in the run's own folder. Returns in what another run differs, in words.
/// Error(usage): the images are not those of the run.
[[nodiscard]] std::string restore(const TrainOptions& options, const std::string& folder, const Checkpoint& checkpoint,
                                  const Written& known, bool own, Trainer& trainer) {
  const std::string others = other_images(checkpoint, trainer.splits());
  std::string told = own ? "" : differences(known, options, is_told);
  if (!own && !others.empty()) told += (told.empty() ? "" : ", ") + others;
  try {
    trainer.restore(checkpoint, !told.empty());
  } catch (const Error& error) {
    if (own) throw;
    throw Error(error.code(), options.resume + ": " + error.what() + " (--initialize takes the weights alone)");
  }
  require(
      !own || others.empty(), ExitCode::usage, folder, " was made with other images: --data has ", others,
      " now, under whatever name; give the files that the run began with, or choose another --out (there, --resume ",
      folder, " goes on from it with these)");
  return told;
}

}  // namespace

std::string folder_of(const TrainOptions& options) {
  if (!options.out.empty()) return options.out;
  const char* const job = std::getenv("SLURM_JOB_ID");
  return job != nullptr ? std::string("runs/slurm-") + job : "";
}

std::string make_run_folder() {
  const std::time_t now = std::time(nullptr);
  std::ostringstream name;
  name << "runs/" << std::put_time(std::gmtime(&now), "%Y%m%dT%H%M%SZ");
  return make_new_folder(name.str());
}

void require_apart_from_inputs(const TrainOptions& options, const std::string& config) {
  const std::string folder = folder_of(options);
  if (folder.empty()) return;  // it will be a new one
  std::vector<std::string> inputs = options.data;
  inputs.push_back(options.calibration);
  inputs.push_back(place_of_checkpoint(options.initialize));
  if (options.resume != "auto" && options.resume != "never") inputs.push_back(place_of_checkpoint(options.resume));
  const std::initializer_list<const char*> written = {"metrics.jsonl", "results.h5", "SUMMARY.txt", "provenance.json",
                                                      "ckpt/best.h5"};
  require_apart(files_in(folder, {"config.resolved.toml"}), inputs);
  inputs.push_back(config);
  require_apart(files_in(folder, written), inputs);
}

std::string same_command(const TrainOptions& options, const std::string& folder) {
  return options.out.empty() ? "the same command with --out " + shell_quoted(folder) : "the same command";
}

void take_network(TrainOrder& order) {
  TrainOptions& o = order.options;
  if (o.initialize.empty()) return;
  // A run that goes on has written down what it took, and need not find the file again.
  const std::string folder = folder_of(o), own = folder.empty() ? "" : text_of(folder + "/config.resolved.toml");
  const Written begun_with = read_written(own);
  const bool goes_on = begun_with.said.contains("initialize") && begun_with.options.initialize == o.initialize;
  std::string config = own;
  TrainOptions there;
  try {
    if (!goes_on) config = config_of_source(o.initialize);
    there = parse_train_options(config, goes_on ? folder : o.initialize);
  } catch (const Error& error) {
    throw about_weights(o.initialize, error);
  }
  const Written said = read_written(config);
  const auto given = [&](const char* key) { return order.given.contains(key); };
  const auto takes = [&](const char* key) { return said.said.contains(key) && !given(key); };
  if (takes("network")) {
    o.network = there.network;
    if (!said.said.contains("width") && !given("width")) o.width = default_width(o.network);
  }
  if (takes("width")) o.width = there.width;
  if (takes("activation")) o.activation = there.activation;
  if (takes("normalize")) o.normalize = there.normalize;
  if (goes_on) return;
  try {
    require_same_function(said, o);
  } catch (const Error& error) {
    throw about_weights(o.initialize, error);
  }
}

Beginning begin(const TrainOptions& options, const std::string& folder, Trainer& trainer) {
  Beginning result;
  const auto warn = [&](const std::string& warning) { result.warnings.push_back(warning); };
  std::error_code unreadable;  // then the report says why nothing can be written there
  const std::string ckpt = folder + "/ckpt";
  const bool occupied = fs::exists(folder + "/metrics.jsonl", unreadable) || CheckpointFolder::any_in(ckpt);
  const Written earlier = read_written(text_of(folder + "/config.resolved.toml"));
  const bool elsewhere = options.resume != "auto" && options.resume != "never";
  // With the same --resume PATH the same command goes on, as with any other option.
  const bool same_start = elsewhere && earlier.said.contains("resume") && earlier.options.resume == options.resume;
  require(!occupied || options.resume == "auto" || same_start, ExitCode::usage, "--out ", folder,
          " holds a run already: choose another folder, or --resume auto to go on");

  std::optional<Checkpoint> checkpoint;
  try {
    if (CheckpointFolder::any_in(ckpt)) {
      checkpoint = CheckpointFolder::newest_in(ckpt, warn);
      result.step = integer_of(*checkpoint, "step");
    } else if (elsewhere) {
      checkpoint = find_checkpoint(options.resume, warn);
    }
  } catch (const Error&) {
    for (const std::string& warning : result.warnings) say("warning: " + warning);
    throw;
  }
  const Written known = checkpoint ? read_written(checkpoint->texts["config_toml"]) : earlier;
  if (result.own() || (occupied && !elsewhere)) {
    const std::string differing = differences(known, options, must_stay);
    require(differing.empty(), ExitCode::usage, folder, " was made with other options: ", differing,
            "; repeat them, or choose another --out (there, --resume ", shell_quoted(folder),
            " goes on from it with other options)");
  }
  if (!checkpoint) {
    if (options.initialize.empty()) return result;
    try {
      begin_with_weights(options, warn, trainer.replica().model());
    } catch (const Error& error) {
      throw about_weights(options.initialize, error);
    }
    result.what = ", beginning with the weights of " + options.initialize;
    return result;
  }

  const std::string told = restore(options, folder, *checkpoint, known, result.own(), trainer);
  const std::int64_t steps_then = integer_of(*checkpoint, "steps_per_epoch");
  if (result.own()) compare_ends(options, known, steps_then, trainer.plan(), result.warnings);
  result.counted_anew = result.own() && steps_then != trainer.plan().steps_per_epoch;
  const std::int64_t done = trainer.steps_done(), total = trainer.plan().steps;
  require(done <= total, ExitCode::usage, folder, " has ", done, " steps done, and the options end the run after ",
          total, "; raise --epochs or --max-steps");
  const std::vector<LeftRecord> left = Membership::in(*checkpoint, result.own() ? ckpt : options.resume);
  if (stay_away(left, *checkpoint, result.own(), trainer.plan().ranks, warn)) result.left = left;
  if (result.left.empty() && !trainer.examples().dropped().empty()) warn(trainer.examples().dropped());
  result.evaluation_due = checkpoint->integers["evaluation_due"];
  if (result.own()) {
    result.recorded = checkpoint->integers["evaluation_recorded"] != 0;
    result.best = BestRecord::of(*checkpoint);
    result.since_best = checkpoint->integers["since_best"];
  }
  result.what = ", going on after step " + std::to_string(done);
  if (!result.own()) {
    result.what += " of " + options.resume + (told.empty() ? "" : " with other options: " + told);
    return result;
  }
  result.metrics_bytes = checkpoint->integers.at("metrics_bytes");
  result.behind = checkpoint->texts["metrics_behind"];
  if ((done == total || checkpoint->integers["stopped_early"] != 0) && earlier.unreadable.empty() &&
      earlier.options == options && fs::exists(folder + "/results.h5", unreadable)) {
    result.summary = text_of(folder + "/SUMMARY.txt");
    result.finished = !result.summary.empty();
  }
  // A trainer of all ranks cannot hold what belongs to each of the fewer ones.
  if (!result.left.empty()) result.state = std::move(checkpoint);
  return result;
}

}  // namespace dat
