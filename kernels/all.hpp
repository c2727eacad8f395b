#pragma once

// All functors, for the files that instantiate them.

#include "augment.hpp"
#include "codec.hpp"
#include "convolution.hpp"
#include "fingerprint.hpp"
#include "gradients.hpp"
#include "loss.hpp"
#include "low_rank.hpp"
#include "optimizer.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"
#include "spectral.hpp"
