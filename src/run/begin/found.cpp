#include "run/begin/found.hpp"

#include <filesystem>
#include <utility>

#include "communicate/together.hpp"
#include "dat/file.hpp"
#include "dat/network.hpp"
#include "interop/source.hpp"
#include "run/begin/folder.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

[[nodiscard]] std::string text_in(const std::string& path) { return small_file(path).value_or(""); }

/// Record of the run in the folder, where it has begun with these weights; else empty. It need not find the file again.
[[nodiscard]] std::string begun_with(const TrainOptions& options) {
  const std::string folder = folder_of(options);
  if (folder.empty()) return "";
  std::string config = text_in(config_in(folder));
  const Written written = read_written(config, config_in(folder));
  return written.said.contains("initialize") && written.options.initialize == options.initialize ? config : "";
}

void take(TrainOrder& order, const Written& there) {
  TrainOptions& o = order.options;
  const auto given = [&](const char* key) { return order.given.contains(key); };
  const auto takes = [&](const char* key) { return there.said.contains(key) && !given(key); };
  const bool says_width = there.said.contains("width") && there.options.width != 0;  // and not auto
  if (takes("network")) {
    o.network = there.options.network;
    if (!says_width && !given("width")) o.width = default_width(o.network);
    if (!given("activation")) o.activation = default_activation(o.network);
  }
  if (says_width && !given("width")) o.width = there.options.width;
  if (takes("activation")) o.activation = there.options.activation;
  if (takes("normalize")) o.normalize = there.options.normalize;
}

[[nodiscard]] GivenWeights read_given(const std::string& path) {
  GivenWeights given;
  try {
    given.checkpoint = read_hdf5_source(path, [&](const std::string& text) { given.warnings.push_back(text); });
    if (given.checkpoint) {
      given.config = given.checkpoint->texts["config_toml"];
      given.image_size = given.checkpoint->integers["image_size"];
    } else {
      Source source = read_tensors(path);
      given.config = std::move(source.config);
      given.image_size = source.size;
      given.state = std::move(source.state);
    }
  } catch (const Error& error) {
    given.failure = about_weights(path, error);
  }
  return given;
}

}  // namespace

void require_same_function(const Written& there, const TrainOptions& here) {
  TrainOptions earlier = there.options, now = here;
  const Bound before(train_table(), earlier), after(train_table(), now);
  for (const OptionRow& row : train_table().rows()) {
    if (!row.function || !there.said.contains(row.name)) continue;
    const std::string was = before.text(row);
    require(was == after.text(row), ExitCode::usage, "the network there was trained with --", row.name, " ", was,
            ", this run has --", row.name, " ", after.text(row), "; give --", row.name, " ", was, " or leave it off");
  }
}

Error about_weights(const std::string& path, const Error& error) {
  const std::string what = error.what();
  return {error.code(), "--initialize " + (what.starts_with(path + ": ") ? "" : path + ": ") + what};
}

void take_network(TrainOrder& order) {
  const std::string& path = order.options.initialize;
  if (path.empty()) return;
  if (const std::string own = begun_with(order.options); !own.empty())
    return take(order, read_written(own, config_in(folder_of(order.options))));
  try {
    const Written there = read_written(config_of_source(path), path);
    take(order, there);
    require_same_function(there, order.options);
  } catch (const Error& error) {
    throw about_weights(path, error);
  }
}

GivenWeights take_network(TrainOrder& order, Communicator& world) {
  GivenWeights given;
  if (order.options.initialize.empty()) return given;
  std::string config;
  together(world, [&] {
    if (!world.root()) return;
    config = begun_with(order.options);
    if (!config.empty()) return;
    given = read_given(order.options.initialize);
    config = given.config;
  });
  world.broadcast(config);
  try {
    take(order, read_written(config, order.options.initialize));
  } catch (const Error&) {  // rank 0 says so, if it must
  }
  return given;
}

Found look(const TrainOptions& options, const std::string& folder, GivenWeights weights) {
  Found found{.folder = folder, .config = text_in(config_in(folder)), .weights = std::move(weights)};
  std::error_code unreadable;  // then the report says why nothing can be written there
  const std::string ckpt = folder + "/ckpt";
  const bool any = CheckpointFolder::any_in(ckpt);
  found.occupied = any || fs::exists(folder + "/metrics.jsonl", unreadable);
  if (fs::exists(folder + "/results.h5", unreadable)) found.summary = text_in(folder + "/SUMMARY.txt");
  const auto warn = [&](const std::string& warning) { found.warnings.push_back(warning); };
  try {
    found.own = any && options.resume != "never";
    if (found.own)
      found.checkpoint = CheckpointFolder::newest_in(ckpt, warn);
    else if (resumes_elsewhere(options))
      found.checkpoint = find_checkpoint(options.resume, warn);
    else if (!options.initialize.empty() && !found.weights.read())
      found.weights = read_given(options.initialize);
  } catch (const Error& error) {
    found.failure = error;
  }
  return found;
}

}  // namespace dat
