#pragma once

#include <cstdint>

#include "launch.hpp"
#include "pointwise.hpp"

// Aggregation of the gradients of all ranks where some of them may be false. Sums are in double.

namespace dat::kernels {

constexpr int kMostRanks = 64;

/// The ranks that count, in their order: number k is rank rank[k], whose gradients are at gradients + rank[k] * stride.
struct CountedRanks {
  const float* gradients;
  std::int64_t stride;
  std::int32_t count;
  std::uint8_t rank[kMostRanks];
  [[nodiscard]] DAT_HD const float* of(int k) const { return gradients + std::int64_t{rank[k]} * stride; }
};

/// The elements of chunks in kShares parts, which do not depend on threads: block b of at most kBlock elements belongs
/// to share b % kShares. So a sum over all of them has one order.
struct Shares {
  static constexpr int kShares = 1024, kBlock = 1024, kBlocks = kChunk / kBlock;
  struct Run {
    std::int64_t begin, end;
  };
  const Chunk* chunks;
  std::int32_t count;

  [[nodiscard]] DAT_HD std::int64_t blocks() const { return std::int64_t{count} * kBlocks; }
  [[nodiscard]] DAT_HD Run run(std::int64_t block) const {
    const Chunk chunk = chunks[block / kBlocks];
    const auto first = static_cast<std::int32_t>(block % kBlocks) * kBlock;
    return {chunk.begin + first, chunk.begin + smaller(first + kBlock, chunk.size)};
  }
};

/// Test of a rank's gradients: out [kShares][ranks] = 0, or 1 where one of the share's is not finite.
struct NotFinite {
  Shares shares;
  const float* gradients;
  std::int64_t stride;
  int ranks;
  double* out;
  DAT_HD void operator()(std::int64_t i) const {
    const float* const x = gradients + i % ranks * stride;
    std::int32_t bad = 0;
    for (std::int64_t block = i / ranks; block < shares.blocks(); block += Shares::kShares) {
      const Shares::Run run = shares.run(block);
      for (std::int64_t e = run.begin; e < run.end; ++e) bad |= static_cast<std::int32_t>(x[e] - x[e] != 0.0F);
    }
    out[i] = bad;
  }
};

/// Sums over pairs of ranks, in tiles of kTile x kTile pairs: of the squares of their differences (kDistances), or of
/// the products of what they differ by from `center`. out [kShares][tiles][kTile][kTile]; of tile (a, b), a <= b, which
/// is number b (b + 1) / 2 + a, the pairs of ranks kTile a + p and kTile b + q. Past the last rank, the last one.
template <bool kDistances>
struct PairSums {
  static constexpr int kTile = 4;
#ifdef __CUDA_ARCH__
  static constexpr int kLanes = 1;
#else
  static constexpr int kLanes = 8;
#endif
  Shares shares;
  CountedRanks ranks;
  const float* center;
  double* out;

  [[nodiscard]] DAT_HD static int tiles(int ranks) {
    const int side = (ranks + kTile - 1) / kTile;
    return side * (side + 1) / 2;
  }

  DAT_HD void operator()(std::int64_t i) const {
    const int all = tiles(ranks.count);
    int a = static_cast<int>(i % all), b = 0;
    while (a > b) a -= ++b;
    const float *x[kTile], *y[kTile];
    for (int k = 0; k < kTile; ++k) {
      x[k] = ranks.of(smaller(kTile * a + k, ranks.count - 1));
      y[k] = ranks.of(smaller(kTile * b + k, ranks.count - 1));
    }
    double lanes[kTile][kTile][kLanes] = {};
    for (std::int64_t block = i / all; block < shares.blocks(); block += Shares::kShares) {
      const Shares::Run run = shares.run(block);
      std::int64_t e = run.begin;
      for (; e + kLanes <= run.end; e += kLanes) add<kLanes>(x, y, e, lanes);
      for (; e < run.end; ++e) add<1>(x, y, e, lanes);
    }
    for (int p = 0; p < kTile; ++p)
      for (int q = 0; q < kTile; ++q) {
        double total = 0;
        for (int lane = 0; lane < kLanes; ++lane) total += lanes[p][q][lane];
        out[(i * kTile + p) * kTile + q] = total;
      }
  }

 private:
  template <int kCount>
  DAT_HD void add(const float* const (&x)[kTile], const float* const (&y)[kTile], std::int64_t e,
                  double (&lanes)[kTile][kTile][kLanes]) const {
    double dx[kTile][kCount], dy[kTile][kCount];
    for (int k = 0; k < kTile; ++k)
      for (int lane = 0; lane < kCount; ++lane) {
        const double from = kDistances ? 0.0 : double(center[e + lane]);
        dx[k][lane] = double(x[k][e + lane]) - from;
        dy[k][lane] = double(y[k][e + lane]) - from;
      }
    for (int p = 0; p < kTile; ++p)
      for (int q = 0; q < kTile; ++q)
        for (int lane = 0; lane < kCount; ++lane) {
          const double difference = dx[p][lane] - dy[q][lane];
          lanes[p][q][lane] += kDistances ? difference * difference : dx[p][lane] * dy[q][lane];
        }
  }
};

/// out [count] = the sum over the shares, in their order, of partial [kShares][count].
struct JoinShares {
  const double* partial;
  std::int64_t count;
  double* out;
  DAT_HD void operator()(std::int64_t i) const {
    double total = 0;
    for (int share = 0; share < Shares::kShares; ++share) total += partial[share * count + i];
    out[i] = total;
  }
};

/// The elements of chunks in groups of at most kLanes neighbours: a group for a thread, whose loops run over the
/// neighbours, so that the CPU has vectors of them; on a GPU groups of one.
template <int kLanes>
struct Neighbours {
  static constexpr int kGroups = kChunk / kLanes;  // groups of a chunk
  struct Group {
    std::int64_t begin;
    int count;  // may be 0 or less
  };
  const Chunk* chunks;
  [[nodiscard]] DAT_HD Group group(std::int64_t i) const {
    const Chunk chunk = chunks[i / kGroups];
    const int at = static_cast<int>(i % kGroups) * kLanes;
    return {chunk.begin + at, smaller(chunk.size - at, kLanes)};
  }
  /// Calls f.run<kLanes>(first element) for a whole group i, f.run<1>(element) for each element of another.
  template <class F>
  DAT_HD void run(std::int64_t i, const F& f) const {
    const Group of = group(i);
    switch (of.count) {
      case kLanes:
        return f.template run<kLanes>(of.begin);
      default:
        for (int lane = 0; lane < of.count; ++lane) f.template run<1>(of.begin + lane);
    }
  }
};

/// Trimmed mean of each coordinate: the mean of the numbers first .. last of the ranks' values in ascending order.
/// Mixed: rank k's value is the mean over the ranks that are in near[k], a bit each.
template <int kLanes>
struct MeanOfOrdered {
  Neighbours<kLanes> elements;
  CountedRanks ranks;
  bool mixed;
  std::uint64_t near[kMostRanks];
  int first, last;
  float* result;

  DAT_HD void operator()(std::int64_t i) const { elements.run(i, *this); }
  template <int kCount>
  DAT_HD void run(std::int64_t begin) const {
    float v[kMostRanks][kCount];
    for (int k = 0; k < ranks.count; ++k) {
      const float* const x = ranks.of(k) + begin;
      DAT_SIMD
      for (int lane = 0; lane < kCount; ++lane) v[k][lane] = x[lane];
    }
    if (mixed) mix(v);
    sort(v);
    double total[kCount] = {};
    for (int k = first; k <= last; ++k) {
      DAT_SIMD
      for (int lane = 0; lane < kCount; ++lane) total[lane] += v[k][lane];
    }
    for (int lane = 0; lane < kCount; ++lane)
      result[begin + lane] = static_cast<float>(total[lane] / (last - first + 1));
  }

 private:
  template <int kCount>
  DAT_HD void mix(float (&v)[kMostRanks][kCount]) const {
    float plain[kMostRanks][kCount];
    for (int k = 0; k < ranks.count; ++k) {
      DAT_SIMD
      for (int lane = 0; lane < kCount; ++lane) plain[k][lane] = v[k][lane];
    }
    for (int k = 0; k < ranks.count; ++k) {
      double total[kCount] = {};
      int of = 0;
      for (int j = 0; j < ranks.count; ++j) {
        if ((near[k] >> static_cast<unsigned>(j) & 1U) == 0) continue;
        ++of;
        DAT_SIMD
        for (int lane = 0; lane < kCount; ++lane) total[lane] += plain[j][lane];
      }
      DAT_SIMD
      for (int lane = 0; lane < kCount; ++lane) v[k][lane] = static_cast<float>(total[lane] / of);
    }
  }
  /// Batcher's merge exchange (Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M): which numbers are
  /// compared does not depend on them.
  template <int kCount>
  DAT_HD void sort(float (&v)[kMostRanks][kCount]) const {
    const int n = ranks.count;
    int top = 1;
    while (2 * top < n) top *= 2;
    for (int p = top; p > 0; p /= 2) {
      int q = top, r = 0, d = p;
      while (true) {
        for (int k = 0; k < n - d; ++k)
          if ((k & p) == r) exchange(v[k], v[k + d]);
        if (q == p) break;
        d = q - p;
        q /= 2;
        r = p;
      }
    }
  }
  template <int kCount>
  DAT_HD static void exchange(float (&low)[kCount], float (&high)[kCount]) {
    DAT_SIMD
    for (int lane = 0; lane < kCount; ++lane) {
      const float a = low[lane], b = high[lane];
      low[lane] = smaller(b, a);
      high[lane] = larger(a, b);
    }
  }
};

/// result = base + of_result * result + the sum over the ranks, in their order, of factor[k] times rank k's gradient.
/// Ranks with factor 0, and a result with of_result 0, are not looked at.
template <int kLanes>
struct WeightedSum {
  Neighbours<kLanes> elements;
  CountedRanks ranks;
  double factor[kMostRanks];
  double of_result, base;
  float* result;

  DAT_HD void operator()(std::int64_t i) const { elements.run(i, *this); }
  template <int kCount>
  DAT_HD void run(std::int64_t begin) const {
    double total[kCount];
    DAT_SIMD
    for (int lane = 0; lane < kCount; ++lane) total[lane] = base;
    if (of_result != 0) add(of_result, result + begin, total);
    for (int k = 0; k < ranks.count; ++k)
      if (factor[k] != 0) add(factor[k], ranks.of(k) + begin, total);
    for (int lane = 0; lane < kCount; ++lane) result[begin + lane] = static_cast<float>(total[lane]);
  }

 private:
  template <int kCount>
  DAT_HD static void add(double factor, const float* x, double (&total)[kCount]) {
    DAT_SIMD
    for (int lane = 0; lane < kCount; ++lane) total[lane] += factor * double(x[lane]);
  }
};

}  // namespace dat::kernels
