#include <memory>

#include "byzantine/mischief.hpp"
#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Commits to parts that it does not have.
class WrongDigest final : public Cheat, public Mischief {
 public:
  [[nodiscard]] Mischief* mischief() override { return this; }
  void message(Topic phase, Letter& letter, int /*to*/, bool validates) override {
    if (phase != Topic::commit || validates) return;
    const std::span<std::byte> of_parts = letter.bytes().first(letter.bytes().size() - 2 * sizeof(Sha256Digest));
    for (std::byte& byte : of_parts) byte = ~byte;
  }
};

}  // namespace

std::unique_ptr<Cheat> make_wrong_digest(const CheatOptions&) { return std::make_unique<WrongDigest>(); }

}  // namespace dat
