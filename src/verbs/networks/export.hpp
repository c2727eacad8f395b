#pragma once

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

/// Parser for make_verb().
[[nodiscard]] std::optional<ExportOptions> parse_export(CommandLine& line);

}  // namespace dat
