#include "reduce/aggregator/iterate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace dat {

Iterate::Iterate(int ranks) {
  for (std::vector<double>* numbers : {&coefficients_, &step_, &distance_, &along_})
    numbers->reserve(static_cast<std::size_t>(ranks));
}

void Iterate::begin(const PairMatrix& products, int n) {
  products_ = &products;
  n_ = n;
  for (std::vector<double>* numbers : {&coefficients_, &step_, &distance_, &along_})
    numbers->assign(static_cast<std::size_t>(n), 0.0);
}

void Iterate::measure() {
  double square = 0;  // square of |v - v0|
  for (int i = 0; i < n_; ++i) {
    double& along = along_[static_cast<std::size_t>(i)];
    along = 0;
    for (int j = 0; j < n_; ++j) along += coefficient(j) * products_->at(i, j);
    square += coefficient(i) * along;
  }
  for (int i = 0; i < n_; ++i) {
    const double far = products_->at(i, i) + square, difference = far - 2 * along_[static_cast<std::size_t>(i)];
    // Differences in which most digits cancel out are taken from the small coefficients of the difference itself.
    distance_[static_cast<std::size_t>(i)] = std::sqrt(difference > 1e-4 * far ? difference : exact_square(i));
  }
}

/// |v0 + y_i - v|^2 = sum_{j, k} a_j a_k <y_j, y_k>, a_j being c_j, and c_i - 1 of i.
double Iterate::exact_square(int i) const {
  double total = 0, size = 0;
  for (int j = 0; j < n_; ++j)
    for (int k = 0; k < n_; ++k) {
      const double term = (coefficient(j) - (j == i)) * (coefficient(k) - (k == i)) * products_->at(j, k);
      total += term;
      size += std::abs(term);
    }
  return total > 16 * std::numeric_limits<double>::epsilon() * size ? total : 0;
}

double Iterate::step_length() const {
  double total = 0;
  for (int i = 0; i < n_; ++i)
    for (int j = 0; j < n_; ++j)
      total += step_[static_cast<std::size_t>(i)] * step_[static_cast<std::size_t>(j)] * products_->at(i, j);
  return std::sqrt(std::max(0.0, total));
}

void Iterate::move(double factor) {
  for (std::size_t i = 0; i < coefficients_.size(); ++i) coefficients_[i] += factor * step_[i];
}

double Iterate::of_start() const { return 1 - std::accumulate(coefficients_.begin(), coefficients_.end(), 0.0); }

}  // namespace dat
