#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dat/backend.hpp"

/// Laws are written once and checked on the device that $DAT_TEST_DEVICE names: the CPU where it is not set. Those that
/// speak of the CPU alone bear the tag [cpu].
namespace dat::test {

[[nodiscard]] inline std::string test_device() {
  const char* name = std::getenv("DAT_TEST_DEVICE");
  return name != nullptr ? name : "cpu";
}

/// In exact f32, what the tolerances are derived for; and, where bits are compared, with the same bits in every call.
[[nodiscard]] inline std::unique_ptr<Backend> test_backend(int threads = 2, bool deterministic = true,
                                                           const std::string& math = "f32") {
  return make_backend({.device = test_device(), .threads = threads, .math = math, .deterministic = deterministic});
}

/// How many cases of a law, whose calls are many and small: on a GPU each is waited for. DAT_ALL_CASES: as many as on a
/// CPU.
[[nodiscard]] inline int cases(int on_a_cpu, int on_a_gpu) {
  return test_device() == "cpu" || std::getenv("DAT_ALL_CASES") != nullptr ? on_a_cpu : on_a_gpu;
}

/// So many of the cases, drawn by DAT_SEED, which is printed (1, if nobody says otherwise); all of them with
/// DAT_ALL_CASES.
template <class T>
[[nodiscard]] std::vector<T> drawn(std::vector<T> all, std::size_t by_day) {
  if (std::getenv("DAT_ALL_CASES") != nullptr || all.size() <= by_day) return all;
  const char* const given = std::getenv("DAT_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  std::printf("%zu of %zu cases, drawn by DAT_SEED=%ju\n", by_day, all.size(), std::uintmax_t{seed});
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(by_day);
  return all;
}

/// Whether the device multiplies in bf16 by --math; a CPU with AMX does.
[[nodiscard]] inline bool has_bf16_math() { return test_device() == "cpu" && has_amx(); }

/// One backend for all tests of single kernels.
[[nodiscard]] inline Backend& kernel_backend() {
  static const std::unique_ptr<Backend> backend = test_backend();
  return *backend;
}

/// A kernel, and its end.
template <class N, class F>
void run(const N& n, const F& f) {
  each(kernel_backend().device(), n, f);
  kernel_backend().wait();
}

/// f(n, y, x, c) for each number of some images.
template <class Layout, class F>
void for_each_pixel(std::int64_t images, const Layout& layout, const F& f) {
  for (std::int64_t n = 0; n < images; ++n)
    for (int y = 0; y < layout.h; ++y)
      for (int x = 0; x < layout.w; ++x)
        for (int c = 0; c < layout.c; ++c) f(n, y, x, c);
}

/// Memory that the host and the device both reach by the same address, once the device has been waited for.
template <class T>
struct Visible {
  using value_type = T;
  Visible() = default;
  template <class U>
  Visible(const Visible<U>&) {}  // NOLINT: allocators convert
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(kernel_backend().allocate_pinned(n * sizeof(T), "test"));
  }
  void deallocate(T*, std::size_t) {}  // the backend's
  friend bool operator==(const Visible&, const Visible&) { return true; }
};
template <class T>
using Shared = std::vector<T, Visible<T>>;

template <class T>
[[nodiscard]] Shared<T> shared(const std::vector<T>& values) {
  return Shared<T>(values.begin(), values.end());
}

}  // namespace dat::test
