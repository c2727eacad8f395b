#pragma once

#include <vector>

#include "batch/view/programs.hpp"
#include "dat/program.hpp"
#include "train/message/stateful.hpp"
#include "train/message/step_message.hpp"

namespace dat {

/// Number of passes in `entering` (StepMethod::entering_statistics): 1 + its largest number.
[[nodiscard]] int passes_in(const std::vector<int>& entering);

/// Batch statistics of a step: means and unbiased variances of each pass in training mode, averaged over the
/// micro-batches and, unless they stay each rank's own, over the ranks. At the step's end they enter the running
/// statistics, pass after pass: the statistics of the attack first, then those of the loss's passes (Loss::entering).
class BatchStatistics final : public MessagePart, public Stateful, public StatisticsSink {
 public:
  /// entering: the passes in training mode, of one micro-batch, in the order in which they enter the running
  /// statistics; the last one at least once. local: nothing is averaged over the ranks. order: the order of the units
  /// of work, which are parts of one mean then; null: each rank has one unit, and its own mean.
  BatchStatistics(Communicator& ranks, Model& model, std::vector<int> entering, const SummationTree* order = nullptr,
                  bool local = false);

  void add(const TrainingProgram& program, int pass, const BatchPlace& place) override;
  /// Lets the step's statistics enter the model's running statistics, once the message has been summed, but not those
  /// of batch norms that stand still.
  void update_model();
  /// Takes the statistics from the device from now on: there is one rank, with one unit of work.
  void stay_on_device() { on_device_ = true; }
  /// Values of the statistics, [count()] on the device.
  [[nodiscard]] const float* values() const { return device_; }
  [[nodiscard]] std::int64_t count() const { return units_ * count_; }
  /// The last update_model() has left everything as it was: its batches do not count.
  void take_back() { model_.batches_tracked -= std::ssize(entering_); }
  /// Lets the statistics enter as update_model() does, but with another momentum and without counting the batches.
  void enter_model(float momentum);

  [[nodiscard]] bool local() const { return local_; }
  /// Returns whether this rank's statistics are finite; to be called between fetch() and read().
  [[nodiscard]] bool own_finite() const;

  [[nodiscard]] std::size_t places() const override { return local_ ? 0 : static_cast<std::size_t>(count_); }
  void fetch(Backend::Ticket& ticket) override;
  void write(double* to, int unit) override;
  void read(const double* from) override;
  [[nodiscard]] Estimate estimate() const override { return Estimate::median; }

  /// Saves the running statistics of all ranks where they are each rank's own; else nothing, since they are the
  /// model's.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  Communicator& ranks_;
  Model& model_;
  std::vector<int> entering_;
  bool local_, on_device_ = false;
  std::int64_t units_;  ///< units of work of this rank
  /// Means that the message adds up, one for each rank; 1: all add up to one mean.
  int means_;
  std::int64_t count_;                         ///< passes * 2 * graph.statistics
  float *device_ = nullptr, *host_ = nullptr;  ///< [units][passes][2][graph.statistics]; the first one: of the step
  std::vector<double> restored_;               ///< running statistics of all ranks from a checkpoint, until share()
};

/// Rank 0's running statistics on all ranks for as long as end() has not been called, where they are each rank's own:
/// what a checkpoint shows, and so what an evaluation is of.
class RootStatistics {
 public:
  /// **Collective.**
  RootStatistics(Communicator& ranks, Model& model, bool local);
  void end();

 private:
  Model& model_;
  std::vector<float> own_;  ///< empty: nothing was exchanged
};

}  // namespace dat
