#pragma once

// All functors, for the files that instantiate them.

#include "augment.hpp"
#include "convolution.hpp"
#include "gradients.hpp"
#include "loss.hpp"
#include "optimizer.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"
