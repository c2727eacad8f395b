#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "dat/backend.hpp"
#include "dat/parameters.hpp"

/// Numbers for tests: the same at every run, and their way to a device and back.
namespace dat::test {

/// Uniform in [low, high).
[[nodiscard]] inline std::vector<float> random_values(std::int64_t count, std::uint32_t seed, float low = -1,
                                                      float high = 1) {
  std::mt19937 words(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = low + (high - low) * (static_cast<float>(words() >> 8) * 0x1p-24F);
  return values;
}

/// Each layer takes part with this probability, with a scale above 1.
[[nodiscard]] inline ActiveSet random_active(int layers, std::uint32_t seed, float probability) {
  ActiveSet active{random_values(layers, seed, 0, 1)};
  for (float& s : active.scale) s = s < probability ? 1 + s : 0.0F;
  return active;
}

/// The larger one; infinite, once an error is NaN.
[[nodiscard]] inline double worse(double worst, double error) {
  return std::isnan(error) ? HUGE_VAL : std::max(worst, error);
}

/// |a - b| / |b|.
template <class A, class B>
[[nodiscard]] double relative_l2(const A& a, const B& b) {
  double top = 0, bottom = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    top += std::pow(double(a[i]) - double(b[i]), 2);
    bottom += std::pow(double(b[i]), 2);
  }
  return std::sqrt(top / bottom);
}

template <class T>
[[nodiscard]] T* to_device(Backend& backend, const std::vector<T>& values) {
  auto* device = static_cast<T*>(backend.allocate(values.size() * sizeof(T), "test"));
  backend.copy_to_device(device, values.data(), values.size() * sizeof(T));
  return device;
}

template <class T>
[[nodiscard]] std::vector<T> to_host(Backend& backend, const T* device, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  backend.wait();
  backend.copy_to_host(values.data(), device, values.size() * sizeof(T));
  return values;
}

}  // namespace dat::test
