#pragma once

// The loops in which every point-wise formula of the project runs, on either device (sums over channels: on a GPU). A
// formula is a functor in one of the headers beside this one, and one line in kernels.def; g++ instantiates the list in
// cpu.cpp, nvcc in cuda.cu. All memory that a functor touches belongs to the device.

#include <cstdint>

#include "dat/parameters.hpp"
#include "dat/tensor.hpp"

namespace dat {

/// Result of a `sum` functor: up to three sums at a time, in double.
struct Sums {
  double v[3] = {0, 0, 0};
};
constexpr int kSums = 3;

namespace kernels {
/// The smaller one of two numbers, and the larger one; b where neither is, as of two zeros or of NaN.
template <class T>
[[nodiscard]] DAT_HD constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
[[nodiscard]] DAT_HD constexpr T larger(T a, T b) {
  return a > b ? a : b;
}
}  // namespace kernels

/// Device memory of cuda_channel_sums(), for one call at a time.
struct ChannelRoom {
  static constexpr int kParts = 256;  ///< most parts of a tensor's rows
  float* partial = nullptr;           ///< [kParts][2][c]
  std::uint32_t* counters = nullptr;  ///< [c], zeros, which are zeros again after the call
};

template <class F>
void cpu_each(std::int64_t n, const F& f);
template <class F>
void cpu_each_chunk(const Chunks& chunks, const F& f);
template <class F>
void cpu_sum(const Chunks& chunks, const F& f, double* partial, double* out);

template <class F>
void cuda_each(const Device& device, std::int64_t n, const F& f);
template <class F>
void cuda_each_chunk(const Device& device, const Chunks& chunks, const F& f);
template <class F>
void cuda_sum(const Device& device, const Chunks& chunks, const F& f, double* partial, double* out);

/// f(i) for all i in [0, n), in any order; of functors on activations, f.piece for all of n groups (pointwise.hpp).
template <class F>
void each(const Device& device, std::int64_t n, const F& f) {
  device.kind == DeviceKind::cuda ? cuda_each(device, n, f) : cpu_each(n, f);
}

/// f(segment, i) for all elements of the chunks, in any order.
template <class F>
void each(const Device& device, const Chunks& chunks, const F& f) {
  device.kind == DeviceKind::cuda ? cuda_each_chunk(device, chunks, f) : cpu_each_chunk(chunks, f);
}

/// out [chunks.segments][kSums] = sums of f(segment, i) over the chunks of that segment; zero for segments without
/// chunks. Fixed order: the same bits at any number of threads. partial: [chunks.count][kSums].
/// f may change what it reads: it sees each element once.
template <class F>
void sum(const Device& device, const Chunks& chunks, const F& f, double* partial, double* out) {
  device.kind == DeviceKind::cuda ? cuda_sum(device, chunks, f, partial, out) : cpu_sum(chunks, f, partial, out);
}

/// Two sums of each channel of a tensor [f.rows][f.c] of f.Element, whose channels fill whole pieces of 16 bytes:
/// f.add(k, sum, square) adds what piece k gives to either; f.finish(channel, sum, square) gets them. Fixed order: the
/// same bits in every call. On a GPU alone: a CPU's batch norm is the library's.
template <class F>
void cuda_channel_sums(const Device& device, const F& f, const ChannelRoom& room);

}  // namespace dat
