#include "interop/source.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/number.hpp"
#include "files/bytes.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {

namespace {

[[nodiscard]] Source source_of(Checkpoint checkpoint) {
  return {.state = state_dict_of(checkpoint),
          .config = checkpoint.texts["config_toml"],
          .size = checkpoint.integers["image_size"],
          .class_names = class_names_of(checkpoint.texts["class_names"])};
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
      return text.size() < 200 && is_plain(text, "_./,-") ? text : "";
    };
    const auto take = [&](const char* key, const char* quote) {
      if (!plain(key).empty()) source.config += std::string(key) + " = " + quote + plain(key) + quote + "\n";
    };
    take("network", "\"");
    take("width", "");
    for (const char* key : {"activation", "normalize", "norm", "eps"}) take(key, "\"");
    if (const std::string size = said("image_size"); !size.empty())
      if (!read_number(size, source.size) || source.size == 0) source.size = -1;
    source.class_names = class_names_of(said("class_names"));
  }
  source.state = std::move(state);
  return source;
}

[[nodiscard]] bool is_hdf5(const std::string& path) {
  return has_seal(path) || beginning_of(*open_bytes(path, ExitCode::checkpoint), 8) == "\x89HDF\r\n\x1a\n";
}

}  // namespace

std::optional<Checkpoint> read_hdf5_source(const std::string& path,
                                           const std::function<void(const std::string&)>& warn) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable)) return find_checkpoint(path, warn);
  if (is_hdf5(path)) return read_weights(path);
  return std::nullopt;
}

Source read_source(const std::string& path, const std::function<void(const std::string&)>& warn) {
  std::optional<Checkpoint> ours = read_hdf5_source(path, warn);
  return ours ? source_of(std::move(*ours)) : read_tensors(path);
}

Source read_tensors(const std::string& path) {
  const std::unique_ptr<ByteSource> bytes = open_bytes(path, ExitCode::checkpoint);
  constexpr std::size_t kFirst = 9;
  std::string magic = beginning_of(*bytes, kFirst);
  magic.resize(kFirst);
  // The header of a safetensors file begins after its length, of which any byte may be 0x80.
  const bool header = magic[8] == '{';
  require(!magic.starts_with("PK\x03\x04") && (header || !magic.starts_with('\x80')), ExitCode::checkpoint, path,
          ": is a pickle of PyTorch, which can run programs when it is read; convert it where you trust it: ",
          "python3 -c \"import sys, torch; from safetensors.torch import save_file; d = torch.load(sys.argv[1], "
          "map_location='cpu', weights_only=True); d = next((d[k] for k in ('state_dict', 'model', 'net') if k in d), "
          "d); save_file({k: v.contiguous().clone() for k, v in d.items() if torch.is_tensor(v)}, sys.argv[2])\" ",
          path, " NEW.safetensors");
  // A model of ONNX has its version of the format first, then the program that has made it or the graph.
  const bool onnx =
      magic[0] == '\x08' && static_cast<unsigned char>(magic[1]) < 32 && (magic[2] == '\x12' || magic[2] == '\x3a');
  require(header || !(onnx || path.ends_with(".onnx")), ExitCode::checkpoint, path,
          ": is an ONNX graph, from which no network is made here; save the weights as safetensors in PyTorch: ",
          "from safetensors.torch import save_file; save_file(model.state_dict(), 'NEW.safetensors')");
  return source_of(read_safetensors(*bytes));
}

std::string config_of_source(const std::string& path) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable)) {
    std::ifstream file(path + "/config.resolved.toml");
    if (file.is_open()) return {std::istreambuf_iterator<char>(file), {}};
    return find_checkpoint(path, [](const std::string&) {}).texts["config_toml"];
  }
  if (is_hdf5(path)) {  // a state_dict says nothing, whatever else it has
    const Hdf5Reader file = Hdf5Reader::open(path, ExitCode::checkpoint);
    return file.text("/", "filetype") == "checkpoint" ? file.text("/", "config_toml").value_or("") : "";
  }
  return read_tensors(path).config;
}

void check_values(const StateDict& state, const std::string& file) {
  for (const Checkpoint::Array& tensor : state.tensors) {
    const auto& values = tensor.values;
    require(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }), ExitCode::checkpoint, file,
            ": ", tensor.name, " has values that are not finite; take another file");
    require(
        !tensor.name.ends_with(".running_var") || std::ranges::all_of(values, [](float value) { return value >= 0; }),
        ExitCode::checkpoint, file, ": ", tensor.name, " has negative values; take another file");
  }
}

}  // namespace dat
