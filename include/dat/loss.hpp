#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dat/logits.hpp"
#include "dat/registry.hpp"

namespace dat {

struct LossOptions {
  double lambda = 0;  ///< cross_entropy: weight of the loss on clean images; 0: clean images are not looked at
  double beta = -1;   ///< trades, kl, mart: weight of the divergence; -1: the loss's own
  /// Smoothing s of the labels in cross-entropies: the label's target is 1 - s, each class has s/classes.
  double smoothing = 0;
  bool unlabelled = false;  ///< labels may be unknown (-1)
};

/// Standard deviation of the starts of TRADES' and MART's attacks, beside the image itself.
constexpr float kNearStart = 0.001F;

/// What the training minimises: a function of the logits that the network gives for the attacked images of a batch, and
/// for the clean ones where the loss wants them. Each of the two kinds of images is a training pass, forward and back.
class Loss {
 public:
  /// Which images a pass takes.
  enum class Images : std::uint8_t { attacked, clean };

  virtual ~Loss() = default;

  /// The passes of a micro-batch, in their order; at most one for each kind of images.
  [[nodiscard]] virtual std::vector<Images> passes() const = 0;
  /// Whether the gradient of a pass depends on the logits of the others, as the gradient of a divergence between them
  /// does. The other passes then go forward once before this one, in addition to their own turn.
  [[nodiscard]] virtual bool joint() const { return false; }
  /// The passes whose batch statistics enter the running ones at the end of a step, in this order. A pass may come
  /// twice, as in an implementation that calls the network once more; empty: each pass once, in the order of the
  /// passes.
  [[nodiscard]] virtual std::vector<int> entering() const { return {}; }
  /// What the attack on the training images climbs.
  [[nodiscard]] virtual AttackGoal goal() const { return {}; }
  /// Weight of the divergence in the loss; 0: the loss has none.
  [[nodiscard]] virtual double beta() const { return 0; }
  /// Whether an image without label has a part in the loss.
  [[nodiscard]] virtual bool takes_unlabelled() const { return false; }
  /// Leaves the loss and the correctness of each sample of pass k in logits[k], and in logits[k].gradient d(loss of the
  /// batch)/d(logits[k]). The loss of a batch is the mean over its `batch` samples, of which those of logits[k] are
  /// some; a term that a sample does not have counts as 0 in the mean. The losses that are left come without their
  /// weights (lambda, beta). Where the loss is joint, the logits of the other passes have values and labels. Queued on
  /// the device; allocates nothing.
  virtual void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const = 0;
};

[[nodiscard]] const Registry<std::unique_ptr<Loss>(const LossOptions&)>& losses();

}  // namespace dat
