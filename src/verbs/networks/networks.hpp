#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options/command_line.hpp"

namespace dat {

/// Options of `export`.
struct ExportOptions {
  std::string checkpoint;        ///< a checkpoint file, or the folder of a run: its newest
  std::string format = "auto";   ///< safetensors | onnx | robustbench | hub; never auto in a parsed command
  std::string weights = "auto";  ///< auto (the averaged ones, where there are any) | raw | average
  std::string evaluation;        ///< what `eval --out` has written, for robustbench and hub; empty: no figures
  std::string out;               ///< file; of robustbench and hub a folder

  friend bool operator==(const ExportOptions&, const ExportOptions&) = default;
};

/// Options of `import`.
struct ImportOptions {
  std::string file;                 ///< safetensors, state_dict in HDF5, checkpoint, or the folder of a run
  std::string network = "auto";     ///< auto: as the file says
  int width = 0;                    ///< 0: as the file says, else the published one
  std::string activation = "auto";  ///< auto: as the file says, else that of TrainOptions; so is normalize
  std::string normalize = "auto";
  int size = 0;               ///< size of the images; 0: as the file says, else 32
  std::string norm = "auto";  ///< norm of the ball for which it was trained; auto: as the file says, else linf
  double eps = 0;             ///< its radius; 0: as the file says, else that of TrainOptions
  int new_head = 0;           ///< classes of a last layer that begins anew; 0: the file's is taken
  std::uint64_t seed = 1;     ///< seed of the new last layer
  std::string out;            ///< the checkpoint to write

  friend bool operator==(const ImportOptions&, const ImportOptions&) = default;
};

// Parsers for make_verb().
[[nodiscard]] std::optional<ExportOptions> parse_export(CommandLine& line);
[[nodiscard]] std::optional<ImportOptions> parse_import(CommandLine& line);

}  // namespace dat
