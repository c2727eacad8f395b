#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Cheat that leaves: the run goes on as without a rank that is banned.
class Leave final : public Cheat {
 public:
  [[nodiscard]] bool leaves() const override { return true; }
};

}  // namespace

std::unique_ptr<Cheat> make_leave(const CheatOptions&) { return std::make_unique<Leave>(); }

}  // namespace dat
