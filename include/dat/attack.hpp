#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dat/logits.hpp"
#include "dat/random.hpp"
#include "dat/registry.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// All an attack may know: clean images, where to put the perturbed ones, what the network makes of them, and how to
/// get the gradient of a loss there. Images are [n] samples in `layout`, float in [0, 1]. Arrays are on the device.
class Objective {
 public:
  virtual ~Objective() = default;

  Device device;
  Layout layout;
  int n = 0, classes = 0;
  const float* clean = nullptr;              ///< x
  float* x_adv = nullptr;                    ///< where the network is asked; the attack leaves its result here
  float* eta = nullptr;                      ///< the perturbation, the size of the images: the attack's state
  const float* start = nullptr;              ///< eta to start from (it may be there already); null: a random one
  const float* dx = nullptr;                 ///< d(sum of losses)/d(x_adv), after gradient(); a scale does not matter
  const std::int32_t* labels = nullptr;      ///< [n]
  const std::int64_t* sample_ids = nullptr;  ///< [n]: keys of the random start
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::attack_start;
  std::uint32_t time = 0;  ///< epoch (training) or 0 (evaluation): the other key
  /// What gradient() is the gradient of. The attack may change it; it is cross-entropy when the attack begins.
  SampleLoss* loss = cross_entropy;
  /// At x_adv, after forward() or gradient(): [n, classes]; [n] each.
  const float *logits = nullptr, *losses = nullptr, *correct = nullptr;
  /// Memory for the attack: Attack::scratch_images() arrays the size of the images, one behind the other, of
  /// `scratch_stride` elements each. What is there when the attack begins is undefined.
  float* scratch = nullptr;
  std::int64_t scratch_stride = 0;
  /// Images that gradients have been computed for so far, those included that only fill up a program.
  std::int64_t passes = 0;

  virtual void gradient() = 0;  ///< dx, logits, losses, correct at x_adv; queued, does not wait
  /// The same without dx, at the cost of half a gradient or less. Error(usage) where samples depend on each other.
  virtual void forward();
  /// gradient(), then one iteration of PGD with it (kernels::PgdStep): in one pass where the device has one. Leaves
  /// losses and correct, but neither dx nor logits.
  virtual void gradient_step(float alpha, float eps);
  /// As `steps` calls of gradient_step, but a sample leaves once it is fooled: in each iteration, a sample that is
  /// classified wrong and has used up `tau` steps from such places stays where it is, for good (PGD-K-tau: Zhang et
  /// al., "Attacks Which Do Not Kill Training Make Adversarial Learning Stronger", ICML 2020, algorithm 1). Samples
  /// that have left are not computed again. Starts at x + eta and leaves eta; x_adv is undefined. Waits for the device
  /// once per iteration. Error(usage) where samples depend on each other.
  virtual void steps_until_fooled(int steps, int tau, float alpha, float eps);
};

struct AttackOptions {
  double eps = 8.0 / 255;
  double alpha = 0;  ///< step size; 0: the attack's own (pgd 2/255, fgsm 1.25 eps)
  int steps = 10;
  int stop = -1;  ///< pgd: tau of the early stop (Objective::steps_until_fooled); -1: none
};

class Attack {
 public:
  virtual ~Attack() = default;
  /// Leaves the adversarial images in objective.x_adv. Allocates nothing; waits for nothing but for the early stop.
  virtual void perturb(Objective& objective) const = 0;
  /// perturb() in two parts, for an attack that iterates: begin() starts as perturb() does and makes its first `steps`
  /// iterations, which leave the perturbation in objective.eta; resume() takes it from objective.start and goes on
  /// behind `done` iterations. What the network makes of the images may have changed in between. Error(usage): not this
  /// attack.
  virtual void begin(Objective& objective, int steps) const;
  virtual void resume(Objective& objective, int done) const;
  /// One more step, with the gradient in objective.dx, from where perturb() has ended. Error(usage): not this attack.
  virtual void step(Objective& objective) const;
  /// Whether the network runs with batch statistics during the attack unless the user says otherwise.
  [[nodiscard]] virtual bool prefers_batch_statistics() const { return false; }
  [[nodiscard]] virtual int gradient_evaluations() const = 0;  ///< per image, at most
  [[nodiscard]] virtual double alpha() const { return 0; }     ///< step size; 0: it takes no steps
  /// How many arrays the size of the images it needs beside those of the objective (Objective::scratch).
  [[nodiscard]] virtual int scratch_images() const { return 0; }
};

/// An attack as a word: its name in the registry, and behind it, for one of any number of steps, that number: "pgd20".
/// A word without number gets `steps` where the attack takes one. Error(usage): no such attack, or it takes no number.
struct AttackWord {
  std::string name;
  int steps = 0;  ///< 0: the attack takes none

  [[nodiscard]] std::string text() const { return name + (steps > 0 ? std::to_string(steps) : ""); }
};
[[nodiscard]] AttackWord read_attack_word(const std::string& word, int steps);
/// The step size of an attack of an evaluation: `wanted`, or where that is 0 eps/4 for an attack of any number of
/// steps, so that ten of them cross the ball (2/255 at 8/255: Madry et al., ICLR 2018), and the attack's own (0) for
/// others.
[[nodiscard]] double evaluation_alpha(const AttackWord& word, double eps, double wanted);

[[nodiscard]] const Registry<std::unique_ptr<Attack>(const AttackOptions&)>& attacks();

}  // namespace dat
