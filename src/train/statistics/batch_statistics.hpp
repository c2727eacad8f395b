#pragma once

#include <string>
#include <vector>

#include "dat/program.hpp"
#include "train/message/stateful.hpp"
#include "train/message/step_message.hpp"

namespace dat {

/// What batch norm has seen in a step: means and unbiased variances of each pass in training mode, averaged over the
/// micro-batches and, unless they stay each rank's own, over the ranks. At the step's end they enter the running
/// statistics, pass after pass: those of the attack first, then those of the loss (Loss::entering).
class BatchStatistics final : public MessagePart, public Stateful {
 public:
  /// entering: the passes in training mode, of one micro-batch, in the order in which they enter the running
  /// statistics; each at least once. local: nothing is averaged over the ranks. order: of the units of work, which are
  /// parts of one mean then; null: each rank has one unit, and its own mean.
  BatchStatistics(Communicator& ranks, Model& model, std::vector<int> entering, bool local,
                  const SummationTree* order = nullptr);
  /// Each of so many passes once, one after the other.
  BatchStatistics(Communicator& ranks, Model& model, int passes, bool local, const SummationTree* order = nullptr);

  /// Of a micro-batch: the unit of work that it belongs to, whether that begins with it, and the share that its images
  /// have in those of the mean.
  struct Place {
    int unit = 0;
    bool first = true;
    float share = 1;
  };
  /// Adds the statistics of the program's last forward call as those of `pass`.
  void add(const TrainingProgram& program, int pass, const Place& place);
  /// Into the model's running statistics, once the message has been summed.
  void update_model();
  /// The same with another momentum, and without counting the batches.
  void enter_model(float momentum);

  [[nodiscard]] bool local() const { return local_; }
  /// Whether those of this rank are finite, between fetch() and read().
  [[nodiscard]] bool own_finite() const;

  [[nodiscard]] std::size_t places() const override { return local_ ? 0 : static_cast<std::size_t>(count_); }
  void fetch(Backend::Ticket& ticket) override;
  void write(double* to, int unit) override;
  void read(const double* from) override;

  /// The running statistics of all ranks, where they are each rank's own; else nothing, they are the model's.
  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  Communicator& ranks_;
  Model& model_;
  std::vector<int> entering_;
  bool local_;
  std::int64_t units_;                         ///< of this rank
  int means_;                                  ///< that the message adds up, one a rank; 1: parts of one
  std::int64_t count_;                         ///< passes * 2 * graph.statistics
  float *device_ = nullptr, *host_ = nullptr;  ///< [units][passes][2][graph.statistics]; the first one: of the step
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
