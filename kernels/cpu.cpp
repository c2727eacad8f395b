// Instantiates every kernel for the CPU: OpenMP over fixed pieces of work, the compiler's vector code inside.

#include <algorithm>

#include "all.hpp"

namespace dat {

namespace {
constexpr std::int64_t kGrain = 1024;  // elements worth a thread's attention
constexpr int kLanes = 16;             // independent partial sums: vector code with a fixed order

/// f(i), or what becomes of group i.
template <class F>
void run(const F& f, std::int64_t i) {
  if constexpr (kernels::MaskWriter<F>) {
    const std::uint32_t open = f.template piece<kernels::kGroup>(i);
    if (f.bits != nullptr) f.bits[i] = static_cast<std::uint16_t>(open);
  } else if constexpr (kernels::ByPieces<F>) {
    f.template piece<kernels::kGroup>(i);
  } else {
    f(i);
  }
}

}  // namespace

template <class F>
void cpu_each(std::int64_t n, const F& f) {
#pragma omp parallel for schedule(static) if (n > kGrain)
  for (std::int64_t begin = 0; begin < n; begin += kGrain) {
    const F local = f;
    const std::int64_t end = std::min(n, begin + kGrain);
    for (std::int64_t i = begin; i < end; ++i) run(local, i);
  }
}

template <class F>
void cpu_each_chunk(const Chunks& chunks, const F& f) {
  const std::int64_t count = chunks.count;
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::int64_t k = 0; k < count; ++k) {
    const F local = f;
    const Chunk chunk = chunks.data[k];
    for (std::int64_t i = chunk.begin; i < chunk.begin + chunk.size; ++i) local(chunk.segment, i);
  }
}

template <class F>
void cpu_sum(const Chunks& chunks, const F& f, double* partial, double* out) {
  const std::int64_t count = chunks.count;
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::int64_t k = 0; k < count; ++k) {
    const F local = f;
    const Chunk chunk = chunks.data[k];
    double lanes[kSums][kLanes] = {};
    std::int64_t i = chunk.begin;
    const std::int64_t end = chunk.begin + chunk.size;
    for (; i + kLanes <= end; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) {
        const Sums s = local(chunk.segment, i + lane);
        for (int j = 0; j < kSums; ++j) lanes[j][lane] += s.v[j];
      }
    for (int lane = 0; i < end; ++i, ++lane) {
      const Sums s = local(chunk.segment, i);
      for (int j = 0; j < kSums; ++j) lanes[j][lane] += s.v[j];
    }
    for (int j = 0; j < kSums; ++j) {
      double total = 0;
      for (int lane = 0; lane < kLanes; ++lane) total += lanes[j][lane];
      partial[k * kSums + j] = total;
    }
  }
  for (int segment = 0; segment < chunks.segments; ++segment)
    for (int j = 0; j < kSums; ++j) {
      double total = 0;
      for (std::int64_t k = chunks.first[segment] - chunks.origin; k < chunks.first[segment + 1] - chunks.origin; ++k)
        total += partial[k * kSums + j];
      out[std::int64_t{segment} * kSums + j] = total;
    }
}

#define DAT_EACH(F) template void cpu_each<kernels::F>(std::int64_t, const kernels::F&);
#define DAT_EACH_CHUNK(F) template void cpu_each_chunk<kernels::F>(const Chunks&, const kernels::F&);
#define DAT_SUM(F) template void cpu_sum<kernels::F>(const Chunks&, const kernels::F&, double*, double*);
#define DAT_CHANNEL_SUMS(F)
#include "kernels.def"

}  // namespace dat
