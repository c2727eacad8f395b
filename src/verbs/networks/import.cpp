// The verb import: a checkpoint of a network that another program has trained.

#include <fmt/format.h>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/norm.hpp"
#include "dat/provenance.hpp"
#include "interop/source.hpp"
#include "options/machine.hpp"
#include "printed.hpp"
#include "verbs/networks/networks.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

[[nodiscard]] std::string write_import(const ImportOptions& options, int argc, char** argv) {
  Source source = read_source(options.file, [](const std::string& warning) { say("warning: " + warning); });
  TrainOptions trained = parse_train_options(source.config, options.file);
  const bool named = source.config.find("network = ") != std::string::npos;
  require(options.network != "auto" || named, ExitCode::usage, options.file,
          ": does not say which network it holds; give --network, and --width where it is not the published one");
  if (options.network != "auto") trained.network = options.network;
  if (!named)
    std::tie(trained.width, trained.activation) =
        std::pair(default_width(trained.network), default_activation(trained.network));
  if (options.width != 0) trained.width = options.width;
  if (options.activation != "auto") trained.activation = options.activation;
  if (options.normalize != "auto") trained.normalize = options.normalize;
  require(options.eps > 0 || options.norm == "auto" || options.norm == trained.norm, ExitCode::usage, "--norm ",
          options.norm, " needs the radius of its ball; give --eps");
  const EvaluationSettings plain;
  if (options.norm != "auto" && options.norm != trained.norm) {
    // Settings of the attack in the other ball, which the training says nothing about.
    AttackSettings other;
    if (trained.attack == "none") other.attack = trained.attack;
    other.norm = options.norm;
    other.noise = trained.noise;
    other.noise_samples = trained.noise_samples;
    static_cast<AttackSettings&>(trained) = other;
    trained.eval = plain.eval;
  }
  if (options.eps > 0) trained.eps = options.eps;
  require_in_range("--eps", norm_from(trained.norm), trained.eps);
  trained.eval_eps = plain.eval_eps;
  trained.eval_alpha = plain.eval_alpha;
  (void)parse_train_options(toml_of(trained), options.file);  // a written text can be read
  if (options.size != 0) source.size = options.size;
  if (source.size == 0)
    source.size = static_cast<std::int64_t>(number_of(networks().settings(trained.network), "size").value_or(32));
  require(source.size >= 8 && source.size <= 4096, ExitCode::checkpoint, options.file,
          ": its image_size is not 8 to 4096 pixels; give --size");

  const auto& make = networks().at(trained.network);
  NetworkOptions network{.width = trained.width,
                         .size = static_cast<int>(source.size),
                         .activation = activation_from(trained.activation),
                         .normalization = normalization_from(trained.normalize)};
  network = sizes_of(make, source.state, network);
  const std::int64_t names = std::ssize(source.class_names);
  const bool new_head = options.new_head != 0;
  require(new_head || names == 0 || names == network.classes, ExitCode::checkpoint, options.file,
          ": its class_names are ", names, ", its last layer has ", network.classes, " classes");
  if (new_head) network.classes = options.new_head;
  const Graph graph = make(network);
  const std::string architecture = trained.network + " of width " + std::to_string(network.width);
  const StateDict state =
      fitted(graph, std::move(source.state),
             {.file = options.file, .network = architecture, .new_head = new_head, .seed = options.seed});
  check_values(state, options.file);
  Checkpoint checkpoint = checkpoint_of(state);
  checkpoint.integers["step"] = 0;
  checkpoint.integers["image_size"] = network.size;
  checkpoint.integers["image_channels"] = network.channels;
  checkpoint.texts["config_toml"] = toml_of(trained);
  checkpoint.texts["class_names"] = new_head ? "" : lines_of(source.class_names);
  checkpoint.texts["imported_from"] = options.file;
  checkpoint.texts["provenance"] = provenance_json({host_name()}, argc, argv, "");
  write_checkpoint(options.out, checkpoint);

  return fmt::format("wrote {}: {}, {} classes{}, images of {}x{}x{}\nweights {}\n", options.out, architecture,
                     network.classes, new_head ? " (the last layer is new)" : "", network.size, network.size,
                     network.channels, weights_hash(graph, state));
}

void add_options(TableOf<ImportOptions>& table) {
  using O = ImportOptions;
  table.add("FILE", &O::file,
            "a safetensors file, a PyTorch state_dict saved as HDF5, a checkpoint, or the folder of a run");
  table.add("--network", &O::network, "architecture; auto: as the file says", one_network(true));
  table.add("--width", &O::width, "channels of the first stage; auto: as the file says, else the published ones",
            kAutoWidth);
  table.add("--activation", &O::activation, "what follows batch norms; auto: as the file says, else the published one",
            one_of({"auto", "relu", "silu"}));
  table.add("--normalize", &O::normalize,
            "(x - mean)/std of the images, inside the network, as in 'train'; auto: as the file says, else none",
            {.label = "auto|none|cifar10|cifar100|imagenet|M,...,S,..."});
  table.add("--size", &O::size,
            "height and width of its images in pixels; auto: as the file says, else 224 of imagenet_*, else 32",
            {.low = 8, .high = 4096, .automatic = 0});
  table.add("--norm", &O::norm, "of the ball that it was trained for; auto: as the file says, else linf",
            auto_or(norm_names()));
  table.add("--eps", &O::eps, "radius of the ball; auto: as the file says, else 8/255", kAutoRadius);
  table.add("--new-head", &O::new_head, "classes of a last layer that begins anew; none: the file's is kept",
            {.low = 2, .high = kMostClasses, .automatic = 0, .word = "none"});
  table.add("--seed", &O::seed, "of the new last layer", kCount);
  table.add("--out", &O::out, "the checkpoint to write, e.g. model.h5", kPath);
}

int run_import(const ImportOptions& options, int argc, char** argv) {
  return print_result([&] { return write_import(options, argc, argv); });
}

}  // namespace

std::optional<ImportOptions> parse_import(CommandLine& line) {
  auto read = read_options<ImportOptions>(line, "Makes a checkpoint of a network that another program has trained.",
                                          add_options);
  if (!read) return {};
  ImportOptions& o = *read;
  require(!o.out.empty(), ExitCode::usage, "import needs a place; give --out PATH");
  require_apart({o.out}, {place_of_checkpoint(o.file)});
  if (o.normalize != "auto") (void)normalization_from(o.normalize);
  return o;
}

Verb import_verb() {
  return make_verb("import", "a network of others as a checkpoint, to go on with", parse_import, run_import);
}

}  // namespace dat
