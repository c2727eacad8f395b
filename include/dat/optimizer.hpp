#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dat/parameters.hpp"
#include "dat/registry.hpp"
#include "dat/tensor.hpp"

namespace dat {

class Backend;

/// Fields are called like the options of the command line, whose structs inherit them.
struct OptimizerOptions {
  double momentum = 0.9;                              ///< sgd, lars, lars_sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;  ///< lamb
  bool bias_correction = false;                       ///< lamb
  /// Weight decay of every tensor, but in lars_sgd not of tensors of one dimension. < 0: the optimizer's own default
  /// (sgd 5e-4, the others 1e-4).
  double weight_decay = -1;
  std::string no_decay = "none";      ///< norms: weight decay leaves out tensors of one dimension: batch norm, biases
  bool nesterov = false;              ///< sgd
  double trust_coefficient = 1e-3;    ///< eta of lars_sgd
  double clamp_high = 10;             ///< c_u: upper bound of ||theta|| in the trust ratio (lars, lamb); c_l is 0
  std::string importance = "inside";  ///< inside: 1/p multiplies the gradient; outside: the step
  /// Largest L2 norm of all active layers' gradients together, as the optimizer takes them: gradient/p where importance
  /// is inside, the raw gradient where it is outside. Longer gradients are shortened as by
  /// torch.nn.utils.clip_grad_norm_. 0: off.
  double clip_norm = 0;
  double head_rate = 1;  ///< learning rate of the last layer, in units of that of the others

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

/// Updates the weights of the active layers; inactive segments and their state stand still. The gradient in
/// `parameters.gradients` is the raw mean over ranks, and the optimizer applies active.scale = 1/p. Where each rank has
/// applied its own 1/p before the mean, active.scale is 1.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update with learning rate `lr`; raises parameters.version. Allocates nothing.
  virtual void step(const ActiveSet& active, double lr) = 0;
  /// The last step() has left weights and state on the device as they were (Device::when): its counts do not count.
  virtual void take_back() {}
  /// The momentum of the steps to come takes the place of that of the options; no part of the state. Optimizers without
  /// a momentum leave it.
  virtual void set_momentum(double momentum) { (void)momentum; }

  /// One flat array [parameters.size] of state per name ("momentum", "m", "v"), in the layout of `values`, on the
  /// device.
  struct State {
    std::string name;
    float* data;
  };
  [[nodiscard]] virtual std::vector<State> state() const = 0;

  /// The state beside the arrays of states() (step counts), as flat numbers, so that a checkpoint can restore it bit
  /// for bit; empty where there is none.
  [[nodiscard]] virtual std::vector<double> numbers() const { return {}; }
  /// Takes up what numbers() has given. Error(checkpoint): there are more or fewer numbers than this optimizer has.
  virtual void restore(const std::vector<double>& numbers) {
    require(numbers.empty(), ExitCode::checkpoint, "the checkpoint holds ", numbers.size(),
            " numbers of optimizer state, but this optimizer has none: resume with the optimizer of the first run");
  }
};

[[nodiscard]] const Registry<std::unique_ptr<Optimizer>(Backend&, Parameters&, const OptimizerOptions&)>& optimizers();

struct AverageOptions {
  std::string rule = "ema";  ///< rule of the average, one of average_rules()
  double decay = 0.995;      ///< tau of ema
  std::int64_t from = 0;     ///< steps of the run until averaging begins
  std::int64_t steps_per_epoch = 1;
};
/// ema: after each step, average = d average + (1 - d) weights with d = min(tau, (1 + delta)/(10 + delta)), delta steps
/// after averaging has begun. swa: the mean of the weights at the end of each epoch that begins when averaging has
/// begun.
[[nodiscard]] std::vector<std::string> average_rules();
/// Publication of one of them. Error(usage): there is no such rule.
[[nodiscard]] std::string average_cites(const std::string& rule);

/// Any optimizer, and beside the weights that it moves their average over the steps, with those of inactive layers.
/// Until averaging begins the average is the weights themselves. The average is one more array of the optimizer's
/// state, "average"; the number of weights of which it is made is the last of the optimizer's numbers().
class AveragedOptimizer final : public Optimizer {
 public:
  /// Wraps `optimizer`, whose weights are averaged.
  AveragedOptimizer(Backend& backend, Parameters& parameters, std::unique_ptr<Optimizer> optimizer,
                    const AverageOptions& options);

  void step(const ActiveSet& active, double lr) override;
  void take_back() override;
  void set_momentum(double momentum) override { optimizer_->set_momentum(momentum); }
  /// Takes up the weights as they are, after step number `step` of the run, from 0.
  void take_up(std::int64_t step);
  [[nodiscard]] std::vector<State> state() const override;
  [[nodiscard]] std::vector<double> numbers() const override;
  /// Takes up the numbers of the wrapped optimizer alone, too: nothing has been averaged then.
  void restore(const std::vector<double>& numbers) override;

  /// The average [parameters.size], on the device.
  [[nodiscard]] float* average() const { return average_; }
  /// Number of weights in the average; 0: averaging has not begun.
  [[nodiscard]] std::int64_t taken() const { return taken_; }
  /// Returns whether the last take_up() or reset() has changed the average.
  [[nodiscard]] bool changed() const { return kept_ < 1; }
  /// Begins anew: the average is the weights as they are now.
  void reset();
  /// Makes the last change of the average to other arrays [count] on the device.
  void average(const float* values, float* average, std::int64_t count) const;

 private:
  Backend& backend_;
  Parameters& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  AverageOptions options_;
  float* average_;
  std::int64_t taken_ = 0, taken_before_ = 0;  ///< taken_before_: value before the last take_up()
  double kept_ = 0;                            ///< part of the average that the last change has kept
};

/// Course of a learning rate. Fields are called like the options of the command line, whose structs inherit them.
struct RateSettings {
  double lr = 0.01;
  std::vector<int> milestones = {75, 90, 95};  ///< epochs after the warm-up, increasing, at which lr falls
  double lr_decay = 0.1;                       ///< factor of each decay
  double epochs = 100;                         ///< epochs after the warm-up
  double warmup_epochs = 5;                    ///< epochs until the rate is lr; may end within an epoch

  friend bool operator==(const RateSettings&, const RateSettings&) = default;
};

struct ScheduleOptions : RateSettings {
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 0;  ///< the last step of the run, where it ends early (max_steps); 0 = by the epochs
};

/// step -> learning rate. Registered: "step" (milestones), "ramps" (lines between milestones), "cosine" (to zero at the
/// end), "linear" (to zero at the end), which share the linear warm-up, lr*(k+1)/(warm-up steps); "cyclic" and
/// "one_cycle", whose rise is their own.
class Schedule {
 public:
  virtual ~Schedule() = default;
  [[nodiscard]] virtual double lr(std::int64_t step) const = 0;
  /// Position of the rate between its ends, 0, and its peak, 1. Quantities that mirror the rate follow it.
  [[nodiscard]] virtual double height(std::int64_t step) const = 0;
  /// Returns whether the warm-up is the rising half of the schedule's one shape, and its epochs are like those that
  /// follow.
  [[nodiscard]] virtual bool rises_by_itself() const { return false; }
};
[[nodiscard]] const Registry<std::unique_ptr<Schedule>(const ScheduleOptions&)>& schedules();

/// Epochs in steps; results within rounding of an integer are rounded to it.
[[nodiscard]] double steps_of(double epochs, std::int64_t steps_per_epoch);

}  // namespace dat
