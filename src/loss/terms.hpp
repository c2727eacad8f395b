#pragma once

#include "dat/loss.hpp"

// Terms that losses are made of.

namespace dat {

/// Cross-entropy against smoothed labels (LossOptions::smoothing).
void smoothed_cross_entropy(const Logits& logits, float scale, float smoothing);

/// Of which samples a divergence is taken.
enum class Samples : std::uint8_t { all, unlabelled };
/// KL(p||q) with p of `clean`, q of `attacked`: its values, correctness and gradient by the attacked logits.
void kl_of_attacked(const Logits& attacked, const Logits& clean, float scale, Samples samples);
/// Adds its gradient by the clean logits to the one that is there.
void add_kl_of_clean(const Logits& clean, const Logits& attacked, float scale, Samples samples);

}  // namespace dat
