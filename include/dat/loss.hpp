#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dat/logits.hpp"
#include "dat/registry.hpp"

namespace dat {

struct LossOptions {
  double lambda = 0;  ///< cross_entropy: weight of the loss on clean images; 0: clean images are not looked at
  double beta = -1;   ///< weight of the term of two predictions, of losses that have one; -1: the loss's own
  /// Smoothing s of the labels in cross-entropies: the label's target is 1 - s, each class has s/classes.
  double smoothing = 0;
  bool unlabelled = false;  ///< labels may be unknown (-1)
  bool detach = false;      ///< pgi, gat, nuat: the prediction that others are compared with is a constant
};

/// Standard deviation of the starts of TRADES' and MART's attacks, beside the image itself.
constexpr float kNearStart = 0.001F;

/// The loss that the training minimises: a function of the logits for the attacked images of a batch, and for the clean
/// ones, or those where the attack began, where the loss needs them. Each of these kinds of images is a training pass,
/// forward and backward.
class Loss {
 public:
  /// Kind of images that a pass takes. start: the images at which the attack took its first gradient.
  enum class Images : std::uint8_t { attacked, clean, start };
  /// Other passes whose logits the gradient of a pass needs, as the gradient of a divergence between them does.
  enum class Others : std::uint8_t {
    none,
    earlier,  ///< passes before it, which have had their turn
    all       ///< all passes: later ones go forward once before, in addition to their own turn
  };

  virtual ~Loss() = default;

  /// The passes of a micro-batch, in their order; at most one for each kind of images.
  [[nodiscard]] virtual std::vector<Images> passes() const = 0;
  [[nodiscard]] virtual Others looks_at() const { return Others::none; }
  /// The passes whose batch statistics enter the running ones at the end of a step, in this order. A pass may come
  /// twice, as in an implementation that calls the network once more; empty: each pass once, in the order of the
  /// passes.
  [[nodiscard]] virtual std::vector<int> entering() const { return {}; }
  /// Objective that the attack on the training images climbs, and data that it leaves for the loss.
  [[nodiscard]] virtual AttackGoal goal() const { return {}; }
  /// Needs of its passes, beside those of its goal (AttackGoal::needs).
  [[nodiscard]] Needs needs() const { return {.clean_passes = passes().size() > 1}; }
  /// Numbers that differentiate() wants in Logits::scratch.
  [[nodiscard]] virtual std::int64_t scratch(int /*classes*/) const { return 0; }
  /// Weight of the term of two predictions in the loss; 0: the loss has none.
  [[nodiscard]] virtual double beta() const { return 0; }
  /// Returns whether an image without label has a part in the loss.
  [[nodiscard]] virtual bool takes_unlabelled() const { return false; }
  /// Leaves the loss and the correctness of each sample of pass k in logits[k], and in logits[k].gradient d(loss of the
  /// batch)/d(logits[k]). The loss of a batch is the mean over its `batch` samples, of which those of logits[k] are
  /// some; a term that a sample does not have counts as 0 in the mean. The losses that are left come without their
  /// weights (lambda, beta). The logits of the other passes that the loss needs have values and labels; reference has
  /// those of the attack where goal() has it leave them. Passes come in their order. Queued on the device; allocates
  /// nothing.
  virtual void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const = 0;
};

[[nodiscard]] const Registry<std::unique_ptr<Loss>(const LossOptions&)>& losses();

}  // namespace dat
