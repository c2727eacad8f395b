#pragma once

#include <string>

namespace dat {

/// Ranks that only attack. Rows and rules: src/options/train/generators.cpp.
struct GeneratorSettings {
  int generators = 0;  ///< the last so many ranks make attacked images for the others, which train; -1: auto
  std::string generator_weights = "f32";  ///< f32 | bf16: how weights go to them
  std::string calibration{};              ///< file that `auto` is forecast from

  friend bool operator==(const GeneratorSettings&, const GeneratorSettings&) = default;
};

}  // namespace dat
