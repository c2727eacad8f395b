#include "measure/ceilings.hpp"

#include <cmath>

#include "all.hpp"
#include "dat/error.hpp"
#include "measure/repeat.hpp"

namespace dat {

namespace {

template <int kLanes>
struct Lanes;
template <>
struct Lanes<4> {
  typedef float Vector __attribute__((vector_size(16)));
};
template <>
struct Lanes<8> {
  typedef float Vector __attribute__((vector_size(32)));
};
template <>
struct Lanes<16> {
  typedef float Vector __attribute__((vector_size(64)));
};

/// Vectors that stay in registers: enough of them to hide the latency, few enough to fit.
constexpr int kChains = 12;

/// `rounds` multiply-adds in each lane of each chain. Returns something that depends on all of them.
template <int kLanes>
[[gnu::always_inline]] inline float multiply_add(std::int64_t rounds, float factor) {
  using Vector = typename Lanes<kLanes>::Vector;
  const Vector a = Vector{} + factor, b = Vector{} + 1e-3F;
  Vector chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = Vector{} + static_cast<float>(c);
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = chains[c] * a + b;
  Vector sum{};
  for (int c = 0; c < kChains; ++c) sum += chains[c];
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

/// Multiply-adds in the widest registers there are, found at run time as the libraries do.
struct MultiplyAdd {
  int lanes;
  const char* name;
  float (*run)(std::int64_t rounds, float factor);
};
#ifdef __x86_64__
[[gnu::target("avx512f")]] float multiply_add_512(std::int64_t rounds, float factor) {
  return multiply_add<16>(rounds, factor);
}
[[gnu::target("avx2,fma")]] float multiply_add_256(std::int64_t rounds, float factor) {
  return multiply_add<8>(rounds, factor);
}
#endif
float multiply_add_128(std::int64_t rounds, float factor) { return multiply_add<4>(rounds, factor); }

[[nodiscard]] MultiplyAdd widest_multiply_add() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return {16, "AVX-512", multiply_add_512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {8, "AVX2", multiply_add_256};
#endif
  return {4, "128 bits", multiply_add_128};
}

}  // namespace

std::vector<Ceiling> measure_ceilings(const BackendOptions& options, double seconds) {
  const auto backend = make_backend(options);
  const Device device = backend->device();
  const bool gpu = device.kind == DeviceKind::cuda;
  const Effort effort{.seconds = seconds / 4, .least = 3, .most = 200};
  // `work`: 10^6 operations or bytes of a run; per millisecond that is 10^9 a second.
  const auto ceiling = [](const std::string& name, const std::string& unit, double work, const Sample& sample,
                          const std::string& note) -> Ceiling {
    return {name, unit, work / sample.median, work / sample.least, note};
  };
  std::vector<Ceiling> all;

  if (gpu) {
    all.push_back({"FMA in registers", "GFLOP/s", 0, 0, "not measured on a GPU"});
  } else {
    constexpr std::int64_t kRounds = 1 << 21;
    const MultiplyAdd fma = widest_multiply_add();
    float result = 0;
    const Sample sample = repeat(effort, [&] {
#pragma omp parallel num_threads(options.threads) reduction(+ : result)
      result += fma.run(kRounds, 0.5F);
    });
    require(std::isfinite(result), ExitCode::numerical, "FMA in registers gives ", result);
    all.push_back(ceiling("FMA in registers", "GFLOP/s", 2e-6 * kRounds * kChains * fma.lanes * options.threads, sample,
                          fma.name));
  }

  // Arrays that no cache holds.
  const std::int64_t elements = gpu ? 1LL << 26 : std::max<std::int64_t>(1 << 24, std::int64_t{options.threads} << 21);
  float *a = backend->allocate_floats(elements, "arrays"), *b = backend->allocate_floats(elements, "arrays"),
        *c = backend->allocate_floats(elements, "arrays");
  const std::string size = "arrays of " + std::to_string(elements * 4 >> 20) + " MiB";
  const auto bandwidth = [&](const std::string& name, int arrays, const float* second) {
    const Sample sample = repeat(effort, [&] {
      each(device, kernels::groups(elements), kernels::Add<float>{a, second, c, elements});
      backend->wait();
    });
    all.push_back(ceiling(name, "GB/s", 4e-6 * arrays * static_cast<double>(elements), sample, size));
  };
  bandwidth("memory, y = a", 2, nullptr);
  bandwidth("memory, y = a + b", 3, b);

  const int n = gpu ? 8192 : 2048;
  const auto product = backend->linear(n, n, n);
  backend->commit_workspace();
  const Sample sample = repeat(effort, [&] {
    product->backward_data(a, b, c);
    backend->wait();
  });
  all.push_back(ceiling("matrix product", "GFLOP/s", 2e-6 * n * double(n) * n, sample, std::to_string(n) + " squared"));
  return all;
}

}  // namespace dat
