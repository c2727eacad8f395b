#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

struct CheatOptions {
  std::uint64_t seed = 0;
  int classes = 10;              ///< classes of the images
  int ranks = 1, attackers = 0;  ///< ranks of the group, and the number of them that cheat, in whatever way and steps
  int rank = 0;                  ///< number of this rank in the launch
  int delay = 1000;              ///< delayed: steps between a gradient's making and its sending
  std::int64_t parameters = 0;   ///< Parameters::size
};

/// A cheating rank's view of the gradients of a step. Blocks are on the host and laid out as Parameters are; of each,
/// only the tensors of active layers count.
struct CheatStep {
  std::int64_t step = 0;                      ///< steps that are done before
  std::span<const Segment* const> tensors{};  ///< tensors of the active layers
  float* own = nullptr;                       ///< the rank's true gradient; what it sends afterwards
  /// Coordinate by coordinate the mean and the standard deviation (of the sample: over the number less one) of the true
  /// gradients of the ranks that never cheat, and the gradient of the first of them. Only where Cheat::sees() is `all`,
  /// in steps in which it cheats.
  const float *mean = nullptr, *deviation = nullptr, *first = nullptr;
  const float* result = nullptr;  ///< result of the aggregation in the step before; null: not known
};

class Mischief;

/// Misbehaviour of a simulated Byzantine rank (--cheat). A member overrides the hooks that it wants; a hook stands
/// where a rank's own work leaves it, and is called in the steps in which the rank cheats. Everything is done on the
/// host, and what goes with it is outside a step's times and bytes.
class Cheat {
 public:
  virtual ~Cheat() = default;

  /// Returns whether the rank leaves the run, which continues without it, and does nothing more.
  [[nodiscard]] virtual bool leaves() const { return false; }

  /// Changes the labels of a micro-batch, before it is attacked; -1: unknown.
  virtual void labels(std::span<std::int32_t> /*labels*/) {}
  /// Steps of the attack on training images, in place of those that the options ask for; 0: no attack.
  [[nodiscard]] virtual std::optional<int> attack_steps() const { return {}; }
  /// Changes what the rank says of its batch statistics.
  virtual void statistics(std::span<double> /*numbers*/) {}

  /// Changes to its messages of the protocol that bans (--byzantine); null: none.
  [[nodiscard]] virtual Mischief* mischief() { return nullptr; }

  /// Gradients that it must see; nothing: look() and gradient() are not called.
  enum class Sees : std::uint8_t { nothing, own, all };
  [[nodiscard]] virtual Sees sees() const { return Sees::nothing; }
  /// Steps before the first one in which it cheats, from which on look() is called.
  [[nodiscard]] virtual int looks_back() const { return 0; }
  /// Looks at the rank's true gradient, in every step.
  virtual void look(const CheatStep&) {}
  /// Changes what the rank sends.
  virtual void gradient(const CheatStep&) {}
  /// Bytes on the host that it keeps for itself.
  [[nodiscard]] virtual std::int64_t memory() const { return 0; }
};

[[nodiscard]] const Registry<std::unique_ptr<Cheat>(const CheatOptions&)>& cheats();

/// A word of --cheat, NAME[:DELAY][@FROM[/EVERY]].
struct CheatWord {
  std::string name;       ///< name among cheats(), if there is one
  int delay = 0;          ///< CheatOptions::delay; 0: that of the cheat
  std::int64_t from = 0;  ///< steps that are done before it cheats for the first time
  int every = 1;          ///< steps from one cheating to the next
};
/// None: it is not written so.
[[nodiscard]] std::optional<CheatWord> read_cheat_word(const std::string& word);

}  // namespace dat
