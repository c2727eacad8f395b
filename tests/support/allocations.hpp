#pragma once

#include <dlfcn.h>

#include <new>

#include "catch.hpp"

/// Calls of operator new in this program so far, on all threads. A test that wants none should first see that the
/// counter moves. The operators are weak so that several test files of one program may include this.
inline std::atomic<std::int64_t> allocations{0};
/// Bytes that these calls asked for.
inline std::atomic<std::size_t> allocated_bytes{0};

/// Set: calls that oneDNN's own code makes are not counted. It builds a small argument list for every primitive that it
/// executes, which no caller can prevent.
inline std::atomic<bool> ignore_library_allocations{false};

inline void count_allocation(const void* caller, std::size_t bytes) {
  Dl_info info;
  if (ignore_library_allocations && dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
      std::strstr(info.dli_fname, "libdnnl") != nullptr)
    return;
  ++allocations;
  allocated_bytes += bytes;
}

// Not inlined: the compiler would take the pair of malloc and delete for a mistake.
#define DAT_REPLACEMENT __attribute__((weak, noinline))

DAT_REPLACEMENT void* operator new(std::size_t bytes) {
  count_allocation(__builtin_return_address(0), bytes);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
DAT_REPLACEMENT void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  count_allocation(__builtin_return_address(0), bytes);
  return std::malloc(bytes > 0 ? bytes : 1);
}
DAT_REPLACEMENT void* operator new(std::size_t bytes, std::align_val_t alignment) {
  count_allocation(__builtin_return_address(0), bytes);
  const auto a = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return memory;
  throw std::bad_alloc();
}
DAT_REPLACEMENT void operator delete(void* memory) noexcept { std::free(memory); }
DAT_REPLACEMENT void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
DAT_REPLACEMENT void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
DAT_REPLACEMENT void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
DAT_REPLACEMENT void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#undef DAT_REPLACEMENT

/// Of this program, not of oneDNN, in so many calls.
template <class F>
[[nodiscard]] std::int64_t allocations_in(int calls, const F& f) {
  ignore_library_allocations = true;
  const std::int64_t before = allocations;
  for (int k = 0; k < calls; ++k) f();
  const std::int64_t during = allocations - before;
  ignore_library_allocations = false;
  return during;
}

/// Of two steps of a case's reducer after a first one; the first and the last reduce `layers`.
template <class Case, class Reducer, class Layers>
[[nodiscard]] std::int64_t allocations_in_steps(Case& all, Reducer& reducer, const Layers& layers,
                                                const Layers& others) {
  all.run(reducer, layers, 0);
  const std::int64_t before = allocations;
  all.run(reducer, others, 1);
  all.run(reducer, layers, 2);
  return allocations - before;
}
