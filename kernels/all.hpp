#pragma once

// All functors, for the files that instantiate them.

#include "augment.hpp"
#include "loss.hpp"
#include "optimizer.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"
