#pragma once

#include <string>

#include "dat/program.hpp"
#include "train/stateful.hpp"
#include "train/step_message.hpp"

namespace dat {

/// What batch norm has seen in a step: means and unbiased variances of each pass in training mode, averaged over the
/// micro-batches and, unless they stay each rank's own, over the ranks. At the step's end each pass enters the running
/// statistics once, in the order of the passes: those of the attack first, then those of the loss.
class BatchStatistics final : public MessagePart, public Stateful {
 public:
  /// passes: in training mode, of one micro-batch. local: nothing is averaged over the ranks.
  BatchStatistics(Communicator& ranks, Model& model, int passes, bool local);

  /// Adds the statistics of the program's last forward call as those of `pass`, with the share that its images have in
  /// the step's. `first`: of the step's first micro-batch.
  void add(const TrainingProgram& program, int pass, float share, bool first);
  /// Into the model's running statistics, once the message has been summed.
  void update_model();

  [[nodiscard]] bool local() const { return local_; }

  [[nodiscard]] std::size_t places() const override { return local_ ? 0 : static_cast<std::size_t>(count_); }
  void fetch(Backend::Ticket& ticket) override;
  void write(double* to) override;
  void read(const double* from) override;

  /// The running statistics of all ranks, where they are each rank's own; else nothing, they are the model's.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  Communicator& ranks_;
  Model& model_;
  int passes_;
  bool local_;
  std::int64_t count_;                         ///< passes * 2 * graph.statistics
  float *device_ = nullptr, *host_ = nullptr;  ///< [passes][2][graph.statistics]
  std::vector<double> restored_;               ///< of all ranks, from a checkpoint, until share()
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
