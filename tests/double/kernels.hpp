#pragma once

// Kernels compiled by g++: the launch macros of kernels/cuda.cu, and what a kernel finds on a device. __shared__ memory
// is static, dynamic shared memory is not there, and shuffles need all threads of their warp.

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "double.hpp"

namespace dat_double {

extern constinit thread_local uint3 thread_index, block_index;
extern thread_local dim3 block_dim, grid_dim;

/// Sets the thread's error and returns false for an empty grid; ends the program for one beyond the limits.
bool check_grid(std::int64_t blocks, std::int64_t threads);

/// `thread` for every thread: of independent threads in any order; or the threads of a block together, as fibers.
void run_threads(unsigned blocks, unsigned threads, const std::function<void()>& thread);
void run_blocks(unsigned blocks, unsigned threads, const std::function<void()>& thread);

/// Waits for the other threads of the block.
void sync_threads();
/// Gives `value` to the warp, and takes that of the lane whose number differs in these bits.
void exchange(unsigned mask, void* value, std::size_t bytes, int lanes);

/// The functor among the arguments' types; "sums" for none.
template <class... P>
std::string_view name_of() {
  static const std::string name = [] {
    const char* const mangled = typeid(void (*)(P...)).name();
    std::string whole = abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr);
    const std::string before = "dat::kernels::";
    const std::size_t at = whole.find(before);
    if (at == std::string::npos) return std::string("sums");
    whole.erase(0, at + before.size());
    return whole.substr(0, whole.find_first_of("<,)"));
  }();
  return name;
}

template <class... P, class... A>
void launch(decltype(&run_threads) run, void (*kernel)(P...), std::int64_t blocks, std::int64_t threads,
            cudaStream_t stream, const A&... arguments) {
  if (!check_grid(blocks, threads)) return;
  std::tuple<std::decay_t<P>...> copy{static_cast<std::decay_t<P>>(arguments)...};
  const auto check = [](auto& argument) {
    __builtin_clear_padding(&argument);  // or what lay there before looks like an address
    check_arguments(&argument, sizeof argument);
  };
  std::apply([&](auto&... all) { (check(all), ...); }, copy);
  enqueue(
      stream,
      [=] { run(static_cast<unsigned>(blocks), static_cast<unsigned>(threads), [&] { std::apply(kernel, copy); }); },
      name_of<P...>(), {});
}

}  // namespace dat_double

#define DAT_LAUNCH(kernel, blocks, threads, stream, ...) \
  dat_double::launch(dat_double::run_threads, kernel, blocks, threads, stream __VA_OPT__(, ) __VA_ARGS__)
#define DAT_LAUNCH_BLOCKS(kernel, blocks, threads, stream, ...) \
  dat_double::launch(dat_double::run_blocks, kernel, blocks, threads, stream __VA_OPT__(, ) __VA_ARGS__)

#undef __shared__
#define __shared__ static
#define __launch_bounds__(...)
#define threadIdx dat_double::thread_index
#define blockIdx dat_double::block_index
#define blockDim dat_double::block_dim
#define gridDim dat_double::grid_dim

inline void __syncthreads() { dat_double::sync_threads(); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  dat_double::exchange(mask, &value, sizeof value, lanes);
  return value;
}
template <class T>
T atomicAdd(T* to, T value) {
  return std::atomic_ref<T>(*to).fetch_add(value);
}
inline void __threadfence() {}
