#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dat/logits.hpp"
#include "dat/registry.hpp"

namespace dat {

struct LossOptions {
  double lambda = 0;        ///< cross_entropy: weight of the loss on clean images; 0: they are not looked at
  double beta = -1;         ///< trades, kl, mart: weight of the divergence; -1: the loss's own
  double smoothing = 0;     ///< of the labels in cross-entropies: target (1 - s) of the label, and s/classes of each
  bool unlabelled = false;  ///< labels may be unknown (-1)
};

/// Standard deviation of the starts of TRADES' and MART's attacks, beside the image itself.
constexpr float kNearStart = 0.001F;

/// What the training minimises: a function of the logits that the network gives for the attacked images of a batch,
/// and for the clean ones where it wants them. Each of the two is a training pass, forward and back.
class Loss {
 public:
  /// Which images a pass takes.
  enum class Images : std::uint8_t { attacked, clean };

  virtual ~Loss() = default;

  /// The passes of a micro-batch, in their order; at most one for each kind of images.
  [[nodiscard]] virtual std::vector<Images> passes() const = 0;
  /// Whether the gradient of a pass depends on the logits of the others, as that of a divergence between them does. The
  /// others are computed before it then, once more than otherwise.
  [[nodiscard]] virtual bool joint() const { return false; }
  /// The passes whose batch statistics enter the running ones at the end of a step, in this order. One may come twice,
  /// as it does in an implementation that calls the network once more; empty: each once, in the order of the passes.
  [[nodiscard]] virtual std::vector<int> entering() const { return {}; }
  /// What the attack on the training images climbs.
  [[nodiscard]] virtual AttackGoal goal() const { return {}; }
  /// Weight of the divergence in it; 0: there is none.
  [[nodiscard]] virtual double beta() const { return 0; }
  /// Whether an image without label has a part in it.
  [[nodiscard]] virtual bool takes_unlabelled() const { return false; }
  /// Leaves, of pass k, the loss and the correctness of each sample in `logits[k]`, and in its gradient
  /// d(loss of the batch)/d(logits[k]). The loss of a batch is the mean over its `batch` samples, of which these are
  /// some; a term that a sample does not have counts as 0 in it. The losses that are left come without their weights
  /// (lambda, beta). Of the other passes values and labels are there where the loss is joint. Queued on the device;
  /// allocates nothing.
  virtual void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const = 0;
};

[[nodiscard]] const Registry<std::unique_ptr<Loss>(const LossOptions&)>& losses();

}  // namespace dat
