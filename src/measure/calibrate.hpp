#pragma once

#include "forecast/calibration.hpp"
#include "measure/training_step.hpp"

namespace dat {

/// Measures what forecasts need, on the ranks of `world` at once, in about so many seconds: the parts of the training
/// run's own step and, by themselves, its forward and backward pass tensor by tensor and every codec on the network's
/// gradients; with two ranks or more also the links, by ping-pong, and the sum over the ranks. Times of computing are
/// means over the ranks of medians over the runs. The step has been checked (TrainingStep::check). The contents of its
/// programs and gradients are void afterwards. **Collective.**
[[nodiscard]] Calibration calibrate(Communicator& world, TrainingStep& step, double seconds);

}  // namespace dat
