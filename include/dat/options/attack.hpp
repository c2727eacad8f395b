#pragma once

#include <string>
#include <vector>

#include "dat/by_epoch.hpp"

namespace dat {

constexpr int kMostVersions = 64;  ///< most versions of the weights of steps before

/// Perturbation of the training images. Rows and rules: src/options/train/attack.cpp.
struct AttackSettings {
  ByEpoch<std::string> attack{"pgd"};
  ByEpoch<int> attack_steps = 10;
  std::string norm = "linf";             ///< linf | l2: of the ball of perturbations
  ByEpoch<double> eps = 8.0 / 255;       ///< radius, images in [0, 1]; 0 in epochs before the last change alone
  ByEpoch<double> alpha = 0;             ///< step size; 0: the attack's own
  int attack_stop = -1;                  ///< tau of pgd's early stop; -1: off
  std::string attack_bn = "auto";        ///< auto (the attack's own) | eval | train
  std::string attack_precision = "f32";  ///< f32 | f16 | bf16: storage of the attacked network; evaluation is f32
  int attack_batch = 0;                  ///< images in a pass of the attack; never 0 in a parsed command
  int warm_start = 0;                    ///< epochs between random starts; 0: every start is random
  int stale_attack = 0;  ///< iterations of pgd that the next step's first micro-batch has on the old weights
  int staleness = 0;     ///< steps by which the oldest weights of an attack lag behind
  std::string attack_start = "auto";  ///< auto (the loss's own) | uniform: in the ball | gaussian: beside the image
  double start_radius = 1;            ///< the uniform start of pgd and fgsm, in parts of eps
  std::string start_box = "auto";     ///< auto | on: that start is cut to the box of images | off
  double noise = 0;            ///< standard deviation of the Gaussian noise in front of the attacked network; 0: none
  int noise_samples = 1;       ///< copies of each image, with noise of their own
  std::string project = "on";  ///< projection, on: steps of pgd and fgsm end in the ball | off: in the box alone

  /// These settings as they are in an epoch, which nothing changes any more.
  [[nodiscard]] AttackSettings in_epoch(std::int64_t epoch) const;
  /// The epochs from which on they are others than before; the first is 0.
  [[nodiscard]] std::vector<int> epochs_of_change() const;

  friend bool operator==(const AttackSettings&, const AttackSettings&) = default;
};

}  // namespace dat
