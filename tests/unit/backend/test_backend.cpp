#include "catch.hpp"
#include "dat/backend.hpp"
#include "dat/half.hpp"
#include "definitions.hpp"
#include "device.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr double kUnit = 0x1p-24;  // one rounding to float

/// Activations in double precision, in NHWC.
struct Array {
  int n, c, h, w;
  std::vector<double> v;

  Array(int samples, int channels, int height, int width)
      : n(samples), c(channels), h(height), w(width), v(static_cast<std::size_t>(n) * c * h * w, 0.0) {}
  [[nodiscard]] double& at(int k, int channel, int y, int x) {
    return v[((static_cast<std::size_t>(k) * h + y) * w + x) * c + channel];
  }
  /// f(sample, channel, row, column, element).
  template <class F>
  void each(F f) {
    for (int k = 0; k < n; ++k)
      for (int channel = 0; channel < c; ++channel)
        for (int y = 0; y < h; ++y)
          for (int x = 0; x < w; ++x) f(k, channel, y, x, at(k, channel, y, x));
  }
  [[nodiscard]] double largest() const {
    double most = 0;
    for (const double one : v) most = std::max(most, std::abs(one));
    return most;
  }
};

/// f(index in the layout, the same element of the array).
template <class F>
void pairwise(const Layout& layout, Array& array, F f) {
  array.each([&](int k, int c, int y, int x, double& v) { f(static_cast<std::size_t>(layout.offset(k, c, y, x)), v); });
}

struct Activations {
  Array exact;
  Layout layout;
  float* device;
};

Activations random_activations(Backend& backend, int n, const Layout& layout, std::uint32_t seed, float low = -1,
                               float high = 1) {
  const auto values = random_values(n * layout.elements(), seed, low, high);
  Activations a{Array(n, layout.c, layout.h, layout.w), layout, to_device(backend, values)};
  pairwise(layout, a.exact, [&](std::size_t i, double& v) { v = values[i]; });
  return a;
}

/// The largest difference; infinite where one is NaN.
double difference(const std::vector<float>& ours, const std::vector<double>& expected) {
  REQUIRE(ours.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) most = worse(most, std::abs(double(ours[i]) - expected[i]));
  return most;
}

/// That of activations, and of those on the device.
double difference(const std::vector<float>& ours, const Layout& layout, Array expected) {
  std::vector<double> in_layout(ours.size());
  pairwise(layout, expected, [&](std::size_t i, double& v) { in_layout[i] = v; });
  return difference(ours, in_layout);
}
double difference(Backend& backend, const float* device, const Layout& layout, const Array& expected) {
  return difference(to_host(backend, device, expected.n * layout.elements()), layout, expected);
}

/// What a convolution computes, and beside each result the sum of the absolute values of its terms.
struct ConvReference {
  Array y, y_size, dx, dx_size;
  std::vector<double> dw, dw_size;

  ConvReference(const ConvSpec& s, const Array& x, const Array& dy, const std::vector<double>& w)
      : y(s.n, s.c_out, s.h_out(), s.w_out()),
        y_size(y),
        dx(s.n, s.c_in, s.h, s.w),
        dx_size(dx),
        dw(w.size()),
        dw_size(w.size()) {
    const auto add = [](std::vector<double>& sum, std::vector<double>& size, std::size_t at, double term) {
      sum[at] += term;
      size[at] += std::abs(term);
    };
    for_each_term(s, [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
      add(y.v, y_size.v, at_y, w[at_w] * x.v[at_x]);
      add(dx.v, dx_size.v, at_x, w[at_w] * dy.v[at_y]);
      add(dw, dw_size, at_w, x.v[at_x] * dy.v[at_y]);
    });
  }
};

/// How f32 numbers are multiplied, and by what part of itself a product may be off for that.
struct Math {
  std::string name;
  double product = 0;
};
/// bf16 has 8 bits: a factor is off by 2^-8 of itself at most, by 2^-16 if what it leaves is rounded, too. Of two
/// factors with two parts each, the product of the small ones is left out: 2^-16 once more.
std::vector<Math> all_maths() {
  if (!has_bf16_math()) return {{"f32"}};
  return {{"f32"}, {"bf16", 0x1.02p-7}, {"bf16x3", 3 * 0x1.02p-16}};
}

/// A float sum of `terms` products is off by at most terms * unit * (sum of their sizes). Winograd's roundings are
/// larger one by one, by a factor of about ten, but grow with the square root of the number of terms: it stays inside
/// the same bound, taken with the largest sum for all, where that counts the 36 numbers of its tile at least.
double bound(int terms, double size, const Math& math = {}) {
  return ((std::max(terms, 36) + 2) * kUnit + math.product) * size;
}

std::vector<ConvSpec> shapes(int block) {
  std::vector<ConvSpec> all;
  for (const int size : {9, 10}) {
    all.push_back({.n = 2, .c_in = 3, .h = size, .w = size, .c_out = 16, .image = true});
    all.push_back({.n = 3, .c_in = 2, .h = size, .w = size, .c_out = 32, .image = true});
    all.push_back({.n = 3, .c_in = 1, .h = size, .w = size, .c_out = 32, .image = true});
    for (const auto& [in, out] :
         {std::pair{16, 16}, std::pair{32, 32}, std::pair{48, 48}, std::pair{64, 64}, std::pair{32, 64}})
      all.push_back({.n = 2, .c_in = in, .h = size, .w = size, .c_out = out});
    all.push_back({.n = 6, .c_in = 32, .h = size, .w = size, .c_out = 64});  // enough tiles for Winograd
    for (const auto& [in, out] : {std::pair{16, 32}, std::pair{48, 96}, std::pair{32, 64}}) {
      all.push_back({.n = 2, .c_in = in, .h = size, .w = size, .c_out = out, .stride = 2});
      all.push_back({.n = 2, .c_in = in, .h = size, .w = size, .c_out = out, .kernel = 1, .stride = 2, .pad = 0});
    }
  }
  all.push_back({.n = 5, .c_in = 64, .h = 4, .w = 4, .c_out = 64});
  all.push_back({.n = 3, .c_in = 32, .h = 16, .w = 16, .c_out = 32});  // whole rows of AMX's tiles
  all.push_back({.n = 1, .c_in = 32, .h = 32, .w = 32, .c_out = 32});
  all.push_back({.n = 1, .c_in = 32, .h = 32, .w = 32, .c_out = 64, .stride = 2});
  all.push_back({.n = 2, .c_in = 160, .h = 9, .w = 9, .c_out = 192});  // Winograd's weights in pieces
  all.push_back({.n = 2, .c_in = 160, .h = 9, .w = 9, .c_out = 192, .stride = 2});
  for (const auto& [n, w] : {std::pair{2, 10}, std::pair{6, 14}})  // padded at the end alone, as TensorFlow does
    all.push_back({.n = n, .c_in = 16, .h = 10, .w = w, .c_out = 32, .stride = 2, .pad = 0, .extra_pad = 1});
  all.push_back({.n = 1, .c_in = 2 * block, .h = 2, .w = 2, .c_out = 2 * block});
  return all;
}

/// On the double of a GPU, which tries many plans for each, so many by day; else all. The last is padded at the end.
std::vector<ConvSpec> some(int block, int on_a_gpu) {
  std::vector<ConvSpec> all = drawn(shapes(block), static_cast<std::size_t>(cases(1000, on_a_gpu - 1)));
  all.push_back({.n = 2, .c_in = 16, .h = 10, .w = 14, .c_out = 32, .stride = 2, .pad = 0, .extra_pad = 1});
  return all;
}

struct ConvFixture {
  ConvFixture(Backend& backend, const ConvSpec& s)
      : x(random_activations(
            backend, s.n,
            s.image ? backend.image_layout(s.c_in, s.h, s.w) : backend.activation_layout(s.c_in, s.h, s.w), 1)),
        dy(random_activations(backend, s.n, backend.activation_layout(s.c_out, s.h_out(), s.w_out()), 2)),
        y(random_activations(backend, s.n, dy.layout, 3)),
        dx(random_activations(backend, s.n, x.layout, 4)),
        w(random_values(w_count(s), 5)) {}
  Activations x, dy, y, dx;  // y and dx: what is in them before
  std::vector<float> w;
};

/// The input gradient, of images or of activations.
void input_gradient(Conv2d& conv, const ConvSpec& s, const float* dy, float* dx) {
  if (s.image)
    conv.backward_image(dy, dx, {});
  else
    conv.backward_data(dy, dx, false);
}

Array plus(Array a, const Array& b) {
  for (std::size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i];
  return a;
}

}  // namespace

TEST_CASE("A convolution has a multiply-add for each weight and each place of each output", "[backend]") {
  const ConvSpec spec{.n = 2, .c_in = 3, .h = 8, .w = 6, .c_out = 5, .kernel = 3, .stride = 2, .pad = 1};
  CHECK(spec.macs() == 2.0 * (5 * 4 * 3) * (3 * 3 * 3));
}

TEST_CASE("A training convolution and its gradients are the sums of their definition", "[backend]") {
  for (const Math& math : all_maths()) {
    const auto backend = test_backend(2, false, math.name);
    for (ConvSpec s : some(backend->activation_layout(64, 4, 4).block, 10)) {
      INFO(name(s) << ", " << math.name);
      ConvFixture f(*backend, s);
      const std::vector<double> exact_w(f.w.begin(), f.w.end());
      const ConvReference reference(s, f.x.exact, f.dy.exact, exact_w);
      const float* w = to_device(*backend, f.w);
      const auto before = random_values(static_cast<std::int64_t>(f.w.size()), 6);
      float* dw = to_device(*backend, before);
      const auto conv = backend->conv2d(s);
      backend->commit_workspace();
      INFO(conv->implementation());
      for (int k = 0; k < 2; ++k) conv->load(w, nullptr, nullptr);  // in place of what was there

      conv->forward(f.x.device, f.y.device, nullptr);
      const int terms = s.kernel * s.kernel * s.c_in;
      CHECK(difference(*backend, f.y.device, f.y.layout, reference.y) <=
            bound(terms, reference.y_size.largest(), math));
      input_gradient(*conv, s, f.dy.device, f.dx.device);
      CHECK(difference(*backend, f.dx.device, f.dx.layout, reference.dx) <=
            bound(s.kernel * s.kernel * s.c_out, reference.dx_size.largest(), math));

      const double size = *std::ranges::max_element(reference.dw_size);
      const int pixels = s.n * s.h_out() * s.w_out();
      conv->backward_weights(f.x.device, f.dy.device, dw, false);
      const auto once = to_host(*backend, dw, static_cast<std::int64_t>(f.w.size()));
      CHECK(difference(once, reference.dw) <= bound(pixels, size, math));
      backend->copy_to_device(dw, before.data(), before.size() * sizeof(float));
      conv->backward_weights(f.x.device, f.dy.device, dw, true);
      std::vector<double> sum = reference.dw;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
      // Adding to what was there is one rounding more.
      CHECK(difference(to_host(*backend, dw, static_cast<std::int64_t>(f.w.size())), sum) <=
            bound(pixels, size, math) + 2 * kUnit * (1 + size));
    }
  }
}

TEST_CASE("A frozen convolution folds scale and bias in, adds, and cuts off below zero", "[backend]") {
  for (const Math& math : all_maths()) {
    const auto backend = test_backend(2, false, math.name);
    for (ConvSpec s : some(backend->activation_layout(64, 4, 4).block, 8)) {
      s.frozen = true;
      ConvFixture f(*backend, s);
      const auto scale = random_values(s.c_out, 7, 0.5F, 1.5F), bias = random_values(s.c_out, 8);
      std::vector<double> scaled(f.w.begin(), f.w.end());
      const std::size_t per_channel = f.w.size() / static_cast<std::size_t>(s.c_out);
      for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] *= scale[i / per_channel];
      const ConvReference reference(s, f.x.exact, f.dy.exact, scaled);
      const int terms = s.kernel * s.kernel * s.c_in;
      const float *w = to_device(*backend, f.w), *scale_device = to_device(*backend, scale),
                  *bias_device = to_device(*backend, bias);
      for (const bool accumulate : {false, true})
        for (const bool relu : {false, true}) {
          s.accumulate = accumulate;
          s.relu = relu;
          INFO(name(s) << ", " << math.name << (accumulate ? ", adding" : "") << (relu ? ", ReLU" : ""));
          const auto conv = backend->conv2d(s);
          backend->commit_workspace();
          INFO(conv->implementation());
          for (int k = 0; k < 2; ++k) conv->load(w, scale_device, bias_device);
          Activations y = random_activations(*backend, s.n, f.y.layout, 3);
          Array expected = accumulate ? plus(reference.y, y.exact) : reference.y;
          expected.each([&](int, int c, int, int, double& v) {
            v += bias[static_cast<std::size_t>(c)];
            v = relu ? std::max(v, 0.0) : v;
          });
          auto* bits = static_cast<std::uint16_t*>(backend->allocate(
              static_cast<std::size_t>((y.exact.v.size() + 15) / 16) * sizeof(std::uint16_t), "test"));
          conv->forward(f.x.device, y.device, relu ? bits : nullptr);
          CHECK(difference(*backend, y.device, y.layout, expected) <=
                bound(terms + 2, reference.y_size.largest() + 2, math));

          if (relu) {
            const auto open = to_host(*backend, bits, static_cast<std::int64_t>((y.exact.v.size() + 15) / 16));
            const auto values = to_host(*backend, y.device, static_cast<std::int64_t>(y.exact.v.size()));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < values.size(); ++i)
              wrong += ((open[i / 16] >> (i % 16) & 1) != 0) != (values[i] > 0);
            CHECK(wrong == 0);
          }
          const double most = bound(s.kernel * s.kernel * s.c_out + 1, reference.dx_size.largest() + 1, math);
          input_gradient(*conv, s, f.dy.device, f.dx.device);
          CHECK(difference(*backend, f.dx.device, f.dx.layout, reference.dx) <= most);
          if (s.image || !conv->backward_data_accumulates()) continue;
          const Activations dx = random_activations(*backend, s.n, f.x.layout, 4);
          conv->backward_data(f.dy.device, dx.device, true);
          CHECK(difference(*backend, dx.device, dx.layout, plus(reference.dx, dx.exact)) <= most);
          if (!conv->backward_data_masks()) continue;

          // Masks are the same as zeros.
          const auto masked = [&](Activations& a, std::uint32_t seed) {
            std::vector<float> values = to_host(*backend, a.device, static_cast<std::int64_t>(a.exact.v.size()));
            const auto coins = random_values(static_cast<std::int64_t>(values.size()), seed);
            std::vector<std::uint16_t> open((values.size() + 15) / 16);
            for (std::size_t i = 0; i < values.size(); ++i)
              if (coins[i] > 0)
                open[i / 16] = static_cast<std::uint16_t>(open[i / 16] | 1U << (i % 16));
              else
                values[i] = 0;
            return std::pair{to_device(*backend, open), to_device(*backend, values)};
          };
          Activations before = random_activations(*backend, s.n, f.x.layout, 4);
          const auto [dy_open, dy_zeros] = masked(f.dy, 11);
          const auto [dx_open, dx_zeros] = masked(before, 12);
          conv->backward_data(f.dy.device, before.device, true, {dy_open, dx_open});
          conv->backward_data(dy_zeros, dx_zeros, true);
          const auto count = static_cast<std::int64_t>(before.exact.v.size());
          CHECK(to_host(*backend, before.device, count) == to_host(*backend, dx_zeros, count));
        }
    }
  }
}

TEST_CASE("A frozen convolution applies a batch norm and a ReLU while it reads", "[backend]") {
  for (const Math& math : all_maths()) {
    const auto backend = test_backend(2, false, math.name);
    int taken = 0;
    for (ConvSpec s : shapes(backend->activation_layout(64, 4, 4).block)) {
      s.frozen = s.relu = true;
      if (!backend->takes_norm(s)) continue;
      ++taken;
      INFO(name(s) << ", " << math.name);
      ConvFixture f(*backend, s);
      const auto scale = random_values(s.c_in, 7, -1.5F, 1.5F), shift = random_values(s.c_in, 8);
      Array normed = f.x.exact, open = f.x.exact;
      f.x.exact.each([&](int k, int c, int row, int column, double x) {
        const auto channel = static_cast<std::size_t>(c);
        const double v = scale[channel] * x + shift[channel];
        normed.at(k, c, row, column) = std::max(v, 0.0);
        open.at(k, c, row, column) = v > 0 ? 1 : 0;
      });
      const ConvReference reference(s, normed, f.dy.exact, {f.w.begin(), f.w.end()});
      Array expected = reference.y;
      for (double& v : expected.v) v = std::max(v, 0.0);

      const auto conv = backend->conv2d(s);
      backend->commit_workspace();
      conv->load(to_device(*backend, f.w), nullptr, nullptr);
      const std::vector<float> x = to_host(*backend, f.x.device, static_cast<std::int64_t>(open.v.size()));
      auto* bits = to_device(*backend, std::vector<std::uint16_t>((open.v.size() + 15) / 16, 0xdada));
      conv->forward_of_norm(f.x.device, {to_device(*backend, scale), to_device(*backend, shift), bits}, f.y.device,
                            nullptr);
      CHECK(difference(*backend, f.y.device, f.y.layout, expected) <=
            bound(s.kernel * s.kernel * s.c_in + 2, reference.y_size.largest() + 2, math));
      CHECK(to_host(*backend, f.x.device, static_cast<std::int64_t>(x.size())) == x);
      const auto words = to_host(*backend, bits, static_cast<std::int64_t>((open.v.size() + 15) / 16));
      std::size_t wrong = 0;
      pairwise(f.x.layout, open, [&](std::size_t i, double v) { wrong += (words[i / 16] >> (i % 16) & 1) != (v > 0); });
      CHECK(wrong == 0);
    }
    CHECK((taken > 0) ==
          (backend->activation_layout(64, 4, 4).block == 16 && backend->device().kind == DeviceKind::cpu));
  }
}

TEST_CASE("PGD's step ends the gradient of images", "[backend]") {
  const auto backend = test_backend();
  const ConvSpec s{.n = 3, .c_in = 3, .h = 9, .w = 9, .c_out = 32, .frozen = true, .image = true};
  ConvFixture f(*backend, s);
  const auto ones = std::vector<float>(static_cast<std::size_t>(s.c_out), 1.0F);
  const float* scale = to_device(*backend, ones);
  const auto conv = backend->conv2d(s);
  backend->commit_workspace();
  conv->load(to_device(*backend, f.w), scale, scale);
  conv->backward_image(f.dy.device, f.dx.device, {});
  const auto count = static_cast<std::int64_t>(f.x.exact.v.size());
  const auto dx = to_host(*backend, f.dx.device, count);
  const auto x = random_values(count, 9, 0, 1), eta = random_values(count, 10, -0.1F, 0.1F);
  const float* x_device = to_device(*backend, x);
  float *eta_device = to_device(*backend, eta), *x_adv = backend->allocate_floats(count, "test");
  conv->backward_image(f.dy.device, f.dx.device, {x_device, eta_device, x_adv, 0.04F, 0.1F});
  const auto moved = to_host(*backend, eta_device, count), seen = to_host(*backend, x_adv, count);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const float z = std::clamp(x[i] + eta[i] + 0.04F * static_cast<float>((dx[i] > 0) - (dx[i] < 0)), 0.0F, 1.0F);
    const float expected = std::clamp(z - x[i], -0.1F, 0.1F);
    wrong += std::abs(moved[i] - expected) > 2 * kUnit || std::abs(seen[i] - (x[i] + expected)) > 4 * kUnit;
  }
  CHECK(wrong == 0);
  CHECK(backend->counters.conv_backward_data == 2);
  if (contains(backend->arithmetic(), "no AVX2")) return;
  for (const Backend::Allocation& one : backend->allocations())
    CHECK(one.purpose != "plain activations");  // blocked code is there
}

TEST_CASE("A frozen convolution in 16 bits is that of the rounded numbers", "[backend]") {
  const auto backend = test_backend();
  for (const DType storage : {DType::f16, DType::bf16}) {
    if (!backend->refuses(storage).empty()) continue;
    for (ConvSpec s : some(16, 12)) {
      if (s.n > 3) continue;
      s.frozen = s.relu = s.accumulate = true;
      s.storage = storage;
      INFO(name(s) << (storage == DType::f16 ? " f16" : " bf16"));
      // Weights and scale such that their products are the numbers that are stored.
      const auto half = [&](std::vector<float> values) {
        for (float& v : values)
          v = storage == DType::f16 ? to_float(Stored<Half>::from(v)) : to_float(Stored<BFloat16>::from(v));
        return values;
      };
      const auto send = [&](const std::vector<float>& values) {
        std::vector<std::uint16_t> bits;
        for (const float v : values)
          bits.push_back(storage == DType::f16 ? Stored<Half>::from(v).bits : Stored<BFloat16>::from(v).bits);
        return to_device(*backend, bits);
      };
      const auto fetch = [&](const std::uint16_t* device, std::int64_t count) {
        std::vector<float> values;
        for (const std::uint16_t b : to_host(*backend, device, count))
          values.push_back(storage == DType::f16 ? to_float(Half{b}) : to_float(BFloat16{b}));
        return values;
      };
      const auto array_of = [](const std::vector<float>& values, int n, const Layout& layout) {
        Array a(n, layout.c, layout.h, layout.w);
        pairwise(layout, a, [&](std::size_t i, double& v) { v = double(values[i]); });
        return a;
      };
      const Layout in =
                       s.image ? backend->image_layout(s.c_in, s.h, s.w) : backend->activation_layout(s.c_in, s.h, s.w),
                   out = backend->activation_layout(s.c_out, s.h_out(), s.w_out());
      const auto x = half(random_values(s.n * in.elements(), 1)), dy = half(random_values(s.n * out.elements(), 2)),
                 y = half(random_values(s.n * out.elements(), 3)), w = half(random_values(w_count(s), 4)),
                 bias = random_values(s.c_out, 5);
      const ConvReference reference(s, array_of(x, s.n, in), array_of(dy, s.n, out), {w.begin(), w.end()});
      const auto conv = backend->conv2d(s);
      backend->commit_workspace();
      INFO(conv->implementation());
      const std::vector<float> ones(static_cast<std::size_t>(s.c_out), 1.0F);
      conv->load(to_device(*backend, w), to_device(*backend, ones), to_device(*backend, bias));
      std::uint16_t* y_device = send(y);
      const void* x_device = s.image ? static_cast<const void*>(to_device(*backend, x)) : send(x);
      conv->forward(x_device, y_device, nullptr);
      Array expected = plus(reference.y, array_of(y, s.n, out));
      expected.each(
          [&](int, int c, int, int, double& v) { v = std::max(v + double(bias[static_cast<std::size_t>(c)]), 0.0); });
      // Storing rounds: the sum once, or twice where the bias is added later.
      const double rounding = storage == DType::f16 ? 0x1p-10 : 0x1p-7;
      CHECK(difference(fetch(y_device, s.n * out.elements()), out, expected) <=
            rounding * (reference.y.largest() + 2) + bound(s.kernel * s.kernel * s.c_in, reference.y_size.largest()));
      Array dx = reference.dx;
      std::vector<float> ours;
      if (s.image) {
        float* device = backend->allocate_floats(s.n * in.elements(), "test");
        conv->backward_image(send(dy), device, {});
        ours = to_host(*backend, device, s.n * in.elements());
      } else {
        std::uint16_t* device = send(x);
        conv->backward_data(send(dy), device, true);
        ours = fetch(device, s.n * in.elements());
        dx = plus(dx, array_of(x, s.n, in));
      }
      CHECK(difference(ours, in, dx) <=
            rounding * (dx.largest() + 1) + bound(s.kernel * s.kernel * s.c_out, reference.dx_size.largest()));
    }
  }
}

TEST_CASE("Our own code's results do not depend on the number of threads, nor on the other samples", "[backend][cpu]") {
  for (const Math& math : all_maths()) {
    for (const ConvSpec s : {ConvSpec{.n = 3, .c_in = 160, .h = 16, .w = 16, .c_out = 192},
                             ConvSpec{.n = 3, .c_in = 64, .h = 18, .w = 18, .c_out = 32},
                             ConvSpec{.n = 3, .c_in = 160, .h = 24, .w = 24, .c_out = 192, .stride = 2},
                             ConvSpec{.n = 3, .c_in = 32, .h = 25, .w = 25, .c_out = 48, .stride = 2},
                             ConvSpec{.n = 3, .c_in = 48, .h = 16, .w = 16, .c_out = 16}}) {
      INFO(name(s) << ", " << math.name);
      struct Results {
        std::vector<float> y, dx, dw;
      };
      const auto results = [&](int threads, int n, int wanted) {
        const auto backend = test_backend(threads, true, math.name);
        ConvSpec some = s;
        some.n = n;
        ConvFixture f(*backend, some);
        // A segment may begin anywhere.
        float* dw = backend->allocate_floats(static_cast<std::int64_t>(f.w.size()) + 1, "test") + 1;
        const auto conv = backend->conv2d(some);
        backend->commit_workspace();
        const bool by_amx = math.product > 0 && some.c_in % 32 == 0 && some.c_out % 32 == 0;
        CHECK(conv->implementation().starts_with(by_amx ? "AMX" : "Winograd"));
        conv->load(to_device(*backend, f.w), nullptr, nullptr);
        conv->want(wanted);
        conv->forward(f.x.device, f.y.device, nullptr);
        conv->backward_data(f.dy.device, f.dx.device, false);
        conv->backward_weights(f.x.device, f.dy.device, dw, false);
        return Results{to_host(*backend, f.y.device, n * f.y.layout.elements()),
                       to_host(*backend, f.dx.device, n * f.x.layout.elements()),
                       to_host(*backend, dw, static_cast<std::int64_t>(f.w.size()))};
      };
      const Results one = results(1, s.n, s.n);
      for (const int threads : {2, 3, 16}) {
        const Results many = results(threads, s.n, s.n);
        CHECK(many.y == one.y);
        CHECK(many.dx == one.dx);
        CHECK(many.dw == one.dw);
      }
      const Results alone = results(2, 1, 1);  // random_activations gives the first sample the same values
      CHECK(std::equal(alone.y.begin(), alone.y.end(), one.y.begin()));
      CHECK(std::equal(alone.dx.begin(), alone.dx.end(), one.dx.begin()));
      const Results first = results(2, s.n, 1);  // where the other samples are left as they were
      for (const auto& [ours, sample, seed] : {std::tuple{first.y, alone.y, 3U}, {first.dx, alone.dx, 4U}}) {
        std::vector<float> expected = random_values(std::ssize(ours), seed);
        std::ranges::copy(sample, expected.begin());
        CHECK((ours == expected));
      }
    }
  }
}

TEST_CASE("Our own code computes from 8 tiles of 4x4 pixels on", "[backend][cpu]") {
  const auto backend = test_backend();
  for (const auto& [h, w, own] :
       {std::tuple{16, 8, true}, {28, 4, false}, {4, 28, false}, {5, 16, true}, {16, 5, true}})
    CHECK(
        backend->conv2d({.n = 1, .c_in = 32, .h = h, .w = w, .c_out = 32})->implementation().starts_with("Winograd") ==
        own);
}

TEST_CASE("Sums of the library do not depend on the number of threads where results are deterministic",
          "[backend][cpu]") {
  const auto results = [](int threads) {
    const auto backend = test_backend(threads);
    const ConvSpec s{.n = 5, .c_in = 3, .h = 17, .w = 17, .c_out = 32, .image = true};
    ConvFixture f(*backend, s);
    const auto conv = backend->conv2d(s);
    const auto norm = backend->batch_norm({.n = s.n, .c = s.c_out, .h = s.h, .w = s.w});
    const auto linear = backend->linear(64, 48, 10);
    backend->commit_workspace();
    std::vector<std::pair<float*, std::int64_t>> all;
    const auto floats = [&](std::int64_t count) {
      all.emplace_back(to_device(*backend, random_values(count, 7)), count);
      return all.back().first;
    };
    float *dw = floats(w_count(s)), *gamma = floats(32), *beta = floats(32), *mean = floats(32), *variance = floats(32),
          *dgamma = floats(32), *dbeta = floats(32), *y = floats(y_count(s)), *dx = floats(y_count(s));
    conv->backward_weights(f.x.device, f.dy.device, dw, false);
    norm->forward(f.y.device, nullptr, gamma, beta, y, mean, variance);
    norm->backward(f.y.device, y, f.dy.device, gamma, beta, mean, variance,
                   {.dx = dx, .dgamma = dgamma, .dbeta = dbeta});
    linear->backward_weights(floats(64 * 48), floats(64 * 10), floats(480), floats(10), false);
    std::vector<std::vector<float>> values;
    for (const auto& [from, count] : all) values.push_back(to_host(*backend, from, count));
    return values;
  };
  const auto one = results(1);
  for (const int threads : {2, 3}) CHECK((results(threads) == one));
}

TEST_CASE("Products in bf16 are for CPUs that have them", "[backend]") {
  for (const std::string math : {"bf16", "bf16x3"}) {
    const BackendOptions options{.device = test_device(), .threads = 1, .math = math};
    const std::string error = error_of([&] { (void)make_backend(options); });
    if (test_device() != "cpu")
      CHECK(contains(error, "2: --math " + math + " is for CPUs"));
    else if (has_bf16_math())
      CHECK(contains(make_backend(options)->arithmetic(), "AMX in " + math));
    else
      CHECK(contains(error, "5: --math bf16 and bf16x3 are for processors with AMX"));
  }
}

TEST_CASE("A frozen stride-1 convolution adds its input gradient to what is there, on a GPU one for training, too",
          "[backend]") {
  const auto backend = test_backend();
  for (const int width : {28, 32})  // on a CPU seven tiles, by the library, and eight, by our own code
    for (const bool frozen : {true, false}) {
      const auto conv = backend->conv2d({.n = 1, .c_in = 32, .h = 4, .w = width, .c_out = 32, .frozen = frozen});
      CHECK(conv->backward_data_accumulates() == (frozen || test_device() != "cpu"));
      if (test_device() != "cpu") continue;
      const std::string name = conv->implementation();  // of a weight gradient, too, in training
      CHECK(name.starts_with("Winograd") == (width == 32));
      if (width == 32) continue;
      CHECK((contains(name, " rotated") == frozen && std::ranges::count(name, '/') == (frozen ? 1 : 2)));
    }
}

TEST_CASE("Batch norm and its gradients are those of the batch", "[backend]") {
  const auto backend = test_backend();
  for (const auto& [residual, relu] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
    for (const auto& [n, c, size] : {std::tuple{2, 16, 9}, std::tuple{3, 48, 5}, std::tuple{7, 64, 1}}) {
      INFO(n << " samples, " << c << " channels, " << size << "x" << size << (residual ? ", adding" : "")
             << (relu ? ", ReLU" : ""));
      const BatchNormSpec spec{.n = n, .c = c, .h = size, .w = size, .residual = residual, .relu = relu};
      const Layout layout = backend->activation_layout(c, size, size);
      const Activations x = random_activations(*backend, n, layout, 1, -1, 3);
      const Activations dy = random_activations(*backend, n, layout, 2),
                        added = random_activations(*backend, n, layout, 7),
                        addend = random_activations(*backend, n, layout, 8);
      Activations dresidual = random_activations(*backend, n, layout, 9);
      Activations y = random_activations(*backend, n, layout, 3), dx = random_activations(*backend, n, layout, 4);
      const auto gamma = random_values(c, 5, 0.5F, 1.5F), beta = random_values(c, 6);
      const float *gamma_device = to_device(*backend, gamma), *beta_device = to_device(*backend, beta);
      float *mean = backend->allocate_floats(c, "test"), *variance = backend->allocate_floats(c, "test"),
            *dgamma = backend->allocate_floats(c, "test"), *dbeta = backend->allocate_floats(c, "test");
      const auto norm = backend->batch_norm(spec);
      backend->commit_workspace();
      norm->forward(x.device, residual ? added.device : nullptr, gamma_device, beta_device, y.device, mean, variance);
      const auto backward = [&](const BatchNorm::Gradients& to) {
        norm->backward(x.device, y.device, dy.device, gamma_device, beta_device, mean, variance, to);
      };
      backward({.dx = dx.device, .dresidual = residual ? dresidual.device : nullptr, .dgamma = dgamma, .dbeta = dbeta});

      const NormReference expected(spec, x.exact.v, dy.exact.v, residual ? &added.exact.v : nullptr, gamma, beta);
      Array expected_y = x.exact, expected_dx = expected_y, expected_d = expected_y;
      expected_y.v = expected.y;
      expected_dx.v = expected.dx;
      expected_d.v = expected.d;
      const int count = n * size * size;
      const double largest = expected.largest;
      // |x| <= 3: sums of `count` terms of at most 3, 9 and the normalised x, each rounded once or twice; 1/std < 3.
      const double sum_error = (count + 4) * kUnit;
      CHECK(difference(to_host(*backend, mean, c), expected.mean) <= 3 * sum_error);
      CHECK(difference(to_host(*backend, variance, c), expected.variance) <= 9 * sum_error);
      CHECK(difference(*backend, y.device, layout, expected_y) <= 3 * 9 * sum_error);
      CHECK(difference(to_host(*backend, dgamma, c), expected.dgamma) <= count * largest * sum_error);
      CHECK(difference(to_host(*backend, dbeta, c), expected.dbeta) <= count * sum_error);
      const double dx_error = 3 * 9 * (1 + largest * largest) * sum_error;
      CHECK(difference(*backend, dx.device, layout, expected_dx) <= dx_error);

      if (residual) CHECK(difference(*backend, dresidual.device, layout, expected_d) == 0);

      // With the part of another reader; the parameters' gradients added to what is there.
      backward({.dx = dx.device, .addend = addend.device, .dgamma = dgamma, .accumulate = true});
      CHECK(difference(*backend, dx.device, layout, plus(expected_dx, addend.exact)) <= dx_error + 4 * kUnit);
      std::vector<double> twice;
      for (const double one : expected.dgamma) twice.push_back(2 * one);
      CHECK(difference(to_host(*backend, dgamma, c), twice) <= 2 * count * largest * sum_error);
      backward({.dx = dx.device, .dbeta = dbeta});
      CHECK(difference(to_host(*backend, dbeta, c), expected.dbeta) <= count * sum_error);
      CHECK(difference(*backend, dx.device, layout, expected_dx) <= dx_error);

      // In place.
      backward(residual ? BatchNorm::Gradients{.dx = dx.device, .dresidual = dy.device}
                        : BatchNorm::Gradients{.dx = dy.device});
      CHECK(difference(*backend, residual ? dx.device : dy.device, layout, expected_dx) <= dx_error);
      if (residual) CHECK(difference(*backend, dy.device, layout, expected_d) == 0);
    }
}

TEST_CASE("A batch that is not finite leaves nothing behind in the statistics of the next one", "[backend][nan]") {
  const auto backend = test_backend();
  const BatchNormSpec spec{.n = 3, .c = 20, .h = 5, .w = 5};
  const Layout layout = backend->activation_layout(spec.c, spec.h, spec.w);
  const std::int64_t count = std::int64_t{spec.n} * layout.elements();
  const auto values = random_values(count, 3);
  const float *gamma = to_device(*backend, random_values(spec.c, 1, 0.5F, 1.5F)),
              *beta = to_device(*backend, random_values(spec.c, 2)), *good = to_device(*backend, values),
              *bad = to_device(*backend, std::vector<float>(static_cast<std::size_t>(count), std::nanf("")));
  float *mean = backend->allocate_floats(spec.c, "test"), *variance = backend->allocate_floats(spec.c, "test"),
        *y = backend->allocate_floats(count, "test"), *dx = backend->allocate_floats(count, "test"),
        *dgamma = backend->allocate_floats(spec.c, "test"), *dbeta = backend->allocate_floats(spec.c, "test");
  const auto norm = backend->batch_norm(spec);
  backend->commit_workspace();
  const auto results = [&](const float* x) {
    norm->forward(x, nullptr, gamma, beta, y, mean, variance);
    norm->backward(x, y, good, gamma, beta, mean, variance, {.dx = dx, .dgamma = dgamma, .dbeta = dbeta});
    std::vector<std::vector<float>> all;
    for (const float* of : {mean, variance, dgamma, dbeta}) all.push_back(to_host(*backend, of, spec.c));
    for (const float* of : {y, dx}) all.push_back(to_host(*backend, of, count));
    return all;
  };
  const auto before = results(good), between = results(bad), after = results(good);
  CHECK(after == before);
  std::vector<double> expected(static_cast<std::size_t>(spec.c));
  for (std::int64_t i = 0; i < count; ++i)
    expected[static_cast<std::size_t>(layout.channel(i))] += double(values[static_cast<std::size_t>(i)]) / (3 * 5 * 5);
  CHECK(difference(before[0], expected) <= 3 * (75 + 4) * kUnit);
  for (std::size_t k = 0; k < 2; ++k) CHECK(std::ranges::all_of(between[k], [](float v) { return std::isnan(v); }));
}

TEST_CASE("The linear layer and its gradients are the sums of their definition", "[backend]") {
  const auto backend = test_backend();
  constexpr int kN = 5, kIn = 48, kOut = 10;
  const auto x = random_values(kN * kIn, 1), w = random_values(kOut * kIn, 2), b = random_values(kOut, 3),
             dy = random_values(kN * kOut, 4), dw_before = random_values(kOut * kIn, 5),
             db_before = random_values(kOut, 6);
  const ConvSpec like{.n = kN, .c_in = kIn, .h = 1, .w = 1, .c_out = kOut, .kernel = 1, .pad = 0};  // with a bias
  Array exact_x(kN, kIn, 1, 1), exact_dy(kN, kOut, 1, 1);
  exact_x.v.assign(x.begin(), x.end());
  exact_dy.v.assign(dy.begin(), dy.end());
  ConvReference expected(like, exact_x, exact_dy, {w.begin(), w.end()});
  std::vector<double> db(kOut);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    expected.y.v[i] += b[i % kOut];
    db[i % kOut] += dy[i];
  }
  const float *x_device = to_device(*backend, x), *w_device = to_device(*backend, w),
              *b_device = to_device(*backend, b), *dy_device = to_device(*backend, dy);
  float *y_device = backend->allocate_floats(kN * kOut, "test"),
        *dx_device = backend->allocate_floats(kN * kIn, "test");
  const auto linear = backend->linear(kN, kIn, kOut);
  backend->commit_workspace();
  linear->forward(x_device, w_device, b_device, y_device);
  CHECK(difference(to_host(*backend, y_device, kN * kOut), expected.y.v) <= bound(kIn + 1, kIn + 1));
  linear->backward_data(dy_device, w_device, dx_device);
  CHECK(difference(to_host(*backend, dx_device, kN * kIn), expected.dx.v) <= bound(kOut, kOut));
  for (const bool accumulate : {false, true})
    for (const bool wants_w : {false, true})
      for (const bool wants_b : {false, true}) {
        float *dw_device = to_device(*backend, dw_before), *db_device = to_device(*backend, db_before);
        linear->backward_weights(x_device, dy_device, wants_w ? dw_device : nullptr, wants_b ? db_device : nullptr,
                                 accumulate);
        std::vector<double> expected_w(dw_before.begin(), dw_before.end()),
            expected_b(db_before.begin(), db_before.end());
        for (std::size_t i = 0; i < dw_before.size() && wants_w; ++i)
          expected_w[i] = expected.dw[i] + (accumulate ? expected_w[i] : 0);
        for (std::size_t i = 0; i < db.size() && wants_b; ++i) expected_b[i] = db[i] + (accumulate ? expected_b[i] : 0);
        CHECK(difference(to_host(*backend, dw_device, kOut * kIn), expected_w) <=
              (wants_w ? bound(kN + 1, kN + 1) : 0));
        CHECK(difference(to_host(*backend, db_device, kOut), expected_b) <= (wants_b ? bound(kN + 1, kN + 1) : 0));
      }
  CHECK(backend->counters.linear_backward_weights == 8);
}

TEST_CASE("Device memory is zeroed, aligned and accounted for; the workspace is as large as the largest request",
          "[backend]") {
  for (int round = 0; round < 2; ++round) {  // the second one may get what the first one has filled
    const auto first = test_backend();
    auto* const filled = static_cast<float*>(first->allocate(1001 * sizeof(float), "test"));
    CHECK(to_host(*first, filled, 1001) == std::vector<float>(1001, 0.0F));
    first->copy_to_device(filled, std::vector<float>(1001, 7.0F).data(), 1001 * sizeof(float));
  }
  const auto backend = test_backend();
  const auto* memory = static_cast<float*>(backend->allocate(1001 * sizeof(float), "a purpose"));
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0);
  const auto allocations = backend->allocations();
  CHECK(std::ranges::any_of(allocations,
                            [](const auto& a) { return a.purpose == "a purpose" && a.bytes == 1001 * sizeof(float); }));
  backend->request_workspace(1000);
  backend->request_workspace(100000);
  backend->request_workspace(10);
  backend->commit_workspace();
  const std::vector<std::uint8_t> pattern(100000, 7);
  backend->copy_to_device(backend->workspace(), pattern.data(), pattern.size());
  CHECK(to_host(*backend, static_cast<const std::uint8_t*>(backend->workspace()), 100000) == pattern);
  backend->request_workspace(200000);
  backend->commit_workspace();
  std::vector<std::size_t> blocks;
  for (const Backend::Allocation& one : backend->allocations())
    if (one.purpose == "activations") blocks.push_back(one.bytes);
  CHECK(blocks == std::vector<std::size_t>{200000});
  CHECK(!backend->description().empty());
  (void)backend->take_turn(&blocks);
  CHECK(backend->take_turn(&blocks));  // nobody else has had it
  if (test_device() != "cpu") return;
  constexpr std::size_t kHugePage = 2U << 20U;  // on which a block of two lies
  CHECK(reinterpret_cast<std::uintptr_t>(backend->allocate(2 * kHugePage, "test")) % kHugePage == 0);
  for (const auto& [threads, words] : {std::pair{1, ", 1 thread"}, std::pair{2, ", 2 threads"}})
    CHECK(test_backend(threads)->description() == backend->arithmetic() + words);
  // Packed weights of a program lie side by side, over those of the programs before.
  std::vector<std::size_t> packed;
  (void)backend->batch_norm({.n = 1, .c = 16, .h = 8, .w = 16});
  for (const int convolutions : {1, 2, 1}) {
    backend->plan_weights();
    for (int k = 0; k < convolutions; ++k) (void)backend->conv2d({.n = 1, .c_in = 16, .h = 8, .w = 16, .c_out = 16});
    backend->commit_workspace();
    for (const Backend::Allocation& one : backend->allocations()) {
      CHECK((one.purpose != "folded bias" && one.purpose != "ReLU masks"));  // these are for training, without a ReLU
      if (one.purpose == "packed weights") packed.push_back(one.bytes);
    }
  }
  CHECK((packed.at(0) > 0 && packed == std::vector{packed[0], 2 * packed[0], 2 * packed[0]}));
}

TEST_CASE("What a backend cannot do is refused, with the option that would help", "[backend][cpu]") {
  const auto backend = test_backend();
  const int block = backend->activation_layout(64, 4, 4).block;
  for (const int width : {block / 2, block + block / 2})
    for (const bool image : {false, true}) {
      INFO(width << " channels");
      CHECK(contains(message_of([&] {
                       (void)backend->conv2d(
                           {.n = 1, .c_in = image ? 3 : width, .h = 8, .w = 8, .c_out = width, .image = image});
                     }),
                     "--width"));
    }
  CHECK(contains(
      message_of([&] { (void)backend->conv2d({.n = 1, .c_in = 4, .h = 8, .w = 8, .c_out = block, .image = true}); },
                 ExitCode::data),
      "images of 1 to 3 channels, not 4"));
  CHECK(code_of([] { (void)make_backend({.device = "abacus"}); }) == ExitCode::usage);
  const ConvSpec half{.n = 1, .c_in = 16, .h = 8, .w = 8, .c_out = 16, .frozen = true, .storage = DType::f16};
  CHECK(contains(message_of([&] { (void)backend->conv2d(half); }), "f32"));
  // Where there is a GPU and the code for it, it must be what one gets.
  std::unique_ptr<Backend> cuda;
  const ExitCode code = code_of([&] { cuda = make_backend({.device = "cuda"}); });
  CHECK(code == (cuda ? ExitCode::done : ExitCode::device));
  if (cuda) CHECK(cuda->device().kind == DeviceKind::cuda);
}
