// The verb import: a checkpoint of a network that another program has trained.

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/norm.hpp"
#include "dat/provenance.hpp"
#include "exchange/state_dict.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

/// What a file has, and what it says of it.
struct Source {
  StateDict state;
  std::string config;       ///< options of `train` that the file names; empty: none
  std::int64_t size = 0;    ///< of the images; 0: unknown; -1: no number
  std::string class_names;  ///< one a line; empty: unknown
};

[[nodiscard]] Source source_of(Checkpoint checkpoint) {
  Source source{.state = state_dict_of(checkpoint),
                .config = checkpoint.texts["config_toml"],
                .size = checkpoint.integers["image_size"],
                .class_names = checkpoint.texts["class_names"]};
  return source;
}

/// Metadata are believed where `export` has written them, as far as they are plain words.
[[nodiscard]] Source source_of(StateDict state) {
  const auto said = [&](const char* key) -> std::string {
    const auto found = state.metadata.find(key);
    return found == state.metadata.end() ? "" : found->second;
  };
  Source source;
  if (said("producer").starts_with("dat_hpc")) {
    const auto plain = [&](const char* key) {
      const std::string text = said(key);
      const auto strange = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               std::string_view("_./,-").find(c) == std::string::npos;
      };
      return text.size() < 200 && std::none_of(text.begin(), text.end(), strange) ? text : "";
    };
    const auto take = [&](const char* key, const char* quote) {
      if (!plain(key).empty()) source.config += std::string(key) + " = " + quote + plain(key) + quote + "\n";
    };
    take("network", "\"");
    take("width", "");
    for (const char* key : {"activation", "normalize", "norm", "eps"}) take(key, "\"");
    if (const std::string size = said("image_size"); !size.empty()) {
      const char* const end = size.data() + size.size();
      const auto [last, error] = std::from_chars(size.data(), end, source.size);
      if (error != std::errc() || last != end || source.size == 0) source.size = -1;
    }
    source.class_names = said("class_names");
  }
  source.state = std::move(state);
  return source;
}

[[nodiscard]] Source read_source(const std::string& path) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable))
    return source_of(
        find_checkpoint(path, [](const std::string& warning) { std::cerr << "dat_hpc: warning: " + warning + "\n"; }));
  std::unique_ptr<ByteSource> bytes;
  try {
    bytes = open_bytes(path);
  } catch (const Error& error) {
    throw Error(ExitCode::checkpoint, error.what());
  }
  std::array<char, 9> begin{};
  bytes->read(0, begin.data(), std::min<std::int64_t>(bytes->size(), begin.size()));
  const std::string_view magic(begin.data(), begin.size());
  if (has_seal(path) || magic.starts_with(std::string_view("\x89HDF\r\n\x1a\n", 8)))
    return source_of(read_weights(path));
  // The header of a safetensors file begins behind its length, of which any byte may be 0x80.
  const bool header = magic[8] == '{';
  require(!magic.starts_with("PK\x03\x04") && (header || !magic.starts_with('\x80')), ExitCode::checkpoint, path,
          ": is a pickle of PyTorch, which can run programs when it is read; convert it where you trust it: ",
          "python3 -c \"import sys, torch; from safetensors.torch import save_file; "
          "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
          "d = next((d[k] for k in ('state_dict', 'model', 'net') if k in d), d); "
          "save_file({k: v.contiguous().clone() for k, v in d.items() if torch.is_tensor(v)}, sys.argv[2])\" ",
          path, " NEW.safetensors");
  return source_of(read_safetensors(*bytes));
}

/// Names of classes that may be printed, one for each class, or none at all.
void check_class_names(const std::string& names, int classes, const std::string& file) {
  const auto control = [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; };
  require(std::none_of(names.begin(), names.end(), control), ExitCode::checkpoint, file,
          ": its class_names hold control characters");
  const std::int64_t count = std::count(names.begin(), names.end(), '\n') + (names.ends_with('\n') ? 0 : 1);
  require(names.empty() || count == classes, ExitCode::checkpoint, file, ": its class_names are ", count,
          ", its last layer has ", classes, " classes");
}

/// Nothing can be computed with numbers that are not finite, nor with a negative variance.
void check_values(const StateDict& state, const std::string& file) {
  for (const Checkpoint::Array& tensor : state.tensors) {
    const auto& values = tensor.values;
    require(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }),
            ExitCode::checkpoint, file, ": ", tensor.name, " has values that are not finite; take another file");
    require(!tensor.name.ends_with(".running_var") ||
                std::all_of(values.begin(), values.end(), [](float value) { return value >= 0; }),
            ExitCode::checkpoint, file, ": ", tensor.name, " has negative values; take another file");
  }
}

[[nodiscard]] std::string write_import(const ImportOptions& options, int argc, char** argv) {
  Source source = read_source(options.file);
  TrainOptions trained = parse_train_options(source.config, options.file);
  const bool named = source.config.find("network = ") != std::string::npos;
  require(options.network != "auto" || named, ExitCode::usage, options.file,
          ": does not say which network it holds; give --network, and --width where it is not the published one");
  if (options.network != "auto") trained.network = options.network;
  if (options.width > 0 || !named) trained.width = options.width > 0 ? options.width : default_width(trained.network);
  if (options.activation != "auto") trained.activation = options.activation;
  if (options.normalize != "auto") trained.normalize = options.normalize;
  require(options.eps > 0 || options.norm == "auto" || options.norm == trained.norm, ExitCode::usage, "--norm ",
          options.norm, " needs the radius of its ball; give --eps");
  if (options.norm != "auto") trained.norm = options.norm;
  if (options.eps > 0) trained.eps = options.eps;
  require_in_range("--eps", norm_from(trained.norm), trained.eps);
  trained.eval_norm = trained.norm;
  (void)parse_train_options(toml_of(trained), options.file);  // what is written can be read
  if (options.size > 0) source.size = options.size;
  if (source.size == 0) source.size = 32;
  require(source.size >= 8 && source.size <= 4096, ExitCode::checkpoint, options.file,
          ": its image_size is not 8 to 4096 pixels; give --size");

  const auto& make = networks().at(trained.network);
  NetworkOptions network{.width = trained.width,
                         .size = static_cast<int>(source.size),
                         .activation = activation_from(trained.activation),
                         .normalization = normalization_from(trained.normalize)};
  network = sizes_of(make, source.state, network);
  if (options.new_head == 0) check_class_names(source.class_names, network.classes, options.file);
  if (options.new_head > 0) network.classes = options.new_head;
  const Graph graph = make(network);
  const std::string architecture = trained.network + " of width " + std::to_string(network.width);
  const StateDict state =
      fitted(graph, std::move(source.state),
             {.file = options.file, .network = architecture, .new_head = options.new_head > 0, .seed = options.seed});
  check_values(state, options.file);
  Checkpoint checkpoint = checkpoint_of(state);
  checkpoint.integers["step"] = 0;
  checkpoint.integers["image_size"] = network.size;
  checkpoint.integers["image_channels"] = network.channels;
  checkpoint.texts["config_toml"] = toml_of(trained);
  checkpoint.texts["class_names"] = options.new_head > 0 ? "" : source.class_names;
  checkpoint.texts["imported_from"] = options.file;
  checkpoint.texts["provenance"] = provenance_json({host_name()}, argc, argv, "");
  write_checkpoint(options.out, checkpoint);

  std::ostringstream text;
  text << "wrote " << options.out << ": " << architecture << ", " << network.classes << " classes"
       << (options.new_head > 0 ? " (the last layer is new)" : "") << ", images of " << network.size << "x"
       << network.size << "x" << network.channels << "\nweights " << weights_hash(graph, state) << "\n";
  return text.str();
}

}  // namespace

int run_import(const Command& command, int argc, char** argv) {
  return print_once([&] { return write_import(command.imported, argc, argv); });
}

}  // namespace dat
