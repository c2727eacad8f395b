#include "run/beginning.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "interop/source.hpp"
#include "replica/model_state.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Options that may change between the parts of a run: they do not touch its numbers, or those of steps to come only.
const std::set<std::string> kFree = {"out",
                                     "resume",
                                     "device",
                                     "threads",
                                     "quiet",
                                     "resident",
                                     "verbose",
                                     "progress",
                                     "eval",
                                     "eval-norm",
                                     "eval-eps",
                                     "eval-alpha",
                                     "eval-restarts",
                                     "limit-test",
                                     "eval-attack-steps",
                                     "eval-every",
                                     "data",
                                     "check-every",
                                     "checkpoint-every",
                                     "epochs",
                                     "patience",
                                     "max-steps",
                                     "graphs",
                                     "comm-timeout",
                                     "checkpoint-async",
                                     "on-full",
                                     "on-corruption",
                                     "verify",
                                     "max-bad-steps",
                                     "on-bad-steps",
                                     "on-overfitting",
                                     "overfitting-margin",
                                     "rollback-lr",
                                     "max-rollbacks"};

/// Of them, those that say what an evaluation finds. Where images are kept aside it chooses the best checkpoint, the
/// early end and what overfits, so that those of two attacks must not be compared.
const std::set<std::string> kEvaluation = {"eval",       "eval-norm",     "eval-eps",
                                           "eval-alpha", "eval-restarts", "eval-attack-steps"};

[[nodiscard]] std::set<std::string> free_options(const TrainOptions& options) {
  std::set<std::string> all = kFree;
  if (options.holdout > 0)
    for (const std::string& name : kEvaluation) all.erase(name);
  all.merge(options_of_other_selectors(options.selector));
  return all;
}

[[nodiscard]] std::map<std::string, std::string> lines_of(const std::string& toml) {
  std::map<std::string, std::string> all;
  std::istringstream text(toml);
  for (std::string line; std::getline(text, line);)
    if (const auto at = line.find(" = "); at != std::string::npos && line[0] != '#')
      all[line.substr(0, at)] = line.substr(at + 3);
  return all;
}

/// "lr (was 0.1, is 0.2), ...": the options in which two configurations differ, those in `ignored` left out.
[[nodiscard]] std::string differences(const std::string& earlier, const std::string& now,
                                      const std::set<std::string>& ignored) {
  const auto before = lines_of(earlier);
  std::string all;
  for (const auto& [key, value] : lines_of(now)) {
    const auto found = before.find(key);
    if (found == before.end() || found->second == value || ignored.contains(key)) continue;
    all += (all.empty() ? "" : ", ") + key + " (was " + found->second + ", is " + value + ")";
  }
  return all;
}

[[nodiscard]] std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A later end of a run whose rates or layers depend on its end is another run from here on.
void compare_ends(const TrainOptions& options, const std::string& earlier, const std::string& now,
                  std::vector<std::string>& warnings) {
  const auto before = lines_of(earlier), after = lines_of(now);
  for (const char* key : {"epochs", "max-steps"}) {
    const auto found = before.find(key);
    if (found == before.end() || found->second == after.at(key)) continue;
    const auto warn = [&](const std::string& what) {
      warnings.push_back(std::string("--") + key + " was " + found->second + " and is " + after.at(key) +
                         " from here on: " + what +
                         " depends on it, and the run is not the one that would have been planned so from the start");
    };
    if (options.schedule != "step") warn("the learning rate of --schedule " + options.schedule);
    if (options.selector == "freezeout" || options.selector == "autofreeze")
      warn("what --selector " + options.selector + " freezes");
  }
}

/// What a network computes with its weights.
const std::array<const char*, 4> kFunction = {"network", "width", "activation", "normalize"};

[[nodiscard]] std::string plain(const std::string& value) {
  return value.size() > 1 && value.front() == '"' ? value.substr(1, value.size() - 2) : value;
}

/// A network of the same parameters may compute something else: with another activation, or of images that are
/// normalized in another way. A file that does not say is believed. there, config: options as text.
void require_same_function(const std::string& there_said, const std::string& config) {
  const auto there = lines_of(there_said), here = lines_of(config);
  for (const char* key : kFunction) {
    const auto found = there.find(key);
    if (found == there.end()) continue;
    const std::string earlier = plain(found->second), now = plain(here.at(key));
    require(earlier == now, ExitCode::usage, "the network there was trained with --", key, " ", earlier,
            ", this run has --", key, " ", now, "; give --", key, " ", earlier, " or leave it off");
  }
}

/// "--initialize PATH: what is wrong with it".
[[nodiscard]] Error about_weights(const std::string& path, const Error& error) {
  const std::string what = error.what();
  return {error.code(), "--initialize " + (what.starts_with(path + ": ") ? "" : path + ": ") + what};
}

/// Puts the weights of --initialize into the network.
void begin_with_weights(const TrainOptions& options, const std::string& config,
                        const std::function<void(const std::string&)>& warn, Model& model) {
  const std::string& path = options.initialize;
  std::error_code unreadable;
  const bool folder = fs::is_directory(path, unreadable);
  if (folder || is_hdf5_of_weights(path)) {
    const Checkpoint weights = folder ? find_checkpoint(path, warn) : read_weights(path);
    const auto said = weights.texts.find("config_toml");
    if (said != weights.texts.end()) require_same_function(said->second, config);
    return load_network(weights, model);
  }
  Source source = read_source(path, warn);
  require_same_function(source.config, config);
  const std::string network = options.network + " of width " + std::to_string(options.width);
  const StateDict state = fitted(model.graph, std::move(source.state), {.file = path, .network = network});
  check_values(state, path);
  load_network(checkpoint_of(state), model);
}

}  // namespace

void take_network(Command& command) {
  TrainOptions& o = command.train;
  if (o.initialize.empty()) return;
  // A run that goes on has written down what it took, and need not find the file again.
  const std::string own = o.out.empty() ? "" : text_of(o.out + "/config.resolved.toml");
  const auto begun_with = lines_of(own), here = lines_of(command.resolved_toml);
  const auto before = begun_with.find("initialize");
  const bool goes_on = before != begun_with.end() && before->second == here.at("initialize");
  std::string config = own;
  TrainOptions there;
  try {
    if (!goes_on) config = config_of_source(o.initialize);
    there = parse_train_options(config, goes_on ? o.out : o.initialize);
  } catch (const Error& error) {
    throw about_weights(o.initialize, error);
  }
  const auto said = lines_of(config);
  const auto takes = [&](const char* key) { return said.contains(key) && !command.given.contains(key); };
  if (takes("network")) {
    o.network = there.network;
    if (!said.contains("width") && !command.given.contains("width")) o.width = default_width(o.network);
  }
  if (takes("width")) o.width = there.width;
  if (takes("activation")) o.activation = there.activation;
  if (takes("normalize")) o.normalize = there.normalize;
  command.resolved_toml = toml_of(o);
  if (goes_on) return;
  try {
    require_same_function(config, command.resolved_toml);
  } catch (const Error& error) {
    throw about_weights(o.initialize, error);
  }
}

Beginning begin(const TrainOptions& options, const std::string& config, const std::string& folder, Trainer& trainer) {
  Beginning result;
  const auto warn = [&](const std::string& warning) { result.warnings.push_back(warning); };
  std::error_code unreadable;  // then the report says why nothing can be written there
  const std::string ckpt = folder + "/ckpt";
  const bool occupied = fs::exists(folder + "/metrics.jsonl", unreadable) || CheckpointFolder::any_in(ckpt);
  const std::string earlier = text_of(folder + "/config.resolved.toml");
  const bool elsewhere = options.resume != "auto" && options.resume != "never";
  // With the same --resume PATH the same command goes on, as with any other option.
  const auto begun_with = lines_of(earlier);
  const auto resumed = begun_with.find("resume");
  const bool same_start = elsewhere && resumed != begun_with.end() && resumed->second == lines_of(config).at("resume");
  require(!occupied || options.resume == "auto" || same_start, ExitCode::usage, "--out ", folder,
          " holds a run already: choose another folder, or --resume auto to go on");

  std::optional<Checkpoint> checkpoint;
  try {
    if (CheckpointFolder::any_in(ckpt)) {
      checkpoint = CheckpointFolder::newest_in(ckpt, warn);
      result.own = true;
    } else if (elsewhere) {
      checkpoint = find_checkpoint(options.resume, warn);
    }
  } catch (const Error&) {
    for (const std::string& warning : result.warnings) std::cerr << "dat_hpc: warning: " + warning + "\n";
    throw;
  }
  const std::string known = checkpoint ? checkpoint->texts["config_toml"] : earlier;
  if (result.own || (occupied && !elsewhere)) {
    const std::string differing = differences(known, config, free_options(options));
    require(differing.empty(), ExitCode::usage, folder, " was made with other options: ", differing,
            "; repeat them, or choose another --out (there, --resume ", folder, " goes on from it with other options)");
    compare_ends(options, known, config, result.warnings);
  }
  if (!checkpoint) {
    if (options.initialize.empty()) return result;
    try {
      begin_with_weights(options, config, warn, trainer.replica().model());
    } catch (const Error& error) {
      throw about_weights(options.initialize, error);
    }
    result.what = ", beginning with the weights of " + options.initialize;
    return result;
  }

  try {
    trainer.restore(*checkpoint);
  } catch (const Error& error) {
    if (!elsewhere || result.own) throw;
    throw Error(error.code(), options.resume + ": " + error.what() + " (--initialize takes the weights alone)");
  }
  if (!trainer.examples().dropped().empty()) warn(trainer.examples().dropped());
  const std::int64_t done = trainer.steps_done(), total = trainer.plan().steps;
  require(done <= total, ExitCode::usage, folder, " has ", done, " steps done, and the options end the run after ",
          total, "; raise --epochs or --max-steps");
  result.evaluation_due = checkpoint->integers["evaluation_due"];
  if (result.own) {
    result.best = BestRecord::of(*checkpoint);
    result.since_best = checkpoint->integers["since_best"];
  }
  result.what = ", going on after step " + std::to_string(done);
  if (!result.own) {
    const std::string differing = differences(known, config, kFree);
    result.what += " of " + options.resume + (differing.empty() ? "" : " with other options: " + differing);
    return result;
  }
  result.metrics_bytes = checkpoint->integers.at("metrics_bytes");
  if ((done == total || checkpoint->integers["stopped_early"] != 0) && earlier == config &&
      fs::exists(folder + "/results.h5", unreadable)) {
    result.summary = text_of(folder + "/SUMMARY.txt");
    result.finished = !result.summary.empty();
  }
  return result;
}

}  // namespace dat
