#pragma once

#include "forecast/forecast.hpp"

namespace dat {

/// Ranks of a launch that only attack, for those that train (--generators).
struct RoleChoice {
  int generators = 0;       ///< the last ranks; 0: all train, each attacks what it trains on
  int staleness = 1;        ///< versions of the weights that an attack may lag behind
  bool refresh = true;      ///< newer weights between iterations; else an attack has the oldest ones
  double speed = 1;         ///< speed of a generator, relative to a rank that was measured
  bool of_each = false;     ///< `images` are those of each trainer
  std::int64_t images = 0;  ///< images of a step of all ranks
  int micro_batch = 1;      ///< images that a generator is given at once
  int weight_bytes = 4;     ///< bytes of a weight on its way to generators

  /// Images of a step with so many trainers.
  [[nodiscard]] std::int64_t all_images(int trainers) const { return of_each ? images * trainers : images; }
};

/// Seconds of a step of trainers and generators.
struct RoleForecast {
  int generators = 0;
  std::int64_t images = 0;  ///< images of a step
  double training =
      0;  ///< seconds of a trainer for all but the attack, sums included; without generators for everything
  double attacking = 0;  ///< seconds of the generators for the attack of all of a step's images
  double link = 0;       ///< seconds that the busiest link is busy: weights, attacked images, gradients
  /// Seconds from an update until the images have arrived that must have been attacked with it, per step: what
  /// staleness must hide, and the whole step where staleness is 0.
  double round = 0;

  [[nodiscard]] double seconds() const;
  [[nodiscard]] double images_per_second() const { return static_cast<double>(images) / seconds(); }
  /// Bottleneck of the step: "training", "attacking", "link" or "round".
  [[nodiscard]] const char* bound() const;
};

/// The mean step of a cluster whose last ranks are generators. The trainers take the step of forecast_step() with their
/// part of the images, without the attack. Computing takes seconds in proportion to images. Weights go from a trainer
/// to its generators as a message each; several ranks of a node share its link.
[[nodiscard]] RoleForecast forecast_roles(const Calibration& calibration, const Cluster& cluster,
                                          const StepChoice& choice, const RoleChoice& roles);

/// Forecast for the number of generators with the shortest step, from `least` up to the most for which there is work
/// and a trainer; the fewest of equals. `roles.generators` is ignored. At least one number is possible.
[[nodiscard]] RoleForecast best_roles(const Calibration& calibration, const Cluster& cluster, const StepChoice& choice,
                                      RoleChoice roles, int least);

}  // namespace dat
