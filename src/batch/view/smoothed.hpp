#pragma once

#include "batch/view/frozen.hpp"

namespace dat {

/// The frozen network under Gaussian noise, smoothed: an attack has one image and its perturbation, the network sees
/// copies of it with noise of their own, and the logits are the logarithms of the mean of their softmaxes. So the
/// prediction is the smoothed network's, cross-entropy is -ln mean_j p_jy, and the gradient by the image is the sum of
/// its copies', weighted with p_jy / sum_j p_jy (Salman et al., NeurIPS 2019, equation 8). All of an attack, its
/// restarts and what is measured of it see the same noise: in a training that of the epoch, in an evaluation that of
/// the evaluation's seed.
class SmoothedView final : public FrozenView {
 public:
  /// images: under noise; program: takes all copies of some of them at a time. The arguments must outlive the object.
  SmoothedView(Buffers& images, FrozenProgram& program);
  /// Makes steps as Objective does: a recording would keep the noise of one epoch.
  void gradient_step(float alpha, float eps) override { Objective::gradient_step(alpha, eps); }

 private:
  void show(const float* x, int first) override;
  void differentiate(float* to, int first, const PgdUpdate& update) override;

  float *smoothed_, *dsmoothed_;  ///< [images a pass, classes]
  double* log_means_;             ///< log means of smoothed_
  float* dcopies_;                ///< [program.n()] images
};

}  // namespace dat
