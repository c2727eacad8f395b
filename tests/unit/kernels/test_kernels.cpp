#include <omp.h>

#include "all.hpp"
#include "catch.hpp"
#include "definitions.hpp"
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

double at(const Shared<float>& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }

template <class T>
[[nodiscard]] Shared<T> stored(const Shared<float>& values) {
  Shared<T> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), Stored<T>::from);
  return out;
}
/// A float after its way through T.
template <class T>
[[nodiscard]] float rounded(float x) {
  return to_float(Stored<T>::from(x));
}
template <class T>
[[nodiscard]] bool same_bits(const Shared<T>& a, const Shared<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Activations in T, and what float arithmetic makes of the stored numbers: every operation below is rounded once to
/// float, whether or not it is fused with the next, because all factors are powers of two.
template <class T>
struct StoredFixture {
  explicit StoredFixture(const Case& c)
      : layout(c.layout),
        n(c.n * c.layout.elements()),
        a(stored<T>(shared_random(n, 1))),
        b(stored<T>(shared_random(n, 2))),
        before(stored<T>(shared_random(n, 5))),
        out(before),
        shift(shared_random(layout.c, 4)),
        bits(static_cast<std::size_t>(groups(n))) {
    for (int k = 0; k < layout.c; ++k) scale.push_back(std::ldexp(k % 3 == 0 ? -1.0F : 1.0F, k % 5 - 2));
    for (std::int64_t g = 0; g < groups(n); ++g)
      bits[static_cast<std::size_t>(g)] = static_cast<std::uint16_t>(40503 * (g + 1));
  }
  [[nodiscard]] bool open(std::int64_t i) const {
    return (bits[static_cast<std::size_t>(i / kGroup)] >> (i % kGroup) & 1) != 0;
  }
  [[nodiscard]] static float at(const Shared<T>& values, std::int64_t i) {
    return to_float(values[static_cast<std::size_t>(i)]);
  }
  [[nodiscard]] float per_channel(const Shared<float>& values, std::int64_t i) const {
    return values[static_cast<std::size_t>(layout.channel(i))];
  }
  /// `out` is the float reference(i), stored.
  template <class Reference>
  void check(Reference reference) const {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) wrong += at(out, i) != rounded<T>(reference(i));
    INFO(layout.c << "x" << layout.h << "x" << layout.w << ", block " << layout.block);
    REQUIRE(wrong == 0);
  }

  Layout layout;
  std::int64_t n;
  Shared<T> a, b, before, out;
  Shared<float> scale, shift;
  Shared<std::uint16_t> bits;
};

/// n, channels, height and width of x, channels of y, kernel, stride, padding.
std::vector<ConvSpec> convolutions() {
  return {{2, 3, 7, 5, 4, 3, 1, 1}, {2, 3, 7, 5, 4, 3, 2, 1}, {1, 3, 9, 9, 5, 3, 2, 1}, {3, 5, 5, 7, 3, 1, 1, 0},
          {2, 4, 7, 5, 6, 1, 2, 0}, {1, 1, 5, 5, 1, 3, 1, 1}, {2, 3, 6, 5, 4, 3, 1, 0}, {2, 1, 5, 6, 3, 3, 1, 0},
          {1, 3, 7, 7, 2, 5, 1, 2}, {1, 3, 9, 9, 2, 7, 2, 3}};
}

/// Adds the chunks of a segment.
void add_chunks(Shared<Chunk>& chunks, std::int64_t begin, std::int64_t size, std::size_t segment) {
  for (std::int64_t done = 0; done < size; done += kChunk)
    chunks.push_back({begin + done, static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, size - done)),
                      static_cast<std::int32_t>(segment)});
}

/// Every shift from `first` to `last` pixels, each with and without mirroring.
Shared<Crop> all_crops(int first, int last) {
  Shared<Crop> crops;
  for (int top = first; top <= last; ++top)
    for (int left = first; left <= last; ++left)
      for (const int flip : {0, 1})
        crops.push_back(
            {static_cast<std::int16_t>(top), static_cast<std::int16_t>(left), static_cast<std::int16_t>(flip)});
  return crops;
}

}  // namespace

TEST_CASE("A layout gives each element of each channel a place of its own", "[kernels]") {
  CHECK((Layout{3, 5, 7, 1}.fours() == 27 && Layout{3, 4, 5, 1}.fours() == 15 && Layout{1, 2, 3, 1}.in_four(0) == 4 &&
         Layout{1, 2, 3, 1}.in_four(1) == 2 && Layout{2, 1, 2, 2}.offset_chw(0, 1) == 2));
  for (const auto& [layout, n] : cases()) {
    std::vector<bool> taken(static_cast<std::size_t>(n * layout.elements()), false);
    for_each_pixel(n, layout, [&](std::int64_t k, int y, int x, int c) {
      const std::int64_t place = layout.offset(k, c, y, x);
      REQUIRE((place >= k * layout.elements() && place < (k + 1) * layout.elements()));
      REQUIRE(!taken[static_cast<std::size_t>(place)]);
      taken[static_cast<std::size_t>(place)] = true;
      REQUIRE(layout.channel(place) == c);
    });
  }
}

TEMPLATE_TEST_CASE("SiLU of the affine map, its slope, and the gradient through it", "[kernels]", float, Half,
                   BFloat16) {
  using T = TestType;
  // Storing rounds once, by half a unit in the last place; subnormal numbers of f16 by 2^-25, floats by nothing.
  const double unit = std::is_same_v<T, float> ? 0 : std::is_same_v<T, Half> ? 0x1p-11 : 0x1p-8;
  const double least = std::is_same_v<T, Half> ? 0x1p-25 : 1e-35;  // exp(-87) * 120: where the logistic function ends
  const auto silu = [](double z) { return z / (1 + std::exp(-z)); };
  const auto slope_of = [](double z) {
    const double s = 1 / (1 + std::exp(-z));
    return s * (1 + z * (1 - s));
  };
  for (const Case& c : cases()) {
    StoredFixture<T> f(c);
    Shared<T> slope = f.before;
    const auto check = [&](const auto& argument, double argument_roundings) {
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < f.n; ++i) {
        const double z = argument(i), off = argument_roundings * kUnit, s = 1 / (1 + std::exp(-z));
        // exp(-z) is off by four roundings: half of one in the reduced argument, the last two steps of the series, what
        // that leaves out. Three more make the logistic function, up to five what follows. The slope changes by at most
        // half of what z does, SiLU by 1.1 of that.
        const double y = silu(z), y_error = 12 * kUnit * std::abs(y) + 1.1 * off;
        const double d = slope_of(z), d_error = 12 * kUnit * s * (1 + std::abs(z) * (1 - s)) + 0.5 * off;
        wrong += std::abs(double(f.at(f.out, i)) - y) > y_error + unit * (std::abs(y) + y_error) + least;
        wrong += std::abs(double(f.at(slope, i)) - d) > d_error + unit * (std::abs(d) + d_error) + least;
      }
      INFO(f.layout.c << "x" << f.layout.h << "x" << f.layout.w << ", block " << f.layout.block);
      CHECK(wrong == 0);
    };
    run(groups(f.n),
        AffineSilu<T>{f.a.data(), f.scale.data(), f.shift.data(), f.out.data(), slope.data(), f.layout, f.n});
    // Scales are powers of two up to 4: one rounding, of a sum below 5.
    check([&](auto i) { return double(f.per_channel(f.scale, i)) * f.at(f.a, i) + f.per_channel(f.shift, i); }, 5);

    // Up to where exp(-z) is no float; in place.
    for (T& x : f.out) x = Stored<T>::from(120 * to_float(f.a[static_cast<std::size_t>(&x - f.out.data())]));
    const Shared<T> wide = f.out;
    run(groups(f.n), AffineSilu<T>{f.out.data(), nullptr, nullptr, f.out.data(), slope.data(), f.layout, f.n});
    check([&](auto i) { return double(f.at(wide, i)); }, 0);

    for (int choice = 0; choice < 8; ++choice) {
      const bool extra = (choice & 1) != 0, scale = (choice & 2) != 0, add = (choice & 4) != 0;
      f.out = f.before;
      run(groups(f.n), AffineSiluGradient<T>{f.a.data(), extra ? f.b.data() : nullptr, scale ? f.scale.data() : nullptr,
                                             slope.data(), f.out.data(), f.layout, f.n, add});
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < f.n; ++i) {
        double d = f.at(f.a, i) + double(extra ? f.at(f.b, i) : 0);
        d *= f.at(slope, i);
        if (scale) d *= f.per_channel(f.scale, i);
        const double before = add ? f.at(f.before, i) : 0, error = 4 * kUnit * (std::abs(d) + std::abs(before));
        wrong += std::abs(f.at(f.out, i) - (d + before)) > error + unit * (std::abs(d + before) + error) + least;
      }
      INFO("choice " << choice);
      CHECK(wrong == 0);
    }
  }
  // What is not a number stays visible.
  Shared<T> x(16, Stored<T>::from(std::numeric_limits<float>::quiet_NaN())), y(16, Stored<T>::from(0)), slope = y;
  run(1, AffineSilu<T>{x.data(), nullptr, nullptr, y.data(), slope.data(), {16, 1, 1, 16}, 16});
  CHECK(std::ranges::all_of(y, [](T v) { return std::isnan(to_float(v)); }));
  CHECK(std::ranges::all_of(slope, [](T v) { return std::isnan(to_float(v)); }));
}

TEST_CASE("Images are normalized by channel, whether these come first or last", "[kernels]") {
  for (const int channels : {1, 3, 4})
    for (const bool last : {false, true}) {
      const Layout layout{channels, 5, 3, last ? channels : 1};
      const std::int64_t n = 2 * layout.elements();
      const Shared<float> x = shared_random(n, 1, 0, 1);
      Shared<float> y(x.size(), 0.0F);
      const float mean[] = {0.5F, 0.25F, 0.7F, 0.1F}, deviation[] = {0.2F, 0.3F, 0.25F, 1.5F};
      NormalizeImages kernel{.x = x.data(), .y = y.data(), .layout = layout, .mean = {}, .deviation = {}};
      std::copy_n(mean, channels, kernel.mean);
      std::copy_n(deviation, channels, kernel.deviation);
      run(n, kernel);
      for (std::int64_t i = 0; i < n; ++i) {
        const int c = layout.channel(i);
        const double difference = static_cast<float>(at(x, i) - double(mean[c]));
        REQUIRE(y[static_cast<std::size_t>(i)] == static_cast<float>(difference / deviation[c]));
      }
    }
}

TEST_CASE("Batch norm folds into a scale and a shift", "[kernels]") {
  constexpr int kChannels = 37;
  const auto gamma = shared_random(kChannels, 1), beta = shared_random(kChannels, 2),
             mean = shared_random(kChannels, 3), variance = shared_random(kChannels, 4, 0, 2);
  Shared<float> scale(kChannels), shift(kChannels), running = mean, values(2 * kChannels);
  Shared<std::int32_t> gamma_at(kChannels), beta_at(kChannels);
  for (int c = 0; c < kChannels; ++c) {  // each in opposite order, in one block
    const auto k = static_cast<std::size_t>(c);
    gamma_at[k] = kChannels - 1 - c;
    beta_at[k] = 2 * kChannels - 1 - c;
    values[static_cast<std::size_t>(gamma_at[k])] = gamma[k];
    values[static_cast<std::size_t>(beta_at[k])] = beta[k];
  }
  run(kChannels, FoldNorms{values.data(), gamma_at.data(), beta_at.data(), mean.data(), variance.data(), scale.data(),
                           shift.data(), 1e-5F});
  run(kChannels, RunningStatistic{variance.data(), running.data(), 0.1F});
  for (int c = 0; c < kChannels; ++c) {
    const double s = at(gamma, c) / std::sqrt(at(variance, c) + double(1e-5F));
    CHECK(std::abs(at(scale, c) - s) <= 4 * kUnit * std::abs(s));
    CHECK(std::abs(at(shift, c) - (at(beta, c) - at(mean, c) * s)) <= kUnit * (2 + 6 * std::abs(s)));
    CHECK(std::abs(at(running, c) - (0.9 * at(mean, c) + 0.1 * at(variance, c))) <= 4 * kUnit);
  }
  // What a batch norm keeps of a deviation: one that is constant, too, and one that is not finite.
  Shared<float> inverse(kChannels), back(kChannels);
  for (int c = 0; c < kChannels; ++c)
    inverse[static_cast<std::size_t>(c)] = c == 0 ? 1 / std::sqrt(1e-5F)
                                           : c == 1
                                               ? std::nanf("")
                                               : static_cast<float>(1 / std::sqrt(at(variance, c) + double(1e-5F)));
  run(kChannels, BatchVariance{inverse.data(), back.data(), 1e-5F});
  CHECK((back[0] >= 0 && back[0] <= 4 * kUnit * 1e-5));
  CHECK(std::isnan(back[1]));
  for (int c = 2; c < kChannels; ++c)
    CHECK(std::abs(at(back, c) - at(variance, c)) <= 4 * kUnit * (at(variance, c) + double(1e-5F)));
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
        double rest = 0, others = 0;
        const int label = labels[static_cast<std::size_t>(i)];
        for (int k = 0; k < classes; ++k) {
          const double one = std::exp(double(z[k]) - *best);
          if (z + k != best) rest += one;
          if (k != label) others += one;
        }
        const double margin = double(*best) - z[label], expected_loss = std::log1p(rest) + margin;
        // A sum of `classes` exponentials, each good to a few roundings and that of its exponent, which is at most 88
        // where it is a normal number; all that is left where the label's is nearly everything.
        constexpr double kLargest = 88, kSmallest = 2e-38;
        CHECK(std::abs(at(loss, i) - expected_loss) <=
              2 * kUnit * (classes + 4 + kLargest) * expected_loss + kSmallest);
        CHECK(at(correct, i) == (best - z == label ? 1 : 0));
        right += at(correct, i) == 1;
        for (int k = 0; k < classes; ++k) {
          const double expected = scale * (k == label ? -others : std::exp(double(z[k]) - *best)) / (1 + rest);
          REQUIRE(std::abs(at(gradient, i * classes + k) - expected) <=
                  2 * kUnit * (classes + 4 + kLargest) * std::abs(expected) + kSmallest);
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
    add_chunks(chunks, begin, sizes[s], s);
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
    CHECK((results[0][s * kSums + 1] == 0 && results[0][s * kSums + 2] == 0));
  }
}

TEST_CASE("Augmentation is a window of the zero-padded image, then a mirror image, then a division by 255",
          "[kernels]") {
  constexpr int kSize = 7;
  for (const auto& [cut, pad, channels] : {std::array{7, 4, 1}, std::array{7, 4, 3}, std::array{4, 2, 3}}) {
    const Shared<Crop> crops = all_crops(-pad, kSize + pad - cut);
    const std::int64_t n = std::ssize(crops), image = kSize * kSize * channels;
    Shared<std::uint8_t> pixels;
    for (const float v : shared_random(n * image, 1, 0, 256)) pixels.push_back(static_cast<std::uint8_t>(v));
    Shared<std::int64_t> places;
    for (std::int64_t k = 0; k < n; ++k) places.push_back(n - 1 - k);
    for (const int block : {1, channels}) {
      const Layout layout{channels, cut, cut, block};
      Shared<float> x(static_cast<std::size_t>(n * layout.elements()), -1.0F), in_order = x, eta(x.size(), 7.0F);
      run(n * cut * cut, Augment{pixels.data(), places.data(), crops.data(), x.data(), layout, kSize});
      run(n * cut * cut, Augment{pixels.data(), nullptr, crops.data(), in_order.data(), layout, kSize});
      Shared<float> zero(x.size(), 0.5F), moved = zero;
      const auto noise = shared_random(std::ssize(zero), 2, -0.1F, 0.1F);
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += noise[i];
      Shared<std::uint8_t> kept(pixels.size(), 9), wanted = kept;
      run(n * cut * cut,
          Remember{kept.data(), places.data(), crops.data(), zero.data(), moved.data(), layout, kSize, 0.1F});
      std::int64_t outside = 0;
      for_each_pixel(n, layout, [&](std::int64_t k, int y, int column, int c) {
        const Crop crop = crops[static_cast<std::size_t>(k)];
        const int from_y = crop.top + y, from_x = crop.left + (crop.flip != 0 ? cut - 1 - column : column);
        const auto at = static_cast<std::size_t>(layout.offset(k, c, y, column));
        if (from_y < 0 || from_y >= kSize || from_x < 0 || from_x >= kSize) {
          REQUIRE((x[at] == 0 && in_order[at] == 0));
          ++outside;
          return;
        }
        const auto from = [&](std::int64_t of) {
          return static_cast<std::size_t>(((of * kSize + from_y) * kSize + from_x) * channels + c);
        };
        REQUIRE(x[at] == static_cast<float>(pixels[from(n - 1 - k)]) / 255.0F);
        REQUIRE(in_order[at] == static_cast<float>(pixels[from(k)]) / 255.0F);
        wanted[from(n - 1 - k)] = to_byte(moved[at] - zero[at], 0.1F);
      });
      CHECK(kept == wanted);
      // What a cut has seen comes back through it; the padding keeps what it had.
      run(n * cut * cut,
          Recall{kept.data(), places.data(), crops.data(), zero.data(), eta.data(), layout, kSize, 0.1F});
      std::int64_t padding = 0;
      for (std::size_t i = 0; i < eta.size(); ++i) {
        padding += eta[i] == 7.0F ? 1 : 0;
        REQUIRE((eta[i] == 7.0F || eta[i] == from_byte(to_byte(moved[i] - zero[i], 0.1F), 0.1F)));
      }
      CHECK(padding == outside);
    }
  }
}

TEST_CASE("A perturbation in a byte is off by at most eps/254; zero and the edges of the ball are exact", "[kernels]") {
  for (const float eps : {8.0F / 255, 0.3F, 1.0F}) {
    constexpr int kSteps = 10001;
    for (int k = 0; k < kSteps; ++k) {
      const float eta = (2.0F * static_cast<float>(k) / (kSteps - 1) - 1.0F) * eps;
      const std::uint8_t byte = to_byte(eta, eps);
      REQUIRE(byte != 0);  // none
      // The byte is chosen by sums of numbers below 256, each rounded to 2^-17.
      REQUIRE(std::abs(double(from_byte(byte, eps)) - eta) <= eps / 127 * (0.5 + 3 * 0x1p-17));
      REQUIRE(to_byte(from_byte(byte, eps), eps) == byte);
    }
    for (const float exact : {-eps, 0.0F, eps}) CHECK(from_byte(to_byte(exact, eps), eps) == exact);
    CHECK(from_byte(to_byte(1.01F * eps, eps), eps) == eps);
    CHECK(from_byte(to_byte(-2 * eps, eps), eps) == -eps);
    CHECK(to_byte(std::nanf(""), eps) == 0);
  }
}

TEST_CASE("What is remembered through one crop is recalled through any other, where both see the original",
          "[kernels]") {
  constexpr int kPad = 4, kSize = 7;
  constexpr float kEps = 0.1F;
  for (const int channels : {1, 3}) {
    const Shared<Crop> crops = all_crops(-kPad, kPad);
    const auto n = std::ssize(crops);
    Shared<Crop> others;  // far apart in the list, and each with each flip
    Shared<std::int64_t> places;
    for (std::int64_t k = 0; k < n; ++k) {
      others.push_back(crops[static_cast<std::size_t>((k * 35 + 11) % n)]);
      places.push_back((k * 5 + 3) % n);  // n = 162 has no factor 5
    }
    const std::int64_t image = kSize * kSize * channels;
    for (const int block : {1, channels}) {
      const Layout layout{channels, kSize, kSize, block};
      const auto x = shared_random(n * image, 1, 0, 1);
      auto x_adv = x;
      const auto eta = shared_random(n * image, 2, -kEps, kEps);
      for (std::size_t i = 0; i < x.size(); ++i) x_adv[i] = std::clamp(x[i] + eta[i], 0.0F, 1.0F);
      Shared<std::uint8_t> kept;
      for (const float v : shared_random(n * image, 3, 0, 256)) kept.push_back(static_cast<std::uint8_t>(v));
      run(n * kSize * kSize,
          Remember{kept.data(), places.data(), crops.data(), x.data(), x_adv.data(), layout, kSize, kEps});

      // Through the same crop and another: in the box, nothing in the padding, nothing where nothing is kept.
      for (const Shared<Crop>& through : {crops, others}) {
        const auto other_x = shared_random(n * image, 4, -0.05F, 1.05F);
        auto clean = other_x;
        for (float& v : clean) v = std::clamp(v, 0.0F, 1.0F);
        Shared<float> start(clean.size(), 7.0F);
        run(n * kSize * kSize,
            Recall{kept.data(), places.data(), through.data(), clean.data(), start.data(), layout, kSize, kEps});
        std::int64_t untouched = 0;
        for_each_pixel(n, layout, [&](std::int64_t k, int y, int column, int c) {
          const Crop crop = through[static_cast<std::size_t>(k)];
          const int from_y = y + crop.top, from_x = (crop.flip != 0 ? kSize - 1 - column : column) + crop.left;
          const auto at = static_cast<std::size_t>(layout.offset(k, c, y, column));
          const bool inside = from_y >= 0 && from_y < kSize && from_x >= 0 && from_x < kSize;
          const std::int64_t pixel = (places[static_cast<std::size_t>(k)] * kSize + from_y) * kSize + from_x;
          const std::uint8_t byte = inside ? kept[static_cast<std::size_t>(pixel * channels + c)] : 0;
          if (byte == 0) {
            REQUIRE(start[at] == 7.0F);
            ++untouched;
            return;
          }
          REQUIRE(start[at] == std::clamp(from_byte(byte, kEps), -clean[at], 1.0F - clean[at]));
          REQUIRE((clean[at] + start[at] >= 0.0F && clean[at] + start[at] <= 1.0F));
        });
        CHECK(untouched > 0);
      }

      // Stored and loaded again without an attack: the same bytes.
      Shared<float> again(x.size(), 0.0F), perturbed(x.size());
      const Shared<std::uint8_t> once = kept;
      run(n * kSize * kSize,
          Recall{kept.data(), places.data(), crops.data(), x.data(), again.data(), layout, kSize, kEps});
      for (std::size_t i = 0; i < x.size(); ++i) perturbed[i] = x[i] + again[i];
      run(n * kSize * kSize,
          Remember{kept.data(), places.data(), crops.data(), x.data(), perturbed.data(), layout, kSize, kEps});
      CHECK(kept == once);
    }
  }
}

TEMPLATE_TEST_CASE("Activations stored in fewer bits: float arithmetic on the stored numbers, rounded once",
                   "[kernels]", float, Half, BFloat16) {
  using T = TestType;
  for (const Case& c : cases()) {
    StoredFixture<T> f(c);
    std::fill_n(f.a.begin(), 3, Stored<T>::from(0));
    const auto value = [&](const Shared<T>& from, std::int64_t i) { return f.at(from, i); };
    const auto positive = [](float x) { return x > 0 ? x : 0.0F; };
    const Shared<std::uint16_t> random_bits = f.bits;
    const auto check_bits = [&](const auto& open) {
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < groups(f.n) * kGroup; ++i) wrong += f.open(i) != (i < f.n && open(i));
      CHECK(wrong == 0);
      f.bits = random_bits;
    };
    const std::int64_t n = groups(f.n);

    for (const bool relu : {false, true}) {
      run(n, Add<T>{f.a.data(), f.b.data(), f.out.data(), f.n, relu, relu ? f.bits.data() : nullptr});
      const auto sum = [&](std::int64_t i) { return value(f.a, i) + value(f.b, i); };
      f.check([&](auto i) { return relu ? positive(sum(i)) : sum(i); });
      if (relu) check_bits([&](auto i) { return sum(i) > 0; });
      run(n, Add<T>{f.a.data(), nullptr, f.out.data(), f.n, relu});
      f.check([&](auto i) { return relu ? positive(value(f.a, i)) : value(f.a, i); });

      const auto affine = [&](std::int64_t i) {
        return f.per_channel(f.scale, i) * value(f.a, i) + f.per_channel(f.shift, i);
      };
      run(n,
          AffineRelu<T>{f.a.data(), f.scale.data(), f.shift.data(), f.out.data(), f.bits.data(), f.layout, f.n, relu});
      f.check([&](auto i) { return relu ? positive(affine(i)) : affine(i); });
      if (relu) check_bits([&](auto i) { return affine(i) > 0; });
      f.out = f.a;
      run(n, AffineRelu<T>{f.out.data(), nullptr, f.shift.data(), f.out.data(), nullptr, f.layout, f.n, relu});
      f.check([&](auto i) {
        const float y = value(f.a, i) + f.per_channel(f.shift, i);
        return relu ? positive(y) : y;
      });
      run(n, AffineRelu<T>{f.a.data(), nullptr, nullptr, f.out.data(), nullptr, f.layout, f.n, relu});
      f.check([&](auto i) { return relu ? positive(value(f.a, i)) : value(f.a, i); });
    }

    run(n, MaskFromRelu<T>{f.a.data(), f.bits.data(), f.n});
    check_bits([&](auto i) { return value(f.a, i) > 0; });

    for (const bool extra : {false, true}) {
      const auto gradient = [&](std::int64_t i) { return value(f.a, i) + (extra ? value(f.b, i) : 0.0F); };
      const T* const second = extra ? f.b.data() : nullptr;
      run(n, MaskGradient<T>{f.a.data(), second, f.bits.data(), f.out.data(), f.n});
      f.check([&](auto i) { return f.open(i) ? gradient(i) : 0.0F; });
      f.out = f.a;
      run(n, MaskGradient<T>{f.out.data(), second, f.bits.data(), f.out.data(), f.n});
      f.check([&](auto i) { return f.open(i) ? gradient(i) : 0.0F; });
      for (int choice = 0; choice < 8; ++choice) {
        const bool masked = (choice & 1) != 0, accumulate = (choice & 2) != 0, scaled = (choice & 4) != 0;
        f.out = f.before;
        run(n, AffineReluGradient<T>{f.a.data(), second, scaled ? f.scale.data() : nullptr,
                                     masked ? f.bits.data() : nullptr, f.out.data(), f.layout, f.n, accumulate});
        f.check([&](auto i) {
          const float d = masked && !f.open(i) ? 0.0F : (scaled ? f.per_channel(f.scale, i) : 1.0F) * gradient(i);
          return accumulate ? d + value(f.before, i) : d;
        });
      }
    }

    const int pixels = f.layout.h * f.layout.w;
    Shared<float> pooled(static_cast<std::size_t>(c.n * f.layout.c));
    run(std::ssize(pooled), PoolForward<T>{f.a.data(), pooled.data(), f.layout});
    std::vector<double> totals(pooled.size(), 0.0);
    for (std::int64_t i = 0; i < f.n; ++i)
      totals[static_cast<std::size_t>(i / f.layout.elements() * f.layout.c + f.layout.channel(i))] +=
          double(value(f.a, i));
    // Partial sums of p numbers of at most 1 are at most p: p roundings of at most p, divided by p.
    for (std::size_t k = 0; k < pooled.size(); ++k)
      REQUIRE(std::abs(double(pooled[k]) - totals[k] / pixels) <= kUnit * (pixels + 1));
    run(groups(f.n), PoolBackward<T>{pooled.data(), f.out.data(), f.layout, f.n});
    f.check([&](auto i) {
      return pooled[static_cast<std::size_t>(i / f.layout.elements() * f.layout.c + f.layout.channel(i))] /
             static_cast<float>(pixels);
    });
  }
}

TEST_CASE("The gradient of a ReLU by its own result, and an array times a number, or added to", "[kernels]") {
  constexpr std::int64_t kCount = 105;  // no multiple of a group
  auto a = shared_random(kCount, 1);
  std::fill_n(a.begin(), 3, 0.0F);
  const auto b = shared_random(kCount, 2);
  Shared<float> gradient(a.size()), scaled(a.size()), added = b;
  run(groups(kCount), ReluGradient{a.data(), b.data(), gradient.data(), kCount});
  run(kCount, Scale{a.data(), scaled.data(), 0.3F, false});
  run(kCount, Scale{a.data(), added.data(), 0.3F, true});
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(gradient[i] == (a[i] > 0 ? b[i] : 0));
    REQUIRE(scaled[i] == 0.3F * a[i]);
    REQUIRE(std::abs(added[i] - (b[i] + double(0.3F) * a[i])) <= 4 * kUnit);
  }
}

TEMPLATE_TEST_CASE("A padded image has the image's channels first, then zeros", "[kernels]", float, Half, BFloat16) {
  using T = TestType;
  constexpr int kPixels = 35;
  for (const auto& [c, padded] : {std::pair{3, 4}, std::pair{3, 8}, std::pair{1, 8}, std::pair{4, 4}}) {
    const auto x = shared_random(kPixels * c, 1, 0, 1);
    // What follows stays as it is.
    const T mark = Stored<T>::from(77);
    Shared<T> y(static_cast<std::size_t>(kPixels * padded) + 3, mark), expected = y;
    for (int i = 0; i < kPixels; ++i)
      for (int k = 0; k < padded; ++k)
        expected[static_cast<std::size_t>(i * padded + k)] =
            Stored<T>::from(k < c ? x[static_cast<std::size_t>(i * c + k)] : 0.0F);
    run(kPixels, PadImage<T>{x.data(), y.data(), c, padded});
    INFO(c << " channels, padded to " << padded);
    CHECK(same_bits(y, expected));
  }
}

TEMPLATE_TEST_CASE("Folded weights: every weight times its output's scale at its place, zeros at all others",
                   "[kernels]", float, Half, BFloat16) {
  using T = TestType;
  struct Shape {
    int out, in, taps, in_padded, row;
    bool rotate;
  };
  // Plain; channels added; a row filled up; both; rotated; rotated with a row filled up; of one tap.
  for (const Shape& s : {Shape{5, 3, 9, 3, 27, false}, Shape{5, 3, 9, 8, 72, false}, Shape{5, 3, 9, 3, 32, false},
                         Shape{5, 3, 9, 4, 40, false}, Shape{5, 3, 9, 3, 45, true}, Shape{5, 3, 9, 3, 48, true},
                         Shape{4, 6, 1, 6, 6, false}, Shape{4, 6, 1, 6, 4, true}}) {
    const auto weights = shared_random(s.out * s.taps * s.in, 1), scale = shared_random(s.out, 2, 0.5F, 2.0F);
    const int rows = s.rotate ? s.in : s.out;
    for (const bool scaled : {false, true}) {
      const T mark = Stored<T>::from(77);
      Shared<T> result(static_cast<std::size_t>(rows * s.row) + 3, mark), expected = result;
      std::fill_n(expected.begin(), rows * s.row, Stored<T>::from(0));
      for (int o = 0; o < s.out; ++o)
        for (int tap = 0; tap < s.taps; ++tap)
          for (int c = 0; c < s.in; ++c) {
            const float w = weights[static_cast<std::size_t>((o * s.taps + tap) * s.in + c)];
            const int place = s.rotate ? c * s.row + (s.taps - 1 - tap) * s.out + o : o * s.row + tap * s.in_padded + c;
            expected[static_cast<std::size_t>(place)] =
                Stored<T>::from(scaled ? w * scale[static_cast<std::size_t>(o)] : w);
          }
      const FoldWeights fold{weights.data(), scaled ? scale.data() : nullptr,
                             result.data(),  s.out,
                             s.in,           s.taps,
                             s.in_padded,    s.row,
                             s.rotate,       Stored<T>::type};
      run(fold.size(), fold);
      INFO(s.out << "x" << s.taps << "x" << s.in << " to rows of " << s.row << (s.rotate ? ", rotated" : "")
                 << (scaled ? ", scaled" : ""));
      CHECK(same_bits(result, expected));
    }
  }
}

TEST_CASE("A group of neighbours ends with its lanes, or with its chunk", "[kernels]") {
  const Chunk chunks[] = {{5, kChunk, 0}, {9000, 35, 1}};
  const Neighbours<16> groups{chunks};
  const struct {
    std::int64_t group, begin;
    int count;
  } cases[] = {{0, 5, 16}, {511, 8181, 16}, {512, 9000, 16}, {514, 9032, 3}, {515, 9048, -13}};
  for (const auto& c : cases) {
    const auto group = groups.group(c.group);
    CHECK((group.count == c.count && group.begin == c.begin));
  }
  CHECK((piece_size<16>(0, 20) == 16 && piece_size<16>(1, 20) == 4));
}

TEST_CASE("Of two numbers of which neither is smaller or larger the second one is taken", "[kernels][cpu]") {
  CHECK((std::signbit(smaller(0.0F, -0.0F)) && std::signbit(larger(0.0F, -0.0F))));
  for (const float other : {smaller(std::nanf(""), 1.0F), larger(std::nanf(""), 1.0F)}) CHECK(other == 1);
}

TEST_CASE("Jacobi's rotations leave the eigenvalues, and numbers that are small as they are", "[kernels][cpu]") {
  for (const double other : {0.0, 2.0, 3.0, 5.0}) {  // turns of either sign, and of a right angle's half
    const std::array given = {2.0, 1.0, 1.0, other};
    std::array<double, 4> g = given, v{};
    diagonalise(g.data(), v.data(), 2, 0.9);  // with one turn
    CHECK(std::abs(g[1]) <= 1e-14);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(std::abs(v[i / 2 * 2] * g[0] * v[i % 2 * 2] + v[i / 2 * 2 + 1] * g[3] * v[i % 2 * 2 + 1] - given[i]) <
            1e-14);
    g = given;
    diagonalise(g.data(), v.data(), 2, 1);
    CHECK((g == given && v == std::array{1.0, 0.0, 0.0, 1.0}));
  }
}

TEST_CASE("A piece moves as many numbers as it has, and is 0 beyond them", "[kernels][cpu]") {
  for (const int count : {5, 15, 16}) {
    std::vector<float> numbers(17, 7.0F);
    const auto piece = Piece<16>::load(numbers.data(), count);
    Piece<16>{}.store(numbers.data(), count);
    CHECK((std::ranges::count(piece.v, 7.0F) == count && std::ranges::count(piece.v, 0.0F) == 16 - count));
    CHECK((std::count(numbers.begin(), numbers.begin() + count, 0.0F) == count && numbers.back() == 7));
    CHECK(std::ranges::count(numbers, 7.0F) == 17 - count);
  }
}

TEST_CASE("Whether all numbers are finite looks at each of five ranges, from the first to the last, and at no other",
          "[kernels]") {
  // Losses [2 passes][5], of which 3 count; 4 statistics; sums: the first 6, then 3 that do not count, then 5.
  const auto flag_of = [](const std::function<void(float* losses, float* statistics, double* sums)>& plant) {
    Shared<float> losses(10, 1.0F), statistics(5, 1.0F);
    Shared<double> sums(15, 1.0), flag(1, 7.0);
    plant(losses.data(), statistics.data(), sums.data());
    run(1, SetFlag{flag.data()});
    const AllFinite all{losses.data(), 2, 5, 3, statistics.data(), 4, sums.data(), 6, 9, 5, flag.data()};
    run(all.size(), all);
    return flag[0];
  };
  CHECK(flag_of([](float*, float*, double*) {}) == 1);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const auto one = static_cast<float>(bad);
    for (const int k : {0, 2, 5, 7}) CHECK(flag_of([&](float* losses, float*, double*) { losses[k] = one; }) == 0);
    for (const int k : {3, 4, 8, 9}) CHECK(flag_of([&](float* losses, float*, double*) { losses[k] = one; }) == 1);
    for (const int k : {0, 3}) CHECK(flag_of([&](float*, float* statistics, double*) { statistics[k] = one; }) == 0);
    CHECK(flag_of([&](float*, float* statistics, double*) { statistics[4] = one; }) == 1);
    for (const int k : {0, 5, 9, 13}) CHECK(flag_of([&](float*, float*, double* sums) { sums[k] = bad; }) == 0);
    for (const int k : {6, 8, 14}) CHECK(flag_of([&](float*, float*, double* sums) { sums[k] = bad; }) == 1);
  }
}

TEST_CASE("A perturbation is not a number where its gradient is none, and stays as it is elsewhere", "[kernels]") {
  constexpr float kLimit = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  const Shared<float> dx = {0, -1, kLimit, kInfinity, -kInfinity, std::nanf("")};
  Shared<float> eta(dx.size(), 0.5F);
  run(std::ssize(eta), SpoilPerturbation{dx.data(), eta.data()});
  for (std::size_t i = 0; i < 6; ++i) CHECK((i < 3 ? eta[i] == 0.5F : std::isnan(eta[i])));
}

TEST_CASE("Weights whose factor is 0 stay, whatever their gradient is; others are perturbed, moved and returned",
          "[kernels][cpu]") {
  float theta = 1, gradient = HUGE_VALF, kept = 7;
  const float none = 0, two = 2;
  PerturbWeights{&theta, &gradient, &kept, &none}(0, 0);
  MoveWeights{&theta, &kept, &none}(0, 0);
  ReturnWeights{&theta, &kept, &gradient, &none}(0, 0);
  CHECK((theta == 1 && gradient == HUGE_VALF && kept == 7));
  gradient = 3;
  PerturbWeights{&theta, &gradient, &kept, &two}(0, 0);
  CHECK((theta == 7 && gradient == 7 && kept == 1));
  theta = 9;
  ReturnWeights{&theta, &kept, &gradient, &two}(0, 0);
  CHECK(theta == 3);
  MoveWeights{&theta, &gradient, &two}(0, 0);
  CHECK(theta == 7);
}

TEST_CASE("A program without CUDA says so in place of a GPU's loops", "[kernels][cpu]") {
  if (!contains(cuda_missing(), "built without CUDA")) return;
  const Device gpu{.kind = DeviceKind::cuda};
  CHECK(code_of([&] { each(gpu, 0, Scale{}); }) == ExitCode::device);
  CHECK(code_of([&] { each(gpu, Chunks{}, Zero{}); }) == ExitCode::device);
  CHECK(code_of([&] { sum(gpu, {}, SquaredNorm{}, nullptr, nullptr); }) == ExitCode::device);
}

TEST_CASE("The products of taps, added up per pixel, are the input gradient of the convolution; PGD's step may end it",
          "[kernels]") {
  for (const ConvSpec& s : convolutions()) {
    const int taps = s.kernel * s.kernel, row = (taps * s.c_in + 7) / 8 * 8, pixels = s.n * s.h_out() * s.w_out();
    const auto dy = shared_random(y_count(s), 1), w = shared_random(w_count(s), 2);
    std::vector<double> expected(static_cast<std::size_t>(x_count(s)), 0.0), size = expected;
    for_each_term(s, [&](auto x, auto weight, auto y) {
      const double term = at(dy, y) * at(w, weight);
      expected[static_cast<std::size_t>(x)] += term;
      size[static_cast<std::size_t>(x)] += std::abs(term);
    });
    // The places of a row after the last tap are not read.
    Shared<float> products(static_cast<std::size_t>(pixels * row), std::numeric_limits<float>::quiet_NaN());
    for (int p = 0; p < pixels; ++p)
      for (int k = 0; k < taps * s.c_in; ++k) {
        double total = 0;
        for (int o = 0; o < s.c_out; ++o) total += at(dy, p * s.c_out + o) * at(w, o * taps * s.c_in + k);
        products[static_cast<std::size_t>(p * row + k)] = static_cast<float>(total);
      }
    const auto of = [&](Shared<float>& to, const PgdUpdate& update) {
      return TapProducts{products.data(), to.data(), s.c_in,   s.h,   s.w, s.h_out(),
                         s.w_out(),       s.kernel,  s.stride, s.pad, row, update};
    };
    const auto kernel = [&](Shared<float>& to, const PgdUpdate& update) {
      image_gradient(kernel_backend().device(), x_count(s), of(to, update));
      kernel_backend().wait();
    };
    Shared<float> dx(expected.size(), std::numeric_limits<float>::quiet_NaN());
    kernel(dx, {});
    INFO(name(s));
    for (std::size_t i = 0; i < dx.size(); ++i) {
      INFO("element " << i);
      // Each product is rounded, and each sum of two of them: taps + 1 roundings of at most the terms' sizes.
      REQUIRE(std::abs(double(dx[i]) - expected[i]) <= (taps + 1) * 1.01 * kUnit * size[i]);
    }

    // The code for a shape adds in the order of the code for any shape.
    Shared<float> general(dx.size());
    run(x_count(s), ImageGradientAny{of(general, {})});
    CHECK(same_bits(general, dx));

    const auto x = shared_random(x_count(s), 3, 0, 1), eta = shared_random(x_count(s), 4, -0.1F, 0.1F);
    Shared<float> eta_here = eta, eta_there = eta, x_here(eta.size()), x_there(eta.size());
    run(x_count(s), PgdStep{{x.data(), eta_there.data(), x_there.data(), 0.04F, 0.1F}, dx.data()});
    Shared<float> unused = dx;
    kernel(unused, {x.data(), eta_here.data(), x_here.data(), 0.04F, 0.1F});
    CHECK(eta_here == eta_there);
    CHECK(x_here == x_there);
    CHECK(eta_here != eta);
  }
}

TEMPLATE_TEST_CASE("The check of a convolution reports the error that each of its elements has, and the terms' sizes",
                   "[kernels]", float, Half, BFloat16) {
  using T = TestType;
  using Pass = ConvolutionPass;
  constexpr int kSamples = 4096;  // of at most a few hundred elements: each of them is looked at
  struct Form {
    Pass pass;
    bool before, bias, relu;
    int parts;
    bool through_relu = false;
  };
  const std::vector<Form> all = {{Pass::forward, false, false, false, 1},   {Pass::forward, true, false, false, 3},
                                 {Pass::forward, false, true, true, 7},     {Pass::forward, true, true, true, 1},
                                 {Pass::data, false, false, false, 2},      {Pass::data, true, false, false, 5},
                                 {Pass::data, true, false, false, 3, true}, {Pass::weights, false, false, false, 4},
                                 {Pass::weights, true, false, false, 64}};  // more than there are terms, too
  for (const ConvSpec& s : convolutions())
    for (const Form& form : all) {
      const Pass pass = form.pass;
      const std::int64_t count = pass == Pass::forward ? y_count(s) : pass == Pass::data ? x_count(s) : w_count(s);
      const Shared<T> x = stored<T>(shared_random(x_count(s), 1)), w = stored<T>(shared_random(w_count(s), 2)),
                      dy = stored<T>(shared_random(y_count(s), 3)), before = stored<T>(shared_random(count, 4));
      const auto bias = shared_random(s.c_out, 5);
      const auto number = [](const Shared<T>& from, std::int64_t i) {
        return double(to_float(from[static_cast<std::size_t>(i)]));
      };
      std::vector<double> exact(static_cast<std::size_t>(count), 0.0), terms = exact, squares = exact;
      const auto add = [&](std::int64_t to, double term) {
        const auto k = static_cast<std::size_t>(to);
        exact[k] += term;
        terms[k] += std::abs(term);
        squares[k] += term * term;
      };
      for_each_term(s, [&](auto at_x, auto at_w, auto at_y) {
        add(pass == Pass::forward ? at_y
            : pass == Pass::data  ? at_x
                                  : at_w,
            (pass == Pass::data ? 1.0 : number(x, at_x)) * (pass == Pass::weights ? 1.0 : number(w, at_w)) *
                (pass == Pass::forward ? 1.0 : number(dy, at_y)));
      });
      for (std::int64_t i = 0; i < count; ++i) {
        if (form.before) add(i, number(before, i));
        if (form.bias) add(i, double(bias[static_cast<std::size_t>(i % s.c_out)]));
      }
      const std::vector<double> sums = exact;
      Shared<T> relu_output = stored<T>(shared_random(count, 8));
      relu_output[0] = Stored<T>::from(0);  // as of what the ReLU has closed
      if (form.through_relu)
        for (std::int64_t i = 0; i < count; ++i)
          if (!(number(relu_output, i) > 0)) exact[static_cast<std::size_t>(i)] = 0;
      if (form.relu)
        for (double& v : exact) v = std::max(v, 0.0);
      Shared<T> result(exact.size());
      std::transform(exact.begin(), exact.end(), result.begin(),
                     [](double v) { return Stored<T>::from(static_cast<float>(v)); });
      Shared<std::uint16_t> bits(static_cast<std::size_t>(groups(count)));
      run(groups(count), MaskFromRelu<T>{result.data(), bits.data(), count});
      const ConvolutionSamples<T> samples{.pass = pass,
                                          .x = pass == Pass::data ? nullptr : x.data(),
                                          .w = pass == Pass::weights ? nullptr : w.data(),
                                          .dy = pass == Pass::forward ? nullptr : dy.data(),
                                          .before = form.before ? before.data() : nullptr,
                                          .bias = form.bias ? bias.data() : nullptr,
                                          .relu = form.relu,
                                          .relu_output = form.through_relu ? relu_output.data() : nullptr,
                                          .n = s.n,
                                          .c_in = s.c_in,
                                          .h = s.h,
                                          .w_in = s.w,
                                          .c_out = s.c_out,
                                          .h_out = s.h_out(),
                                          .w_out = s.w_out(),
                                          .kernel = s.kernel,
                                          .stride = s.stride,
                                          .pad = s.pad};
      Shared<Sums> partial(static_cast<std::size_t>(kSamples * form.parts));
      Shared<CheckedElement> checked(kSamples);
      const auto check = [&] {
        run(kSamples * form.parts, SumTerms<T>{samples, form.parts, partial.data()});
        run(kSamples, CheckConvolution<T>{samples, form.parts, partial.data(), result.data(),
                                          form.relu ? bits.data() : nullptr, checked.data()});
      };
      INFO(name(s) << ", pass " << static_cast<int>(pass) << (form.before ? ", adding" : "")
                   << (form.bias ? ", bias" : "") << (form.relu ? ", ReLU" : "")
                   << (form.through_relu ? ", through a ReLU" : "") << ", " << form.parts << " parts");
      check();
      // The result is the exact one, rounded to float and to T: half a unit of its last place, and of numbers below
      // the normal ones, which T has down to 2^-14 at least. Sizes and norms are given as float.
      const double unit = sizeof(T) == 4 ? 0x1p-24 : std::is_same_v<T, Half> ? 0x1p-11 : 0x1p-8;
      int wrong = 0;
      for (const CheckedElement& c : checked)
        wrong +=
            !(double(c.error) <= 1.01 * unit * (double(c.value) + 0x1p-14) && c.error >= 0 &&
              double(c.size) >= double(c.value) * (1 - 0x1p-22) && double(c.norm) <= double(c.size) * (1 + 0x1p-22));
      CHECK(wrong == 0);

      // One element is changed: the samples that look at it report that, and the others what they did before.
      const Shared<CheckedElement> unchanged = checked;
      const auto off_at = [&](std::int64_t place, double off) {
        const auto p = static_cast<std::size_t>(place);
        int found = 0, different = 0;
        for (std::size_t i = 0; i < checked.size(); ++i) {
          const CheckedElement& c = checked[i];
          if (c.error == unchanged[i].error) continue;
          ++different;
          // Double precision, given as float.
          const auto is = [](float given, double right) {
            return std::abs(double(given) - right) <= 1.01 * kUnit * right;
          };
          found += is(c.error, off) && is(c.value, std::abs(exact[p])) && is(c.size, terms[p]) &&
                   is(c.norm, std::sqrt(squares[p]));
        }
        INFO("element " << place << " of " << count);
        CHECK(found >= 1);
        CHECK(found == different);
      };
      std::set<std::int64_t> places = {0, count - 1, count / 2};
      for (const std::int64_t place : places) {
        T& changed = result[static_cast<std::size_t>(place)];
        const T right = changed;
        changed = Stored<T>::from(to_float(right) + 3);
        auto& word = bits[static_cast<std::size_t>(place / 16)];
        const std::uint16_t mask = word;
        word =
            static_cast<std::uint16_t>(word | 1U << (place % 16));  // the result is positive now, where there is a ReLU
        check();
        off_at(place, std::abs(number(result, place) - exact[static_cast<std::size_t>(place)]));
        changed = right;
        word = mask;
        if (!form.relu) continue;
        word = static_cast<std::uint16_t>(word ^ 1U << (place % 16));
        check();
        off_at(place, std::abs(sums[static_cast<std::size_t>(place)]));
        word = mask;
      }
    }
}

TEMPLATE_TEST_CASE("Channels go first and come back last, or are added to what is there", "[kernels]", float, Half,
                   BFloat16) {
  using T = TestType;
  // Fewer channels than a call takes, as many, some pieces and a rest.
  for (const auto& [n, c, pixels] :
       {std::array{2, 3, 5}, std::array{3, 16, 1}, std::array{1, 32, 9}, std::array{2, 40, 7}}) {
    const std::int64_t count = std::int64_t{n} * c * pixels, runs = n * groups(c) * pixels;
    const T mark = Stored<T>::from(77);
    const Shared<T> last = stored<T>(shared_random(count, 1)), before = stored<T>(shared_random(count, 2));
    Shared<T> first(static_cast<std::size_t>(count) + 3, mark), expected = first, back = before, added = before,
                                                                sum = before;
    for (int k = 0; k < n; ++k)
      for (int p = 0; p < pixels; ++p)
        for (int j = 0; j < c; ++j) {
          const auto from = static_cast<std::size_t>((k * pixels + p) * c + j);
          expected[static_cast<std::size_t>((k * c + j) * pixels + p)] = last[from];
          sum[from] = Stored<T>::from(to_float(before[from]) + to_float(last[from]));
        }
    run(runs, ChannelsFirst<T>{last.data(), first.data(), c, pixels});
    INFO(n << " of " << c << " channels of " << pixels << " pixels");
    CHECK(same_bits(first, expected));
    run(runs, ChannelsLast<T>{first.data(), back.data(), c, pixels, false});
    CHECK(same_bits(back, last));
    run(runs, ChannelsLast<T>{first.data(), added.data(), c, pixels, true});
    CHECK(same_bits(added, sum));
  }
}

TEMPLATE_TEST_CASE("Samples of another size lack rows below and columns at the right, or have zeros there", "[kernels]",
                   float, Half, BFloat16) {
  using T = TestType;
  constexpr int kImages = 2;
  for (const auto& [c, from_h, from_w, h, w] : {std::array{3, 4, 5, 5, 7}, std::array{40, 5, 4, 4, 3}})
    for (const bool add : {false, true}) {
      const Shared<T> from = stored<T>(shared_random(kImages * from_h * from_w * c, 1)),
                      before = stored<T>(shared_random(kImages * h * w * c, 2));
      Shared<T> to = before, expected = before;
      run(kImages * h * w * groups(c), FitPixels<T>{from.data(), to.data(), c, from_h, from_w, h, w, add});
      for_each_pixel(kImages, Layout{c, h, w, c}, [&](std::int64_t k, int y, int x, int channel) {
        const std::int64_t source = ((k * from_h + y) * from_w + x) * c + channel;
        const float value = y < from_h && x < from_w ? to_float(from[static_cast<std::size_t>(source)]) : 0.0F;
        T& there = expected[static_cast<std::size_t>(((k * h + y) * w + x) * c + channel)];
        there = Stored<T>::from(add ? to_float(there) + value : value);
      });
      CHECK(same_bits(to, expected));
    }
}

TEMPLATE_TEST_CASE("Random numbers for trials fill [-1, 1] and nothing beyond their array", "[kernels]", float, Half,
                   BFloat16) {
  using T = TestType;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 4001}) {
    const T mark = Stored<T>::from(77);
    Shared<T> x(static_cast<std::size_t>(n) + 5, mark), again = x, other = x;
    run((n + 3) / 4, RandomFill<T>{x.data(), n, 1});
    run((n + 3) / 4, RandomFill<T>{again.data(), n, 1});
    run((n + 3) / 4, RandomFill<T>{other.data(), n, 2});
    CHECK(same_bits(x, again));
    CHECK(!same_bits(x, other));
    for (std::int64_t i = n; i < std::ssize(x); ++i) REQUIRE(to_float(x[static_cast<std::size_t>(i)]) == 77.0F);
    double mean = 0, square = 0;
    std::set<float> distinct;
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = to_float(x[static_cast<std::size_t>(i)]);
      REQUIRE(std::abs(v) <= 1.0F);  // the mark is larger
      mean += double(v) / double(n);
      square += double(v) * double(v) / double(n);
      distinct.insert(v);
    }
    if (n < 1000) continue;
    // U(-1, 1): mean 0 with variance 1/3, mean square 1/3 with variance 4/45; five standard deviations. Rounding to 8
    // bits moves single numbers by 2^-9 at most, either way.
    CHECK(std::abs(mean) < 5 * std::sqrt(1.0 / 3 / double(n)));
    CHECK(std::abs(square - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / double(n)));
    // 4001 of 2^24 numbers coincide in half a pair; 8 bits have but a few hundred numbers that are not tiny.
    CHECK(std::ssize(distinct) > (sizeof(T) == 4 ? n - 10 : 256));
  }
}

TEST_CASE("A message holds the active segments side by side, and gives them back times a factor", "[kernels]") {
  // Sizes around those of chunks; the second and the last but one stay at home.
  const std::vector<std::int64_t> sizes = {3, 50, kChunk + 7, 1, 2 * kChunk, 20, 333};
  const std::vector<bool> active = {true, false, true, true, true, false, true};
  std::int64_t begin = 0, place = 0;
  Shared<Chunk> chunks;
  std::vector<std::int64_t> begins;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    begins.push_back(begin);
    if (active[k]) add_chunks(chunks, begin, sizes[k], k);
    begin += sizes[k];
  }
  Shared<std::int64_t> element(begins.begin(), begins.end()), byte(sizes.size(), 0);
  std::vector<std::int64_t> from;  // of each number of the message
  for (std::size_t k = sizes.size(); k-- > 0;) {
    if (!active[k]) continue;
    byte[k] = 4 * place;
    place += sizes[k];
    for (std::int64_t i = 0; i < sizes[k]; ++i) from.push_back(begins[k] + i);
  }
  const Chunks all{chunks.data(), nullptr, static_cast<std::int32_t>(chunks.size()), 0};
  const auto gradients = shared_random(begin, 1);
  Shared<float> message(static_cast<std::size_t>(place) + 4, 77.0F), back(gradients.size(), 77.0F);
  run(all, Pack<float>{gradients.data(), message.data(), element.data(), byte.data()});
  run(all, Unpack<float>{message.data(), back.data(), element.data(), byte.data(), 0.25F});
  std::int64_t wrong = 0;
  Shared<float> expected(gradients.size(), 77.0F);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto source = static_cast<std::size_t>(from[i]);
    wrong += message[i] != gradients[source];
    expected[source] = gradients[source] / 4;
  }
  CHECK(wrong == 0);
  CHECK(std::all_of(message.begin() + place, message.end(), [](float v) { return v == 77.0F; }));
  CHECK(back == expected);
}

TEST_CASE("The mean over ranks is added in their order, on the elements of the chunks alone", "[kernels]") {
  const Shared<Chunk> chunks = shared(std::vector<Chunk>{{3, 5, 0}, {20, 40, 1}, {60, 1, 1}});
  constexpr std::int64_t kStride = 64;
  for (const int ranks : {1, 2, 3, 7}) {
    const auto gradients = shared_random(kStride * ranks, 5);
    Shared<float> result(kStride, 77.0F), expected = result;
    const float factor = 1.0F / static_cast<float>(ranks);
    run(Chunks{chunks.data(), nullptr, 3, 0}, MeanOfRanks{gradients.data(), kStride, ranks, factor, result.data()});
    for (const Chunk& chunk : chunks)
      for (std::int64_t i = chunk.begin; i < chunk.begin + chunk.size; ++i) {
        float total = gradients[static_cast<std::size_t>(i)];
        for (int r = 1; r < ranks; ++r) total += gradients[static_cast<std::size_t>(r * kStride + i)];
        expected[static_cast<std::size_t>(i)] = factor * total;
      }
    CHECK(result == expected);
  }
}

TEST_CASE("Weighing multiplies by the segment's factor and sums up the squares of what was there; zeros are set",
          "[kernels]") {
  const Shared<Chunk> chunks = shared(std::vector<Chunk>{{3, 5, 0}, {20, 40, 1}, {60, 1, 1}});
  const Shared<std::int32_t> first = {0, 1, 3};
  const Chunks all{chunks.data(), first.data(), 3, 2};
  const auto before = shared_random(64, 5), factor = shared_random(2, 6, 1, 3);
  Shared<float> gradients = before, expected = before, zeros = before, cleared = before;
  Shared<double> partial(3 * kSums), sums(2 * kSums, -1.0);
  sum(kernel_backend().device(), all, Weigh{gradients.data(), factor.data()}, partial.data(), sums.data());
  run(all, Zero{zeros.data()});
  std::vector<double> squares(2, 0.0);
  for (const Chunk& chunk : chunks)
    for (std::int64_t i = chunk.begin; i < chunk.begin + chunk.size; ++i) {
      const auto k = static_cast<std::size_t>(i);
      expected[k] = factor[static_cast<std::size_t>(chunk.segment)] * before[k];
      squares[static_cast<std::size_t>(chunk.segment)] += at(before, i) * at(before, i);
      cleared[k] = 0;
    }
  CHECK(gradients == expected);
  CHECK(zeros == cleared);
  // Products of floats are exact in double; one rounding an addition.
  for (std::size_t s = 0; s < 2; ++s) CHECK(std::abs(sums[s * kSums] - squares[s]) <= 41 * 0x1p-53 * squares[s]);
}

TEST_CASE("The trust ratio is the clamped norm of the weights over that of the step; 1 where either is zero",
          "[kernels]") {
  struct Row {
    double theta, u, ratio;  // norms
  };
  constexpr double kHigh = 10;
  const std::vector<Row> rows = {{3, 4, 0.75}, {0.25, 2, 0.125},      {40, 5, 2},
                                 {3, 0, 1},    {0.5, 0.5, 1},         {10, 1e-3, 10000},
                                 {0, 2, 1},    {1e-20, 1e-10, 1e-10}, {7e15, 3, 10.0 / 3}};
  Shared<double> sums;
  for (const Row& row : rows) sums.insert(sums.end(), {row.theta * row.theta, row.u * row.u, -1.0});
  const auto factor = shared_random(std::ssize(rows), 1, 1, 5);
  const double lr = 0.3;
  for (const bool given : {false, true}) {
    Shared<float> step(rows.size() + 1, 77.0F);
    run(std::ssize(rows), TrustRatio{sums.data(), given ? factor.data() : nullptr, step.data(), lr, kHigh});
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const double expected = lr * rows[k].ratio * (given ? double(factor[k]) : 1.0);
      INFO("norms " << rows[k].theta << " and " << rows[k].u);
      // Double precision, rounded to float.
      CHECK(std::abs(double(step[k]) - expected) <= 1.01 * kUnit * expected);
    }
    CHECK(step.back() == 77.0F);
  }
}

TEST_CASE(
    "A local rate is the trust coefficient times the norm of the weights over that of the decayed gradient; 1 where "
    "weights or denominator are zero, and in segments that are not adapted",
    "[kernels]") {
  struct Row {
    double theta, g;  // norms
    std::uint8_t adapted;
  };
  constexpr double kTrust = 0.25, kLr = 0.3;
  const std::vector<Row> rows = {{4, 2, 1}, {4, 2, 0}, {4, 0, 1}, {0, 3, 1}, {0, 0, 1}, {1e-10, 1e-20, 1}, {6, 1e9, 1}};
  for (const double decay : {0.5, 0.0}) {
    Shared<double> sums;
    Shared<std::uint8_t> adapted;
    for (const Row& row : rows) {
      sums.insert(sums.end(), {row.theta * row.theta, row.g * row.g, -1.0});
      adapted.push_back(row.adapted);
    }
    Shared<float> rate(rows.size() + 1, 77.0F);
    run(std::ssize(rows), LocalRate{sums.data(), adapted.data(), rate.data(), kLr, kTrust, decay});
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const Row& row = rows[k];
      const double below = row.g + decay * row.theta;
      const double expected = kLr * (row.adapted != 0 && row.theta > 0 && below > 0 ? kTrust * row.theta / below : 1);
      INFO("norms " << row.theta << " and " << row.g << ", decay " << decay);
      // Double precision, rounded to float.
      CHECK(std::abs(double(rate[k]) - expected) <= 1.01 * kUnit * expected);
    }
    CHECK(rate.back() == 77.0F);
  }
}

TEST_CASE("Clipping multiplies the factors of all segments by one number, at most 1", "[kernels]") {
  const std::vector<double> norms = {3, 0, 4, 12};
  Shared<double> sums;
  for (const double norm : norms) sums.insert(sums.end(), {norm * norm, -1.0, -1.0});
  const auto factor = shared(std::vector<float>{2, 5, 1, 0.5F});
  const std::int64_t segments = std::ssize(norms);
  for (const bool given : {false, true}) {
    const double norm = given ? std::sqrt(36.0 + 16 + 36) : 13;
    for (const double limit : {0.5, 6.5, 13.5, 1e30}) {
      Shared<float> clipped(norms.size() + 1, 77.0F);
      run(segments, ClipFactor{sums.data(), given ? factor.data() : nullptr, clipped.data(), segments, limit});
      for (std::size_t k = 0; k < norms.size(); ++k) {
        const float whole = given ? factor[k] : 1.0F;
        const double expected = double(whole) * limit / (norm + 1e-6);
        INFO("limit " << limit << ", segment " << k);
        if (limit > norm + 1e-6)
          CHECK(clipped[k] == whole);
        else
          CHECK(std::abs(double(clipped[k]) - expected) <= 1.01 * kUnit * expected);  // double, rounded to float
      }
      CHECK(clipped.back() == 77.0F);
    }
  }
}
