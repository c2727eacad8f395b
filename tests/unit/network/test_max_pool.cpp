#include "catch.hpp"
#include "dat/half.hpp"
#include "device.hpp"
#include "max_pool.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

struct Shape {
  int h, w, kernel, stride, pad;
};

/// Few different numbers, below zero alone in some of the channels, and some that are no numbers.
std::vector<float> with_ties(std::int64_t count, const Layout& layout) {
  auto values = random_values(count, 7, -4, 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::floor(values[i]);
    const int channel = layout.channel(static_cast<std::int64_t>(i));
    if (channel % 5 == 1) values[i] -= 9;
    if (channel % 5 == 2 && i % 11 == 0) values[i] = std::numeric_limits<float>::quiet_NaN();
    if (channel % 5 == 3 && i % 2 == 0) values[i] = -std::numeric_limits<float>::infinity();
  }
  return values;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <class T>
void check(const Shape& s, int block) {
  constexpr int kSamples = 3, kChannels = 32;
  const int c_block = block == 0 ? kChannels : block;
  const Layout in{kChannels, s.h, s.w, c_block};
  const Layout out{kChannels, (s.h + 2 * s.pad - s.kernel) / s.stride + 1, (s.w + 2 * s.pad - s.kernel) / s.stride + 1,
                   c_block};
  Backend& backend = kernel_backend();
  const std::int64_t n_in = kSamples * in.elements(), n_out = kSamples * out.elements();
  const auto values = with_ties(n_in, in), given = random_values(n_out, 8);
  Shared<T> x(values.size()), dx(values.size()), y(given.size()), dy(given.size());
  Shared<std::uint8_t> place(given.size());
  for (std::size_t i = 0; i < values.size(); ++i) x[i] = Stored<T>::from(values[i]);
  for (std::size_t i = 0; i < given.size(); ++i) dy[i] = Stored<T>::from(given[i]);
  const kernels::MaxPool of{in, out, s.kernel, s.stride, s.pad};
  each(backend.device(), kernels::groups(n_out),
       kernels::MaxPoolForward<T>{x.data(), y.data(), place.data(), of, n_out});
  each(backend.device(), kernels::groups(n_in),
       kernels::MaxPoolBackward<T>{dy.data(), place.data(), dx.data(), of, n_in});
  backend.wait();

  std::vector<float> expected(values.size(), 0.0F);
  std::int64_t wrong = 0;
  for (int n = 0; n < kSamples; ++n)
    for (int c = 0; c < kChannels; ++c)
      for (int row = 0; row < out.h; ++row)
        for (int column = 0; column < out.w; ++column) {
          std::int64_t best = -1;
          for (int i = 0; i < s.kernel; ++i)
            for (int j = 0; j < s.kernel; ++j) {
              const int v = row * s.stride - s.pad + i, h = column * s.stride - s.pad + j;
              if (v < 0 || h < 0 || v >= s.h || h >= s.w) continue;
              const std::int64_t at = in.offset(n, c, v, h);
              const float here = values[static_cast<std::size_t>(at)];
              if (best < 0 || here > values[static_cast<std::size_t>(best)] || std::isnan(here)) best = at;
            }
          const auto at = static_cast<std::size_t>(out.offset(n, c, row, column)),
                     from = static_cast<std::size_t>(best);
          wrong += !same(to_float(y[at]), to_float(x[from]));
          expected[from] += to_float(dy[at]);
        }
  for (std::size_t i = 0; i < expected.size(); ++i) wrong += to_float(dx[i]) != to_float(Stored<T>::from(expected[i]));
  INFO(s.h << "x" << s.w << ", kernel " << s.kernel << ", stride " << s.stride << ", padding " << s.pad
           << ", blocks of " << block);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("A max pool takes the first largest value of each window, and gives it the gradient", "[kernels]") {
  for (const Shape& shape : {Shape{8, 8, 3, 2, 1}, Shape{21, 21, 3, 2, 1}, Shape{37, 20, 3, 2, 1}, Shape{1, 2, 3, 2, 1},
                             Shape{7, 9, 2, 2, 0}, Shape{6, 6, 3, 1, 1}, Shape{9, 5, 5, 3, 2}})
    for (const int block : {8, 16, 0}) {
      check<float>(shape, block);
      check<Half>(shape, block);
      check<BFloat16>(shape, block);
    }
}
