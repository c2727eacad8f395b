#pragma once

namespace dat {

/// Ranks that only attack. Rows and rules: src/options/train/generators.cpp.
struct GeneratorSettings {
  int generators = 0;  ///< the last so many ranks make attacked images for the others, which train

  friend bool operator==(const GeneratorSettings&, const GeneratorSettings&) = default;
};

}  // namespace dat
