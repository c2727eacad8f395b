#include <omp.h>

#include <algorithm>
#include <cmath>

#include "all.hpp"
#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::kernels;
using namespace dat::test;

namespace {

/// One rounding to float.
constexpr double kUnit = 0x1p-24;

[[nodiscard]] Shared<float> shared_random(std::int64_t count, std::uint32_t seed, float low = -1, float high = 1) {
  return shared(random_values(count, seed, low, high));
}

struct Case {
  Layout layout;
  int n;
};

/// All kinds of layout; sizes that are no multiple of 16 where the block allows it.
std::vector<Case> cases() {
  return {{{7, 5, 3, 1}, 3},   {{3, 5, 5, 1}, 1},   {{7, 5, 3, 7}, 3},   {{24, 3, 3, 8}, 1},
          {{32, 3, 5, 16}, 3}, {{48, 3, 5, 16}, 1}, {{48, 3, 5, 48}, 2}, {{16, 8, 9, 1}, 20}};
}

/// Random inputs of one case on the host; results come back through the same vectors.
struct Fixture {
  explicit Fixture(const Case& c)
      : layout(c.layout),
        n(c.n * c.layout.elements()),
        a(shared_random(n, 1)),
        b(shared_random(n, 2)),
        per_channel(shared_random(layout.c, 3)),
        shift(shared_random(layout.c, 4)),
        out(shared_random(n, 5)),
        before(out),
        bits(static_cast<std::size_t>(groups(n))) {
    for (std::int64_t g = 0; g < groups(n); ++g)
      bits[static_cast<std::size_t>(g)] = static_cast<std::uint16_t>(40503 * (g + 1));
  }

  [[nodiscard]] bool open(std::int64_t i) const {
    return (bits[static_cast<std::size_t>(i / kGroup)] >> (i % kGroup) & 1) != 0;
  }

  /// Each element of `out` against reference(i), to `roundings` roundings of size(i).
  template <class Reference, class Size>
  void check(Reference reference, Size size, double roundings) const {
    for (std::int64_t i = 0; i < n; ++i) {
      INFO("element " << i << " of " << layout.c << "x" << layout.h << "x" << layout.w << ", block " << layout.block);
      REQUIRE(std::abs(out[static_cast<std::size_t>(i)] - double(reference(i))) <= roundings * kUnit * double(size(i)));
    }
  }
  /// The result of a single float operation is the double result, rounded.
  template <class Reference>
  void check_exact(Reference reference) const {
    for (std::int64_t i = 0; i < n; ++i) {
      INFO("element " << i << " of " << layout.c << "x" << layout.h << "x" << layout.w << ", block " << layout.block);
      REQUIRE(out[static_cast<std::size_t>(i)] == static_cast<float>(reference(i)));
    }
  }

  Layout layout;
  std::int64_t n;
  Shared<float> a, b, per_channel, shift, out, before;
  Shared<std::uint16_t> bits;
};

/// A kernel, and its end.
template <class F>
void run(std::int64_t n, const F& f) {
  each(kernel_backend().device(), n, f);
  kernel_backend().wait();
}

double at(const Shared<float>& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }

}  // namespace

TEST_CASE("A layout gives each element of each channel a place of its own", "[kernels]") {
  for (const auto& [layout, n] : cases()) {
    std::vector<bool> taken(static_cast<std::size_t>(n * layout.elements()), false);
    for (int k = 0; k < n; ++k)
      for (int c = 0; c < layout.c; ++c)
        for (int y = 0; y < layout.h; ++y)
          for (int x = 0; x < layout.w; ++x) {
            const std::int64_t place = layout.offset(k, c, y, x);
            REQUIRE((place >= k * layout.elements() && place < (k + 1) * layout.elements()));
            REQUIRE(!taken[static_cast<std::size_t>(place)]);
            taken[static_cast<std::size_t>(place)] = true;
            REQUIRE(layout.channel(place) == c);
          }
  }
}

TEST_CASE("ReLU, its masks and its gradients, on any number of elements", "[kernels]") {
  for (const Case& c : cases()) {
    Fixture f(c);
    std::fill(f.a.begin(), f.a.begin() + 3, 0.0F);
    const Shared<std::uint16_t> random_bits = f.bits;

    run(groups(f.n), MaskFromRelu<float>{f.a.data(), f.bits.data(), f.n});
    for (std::int64_t i = 0; i < groups(f.n) * kGroup; ++i) REQUIRE(f.open(i) == (i < f.n && at(f.a, i) > 0));

    f.bits = random_bits;
    run(groups(f.n), MaskGradient<float>{f.a.data(), nullptr, f.bits.data(), f.out.data(), f.n});
    f.check_exact([&](auto i) { return f.open(i) ? at(f.a, i) : 0; });
    run(groups(f.n), MaskGradient<float>{f.a.data(), f.b.data(), f.bits.data(), f.out.data(), f.n});
    f.check_exact([&](auto i) { return f.open(i) ? at(f.a, i) + at(f.b, i) : 0; });
    f.out = f.a;
    run(groups(f.n), MaskGradient<float>{f.out.data(), f.b.data(), f.bits.data(), f.out.data(), f.n});
    f.check_exact([&](auto i) { return f.open(i) ? at(f.a, i) + at(f.b, i) : 0; });

    run(groups(f.n), ReluGradient{f.a.data(), f.b.data(), f.out.data(), f.n});
    f.check_exact([&](auto i) { return at(f.a, i) > 0 ? at(f.b, i) : 0; });
  }
}

TEST_CASE("Sums of activations, with and without ReLU", "[kernels]") {
  for (const Case& c : cases()) {
    Fixture f(c);
    run(groups(f.n), Add<float>{f.a.data(), f.b.data(), f.out.data(), f.n});
    f.check_exact([&](auto i) { return at(f.a, i) + at(f.b, i); });
    run(groups(f.n), Add<float>{f.a.data(), nullptr, f.out.data(), f.n});
    f.check_exact([&](auto i) { return at(f.a, i); });
    run(groups(f.n), Add<float>{f.a.data(), f.b.data(), f.out.data(), f.n, true});
    f.check_exact([&](auto i) { return std::max(at(f.a, i) + at(f.b, i), 0.0); });
    run(groups(f.n), Add<float>{f.a.data(), nullptr, f.out.data(), f.n, true});
    f.check_exact([&](auto i) { return std::max(at(f.a, i), 0.0); });
    run(f.n, Scale{f.a.data(), f.out.data(), 0.3F, false});
    f.check_exact([&](auto i) { return double(0.3F) * at(f.a, i); });
    f.out = f.before;
    run(f.n, Scale{f.a.data(), f.out.data(), 0.3F, true});
    f.check([&](auto i) { return at(f.before, i) + double(0.3F) * at(f.a, i); }, [](auto) { return 2; }, 2);
  }
}

TEST_CASE("The affine map takes each channel's own scale and shift in every layout", "[kernels]") {
  for (const Case& c : cases())
    for (const bool relu : {false, true}) {
      Fixture f(c);
      const auto affine = [&](std::int64_t i) {
        const int channel = f.layout.channel(i);
        const double y = at(f.a, i) * at(f.per_channel, channel) + at(f.shift, channel);
        return relu ? std::max(y, 0.0) : y;
      };
      run(groups(f.n), AffineRelu<float>{f.a.data(), f.per_channel.data(), f.shift.data(), f.out.data(), f.bits.data(),
                                         f.layout, f.n, relu});
      // A product below 1, a sum below 2: three roundings of half a unit in the last place of at most 2.
      f.check(
          affine, [](auto) { return 2; }, 2);
      if (relu)
        for (std::int64_t i = 0; i < f.n; ++i) REQUIRE(f.open(i) == (at(f.out, i) > 0));

      run(groups(f.n), AffineRelu<float>{f.a.data(), nullptr, nullptr, f.out.data(), nullptr, f.layout, f.n, relu});
      f.check_exact([&](auto i) { return relu ? std::max(at(f.a, i), 0.0) : at(f.a, i); });
    }
}

TEST_CASE("The gradient of the affine map, with every choice of what is given", "[kernels]") {
  for (const Case& c : cases())
    for (int choice = 0; choice < 16; ++choice) {
      Fixture f(c);
      const bool extra = (choice & 1) != 0, scale = (choice & 2) != 0, mask = (choice & 4) != 0,
                 add = (choice & 8) != 0;
      run(groups(f.n),
          AffineReluGradient<float>{f.a.data(), extra ? f.b.data() : nullptr, scale ? f.per_channel.data() : nullptr,
                                    mask ? f.bits.data() : nullptr, f.out.data(), f.layout, f.n, add});
      f.check(
          [&](auto i) {
            double d = at(f.a, i) + (extra ? at(f.b, i) : 0);
            if (mask && !f.open(i)) d = 0;
            if (scale) d *= at(f.per_channel, f.layout.channel(i));
            return d + (add ? at(f.before, i) : 0);
          },
          [](auto) { return 3; }, 3);
    }
}

TEST_CASE("The average pool and its gradient, in every layout", "[kernels]") {
  for (const auto& [layout, n] : cases()) {
    Fixture f({layout, n});
    const int pixels = layout.h * layout.w;
    Shared<float> pooled(static_cast<std::size_t>(n * layout.c));
    run(n * layout.c, PoolForward<float>{f.a.data(), pooled.data(), layout});
    for (int k = 0; k < n; ++k)
      for (int c = 0; c < layout.c; ++c) {
        double total = 0;
        for (int y = 0; y < layout.h; ++y)
          for (int x = 0; x < layout.w; ++x) total += at(f.a, layout.offset(k, c, y, x));
        // Partial sums of p numbers below 1 are below p: p roundings of at most p, divided by p.
        REQUIRE(std::abs(at(pooled, k * layout.c + c) - total / pixels) <= kUnit * (pixels + 1));
      }
    run(f.n, PoolBackward<float>{pooled.data(), f.out.data(), layout});
    f.check_exact(
        [&](auto i) { return at(pooled, i / f.layout.elements() * f.layout.c + f.layout.channel(i)) / pixels; });
  }
}

TEST_CASE("Batch norm folds into a scale and a shift", "[kernels]") {
  constexpr int kChannels = 37;
  const auto gamma = shared_random(kChannels, 1), beta = shared_random(kChannels, 2),
             mean = shared_random(kChannels, 3), variance = shared_random(kChannels, 4, 0, 2);
  Shared<float> scale(kChannels), shift(kChannels), running = mean;
  run(kChannels, FoldNorm{gamma.data(), beta.data(), mean.data(), variance.data(), scale.data(), shift.data(), 1e-5F});
  run(kChannels, RunningStatistic{variance.data(), running.data(), 0.1F});
  for (int c = 0; c < kChannels; ++c) {
    const double s = at(gamma, c) / std::sqrt(at(variance, c) + double(1e-5F));
    CHECK(std::abs(at(scale, c) - s) <= 4 * kUnit * std::abs(s));
    CHECK(std::abs(at(shift, c) - (at(beta, c) - at(mean, c) * s)) <= kUnit * (2 + 6 * std::abs(s)));
    CHECK(std::abs(at(running, c) - (0.9 * at(mean, c) + 0.1 * at(variance, c))) <= 4 * kUnit);
  }
}

TEST_CASE("Softmax cross-entropy agrees with double precision, for large logits too", "[kernels]") {
  for (const int classes : {2, 10, 37, 256})
    for (const float range : {1.0F, 20.0F, 1e4F}) {
      constexpr int kSamples = 21;
      const float scale = 0.25F;
      auto logits = shared_random(kSamples * classes, 1, -range, range);
      std::fill_n(logits.begin(), classes, range);  // equal logits: the first counts as the largest
      Shared<std::int32_t> labels;
      for (int i = 0; i < kSamples; ++i) labels.push_back(i == 0 ? 0 : i == 1 ? classes - 1 : 7 * i % classes);
      Shared<float> loss(kSamples), correct(kSamples), gradient(logits.size());
      run(kSamples, SoftmaxCrossEntropy{logits.data(), labels.data(), loss.data(), correct.data(), gradient.data(),
                                        classes, scale});
      int right = 0;
      for (int i = 0; i < kSamples; ++i) {
        const float* z = logits.data() + i * classes;
        const float* best = std::max_element(z, z + classes);
        double total = 0;
        for (int k = 0; k < classes; ++k) total += std::exp(double(z[k]) - *best);
        const int label = labels[static_cast<std::size_t>(i)];
        const double margin = double(*best) - z[label];
        // A sum of `classes` exponentials, each good to a few roundings, and one rounding of the margin.
        CHECK(std::abs(at(loss, i) - (std::log(total) + margin)) <= 2 * kUnit * (classes + 4 + margin));
        CHECK(at(correct, i) == (best - z == label ? 1 : 0));
        right += at(correct, i) == 1;
        for (int k = 0; k < classes; ++k) {
          const double expected = scale * (std::exp(double(z[k]) - *best) / total - (k == label ? 1 : 0));
          REQUIRE(std::abs(at(gradient, i * classes + k) - expected) <= 2 * kUnit * scale * (classes + 4));
        }
      }
      CHECK((right >= 1 && right < kSamples));

      const Shared<float> first = loss;
      run(kSamples,
          SoftmaxCrossEntropy{logits.data(), labels.data(), loss.data(), correct.data(), nullptr, classes, scale});
      CHECK(loss == first);
    }
}

TEST_CASE("Sums over chunks agree with double precision and have the same bits at any number of threads", "[kernels]") {
  // Segments of one element, of odd sizes, of several chunks, one without any.
  const std::vector<std::int64_t> sizes = {1, 15, 17, kChunk - 1, 0, 2 * kChunk + 5, 1000};
  Shared<Chunk> chunks;
  std::int64_t begin = 0;
  std::vector<std::int64_t> begins;
  Shared<std::int32_t> first = {0};
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    begins.push_back(begin);
    for (std::int64_t done = 0; done < sizes[s]; done += kChunk)
      chunks.push_back({begin + done, static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, sizes[s] - done)),
                        static_cast<std::int32_t>(s)});
    begin += sizes[s] + 3;
    first.push_back(static_cast<std::int32_t>(chunks.size()));
  }
  const auto x = shared_random(begin, 1);
  const auto segments = static_cast<int>(sizes.size());
  Shared<double> partial(chunks.size() * kSums);
  std::vector<Shared<double>> results;
  const int threads_before = omp_get_max_threads();
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    Shared<double>& out = results.emplace_back(sizes.size() * kSums, -1.0);
    sum(kernel_backend().device(),
        Chunks{chunks.data(), first.data(), static_cast<std::int32_t>(chunks.size()), segments}, SquaredNorm{x.data()},
        partial.data(), out.data());
    kernel_backend().wait();
  }
  omp_set_num_threads(threads_before);
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    double expected = 0;
    for (std::int64_t i = begins[s]; i < begins[s] + sizes[s]; ++i) expected += at(x, i) * at(x, i);
    CHECK(std::abs(results[0][s * kSums] - expected) <= double(sizes[s]) * 0x1p-53 * expected);
    CHECK(results[0][s * kSums + 1] == 0);
  }
}

TEST_CASE("Augmentation is a cut from the zero-padded image, then a mirror image, then a division by 255",
          "[kernels]") {
  constexpr int kPad = 4, kSize = 7, kPadded = kSize + 2 * kPad;
  for (const int channels : {1, 3}) {
    Shared<Crop> crops;
    for (int top = -kPad; top <= kPad; ++top)
      for (int left = -kPad; left <= kPad; ++left)
        for (const int flip : {0, 1})
          crops.push_back(
              {static_cast<std::int8_t>(top), static_cast<std::int8_t>(left), static_cast<std::int8_t>(flip)});
    const auto n = static_cast<std::int64_t>(crops.size());
    Shared<std::uint8_t> pixels;
    for (const float v : shared_random(n * kSize * kSize * channels, 1, 0, 256))
      pixels.push_back(static_cast<std::uint8_t>(v));
    for (const int block : {1, channels}) {
      const Layout layout{channels, kSize, kSize, block};
      Shared<float> x(pixels.size(), -1.0F);
      run(n * kSize * kSize, Augment{pixels.data(), nullptr, crops.data(), x.data(), layout});
      for (std::int64_t k = 0; k < n; ++k) {
        std::vector<double> padded(kPadded * kPadded * static_cast<std::size_t>(channels), 0.0);
        const auto index = [&](int y, int column, int c) {
          return static_cast<std::size_t>((y * kPadded + column) * channels + c);
        };
        for (int y = 0; y < kSize; ++y)
          for (int column = 0; column < kSize; ++column)
            for (int c = 0; c < channels; ++c)
              padded[index(y + kPad, column + kPad, c)] =
                  pixels[static_cast<std::size_t>(((k * kSize + y) * kSize + column) * channels + c)];
        const Crop crop = crops[static_cast<std::size_t>(k)];
        for (int y = 0; y < kSize; ++y)
          for (int column = 0; column < kSize; ++column)
            for (int c = 0; c < channels; ++c) {
              const int cut = crop.flip != 0 ? kSize - 1 - column : column;
              const double expected = padded[index(y + kPad + crop.top, cut + kPad + crop.left, c)] / 255;
              REQUIRE(x[static_cast<std::size_t>(layout.offset(k, c, y, column))] == static_cast<float>(expected));
            }
      }
    }
  }
}
