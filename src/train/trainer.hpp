#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/config.hpp"
#include "dat/loader.hpp"
#include "dat/optimizer.hpp"
#include "dat/reducer.hpp"
#include "dat/report.hpp"
#include "dat/selector.hpp"
#include "train/early_stop.hpp"
#include "train/evaluation.hpp"
#include "train/warm_start.hpp"

namespace dat {

/// Threads of one rank: `wanted`, or, where that is 0, the cores this process may use, shared by the ranks of its node.
[[nodiscard]] int choose_threads(int wanted, int ranks_on_node);

/// What `train` works on: from --data, or of the built-in synthetic set. split: train (without what is held out),
/// holdout, test; cut as the options say.
[[nodiscard]] std::unique_ptr<Dataset> open_split(const TrainOptions& options, const std::string& split);

/// Parameters and running statistics of a checkpoint into a model. Error(checkpoint): another network.
void load_network(const Checkpoint& checkpoint, Model& model);

/// The training of one network on all ranks. Construction plans everything and calls no collective; after it nothing is
/// allocated in step().
class Trainer {
 public:
  Trainer(Communicator& world, const TrainOptions& options);
  ~Trainer();

  [[nodiscard]] std::int64_t steps_done() const { return step_; }
  [[nodiscard]] std::int64_t total_steps() const { return total_steps_; }
  [[nodiscard]] std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Images per rank and step: --batch, or a rank's share of the training images where that is less.
  [[nodiscard]] int batch() const { return options_.batch; }
  /// Seconds since the run's first start, without the time between its parts; and those of them in the reduction.
  [[nodiscard]] double wall_time() const;
  [[nodiscard]] double communication_time() const { return communication_seconds_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] const Dataset& test_set() const { return *test_; }
  [[nodiscard]] const Dataset& train_set() const { return *train_; }
  [[nodiscard]] const LayerSelector& selector() const { return *selector_; }
  [[nodiscard]] std::vector<std::string> implementations() const { return frozen_.front()->implementations(); }
  /// Most gradients per image and step that the attack may cost, and how many images its programs take at a time.
  [[nodiscard]] int attack_steps() const { return attack_->gradient_evaluations(); }
  [[nodiscard]] std::vector<int> attack_sizes() const;

  /// Starts the clock and the loader, at the step restored or at 0.
  void start();
  /// One step: attack, gradients of the active layers, reduction, update. **Collective.** `stop` is this rank's wish to
  /// end; stop_agreed() tells afterwards whether any rank had it. On all ranks alike: Error(numerical);
  /// Error(integrity) where a rank repeats the draw of layers and finds another.
  const StepRecord& step(bool stop);
  [[nodiscard]] bool stop_agreed() const { return stop_agreed_; }

  /// Accuracy on the test set, then on what is held out, clean and under each attack of --eval, with rank 0's running
  /// statistics. **Collective.**
  [[nodiscard]] std::vector<EvaluationRecord> evaluate();
  [[nodiscard]] const EvaluationAttacks& evaluation_attacks() const { return evaluation_attacks_; }
  /// The options with every number that planning has decided.
  [[nodiscard]] TrainOptions resolved() const;
  /// Error(integrity) where the ranks' weights, optimizer state, running statistics (if averaged), probabilities or
  /// active layers differ. **Collective.**
  void check_replicas();
  /// Seconds and bytes of every rank since the last call, on rank 0. **Collective.**
  [[nodiscard]] RankRecord gather_times();
  void book(Phase phase, double seconds);

  /// The state as a checkpoint, on rank 0. **Collective.**
  [[nodiscard]] Checkpoint capture();
  /// Takes up a checkpoint, on rank 0; share_state then gives it to all. Error(checkpoint): it does not fit.
  void restore(const Checkpoint& checkpoint);
  [[nodiscard]] std::int64_t checkpoint_bytes() const;
  /// Bytes of the perturbations that --warm-start keeps, of all samples; 0 without it.
  [[nodiscard]] std::int64_t warm_start_bytes() const { return warm_start_ ? warm_start_->bytes() : 0; }
  /// Rank 0's state to all ranks. **Collective.**
  void share_state();
  [[nodiscard]] std::string weights_hash() const;

 private:
  class BatchObjective;
  [[nodiscard]] TrainingProgram& program(int n) { return *training_.at(n); }
  [[nodiscard]] Objective& attacked();  ///< what training attacks
  void prepare_attack(int batch);       ///< on the images at hand, a part of `batch`
  [[nodiscard]] bool draw_due(std::int64_t step) const;
  void choose_layers();
  void train_pass(TrainingProgram& program, const float* x, int first, int batch, int pass, float weight, bool last);
  void add_statistics(const TrainingProgram& program, int pass, float weight, bool first);
  void share_statistics(const HostBatch& batch, std::int64_t passes, bool stop);
  [[nodiscard]] bool learns() const;
  void learn();
  void update_running_statistics();
  /// This rank's, [2][graph.statistics]: means, variances.
  [[nodiscard]] std::vector<float> running_statistics() const;
  void set_running_statistics(const std::vector<float>& values);
  struct Lap {
    int phase;  ///< that ends here; -1: none, one begins
    Backend::Ticket stamp;
  };
  void lap(int phase);
  void lap(Phase phase) { lap(static_cast<int>(phase)); }
  /// Adds the laps that the device has passed to `seconds` and to the totals.
  void collect(std::array<double, kPhases>& seconds);
  [[nodiscard]] std::uint64_t replica_hash() const;

  Communicator& world_;
  TrainOptions options_;
  std::unique_ptr<Dataset> train_, test_, held_out_;  ///< held_out_: null without --holdout
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Images> images_;
  std::vector<std::unique_ptr<FrozenProgram>> frozen_;        ///< for a micro-batch; for parts of it (--attack-stop)
  std::unique_ptr<FrozenProgram> evaluated_;                  ///< null where frozen_ is f32 already
  std::map<int, std::unique_ptr<TrainingProgram>> training_;  ///< by number of samples
  std::unique_ptr<FrozenObjective> objective_, evaluation_objective_;
  std::unique_ptr<BatchObjective> batch_objective_;
  EvaluationAttacks evaluation_attacks_;
  std::vector<std::pair<std::string, std::unique_ptr<Evaluator>>> evaluators_;  ///< by split
  std::unique_ptr<Attack> attack_;
  double budget_ = 0;
  std::unique_ptr<WarmStart> warm_start_;  ///< null: attacks start at random
  std::unique_ptr<LayerSelector> selector_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<ChunkTable> chunks_;
  const std::uint8_t* all_images_ = nullptr;  ///< the training set, where it is on the device

  int batch_asked_ = 0, micro_batch_ = 1, classes_ = 0, passes_ = 1, attack_passes_ = 0;
  std::int64_t step_ = 0, total_steps_ = 0, steps_per_epoch_ = 1, warmup_steps_ = 0, draw_period_ = 1;
  ActiveSet active_, repeated_;  ///< in force; as this rank draws it from rank 0's probabilities
  bool wrong_draw_ = false;      ///< they differ
  std::vector<double> p_, norms_;
  double *partial_ = nullptr, *sums_ = nullptr;  ///< for the gradient norms, on the device
  std::function<void(int)> ready_;

  float *losses_ = nullptr, *corrects_ = nullptr;  ///< [2][batch]: adversarial, clean
  float* statistics_ = nullptr;                    ///< [passes][2][graph.statistics]: means, unbiased variances
  bool first_micro_batch_ = true;
  float *host_losses_ = nullptr, *host_statistics_ = nullptr;  ///< of losses_ and corrects_; of statistics_
  double* host_sums_ = nullptr;                                ///< of sums_
  std::int64_t statistics_count_ = 0;
  std::vector<double> message_;
  std::vector<double> local_statistics_;  ///< of all ranks, from a checkpoint, where they are not averaged
  bool stop_agreed_ = false;

  StepRecord record_;
  std::array<double, kPhases> seconds_{}, carried_{};
  double bytes_ = 0, earlier_seconds_ = 0, communication_seconds_ = 0;
  std::chrono::steady_clock::time_point started_;
  std::vector<Lap> laps_;  ///< not passed yet
  Backend::Ticket last_lap_ = 0;
};

}  // namespace dat
