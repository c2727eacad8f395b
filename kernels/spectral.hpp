#pragma once

#include <cmath>
#include <cstdint>

#include "codec.hpp"
#include "jacobi.hpp"

// Spectral ATOMO: Wang, Sievert, Charles, Liu, Wright, Papailiopoulos, "ATOMO: Communication-efficient Learning via
// Atomic Sparsification", NeurIPS 2018. With the eigenvectors v_i of M^T M, a matrix is the sum of its atoms (M v_i)
// v_i^T, of norm lambda_i, whatever their number and whatever the rounding of the eigenvectors' directions. Some of the
// atoms, each divided by the probability with which it is chosen, are an unbiased estimate.

namespace dat::kernels {

/// A tensor as a tall matrix [rows][cols]. In memory it is [rows / (inputs / pair)][kernel][inputs], and `pair`
/// neighbouring inputs with their kernels are a row.
struct Spectrum {
  static constexpr int kMostCols = 32, kBlock = 256;  // kBlock: rows that are summed up at a time
  std::int32_t rows = 0, kernel = 1, inputs = 1, pair = 1;
  std::int32_t atoms = 0;   // 0: the tensor goes as it is
  std::int32_t shift = 0;   // see Factors::left_shift
  std::int64_t sums = 0;    // start of its sums of blocks among those of all tensors
  std::int64_t square = 0;  // start of its [cols][cols]
  std::int64_t weight = 0;  // start of its [atoms]

  [[nodiscard]] DAT_HD std::int32_t cols() const { return kernel * pair; }
  [[nodiscard]] DAT_HD std::int32_t pairs() const { return cols() * (cols() + 1) / 2; }
  [[nodiscard]] DAT_HD std::int32_t blocks() const { return (rows + kBlock - 1) / kBlock; }
  [[nodiscard]] DAT_HD std::int64_t row_at(std::int32_t row) const {
    const std::int32_t groups = inputs / pair;
    return std::int64_t{row / groups} * kernel * inputs + std::int64_t{row % groups} * pair;
  }
  [[nodiscard]] DAT_HD std::int64_t col_at(std::int32_t col) const {
    return std::int64_t{col % kernel} * inputs + col / kernel;
  }
};

/// Scratch memory of all tensors, on the device.
struct SpectralMemory {
  double *sums, *gram, *vectors, *weights;
};

/// The part of M^T M that kBlock rows make.
struct GramOfBlocks {
  const Spectrum* spectra;
  SpectralMemory memory;
  const float* gradients;
  const std::int64_t* element;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Spectrum s = spectra[tensor];
    const std::int64_t at = i - element[tensor];
    const std::int64_t item = at >> s.shift;
    if (s.atoms == 0 || item << s.shift != at) return;
    const auto block = static_cast<std::int32_t>(item / s.pairs());
    if (block >= s.blocks()) return;
    std::int32_t b = static_cast<std::int32_t>(item % s.pairs()),
                 a = 0;  // row b and column a in the lower triangle, row by row
    for (; b > a; ++a) b -= a + 1;
    const float* const m = gradients + element[tensor];
    const std::int64_t of_a = s.col_at(a), of_b = s.col_at(b);
    const std::int32_t groups = s.inputs / s.pair, first = block * Spectrum::kBlock;
    const std::int32_t end = smaller(first + Spectrum::kBlock, s.rows);
    double total = 0;
    for (std::int32_t row = first; row < end;) {
      const float* const from = m + s.row_at(row);
      const std::int32_t count = smaller(groups - row % groups, end - row);
      for (std::int32_t k = 0; k < count; ++k)
        total += double(from[of_a + std::int64_t{k} * s.pair]) * from[of_b + std::int64_t{k} * s.pair];
      row += count;
    }
    memory.sums[s.sums + item] = total;
  }
};

/// M^T M from its parts.
struct GramOfTensor {
  const Spectrum* spectra;
  SpectralMemory memory;
  const std::int64_t* element;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Spectrum s = spectra[tensor];
    const std::int64_t at = i - element[tensor];
    if (s.atoms == 0 || at >= s.pairs()) return;
    double total = 0;
    for (std::int32_t block = 0; block < s.blocks(); ++block)
      total += memory.sums[s.sums + std::int64_t{block} * s.pairs() + at];
    std::int32_t b = static_cast<std::int32_t>(at), a = 0;
    for (; b > a; ++a) b -= a + 1;
    double* const gram = memory.gram + s.square;
    gram[a * s.cols() + b] = gram[b * s.cols() + a] = total;
  }
};

/// Chooses the atoms of each tensor: their v to the message, [atoms][cols], and 1/p to the weights.
///
/// p_i = min(1, c lambda_i) with sum p = atoms minimises the variance. Systematic sampling (Madow, 1949) chooses
/// exactly `atoms` of them with just these probabilities, by one random number: so a message has always the same
/// length. A lambda counts as 1e-6 of the largest at least, which rounding leaves of none.
struct ChooseAtoms {
  const Spectrum* spectra;
  SpectralMemory memory;
  const std::int32_t* chunk;  // [.] first chunk of each tensor from `first` on
  int first;
  float* message;
  const std::int64_t *element, *byte;
  Draw draw;

  DAT_HD void operator()(std::int64_t t) const {
    const Spectrum s = spectra[first + t];
    if (s.atoms == 0 || chunk[t] == chunk[t + 1]) return;
    const std::int32_t n = s.cols();
    double *const g = memory.gram + s.square, *const v = memory.vectors + s.square;
    float* const out = message + byte[first + t] / std::int64_t{sizeof(float)};
    double* const weights = memory.weights + s.weight;

    double trace = 0;
    for (std::int32_t i = 0; i < n; ++i) trace += g[i * n + i];
    diagonalise(g, v, n, 1e-14 * trace);

    double lambda[Spectrum::kMostCols];
    double largest = 0;
    for (std::int32_t i = 0; i < n; ++i) {
      lambda[i] = std::sqrt(larger(g[i * n + i], 0.0));  // 0 where that is not a number
      largest = larger(lambda[i], largest);
    }
    for (std::int32_t i = 0; i < n; ++i) lambda[i] = largest == 0 ? 1 : larger(1e-6 * largest, lambda[i]);
    to_probabilities(lambda, n, s.atoms);

    const Philox4 random = draw.words(element[first + t]);
    const double u = double(uniform(random.v[0])) + double(uniform(random.v[1])) * 0x1p-24;
    double sum = 0;
    std::int32_t chosen = 0;
    for (std::int32_t i = 0; i < n && chosen < s.atoms; ++i) {
      sum += lambda[i];
      // The last one makes up for a sum that rounding has left below `atoms`.
      if (!(sum > u + chosen || n - i == s.atoms - chosen)) continue;
      for (std::int32_t c = 0; c < n; ++c) out[chosen * n + c] = static_cast<float>(v[c * n + i]);
      weights[chosen++] = 1 / lambda[i] + 0 * trace;  // not a number where the trace is not finite
    }
  }

 private:
  /// min(1, c lambda) with the sum `atoms`, at most n, for lambda > 0.
  DAT_HD static void to_probabilities(double* lambda, std::int32_t n, std::int32_t atoms) {
    double limit = HUGE_VAL, c = 0;  // from `limit` on, p = 1
    for (std::int32_t round = 0; round <= n; ++round) {
      double rest = 0;
      std::int32_t certain = 0;
      for (std::int32_t i = 0; i < n; ++i) {
        if (lambda[i] >= limit)
          ++certain;
        else
          rest += lambda[i];
      }
      c = (atoms - certain) / rest;
      double next = limit;
      for (std::int32_t i = 0; i < n; ++i)
        if (lambda[i] < next && c * lambda[i] >= 1) next = lambda[i];
      if (next == limit) break;
      limit = next;
    }
    for (std::int32_t i = 0; i < n; ++i) lambda[i] = lambda[i] >= limit ? 1 : c * lambda[i];
  }
};

/// The atoms' M v / p, [atoms][rows] after the v; tensors without atoms as they are.
struct LeftOfAtoms {
  const Spectrum* spectra;
  SpectralMemory memory;
  const float* gradients;
  float* message;
  const std::int64_t *element, *byte;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Spectrum s = spectra[tensor];
    const std::int64_t at = i - element[tensor];
    float* const out = message + byte[tensor] / std::int64_t{sizeof(float)};
    if (s.atoms == 0) {
      out[at] = gradients[i];
      return;
    }
    const auto n = static_cast<std::uint32_t>(s.cols()), place = static_cast<std::uint32_t>(at);
    const auto row = static_cast<std::int32_t>(place / n), k = static_cast<std::int32_t>(place % n);
    if (k >= s.atoms) return;
    const float* const m = gradients + element[tensor] + s.row_at(row);
    const float* const v = out + std::int64_t{k} * n;
    double total = 0;
    for (std::int32_t pair = 0; pair < s.pair; ++pair)
      for (std::int32_t c = 0; c < s.kernel; ++c)
        total += double(m[std::int64_t{c} * s.inputs + pair]) * v[pair * s.kernel + c];
    out[std::int64_t{s.atoms} * n + std::int64_t{k} * s.rows + row] =
        static_cast<float>(total * memory.weights[s.weight + k]);
  }
};

/// The sum of the atoms.
struct FromAtoms {
  const Spectrum* spectra;
  const float* message;
  float* gradients;
  const std::int64_t *element, *byte;
  float factor;

  DAT_HD void operator()(int tensor, std::int64_t i) const {
    const Spectrum s = spectra[tensor];
    const std::int64_t at = i - element[tensor];
    const float* const from = message + byte[tensor] / std::int64_t{sizeof(float)};
    if (s.atoms == 0) {
      gradients[i] = factor * from[at];
      return;
    }
    const auto inputs = static_cast<std::uint32_t>(s.inputs), kernel = static_cast<std::uint32_t>(s.kernel);
    const auto pair = static_cast<std::uint32_t>(s.pair), place = static_cast<std::uint32_t>(at);
    const std::uint32_t input = place % inputs, rest = place / inputs;
    const std::uint32_t row = rest / kernel * (inputs / pair) + input / pair;
    const std::uint32_t col = input % pair * kernel + rest % kernel;
    double total = 0;
    for (std::int32_t k = 0; k < s.atoms; ++k)
      total += double(from[k * s.cols() + static_cast<std::int32_t>(col)]) *
               from[std::int64_t{s.atoms} * s.cols() + std::int64_t{k} * s.rows + row];
    gradients[i] = factor * static_cast<float>(total);
  }
};

}  // namespace dat::kernels
