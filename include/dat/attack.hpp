#pragma once

#include <cstdint>
#include <memory>

#include "dat/random.hpp"
#include "dat/registry.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// All an attack may know: clean images, where to put the perturbed ones, and how to get the loss gradient there.
/// Images are [n] samples in `layout`, float in [0, 1].
class Objective {
 public:
  virtual ~Objective() = default;

  Device device;
  Layout layout;
  int n = 0;
  const float* clean = nullptr;              ///< x
  float* x_adv = nullptr;                    ///< where the gradient is taken; the attack leaves its result here
  float* eta = nullptr;                      ///< the perturbation, the size of the images: the attack's state
  const float* start = nullptr;              ///< eta to start from (it may be there already); null: a random one
  const float* dx = nullptr;                 ///< d(sum of losses)/d(x_adv), after gradient(); a scale does not matter
  const std::int64_t* sample_ids = nullptr;  ///< [n], on the device: keys of the random start
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::attack_start;
  std::uint32_t time = 0;  ///< epoch (training) or 0 (evaluation): the other key

  virtual void gradient() = 0;  ///< dx at x_adv; queued, does not wait
  /// gradient(), then one iteration of PGD with it (kernels::PgdStep): in one pass where the device has one.
  virtual void gradient_step(float alpha, float eps);
};

struct AttackOptions {
  double eps = 8.0 / 255;
  double alpha = 0;  ///< 0: the attack's own default (pgd 2/255, fgsm 1.25 eps)
  int steps = 10;
};

class Attack {
 public:
  virtual ~Attack() = default;
  /// Leaves the adversarial images in objective.x_adv. Allocates nothing, waits for nothing.
  virtual void perturb(Objective& objective) const = 0;
  /// Whether the network runs with batch statistics during the attack unless the user says otherwise.
  [[nodiscard]] virtual bool prefers_batch_statistics() const { return false; }
  [[nodiscard]] virtual int gradient_evaluations() const = 0;
};

[[nodiscard]] const Registry<std::unique_ptr<Attack>(const AttackOptions&)>& attacks();

}  // namespace dat
