#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "aggregate.hpp"
#include "dat/aggregator.hpp"
#include "dat/backend.hpp"

namespace dat {

/// Numbers of all pairs of the n ranks that count. Symmetric.
class PairMatrix {
 public:
  explicit PairMatrix(int most) : values_(static_cast<std::size_t>(most) * static_cast<std::size_t>(most)) {}
  void resize(int n) { n_ = n; }  ///< numbers are anything then
  [[nodiscard]] double& at(int i, int j) { return values_[static_cast<std::size_t>(i * n_ + j)]; }
  [[nodiscard]] double at(int i, int j) const { return values_[static_cast<std::size_t>(i * n_ + j)]; }

 private:
  int n_ = 0;
  std::vector<double> values_;
};

/// result = base + of_result * result + sum_k factor[k] times the gradient of the k-th rank that counts, added up in
/// the order of the ranks, in double.
void sum_weighted(Backend& backend, const Contributions& all, const kernels::CountedRanks& ranks,
                  const std::array<double, kMostRanks>& factor, double of_result, double base);

/// Base of the aggregators that are not the mean: finds out which ranks count, mixes where that is asked for
/// (nearest-neighbour mixing: Allouah et al., AISTATS 2023), and has what members share. To a member the ranks that
/// count are numbers 0 .. n - 1, in the order of the ranks, and their gradients x_i are the mixed ones. Members see
/// sums over pairs of whole gradients, made in one pass and one order in double: at most kMostRanks^2 numbers, with
/// which they compute on the host.
class Robust : public Aggregator {
 public:
  [[nodiscard]] bool keeps_one() const final { return true; }
  void aggregate(const Contributions& all) final;
  [[nodiscard]] std::int64_t memory(int ranks) const final;

 protected:
  /// pairs: whether the member looks at pairs of ranks.
  Robust(Backend& backend, const AggregatorOptions& options, bool pairs);

  /// Makes the result, by one or more of the calls below.
  virtual void make() = 0;

  [[nodiscard]] const AggregatorOptions& options() const { return options_; }
  [[nodiscard]] int n() const { return counted_.count; }
  [[nodiscard]] int faults() const { return faults_; }
  [[nodiscard]] const std::vector<double>& weights() const { return weights_; }
  [[nodiscard]] double weight(int i) const { return weights_[static_cast<std::size_t>(i)]; }

  /// result = of each coordinate, the mean of the numbers first .. last of the x_i in ascending order.
  void order(int first, int last);
  /// result = the median of each coordinate; of two middle values, the lower one.
  void lower_median() { order((n() - 1) / 2, (n() - 1) / 2); }
  /// result = v0, which is the lower median of each coordinate. Returns <x_i - v0, x_j - v0>.
  [[nodiscard]] const PairMatrix& products_around_median();
  /// |x_i - x_j|^2.
  [[nodiscard]] const PairMatrix& squared_distances();
  /// result = of_result * result + sum_i factor[i] x_i.
  void combine(const std::vector<double>& factor, double of_result);

 private:
  [[nodiscard]] bool count_ranks();
  void choose_near();
  void fetch_joined(std::int64_t count);
  template <bool kDistances>
  void sum_pairs();
  template <class F>
  const PairMatrix& of_means(const F& of);
  [[nodiscard]] bool near(int i, int j) const { return (near_[static_cast<std::size_t>(i)] >> j & 1U) != 0; }

  Backend& backend_;
  AggregatorOptions options_;
  bool pairs_;
  double *partial_, *sums_, *host_;  ///< sums of a pass: by shares, joined, and these on the host
  Contributions all_;                ///< contributions of this step
  kernels::CountedRanks counted_{};
  std::vector<double> weights_;                   ///< [n]
  int faults_ = 0;                                ///< f, less than half of n
  bool mixed_ = false;                            ///< near_ holds
  std::array<std::uint64_t, kMostRanks> near_{};  ///< [n] a bit for each of the ranks that x_i is the mean of
  PairMatrix plain_, matrix_;                     ///< products of gradients as they came, and of mixed ones
  std::vector<int> sorted_;
};

}  // namespace dat
