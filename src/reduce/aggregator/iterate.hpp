#pragma once

#include <vector>

#include "reduce/aggregator/robust.hpp"

namespace dat {

/// A point v = v0 + sum_i c_i y_i that moves among the n gradients v0 + y_i, known by the products <y_i, y_j> alone.
class Iterate {
 public:
  explicit Iterate(int ranks);

  /// v = v0. The products must stay.
  void begin(const PairMatrix& products, int n);
  /// Sets |v0 + y_i - v| of all i. A distance that is nothing but rounding is 0.
  void measure();
  [[nodiscard]] double distance(int i) const { return distance_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const std::vector<double>& distances() const { return distance_; }
  [[nodiscard]] double coefficient(int i) const { return coefficients_[static_cast<std::size_t>(i)]; }
  /// The coefficients of the step that is to be taken, which the caller writes, all of them.
  [[nodiscard]] double& step(int i) { return step_[static_cast<std::size_t>(i)]; }
  /// The length of sum_i step(i) y_i.
  [[nodiscard]] double step_length() const;
  /// v += factor * sum_i step(i) y_i.
  void move(double factor);

  [[nodiscard]] const std::vector<double>& coefficients() const { return coefficients_; }
  [[nodiscard]] double of_start() const;  ///< v0's share in v: 1 - sum_i c_i

 private:
  [[nodiscard]] double exact_square(int i) const;

  const PairMatrix* products_ = nullptr;
  int n_ = 0;
  std::vector<double> coefficients_, step_, distance_, along_;  ///< products <y_i, v - v0> (along_)
};

}  // namespace dat
