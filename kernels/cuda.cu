// Instantiates every kernel for CUDA: the one file that nvcc compiles.

#include <cuda_runtime.h>

#include "all.hpp"
#include "dat/error.hpp"

// Launch of a kernel; tests replace these. BLOCKS: the threads of a block work together.
#ifndef DAT_LAUNCH
#define DAT_LAUNCH(kernel, blocks, threads, stream, ...) kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#define DAT_LAUNCH_BLOCKS(kernel, blocks, threads, stream, ...) kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#endif

namespace dat {

namespace {

constexpr int kThreads = 256;

// Before a loop: so many of its turns at once, whose loads then wait together. Host compilers do not know it.
#ifdef __CUDACC__
#define DAT_TURNS(count) _Pragma(#count)
#else
#define DAT_TURNS(count)
#endif

void check_launch() {
  const cudaError_t status = cudaGetLastError();
  require(status == cudaSuccess, ExitCode::device, "a CUDA kernel could not be started: ", cudaGetErrorString(status));
}

/// Device::when: the same for all threads.
__device__ inline bool stands_still(const double* when) { return when != nullptr && *when == 0; }

template <class F>
__global__ void __launch_bounds__(kThreads) each_kernel(std::int64_t n, F f, const double* when) {
  if (stands_still(when)) return;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) f(i);
}

/// Elements of a piece: 16 bytes.
template <class F>
constexpr int kPiece = 16 / sizeof(typename F::Element);

/// One thread per piece.
template <class F>
__global__ void __launch_bounds__(kThreads) each_piece_kernel(F f, const double* when) {
  if (stands_still(when)) return;
  const std::int64_t k = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (k * kPiece<F> < f.n) f.template piece<kPiece<F>>(k);
}

/// Launch that also makes the mask: a byte a piece, or a word that four threads put together.
template <class F>
__global__ void __launch_bounds__(kThreads) each_piece_and_mask_kernel(F f, const double* when) {
  if (stands_still(when)) return;
  constexpr int kPieces = kernels::kGroup / kPiece<F>;
  const std::int64_t k = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::uint32_t open = 0;
  if (k * kPiece<F> < f.n) open = f.template piece<kPiece<F>>(k);
  const bool inside = k / kPieces * kernels::kGroup < f.n;  // the word's group has elements
  if constexpr (kPieces == 2) {
    if (inside) reinterpret_cast<std::uint8_t*>(f.bits)[k] = static_cast<std::uint8_t>(open);
  } else {
    const unsigned place = threadIdx.x % kPieces;
    open <<= kPiece<F> * place;
    for (int lanes = 1; lanes < kPieces; lanes *= 2) open |= __shfl_xor_sync(0xffffffffU, open, lanes);
    if (inside && place == 0) f.bits[k / kPieces] = static_cast<std::uint16_t>(open);
  }
}

/// One block per chunk.
template <class F>
__global__ void __launch_bounds__(kThreads) each_chunk_kernel(const Chunk* chunks, F f, const double* when) {
  if (stands_still(when)) return;
  const Chunk chunk = chunks[blockIdx.x];
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < chunk.size; i += kThreads)
    f(chunk.segment, chunk.begin + i);
}

/// The sum over the threads of a block, in a fixed order; in thread 0.
__device__ inline Sums block_sum(Sums mine) {
  __shared__ double lane[kSums][kThreads];
  const int t = static_cast<int>(threadIdx.x);
  for (int j = 0; j < kSums; ++j) lane[j][t] = mine.v[j];
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half)
      for (int j = 0; j < kSums; ++j) lane[j][t] += lane[j][t + half];
  }
  Sums total;
  for (int j = 0; j < kSums; ++j) total.v[j] = lane[j][0];
  return total;
}

/// One block per chunk: partial[chunk] = sum of f.
template <class F>
__global__ void __launch_bounds__(kThreads)
    chunk_sum_kernel(const Chunk* chunks, F f, double* partial, const double* when) {
  if (stands_still(when)) return;
  const Chunk chunk = chunks[blockIdx.x];
  Sums mine;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < chunk.size; i += kThreads) {
    const Sums s = f(chunk.segment, chunk.begin + i);
    for (int j = 0; j < kSums; ++j) mine.v[j] += s.v[j];
  }
  const Sums total = block_sum(mine);
  if (threadIdx.x == 0)
    for (int j = 0; j < kSums; ++j) partial[std::int64_t{blockIdx.x} * kSums + j] = total.v[j];
}

/// The channels that a block of cuda_channel_sums() takes: a thread has one piece of a row, and the threads beside it
/// the next ones, of at most kTile bytes of a row; the threads after those have the rows below.
struct ChannelTiles {
  static constexpr int kTile = 128, kRows = 4;  // rows of a thread, at least: a block is worth its barriers
  int lanes, tiles, parts, rows_at_once;
  template <class F>
  explicit ChannelTiles(const F& f) {
    const int pieces = f.c / kPiece<F>, most = kTile / 16;
    tiles = (pieces + most - 1) / most;
    lanes = (pieces + tiles - 1) / tiles;
    rows_at_once = kThreads / lanes;
    const std::int64_t worth = std::int64_t{rows_at_once} * kRows, rows = (f.rows + worth - 1) / worth;
    const int room = ChannelRoom::kParts / tiles > 32 ? ChannelRoom::kParts / tiles : 32;
    parts = static_cast<int>(rows < room ? rows : room);
  }
};

/// Past the cache of this multiprocessor, which may hold what was there before. (__ldcg is not known to every
/// compiler.)
__device__ inline float written_by_others(const float* x) { return *static_cast<const volatile float*>(x); }

/// A block adds up its rows, and the last one of a tile the parts.
template <class F>
__global__ void __launch_bounds__(kThreads)
    channel_sums_kernel(F f, ChannelTiles tile_of, ChannelRoom room, const double* when) {
  if (stands_still(when)) return;
  constexpr int N = kPiece<F>;
  __shared__ float mine[2][kThreads * N];
  __shared__ double total[2][kThreads];
  __shared__ bool last;
  const int t = static_cast<int>(threadIdx.x), lanes = tile_of.lanes, rows_at_once = tile_of.rows_at_once,
            tile = static_cast<int>(blockIdx.x) % tile_of.tiles, part = static_cast<int>(blockIdx.x) / tile_of.tiles,
            pieces = f.c / N, piece = tile * lanes + t % lanes;
  kernels::Piece<N> first{}, second{};
  if (t < rows_at_once * lanes && piece < pieces) {
    const std::int64_t step = std::int64_t{tile_of.parts} * rows_at_once;
    DAT_TURNS(unroll 4)
    for (std::int64_t row = std::int64_t{part} * rows_at_once + t / lanes; row < f.rows; row += step)
      f.add(row * pieces + piece, first, second);
  }
  for (int j = 0; j < N; ++j) {
    mine[0][t * N + j] = first.v[j];
    mine[1][t * N + j] = second.v[j];
  }
  __syncthreads();
  // One thread a column: a channel's first or second sum.
  const int width = lanes * N, begin = tile * width, columns = begin + width < f.c ? width : f.c - begin;
  for (int column = t; column < 2 * columns; column += kThreads) {
    const int which = column / columns, channel = column % columns;
    float sum = 0;
    for (int row = 0; row < rows_at_once; ++row) sum += mine[which][row * width + channel];
    room.partial[(std::int64_t{part} * 2 + which) * f.c + begin + channel] = sum;
  }
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicAdd(room.counters + tile, 1U) == static_cast<unsigned>(tile_of.parts) - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  const int groups = kThreads / width, group = t / width, channel = t % width;
  double sums[2] = {0, 0};
  if (group < groups && channel < columns) DAT_TURNS(unroll 8)
  for (int k = group; k < tile_of.parts; k += groups)
    for (int j = 0; j < 2; ++j)
      sums[j] += double(written_by_others(room.partial + (std::int64_t{k} * 2 + j) * f.c + begin + channel));
  for (int j = 0; j < 2; ++j) total[j][t] = sums[j];
  __syncthreads();
  if (t == 0) room.counters[tile] = 0;
  if (group > 0 || channel >= columns) return;
  for (int k = 1; k < groups; ++k)
    for (int j = 0; j < 2; ++j) sums[j] += total[j][k * width + channel];
  f.finish(begin + channel, sums[0], sums[1]);
}

/// One block per segment: out[segment] = sum of the partial sums of its chunks.
__global__ void __launch_bounds__(kThreads) segment_sum_kernel(const std::int32_t* first, std::int32_t origin,
                                                               const double* partial, double* out, const double* when) {
  if (stands_still(when)) return;
  Sums mine;
  for (std::int32_t k = first[blockIdx.x] - origin + static_cast<std::int32_t>(threadIdx.x);
       k < first[blockIdx.x + 1] - origin; k += kThreads)
    for (int j = 0; j < kSums; ++j) mine.v[j] += partial[std::int64_t{k} * kSums + j];
  const Sums total = block_sum(mine);
  if (threadIdx.x == 0)
    for (int j = 0; j < kSums; ++j) out[std::int64_t{blockIdx.x} * kSums + j] = total.v[j];
}

}  // namespace

template <class F>
void cuda_each(const Device& device, std::int64_t n, const F& f) {
  if (n == 0) return;
  const auto queue = static_cast<cudaStream_t>(device.stream);
  const auto blocks = [](std::int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); };
  if constexpr (kernels::ByPieces<F>) {
    const unsigned count = blocks(n * (kernels::kGroup / kPiece<F>));
    if constexpr (kernels::MaskWriter<F>)
      if (f.bits != nullptr) {
        const auto kernel = each_piece_and_mask_kernel<F>;
        DAT_LAUNCH_BLOCKS(kernel, count, kThreads, queue, f, device.when);
        return check_launch();
      }
    const auto kernel = each_piece_kernel<F>;
    DAT_LAUNCH(kernel, count, kThreads, queue, f, device.when);
  } else {
    const auto kernel = each_kernel<F>;
    DAT_LAUNCH(kernel, blocks(n), kThreads, queue, n, f, device.when);
  }
  check_launch();
}

template <class F>
void cuda_each_chunk(const Device& device, const Chunks& chunks, const F& f) {
  if (chunks.count == 0) return;
  const auto kernel = each_chunk_kernel<F>;
  DAT_LAUNCH(kernel, static_cast<unsigned>(chunks.count), kThreads, static_cast<cudaStream_t>(device.stream),
             chunks.data, f, device.when);
  check_launch();
}

template <class F>
void cuda_sum(const Device& device, const Chunks& chunks, const F& f, double* partial, double* out) {
  const auto queue = static_cast<cudaStream_t>(device.stream);
  if (chunks.count > 0) {
    const auto kernel = chunk_sum_kernel<F>;
    DAT_LAUNCH_BLOCKS(kernel, static_cast<unsigned>(chunks.count), kThreads, queue, chunks.data, f, partial,
                      device.when);
  }
  const auto kernel = segment_sum_kernel;
  DAT_LAUNCH_BLOCKS(kernel, static_cast<unsigned>(chunks.segments), kThreads, queue, chunks.first, chunks.origin,
                    partial, out, device.when);
  check_launch();
}

template <class F>
void cuda_channel_sums(const Device& device, const F& f, const ChannelRoom& room) {
  const ChannelTiles tiles(f);
  const auto kernel = channel_sums_kernel<F>;
  DAT_LAUNCH_BLOCKS(kernel, static_cast<unsigned>(tiles.tiles * tiles.parts), kThreads,
                    static_cast<cudaStream_t>(device.stream), f, tiles, room, device.when);
  check_launch();
}

#define DAT_EACH(F) template void cuda_each<kernels::F>(const Device&, std::int64_t, const kernels::F&);
#define DAT_EACH_CHUNK(F) template void cuda_each_chunk<kernels::F>(const Device&, const Chunks&, const kernels::F&);
#define DAT_SUM(F) \
  template void cuda_sum<kernels::F>(const Device&, const Chunks&, const kernels::F&, double*, double*);
#define DAT_CHANNEL_SUMS(F) \
  template void cuda_channel_sums<kernels::F>(const Device&, const kernels::F&, const ChannelRoom&);
#include "kernels.def"

}  // namespace dat
