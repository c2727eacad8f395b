#pragma once

#include <cstdint>

#include "train/message/stateful.hpp"

namespace dat {

/// Attacked images of one micro-batch, on the device, as the learner takes them.
struct Examples {
  const float *attacked = nullptr, *clean = nullptr;  ///< [count] images
  const std::int32_t* labels = nullptr;               ///< [count]
  int first = 0, count = 0;                           ///< place in this rank's part of the step
  int batch = 0;                                      ///< images of this rank's part of the step
  int elsewhere = 0;   ///< images of other ranks that the mean of the loss is over as well; else each rank has its own
  int unit = 0;        ///< number of the rank's unit of work that they belong to (Reducer)
  bool whole = false;  ///< they are a whole unit; else the rank's part of the step is
  float* image_gradient = nullptr;    ///< where the source wants d(loss of the attacked images)/d(attacked); null: not
  std::uint64_t weights_version = 0;  ///< of the weights that they were attacked with (Parameters::version)

  [[nodiscard]] int averaged() const { return batch + elsewhere; }
  /// Of what the mean of the loss is over.
  [[nodiscard]] float share() const { return static_cast<float>(count) / static_cast<float>(averaged()); }
  [[nodiscard]] bool begins_unit() const { return whole || first == 0; }
  [[nodiscard]] bool ends_step() const { return first + count == batch; }
};

/// Where the attacked images of a training step come from: made by this rank, or elsewhere.
class ExampleSource : public Stateful {
 public:
  /// Before the first step, which is number `step`: 0, or the one that a checkpoint says.
  virtual void start(std::int64_t step) = 0;
  /// Makes ready what step number `step` trains on.
  virtual void begin(std::int64_t step) = 0;
  /// The step's next micro-batch, valid until the next call; null: there is no further one. All micro-batches of a step
  /// have the same size. Queues work, and waits only where an attack does.
  virtual const Examples* next() = 0;
  /// After the last micro-batch of a step: does, with the weights as they are, what step number `step`, the next one,
  /// may have of its work before its weights are there. Nothing, where none of it may be done so.
  virtual void look_ahead(std::int64_t /*step*/) {}
  /// The learner has queued its work on the examples; their image gradient is there where it was wanted.
  virtual void trained() = 0;
  /// The step's numbers are not finite: takes back what has been kept of it. On all ranks.
  virtual void take_back() {}
  /// Bytes that have gone from this rank to others for the sake of this step's examples.
  [[nodiscard]] virtual std::int64_t bytes_sent() const = 0;
  /// Images of all ranks times gradients that the attack has taken in this step, padding included. After the message.
  [[nodiscard]] virtual std::int64_t attack_passes() const = 0;

  void save(Checkpoint&) override {}
  void restore(const Checkpoint&) override {}
  void share(Communicator&) override {}
};

}  // namespace dat
