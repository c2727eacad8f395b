#include <cmath>

#include "layerwise.hpp"
#include "optimizer.hpp"

namespace dat {

namespace {

/// LAMB: u = m/(sqrt(v) + epsilon) + wd*theta on every tensor, and Layerwise's step. Plain, it is DAT's LALR
/// (dat-2022/dat, lamb.py), without bias correction. With `bias_correction` it is algorithm 2 of You et al., "Large
/// Batch Optimization for Deep Learning", ICLR 2020: m/(1 - beta1^t) and v/(1 - beta2^t) take the places of m and v in
/// u, where t counts the steps of this layer: those in which it was not drawn have left its moments alone.
class Lamb final : public Optimizer {
 public:
  Lamb(Backend& backend, Parameters& parameters, const OptimizerOptions& options)
      : backend_(backend),
        parameters_(parameters),
        options_(options),
        layerwise_(backend, parameters, options),
        m_(backend.allocate_floats(parameters.size, "optimizer state")),
        v_(backend.allocate_floats(parameters.size, "optimizer state")) {
    if (!options.bias_correction) return;
    const std::size_t segments = parameters.segments.size();
    steps_.resize(static_cast<std::size_t>(parameters.layers()));
    steps_before_ = steps_;
    corrections_.reserve(2 * segments);
    m_correction_ = backend.allocate_floats(2 * std::ssize(parameters.segments), "optimizer factors");
    v_correction_ = m_correction_ + segments;
  }

  void step(const ActiveSet& active, double lr) override {
    if (options_.bias_correction) count(active);
    const auto epsilon = static_cast<float>(options_.epsilon);
    layerwise_.run(
        active, lr,
        kernels::LambDirection{parameters_.values, m_, v_, parameters_.gradients, layerwise_.factors(), m_correction_,
                               v_correction_, layerwise_.decay(), static_cast<float>(options_.beta1),
                               static_cast<float>(1 - options_.beta1), static_cast<float>(options_.beta2),
                               static_cast<float>(1 - options_.beta2), epsilon},
        kernels::LambStep{parameters_.values, m_, v_, layerwise_.steps(), m_correction_, v_correction_,
                          layerwise_.decay(), epsilon});
  }

  void take_back() override { steps_ = steps_before_; }

  [[nodiscard]] std::vector<State> state() const override { return {{"m", m_}, {"v", v_}}; }

  /// Steps of each layer so far, for bias correction.
  [[nodiscard]] std::vector<double> numbers() const override { return steps_; }
  void restore(const std::vector<double>& numbers) override {
    require(numbers.size() == steps_.size(), ExitCode::checkpoint, "the checkpoint holds the step counts of ",
            numbers.size(), " layers, and LAMB ", options_.bias_correction ? "with" : "without",
            " bias correction has those of ", steps_.size(),
            ": resume with the --optimizer and --granularity of the first run");
    steps_ = numbers;
  }

 private:
  void count(const ActiveSet& active) {
    steps_before_ = steps_;
    for (std::size_t d = 0; d < steps_.size(); ++d)
      if (active.active(static_cast<int>(d))) steps_[d] += 1;
    corrections_.clear();
    for (const double beta : {options_.beta1, options_.beta2})
      for (const Segment& segment : parameters_.segments)
        corrections_.push_back(
            static_cast<float>(1 / (1 - std::pow(beta, steps_[static_cast<std::size_t>(segment.layer)]))));
    backend_.copy_to_device(m_correction_, corrections_.data(), corrections_.size() * sizeof(float));
  }

  Backend& backend_;
  Parameters& parameters_;
  OptimizerOptions options_;
  Layerwise layerwise_;
  float* m_;
  float* v_;
  std::vector<double> steps_;         ///< [layers]
  std::vector<double> steps_before_;  ///< the last one
  std::vector<float> corrections_;    ///< [2][segments]: of m, of v
  float *m_correction_ = nullptr, *v_correction_ = nullptr;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(Backend& backend, Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<Lamb>(backend, parameters, options);
}

}  // namespace dat
