#pragma once

// All functors, for the files that instantiate them.

#include "aggregate.hpp"
#include "apgd.hpp"
#include "augment.hpp"
#include "claims.hpp"
#include "codec.hpp"
#include "convolution.hpp"
#include "fab.hpp"
#include "fingerprint.hpp"
#include "gradients.hpp"
#include "loss.hpp"
#include "low_rank.hpp"
#include "margin.hpp"
#include "move_weights.hpp"
#include "norms.hpp"
#include "optimizer.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"
#include "sha256.hpp"
#include "spectral.hpp"
#include "square.hpp"
