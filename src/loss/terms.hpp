#pragma once

#include "dat/loss.hpp"

// Terms that losses are made of.

namespace dat {

/// Cross-entropy against smoothed labels (LossOptions::smoothing).
void smoothed_cross_entropy(const Logits& logits, float scale, float smoothing);

/// The samples of which a divergence is taken.
enum class Which : std::uint8_t { all, unlabelled };
/// KL(p||q) with p of the logits `clean`, q of `attacked`: leaves values, correctness and the gradient by the attacked
/// logits in `attacked`.
void kl_of_attacked(const Logits& attacked, const float* clean, float scale, Which which);
/// Adds the divergence's gradient by the clean logits to the gradient that is in `clean`.
void add_kl_of_clean(const Logits& clean, const Logits& attacked, float scale, Which which);

}  // namespace dat
