// The verb export: the network of a checkpoint in a form that other programs read.

#include <iostream>
#include <sstream>

#include "dat/checkpoint.hpp"
#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "dat/report.hpp"
#include "interop/onnx.hpp"
#include "interop/robustbench.hpp"
#include "interop/state_dict.hpp"
#include "replica/model_state.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

const char* const kCifar10 = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";

[[nodiscard]] std::string write_export(const ExportOptions& options) {
  const std::string& path = options.checkpoint;
  Checkpoint checkpoint =
      find_checkpoint(path, [](const std::string& warning) { std::cerr << "dat_hpc: warning: " + warning + "\n"; });
  const TrainOptions trained = parse_train_options(checkpoint.texts["config_toml"], path);
  const auto size = checkpoint.integers.find("image_size");
  require(size != checkpoint.integers.end(), ExitCode::checkpoint, path, ": does not say the size of its images");

  const auto& make = networks().at(trained.network);
  NetworkOptions network{.width = trained.width,
                         .size = static_cast<int>(size->second),
                         .activation = activation_from(trained.activation),
                         .normalization = normalization_from(trained.normalize)};
  const bool average = takes_average(checkpoint, options.weights, trained.average_bn == "rebuild", path);
  StateDict state = state_dict_of(checkpoint, average);
  network = sizes_of(make, state, network);
  const Graph graph = make(network);
  const std::string architecture =
      trained.network + ", width " + std::to_string(network.width) +
      (trained.activation == "relu" ? "" : ", " + trained.activation) +
      (trained.normalize == "none" ? "" : ", images normalized (" + trained.normalize + ")");
  state = fitted(graph, std::move(state), {.file = path, .network = architecture});
  const std::string hash = weights_hash(graph, state);
  const std::string& classes = checkpoint.texts["class_names"];
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

  std::string remarks;
  if (options.format == "onnx") {
    write_onnx(options.out, graph, state);
  } else {
    state.metadata["format"] = "pt";  // readers of safetensors ask whose names these are
    // What weights of another origin have seen, nobody knows.
    const bool known = !checkpoint.texts.contains("imported_from") && trained.initialize.empty() &&
                       (trained.resume == "auto" || trained.resume == "never");
    if (options.format == "robustbench")
      remarks = write_robustbench(options.out, graph, state,
                                  {.architecture = architecture,
                                   .dataset = classes == kCifar10 ? "cifar10" : "",
                                   .norm = norm_from(trained.norm),
                                   .eps = trained.eps,
                                   .additional_data = known ? std::optional(trained.data.size() > 1) : std::nullopt,
                                   .weights = hash,
                                   .evaluation = options.evaluation});
    else
      write_safetensors(options.out, state);
  }
  std::ostringstream text;
  text << "wrote " << options.out << ": " << architecture << ", " << network.classes << " classes, images of "
       << network.size << "x" << network.size << "x" << network.channels << ", step " << checkpoint.integers["step"]
       << weights_text(state.metadata["weights"]) << "\nweights " << hash << "\n"
       << remarks;
  return text.str();
}

}  // namespace

int run_export(const Command& command, int, char**) {
  return print_once([&] { return write_export(command.exported); });
}

}  // namespace dat
