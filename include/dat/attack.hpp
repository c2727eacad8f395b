#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dat/logits.hpp"
#include "dat/norm.hpp"
#include "dat/random.hpp"
#include "dat/registry.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// All that an attack may know: clean images, where to put the perturbed ones, what the network makes of them, and how
/// to get the gradient of a loss at the perturbed images. Images are [n] samples in `layout`, float in [0, 1]. Arrays
/// are on the device.
class Objective {
 public:
  virtual ~Objective() = default;

  Device device;
  Layout layout;
  int n = 0, classes = 0;
  int copies = 1;                ///< of each image that the network sees, under noise (SmoothedObjective)
  const float* clean = nullptr;  ///< x
  float* x_adv = nullptr;        ///< where the network is asked; the attack leaves its result here
  float* eta = nullptr;          ///< the perturbation, the size of the images: the attack's state
  const float* start = nullptr;  ///< eta to start from, which may be the array eta itself; null: a random start
  const float* dx = nullptr;     ///< scale * d(sum of losses)/d(x_adv), after gradient()
  float scale = 1;
  const std::int32_t* labels = nullptr;      ///< [n]
  std::int32_t* targets = nullptr;           ///< [n]: where a targeted attack puts its classes (Logits::targets)
  const std::int64_t* sample_ids = nullptr;  ///< [n]: keys of what is random
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::attack_start;
  /// Epoch (training) or restart (evaluation): with the sample's number the key of what is random.
  std::uint32_t time = 0;
  int run = 0;  ///< which of the Attack::runs() the call makes; 0 when the objective has been prepared
  /// The loss that gradient() differentiates. The attack may change it; when the attack begins, it is cross-entropy.
  SampleLoss* loss = cross_entropy;
  const float* reference = nullptr;  ///< [n, classes] logits of the clean images, where the loss is taken against them
  /// Deviation of a random start: N(0, spread^2) in each pixel; 0: a start in the ball.
  float spread = 0;
  /// Where pgd and fgsm leave the images at which they take their first gradient, and the network's logits there
  /// [n, classes]; null: nowhere.
  float *first_images = nullptr, *first_logits = nullptr;
  /// What the network makes of x_adv, after forward() or gradient(): logits [n, classes]; losses and correctness [n].
  const float *logits = nullptr, *losses = nullptr, *correct = nullptr;
  /// Memory for the attack: Attack::scratch_images() arrays the size of the images, one behind the other, of
  /// `scratch_stride` elements each. What is there when the attack begins is undefined.
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
  /// As `steps` calls of gradient_step, but a sample leaves once it is fooled: in each iteration, a sample that is
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

struct AttackOptions {
  BallNorm norm = BallNorm::linf;  ///< norm of the ball of perturbations
  double eps = 8.0 / 255;
  double alpha = 0;           ///< step size; 0: the attack's own (pgd 2/255, in L2 2.5 eps / steps; fgsm 1.25 eps)
  double start_radius = 1;    ///< pgd, fgsm in L-infinity: the start is U(-r eps, r eps) in each pixel
  bool start_in_box = false;  ///< pgd, fgsm in L-infinity: the start is cut to the box of images
  bool project = true;        ///< pgd, fgsm in L-infinity: steps end in the ball; else in the box alone
  int steps = 10;
  int stop = -1;           ///< pgd: tau of the early stop (Objective::steps_until_fooled); -1: none
  std::string loss = {};   ///< pgd: the loss that it climbs, margin or cw; empty: cross-entropy
  int classes = 10;        ///< classes of the network
  int restarts = 1;        ///< apgd, fab: runs for each target
  bool best_loss = false;  ///< apgd: leaves the iterate of the highest loss, whether or not one is misclassified
};

class Attack {
 public:
  virtual ~Attack() = default;
  /// Leaves the adversarial images in objective.x_adv. Allocates nothing; waits for the device in the early stop and in
  /// live() only. An attack that looks for a misclassified image (apgd, fab, square) leaves such an image where it has
  /// found one, and the clean image elsewhere.
  virtual void perturb(Objective& objective) const = 0;
  /// Calls of perturb() that make up the attack, each with another objective.run, on the images that are still right:
  /// targets times restarts.
  [[nodiscard]] virtual int runs() const { return 1; }
  /// What the user should know about how the attack fits this network, a sentence; empty: nothing.
  [[nodiscard]] virtual std::string notice() const { return {}; }
  /// A part of perturb(), for an attack that iterates: `count` of its iterations, behind `done` of them. Where none is
  /// done, it starts as perturb() does; else with the perturbation at objective.start, which may be the array eta
  /// itself. Leaves the perturbation in objective.eta and, behind the last iteration, the images in x_adv. What the
  /// network makes of the images may have changed in between. Error(usage): the attack cannot be parted.
  virtual void advance(Objective& objective, int done, int count) const;
  /// Makes one more step, with the gradient in objective.dx, from where perturb() has ended. Error(usage): the attack
  /// has no such step.
  virtual void step(Objective& objective) const;
  /// Whether the network runs with batch statistics during the attack unless the user says otherwise.
  [[nodiscard]] virtual bool prefers_batch_statistics() const { return false; }
  [[nodiscard]] virtual int gradient_evaluations() const = 0;  ///< per image, at most, of all runs
  [[nodiscard]] int gradients_of_run() const { return gradient_evaluations() / runs(); }
  [[nodiscard]] virtual double alpha() const { return 0; }  ///< step size; 0: the attack takes no steps
  /// Whether other random numbers lead the attack elsewhere, so that restarts mean something.
  [[nodiscard]] virtual bool random() const { return gradient_evaluations() > 0; }
  /// How many arrays of the size of the images the attack needs in Objective::scratch.
  [[nodiscard]] virtual int scratch_images() const { return 0; }
  /// Whether the attack climbs the loss that options.loss names.
  [[nodiscard]] virtual bool takes_loss() const { return false; }
  /// Whether in training the attack climbs what the loss has for a goal (Loss::goal); others climb an objective of
  /// their own.
  [[nodiscard]] virtual bool climbs_goal() const { return false; }
};

/// An attack as a word: its name in the registry; behind the name, for an attack of any number of steps, that number;
/// behind the number the loss that the attack climbs, unless that is cross-entropy: "pgd20", "pgd50-margin". A word
/// without number gets `steps` where the attack takes a number. Error(usage): there is no such attack, the attack takes
/// no number, or there is no such loss.
struct AttackWord {
  std::string name;
  int steps = 0;          ///< 0: the attack takes none
  std::string loss = {};  ///< AttackOptions::loss

  [[nodiscard]] std::string text() const {
    return name + (steps > 0 ? std::to_string(steps) : "") + (loss.empty() ? "" : "-" + loss);
  }
};
[[nodiscard]] AttackWord read_attack_word(const std::string& word, int steps);
/// The step size of an attack of an evaluation: `wanted`, or where `wanted` is 0 eps/4 for an attack of any number of
/// steps in the L-infinity ball, so that ten of them cross it (2/255 at 8/255: Madry et al., ICLR 2018), and 0, which
/// stands for the attack's own step size, for other attacks.
[[nodiscard]] double evaluation_alpha(const AttackWord& word, BallNorm norm, double eps, double wanted);
/// The options from which an evaluation makes the attack of a word; `wanted` as for evaluation_alpha.
[[nodiscard]] AttackOptions evaluation_options(const AttackWord& word, BallNorm norm, double eps, double wanted,
                                               int classes);

[[nodiscard]] const Registry<std::unique_ptr<Attack>(const AttackOptions&)>& attacks();
/// Attack::climbs_goal of the attack of this name.
[[nodiscard]] bool climbs_goal(const std::string& attack);

}  // namespace dat
