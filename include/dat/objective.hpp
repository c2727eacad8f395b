#pragma once

#include <cstdint>

#include "dat/batch.hpp"
#include "dat/random.hpp"

namespace dat {

/// All that an attack may know: a micro-batch, of which it reads the clean images and leaves the perturbed ones in
/// x_adv and their perturbation in eta; what the network makes of x_adv, and how to get the gradient of a loss there.
/// Arrays are on the device.
class Objective : public Batch {
 public:
  virtual ~Objective() = default;

  int copies = 1;                ///< copies of each image that the network sees, under noise (SmoothedView)
  const float* start = nullptr;  ///< eta to start from, which may be the array eta itself; null: a random start
  const float* dx = nullptr;     ///< scale * d(sum of losses)/d(x_adv), after gradient()
  float scale = 1;
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::attack_start;
  /// Epoch (training) or restart (evaluation): with the sample's number the key of what is random.
  std::uint32_t time = 0;
  int run = 0;  ///< number of the call among Attack::runs(); 0 when the objective has been prepared
  /// The loss that gradient() differentiates. The attack may change it; when the attack begins, it is cross-entropy.
  SampleLoss* loss = cross_entropy;
  const float* reference = nullptr;  ///< [n, classes] logits of the clean images, where the loss is taken against them
  /// Standard deviation of a random start: N(0, spread^2) in each pixel; 0: a start in the ball.
  float spread = 0;
  /// Results of the network for x_adv, after forward() or gradient(): logits [n, classes]; losses and correctness [n].
  const float *logits = nullptr, *losses = nullptr, *correct = nullptr;
  /// Memory for the attack: Needs::scratch_images arrays the size of the images, one after the other, of
  /// `scratch_stride` elements each. Its contents when the attack begins are undefined.
  float* scratch = nullptr;
  std::int64_t scratch_stride = 0;
  /// [n]: 1 where the attack is through with an image, which nothing that happens to x_adv can change any more. The
  /// attack sets all of them, if it calls live() at all.
  std::int32_t* done = nullptr;
  /// Images that gradients have been computed for so far, those included that only fill up a program.
  std::int64_t passes = 0;

  virtual void gradient() = 0;  ///< dx, logits, losses, correct at x_adv; queued, does not wait
  /// Computes logits, losses and correct at x_adv as gradient() does, but no dx, at the cost of half a gradient or
  /// less. Error(usage): samples depend on each other.
  virtual void forward();
  /// gradient(), then one iteration of PGD in the L-infinity ball with it (kernels::PgdStep): in one pass where the
  /// device has one. Leaves losses and correct, but neither dx nor logits.
  virtual void gradient_step(float alpha, float eps);
  /// Takes `steps` gradient steps, but a sample leaves once it is fooled: in each iteration, a sample that is
  /// classified wrong and has used up `tau` steps from such places stays where it is, for good (PGD-K-tau: Zhang et
  /// al., "Attacks Which Do Not Kill Training Make Adversarial Learning Stronger", ICML 2020, algorithm 1). Samples
  /// that have left are not computed again. Starts at x + eta and leaves eta; x_adv is undefined. Waits for the device
  /// once per iteration. Error(usage) where samples depend on each other.
  virtual void steps_until_fooled(int steps, int tau, float alpha, float eps);
  /// The number of images that the attack is not done with. From this call on, and until the objective is prepared
  /// anew, gradient() and forward() may leave out the images that are done: their dx, logits, losses and correct are
  /// undefined then. Waits for the device. An objective that leaves out no image returns n.
  [[nodiscard]] virtual int live() { return n; }
};

}  // namespace dat
