#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "dat/cheat.hpp"
#include "smoothing/bounds.hpp"

namespace dat {

/// Calls f(i) for each element i of these tensors.
template <class F>
void for_each_element(std::span<const Segment* const> tensors, const F& f) {
  for (const Segment* tensor : tensors)
    for (std::int64_t i = tensor->begin; i < tensor->begin + tensor->size; ++i) f(i);
}

/// Sum of a(i) * b(i) over the elements of these tensors, where a(i) and b(i) are doubles.
template <class A, class B>
[[nodiscard]] double product(std::span<const Segment* const> tensors, const A& a, const B& b) {
  double sum = 0;
  for_each_element(tensors, [&](std::int64_t i) { sum += a(i) * b(i); });
  return sum;
}

/// Cheat that sends number(step, i) in place of each element i of its gradient.
template <class Number>
[[nodiscard]] std::unique_ptr<Cheat> sends(Cheat::Sees sees, const Number& number) {
  class Sender final : public Cheat {
   public:
    Sender(Sees sees, const Number& number) : sees_(sees), number_(number) {}
    [[nodiscard]] Sees sees() const override { return sees_; }
    void gradient(const CheatStep& step) override {
      for_each_element(step.tensors, [&](std::int64_t i) { step.own[i] = static_cast<float>(number_(step, i)); });
    }

   private:
    Sees sees_;
    Number number_;
  };
  return std::make_unique<Sender>(sees, number);
}

/// Mean and standard deviation (of the sample; of a single one: 0) of one or more numbers, and the first of them.
[[nodiscard]] inline std::tuple<float, float, float> summary_of(std::span<const float> values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / std::max(1.0, static_cast<double>(values.size()) - 1));
  return {static_cast<float>(mean), static_cast<float>(deviation), values.front()};
}

/// Number of standard deviations by which a number may be off where so many of the ranks cheat, such that the median
/// takes it for an honest one: the z of "A little is enough" (Baruch, Baruch, Goldberg, NeurIPS 2019), Phi^-1 of (n - b
/// - s) / (n - b), s = floor(n / 2 + 1) - b.
[[nodiscard]] inline double deviations_allowed(int ranks, int attackers) {
  const int honest = ranks - attackers, needed = ranks / 2 + 1 - attackers;
  return normal_quantile(static_cast<double>(honest - needed) / honest);
}

}  // namespace dat
