#include <fmt/format.h>

#include <algorithm>

#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"

namespace dat {

namespace {

/// Share of itself that the average keeps when it takes up the weights of one more moment: `delta` steps after it has
/// begun, as weights number `taken` + 1. The rest is what the weights get.
struct AverageRule {
  const char* name;
  double (*keep)(const AverageOptions& options, std::int64_t delta, std::int64_t taken);
  bool by_epoch;  ///< takes up the weights at the end of each epoch; else after each step
  const char* cites;
};

/// An exponential moving average, whose decay warms up: min(tau, (1 + delta)/(10 + delta)). Gowal et al., "Uncovering
/// the Limits of Adversarial Training against Norm-Bounded Adversarial Examples", 2020, as in Rade's port
/// (imrahulr/adversarial_robustness_pytorch, gowal21uncovering/utils/watrain.py).
double keep_of_ema(const AverageOptions& options, std::int64_t delta, std::int64_t) {
  return std::min(options.decay, (1.0 + static_cast<double>(delta)) / (10.0 + static_cast<double>(delta)));
}

/// Stochastic weight averaging, the plain mean: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better
/// Generalization", UAI 2018; in adversarial training Chen et al., "Robust Overfitting may be mitigated by properly
/// learned smoothening", ICLR 2021 (VITA-Group/Alleviate-Robust-Overfitting, main_adv.py).
double keep_of_swa(const AverageOptions&, std::int64_t, std::int64_t taken) {
  return static_cast<double>(taken) / static_cast<double>(taken + 1);
}

constexpr AverageRule kAverageRules[] = {
    {"ema", keep_of_ema, false,
     "Gowal et al., \"Uncovering the Limits of Adversarial Training against Norm-Bounded Adversarial Examples\", 2020"},
    {"swa", keep_of_swa, true,
     "Izmailov et al., \"Averaging Weights Leads to Wider Optima and Better Generalization\", UAI 2018"}};

[[nodiscard]] const AverageRule& rule_of(const AverageOptions& options) {
  for (const AverageRule& rule : kAverageRules)
    if (options.rule == rule.name) return rule;
  fail(ExitCode::usage, "unknown average '", options.rule,
       fmt::format("'; known: {}", fmt::join(average_rules(), ", ")));
}

}  // namespace

std::vector<std::string> average_rules() {
  std::vector<std::string> names;
  for (const AverageRule& rule : kAverageRules) names.emplace_back(rule.name);
  return names;
}

std::string average_cites(const std::string& rule) { return rule_of({.rule = rule}).cites; }

AveragedOptimizer::AveragedOptimizer(Backend& backend, Parameters& parameters, std::unique_ptr<Optimizer> optimizer,
                                     const AverageOptions& options)
    : backend_(backend),
      parameters_(parameters),
      optimizer_(std::move(optimizer)),
      options_(options),
      average_(backend.allocate_floats(parameters.size, "averaged weights")) {}

void AveragedOptimizer::step(const ActiveSet& active, double lr) { optimizer_->step(active, lr); }

void AveragedOptimizer::take_back() {
  optimizer_->take_back();
  taken_ = taken_before_;
}

void AveragedOptimizer::take_up(std::int64_t step) {
  const AverageRule& rule = rule_of(options_);
  const std::int64_t done = step + 1, delta = done - options_.from;
  const bool due = rule.by_epoch ? delta > 0 && done % options_.steps_per_epoch == 0 : delta >= 0;
  kept_ = due ? rule.keep(options_, delta, taken_) : taken_ > 0 ? 1 : 0;
  taken_before_ = taken_;
  if (due) ++taken_;
  average(parameters_.values, average_, parameters_.size);
}

void AveragedOptimizer::average(const float* values, float* average, std::int64_t count) const {
  if (kept_ < 1) each(backend_.device(), count, kernels::Average{values, average, kept_});
}

void AveragedOptimizer::reset() {
  taken_ = 0;
  kept_ = 0;
  average(parameters_.values, average_, parameters_.size);
}

std::vector<Optimizer::State> AveragedOptimizer::state() const {
  std::vector<State> all = optimizer_->state();
  all.push_back({"average", average_});
  return all;
}

std::vector<double> AveragedOptimizer::numbers() const {
  std::vector<double> all = optimizer_->numbers();
  all.push_back(static_cast<double>(taken_));
  return all;
}

void AveragedOptimizer::restore(const std::vector<double>& numbers) {
  const bool averaged = numbers.size() == optimizer_->numbers().size() + 1;
  optimizer_->restore(averaged ? std::vector<double>(numbers.begin(), numbers.end() - 1) : numbers);
  taken_ = averaged ? static_cast<std::int64_t>(numbers.back()) : 0;
}

}  // namespace dat
