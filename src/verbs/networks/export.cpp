// The verb export: the network of a checkpoint in a form that other programs read.

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "assess/classes.hpp"
#include "dat/checkpoint.hpp"
#include "dat/config.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/report.hpp"
#include "interop/hub.hpp"
#include "interop/onnx.hpp"
#include "interop/robustbench.hpp"
#include "interop/state_dict.hpp"
#include "options/machine.hpp"
#include "options/ranges.hpp"
#include "options/train/citations.hpp"
#include "printed.hpp"
#include "replica/model_state.hpp"
#include "verbs/networks/networks.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

const char* const kCifar10 = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";

/// Path of the results of the run that has written a checkpoint; empty: it does not lie in the folder of one.
[[nodiscard]] std::string results_beside(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  std::error_code unreadable;
  fs::path place = fs::absolute(place_of_checkpoint(checkpoint), unreadable);
  if (!fs::is_directory(place, unreadable)) place = place.parent_path();
  return place.filename() == "ckpt" ? (place.parent_path() / "results.h5").string() : "";
}

/// Adds what a checkpoint and its training say.
[[nodiscard]] HubEntry completed(HubEntry entry, const ExportOptions& options, const TrainOptions& trained,
                                 const Checkpoint& checkpoint, const Graph& graph) {
  const auto test = checkpoint.texts.find("hash_test");
  entry.norm = norm_from(trained.norm);
  entry.noise = trained.noise > 0;
  entry.eps = trained.attack.last() == "none" ? 0 : trained.eps.last();
  if (test != checkpoint.texts.end()) entry.test_images = test->second;
  entry.raw_hash = entry.hash;
  if (entry.weights == "average") {
    const Fitting how{.file = options.checkpoint, .network = entry.architecture};
    entry.raw_hash = weights_hash(graph, fitted(graph, state_dict_of(checkpoint), how));
  }
  entry.results = results_beside(options.checkpoint);
  std::error_code unreadable;
  const bool folder = std::filesystem::is_directory(options.evaluation, unreadable);
  entry.evaluation = options.evaluation + (folder ? "/results.h5" : "");
  entry.options = differences_from_defaults(trained, false);
  entry.citations = citations(trained);
  return entry;
}

[[nodiscard]] std::string write_export(const ExportOptions& options) {
  const std::string& path = options.checkpoint;
  const auto warn = [](const std::string& warning) { say("warning: " + warning); };
  Checkpoint checkpoint = find_checkpoint(path, warn);
  const TrainOptions trained = parse_train_options(checkpoint.texts["config_toml"], path);
  const auto size = checkpoint.integers.find("image_size");
  require(size != checkpoint.integers.end(), ExitCode::checkpoint, path, ": does not say the size of its images");

  const auto& make = networks().at(trained.network);
  NetworkOptions network{.width = trained.width,
                         .size = static_cast<int>(size->second),
                         .activation = activation_from(trained.activation),
                         .normalization = normalization_from(trained.normalize)};
  const bool rebuilt = trained.average_bn == "rebuild";
  if (const std::string notice = weights_notice(checkpoint, options.weights, rebuilt, path); !notice.empty())
    warn(notice);
  const bool average = takes_average(checkpoint, options.weights, rebuilt, path);
  StateDict state = state_dict_of(checkpoint, average);
  network = sizes_of(make, state, network);
  const Graph graph = make(network);
  const std::string architecture =
      trained.network + ", width " + std::to_string(network.width) +
      (trained.activation == "relu" ? "" : ", " + trained.activation) +
      (trained.normalize == "none" ? "" : ", images normalized (" + trained.normalize + ")");
  state = fitted(graph, std::move(state), {.file = path, .network = architecture});
  const std::string hash = weights_hash(graph, state);
  const std::string classes = lines_of(classes_of(checkpoint, path).names);
  state.metadata = {{"network", trained.network},
                    {"width", std::to_string(network.width)},
                    {"activation", trained.activation},
                    {"normalize", trained.normalize},
                    {"classes", std::to_string(network.classes)},
                    {"channels", std::to_string(network.channels)},
                    {"image_size", std::to_string(network.size)},
                    {"norm", trained.norm},
                    {"eps", radius_text(trained.eps, norm_from(trained.norm))},
                    {"weights", average ? "average" : "raw"},
                    {"step", std::to_string(checkpoint.integers["step"])},
                    {"weights_hash", hash},
                    {"producer", "dat_hpc, commit " + commit()}};
  if (!classes.empty()) state.metadata["class_names"] = classes;

  const std::string dataset = classes == kCifar10 ? "cifar10" : "";
  std::string remarks;
  if (options.format == "onnx") {
    write_onnx(options.out, graph, state);
  } else {
    state.metadata["format"] = "pt";  // readers of safetensors ask whose names these are
    // Training images of weights of another origin are unknown.
    const bool known = !checkpoint.texts.contains("imported_from") && trained.initialize.empty() &&
                       (trained.resume == "auto" || trained.resume == "never");
    if (options.format == "hub") {
      const HubEntry entry{
          .architecture = architecture, .dataset = dataset, .weights = state.metadata["weights"], .hash = hash};
      remarks = write_hub(options.out, graph, state, completed(entry, options, trained, checkpoint, graph));
    } else if (options.format == "robustbench") {
      remarks = write_robustbench(options.out, graph, state,
                                  {.architecture = architecture,
                                   .dataset = dataset,
                                   .norm = norm_from(trained.norm),
                                   .eps = trained.eps,
                                   .additional_data = known ? std::optional(trained.data.size() > 1) : std::nullopt,
                                   .weights = hash,
                                   .evaluation = options.evaluation});
    } else {
      write_safetensors(options.out, state);
    }
  }
  return fmt::format("wrote {}: {}, {} classes, images of {}x{}x{}, step {}{}\nweights {}\n{}", options.out,
                     architecture, network.classes, network.size, network.size, network.channels,
                     checkpoint.integers["step"], weights_text(state.metadata["weights"]), hash, remarks);
}

/// Format by `wanted` and the suffix of a path. Error(usage): they contradict each other, or neither says it.
std::string export_format(const std::string& wanted, const std::string& out) {
  const std::string suffix = std::filesystem::path(out).extension();
  const std::string named = suffix == ".onnx" || suffix == ".safetensors" ? suffix.substr(1) : "";
  require(wanted == "auto" || named.empty() || wanted == named, ExitCode::usage, "--format ", wanted, " and --out ",
          out, " contradict each other; leave --format off for ", named, ", or choose another name");
  // "model-0.5" has none.
  require(
      wanted != "auto" || !named.empty() || suffix.size() < 2 || !std::isalpha(static_cast<unsigned char>(suffix[1])),
      ExitCode::usage, "--out ", out, ": no format has the suffix ", suffix, "; name the file .safetensors or ",
      ".onnx, or give --format");
  return wanted != "auto" ? wanted : named.empty() ? "safetensors" : named;
}

void add_options(TableOf<ExportOptions>& table) {
  using O = ExportOptions;
  table.add("CHECKPOINT", &O::checkpoint, "a checkpoint, or the folder of a run: its newest one");
  table.add("--format", &O::format,
            "safetensors and onnx are files, robustbench and hub folders with a class of PyTorch, hub with a model "
            "card; auto: as the suffix of --out says, safetensors where it has none",
            one_of({"auto", "safetensors", "onnx", "robustbench", "hub"}));
  add_weights(table);
  table.add("--evaluation", &O::evaluation,
            "what 'eval --out' has written of this checkpoint, for the figures: robustbench eval.json, hub results.h5 "
            "or the folder with it (beside the run's own figures); none: no figures of one",
            kPath);
  table.add("--out", &O::out, "file or folder to write", kPath);
}

int run_export(const ExportOptions& options, int, char**) {
  return print_result([&] { return write_export(options); });
}

}  // namespace

std::optional<ExportOptions> parse_export(CommandLine& line) {
  auto read = read_options<ExportOptions>(
      line, "Writes the network of a checkpoint in a form that other programs read.", add_options);
  if (!read) return {};
  ExportOptions& o = *read;
  require(!o.out.empty(), ExitCode::usage, "export needs a place; give --out PATH");
  o.format = export_format(o.format, o.out);
  const bool folder = o.format == "robustbench" || o.format == "hub";
  require_apart(folder
                    ? files_in(o.out, {"model.safetensors", "model.py", "config.json", "model_info.json", "README.md"})
                    : std::vector{o.out},
                {place_of_checkpoint(o.checkpoint), o.evaluation});
  require(o.evaluation.empty() || folder, ExitCode::usage,
          "--evaluation works with --format robustbench or hub, not with ", o.format, "; leave it off");
  return o;
}

Verb export_verb() {
  return make_verb("export", "a network for others: safetensors, ONNX, RobustBench, a hub", parse_export, run_export);
}

}  // namespace dat
