#include "dat/cheat.hpp"

namespace dat {

namespace {

/// What becomes of a run of which a rank is banned, without whoever bans it.
class Leave final : public Cheat {
 public:
  [[nodiscard]] bool leaves() const override { return true; }
};

}  // namespace

std::unique_ptr<Cheat> make_leave(const CheatOptions&) { return std::make_unique<Leave>(); }

}  // namespace dat
