#pragma once

#include <memory>

#include "dat/registry.hpp"

namespace dat {

/// What a simulated Byzantine rank does in the place of what it should do (--cheat). A member overrides the hooks that
/// it wants; a hook stands where a rank's own work leaves it.
class Cheat {
 public:
  virtual ~Cheat() = default;

  /// Whether the rank leaves the run, which goes on without it, and does nothing more.
  [[nodiscard]] virtual bool leaves() const { return false; }
};

[[nodiscard]] const Registry<std::unique_ptr<Cheat>()>& cheats();

}  // namespace dat
