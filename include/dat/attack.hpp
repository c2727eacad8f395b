#pragma once

#include <memory>
#include <string>

#include "dat/needs.hpp"
#include "dat/norm.hpp"
#include "dat/objective.hpp"
#include "dat/registry.hpp"

namespace dat {

struct AttackOptions {
  BallNorm norm = BallNorm::linf;  ///< norm of the ball of perturbations
  double eps = 8.0 / 255;
  double alpha = 0;           ///< step size; 0: the attack's own (pgd 2/255, in L2 2.5 eps / steps; fgsm 1.25 eps)
  double start_radius = 1;    ///< pgd, fgsm in L-infinity: the start is U(-r eps, r eps) in each pixel
  bool start_in_box = false;  ///< pgd, fgsm in L-infinity: the start is cut to the box of images
  bool project = true;        ///< pgd, fgsm in L-infinity: steps end in the ball; else in the box alone
  int steps = 10;             ///< at least 1
  int stop = -1;              ///< pgd in L-infinity: tau of the early stop (Objective::steps_until_fooled); -1: none
  std::string loss = {};      ///< pgd: the loss that it climbs, margin or cw; empty: cross-entropy
  int classes = 10;           ///< classes of the network
  int restarts = 1;           ///< apgd, fab: runs for each target
  bool best_loss = false;     ///< apgd: leaves the iterate of the highest loss, whether or not one is misclassified
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
  /// A sentence that the user should know about how the attack fits this network; empty: nothing.
  [[nodiscard]] virtual std::string notice() const { return {}; }
  /// A part of perturb(), for an attack that iterates: `count` of its iterations, after `done` of them. Where none is
  /// done, it starts as perturb() does; else with the perturbation at objective.start, which may be the array eta
  /// itself. Leaves the perturbation in objective.eta and, after the last iteration, the images in x_adv. The network
  /// may have changed in between. Error(usage): the attack cannot be parted.
  virtual void advance(Objective& objective, int done, int count) const;
  /// Returns whether the network runs with batch statistics during the attack unless the user says otherwise.
  [[nodiscard]] virtual bool prefers_batch_statistics() const { return false; }
  [[nodiscard]] virtual int gradient_evaluations() const = 0;  ///< per image, at most, of all runs
  [[nodiscard]] int gradients_of_run() const { return gradient_evaluations() / runs(); }
  [[nodiscard]] virtual double alpha() const { return 0; }  ///< step size; 0: the attack takes no steps
  /// Returns whether other random numbers lead the attack elsewhere, so that restarts mean something.
  [[nodiscard]] virtual bool random() const { return gradient_evaluations() > 0; }
  /// Needs of the attack: images, logits and memory that must be there.
  [[nodiscard]] virtual Needs needs() const { return {}; }
  /// Returns whether the attack climbs the loss that options.loss names.
  [[nodiscard]] virtual bool takes_loss() const { return false; }
  /// Returns whether in training the attack climbs the loss's goal (Loss::goal); others climb an objective of their
  /// own.
  [[nodiscard]] virtual bool climbs_goal() const { return false; }
};

/// An attack as a word: its name in the registry; after the name, for an attack of any number of steps, that number; x
/// and a number of restarts, for one that starts at random; and the loss that the attack climbs, unless that is
/// cross-entropy: "pgd20", "pgd50x10-margin". A word without number of steps gets 10 where the attack takes one.
/// Error(usage): there is no such attack, the attack takes no such number, or there is no such loss.
struct AttackWord {
  std::string name;
  int steps = 0;          ///< 0: the attack takes none
  std::string loss = {};  ///< AttackOptions::loss
  int restarts = 1;       ///< runs from random starts, the worst of which counts for each image

  [[nodiscard]] std::string text() const {
    return name + (steps > 0 ? std::to_string(steps) : "") + (restarts > 1 ? "x" + std::to_string(restarts) : "") +
           (loss.empty() ? "" : "-" + loss);
  }
};
[[nodiscard]] AttackWord read_attack_word(const std::string& word);
/// The step size of an attack of an evaluation: `wanted`, or where `wanted` is 0 eps/4 for an attack of any number of
/// steps in the L-infinity ball, so that ten of them cross it (2/255 at 8/255: Madry et al., ICLR 2018), and 0, which
/// stands for the attack's own step size, for other attacks.
[[nodiscard]] double evaluation_alpha(const AttackWord& word, BallNorm norm, double eps, double wanted);
/// The options from which an evaluation makes the attack of a word; `wanted` as for evaluation_alpha.
[[nodiscard]] AttackOptions evaluation_options(const AttackWord& word, BallNorm norm, double eps, double wanted,
                                               int classes);

[[nodiscard]] const Registry<std::unique_ptr<Attack>(const AttackOptions&)>& attacks();
/// The weight of the loss on clean images that goes with the attack of this name: 1 with DAT's, else 0.
[[nodiscard]] double clean_weight_of(const std::string& attack);
/// Attack::climbs_goal of the attack of this name.
[[nodiscard]] bool climbs_goal(const std::string& attack);

}  // namespace dat
