#pragma once

#include <cstdint>

#include "dat/needs.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// Samples that are computed together, and what is known of them. Arrays are on the device.
struct Samples {
  Device device;
  int n = 0, classes = 0;
  const std::int32_t* labels = nullptr;      ///< [n]; -1: unknown
  std::int32_t* targets = nullptr;           ///< [n]: the classes that targeted losses want, where an attack puts them
  const std::int64_t* sample_ids = nullptr;  ///< [n]: numbers in the data set, keys of what is random

  /// `count` of them, from number `from` on. All arrays are there.
  [[nodiscard]] Samples part(int from, int count) const {
    Samples some = *this;
    some.n = count;
    some.labels += from;
    some.targets += from;
    some.sample_ids += from;
    return some;
  }
};

/// The logits of samples, and places for what a loss makes of them.
struct Logits : Samples {
  const float* values = nullptr;  ///< [n, classes]
  float* loss = nullptr;          ///< [n]
  /// [n]: 1 where the largest logit is the label's, the first of equal ones; else 0; -1 where the label is unknown
  float* correct = nullptr;
  float* gradient = nullptr;  ///< [n, classes]; null: not wanted
  /// [n, classes]: logits of the clean images, or of where the attack began, where a loss is taken against them
  const float* reference = nullptr;
  double* scratch = nullptr;  ///< Loss::scratch() numbers
};

/// A loss of single samples: leaves loss, correctness, and the gradient of scale * (sum of the losses). Queued.
using SampleLoss = void(const Logits&, float scale);

/// Cross-entropy of the softmax; 0 for a sample whose label is unknown.
void cross_entropy(const Logits& logits, float scale);
/// KL(p||q), where p is the softmax of Logits::reference and a constant (soft labels), q the softmax of Logits::values.
void kl_divergence(const Logits& logits, float scale);
/// cross_entropy() of the samples whose label is known, kl_divergence() of the others.
void cross_entropy_or_divergence(const Logits& logits, float scale);

/// Data that a loss needs of the images at which the attack takes its first gradient: nothing, the images, or their
/// logits.
enum class StartKept : std::uint8_t { nothing, images, logits };

/// Objective that an attack climbs, and its start.
struct AttackGoal {
  SampleLoss* loss = cross_entropy;
  bool reference = false;  ///< the loss is taken against the logits of the clean images (Logits::reference)
  float spread = 0;        ///< standard deviation of the random start: N(0, spread^2) in each pixel; 0: U(-eps, eps)
  StartKept kept = StartKept::nothing;

  [[nodiscard]] Needs needs() const {
    return {.clean_logits = reference,
            .start_images = kept == StartKept::images,
            .start_logits = kept == StartKept::logits};
  }
};

/// Objectives that attacks climb beside cross-entropy, of logits z, label y and target t: kernels::MarginLoss has the
/// formulas.
void margin(const Logits& logits, float scale);            ///< the largest wrong logit minus z_y
void cw_margin(const Logits& logits, float scale);         ///< margin() up to 50, and constant from there
void dlr(const Logits& logits, float scale);               ///< difference of logits ratio
void targeted_dlr(const Logits& logits, float scale);      ///< difference of logits ratio of the target
void class_difference(const Logits& logits, float scale);  ///< z_t - z_y

}  // namespace dat
