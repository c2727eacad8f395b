#pragma once

#include <cmath>
#include <cstdint>

#include "dat/half.hpp"
#include "dat/random.hpp"
#include "launch.hpp"
#include "perturb.hpp"
#include "pointwise.hpp"

namespace dat::kernels {

/// Images [pixels][c] with zero channels added, [pixels][padded]. Runs over the pixels.
template <class T>
struct PadImage {
  const float* x;
  T* y;
  int c, padded;
  DAT_HD void operator()(std::int64_t i) const {
    for (int k = 0; k < padded; ++k) y[i * padded + k] = Stored<T>::from(k < c ? x[i * c + k] : 0.0F);
  }
};

/// Weights [out][taps][in] times scale [out] (null: 1), as [out][row] with tap*in_padded + channel inside a row, or
/// rotated: [in][row], the taps in opposite order, tap*out + output channel inside a row: with these the input gradient
/// of a stride-1 convolution is a convolution of dy. Places without a weight are zero. Runs over the result.
template <class T>
struct FoldWeights {
  const float *weights, *scale;
  T* result;
  int out, in, taps, in_padded, row;
  bool rotate;
  DAT_HD void operator()(std::int64_t i) const {
    const int first = static_cast<int>(i / row), rest = static_cast<int>(i % row), width = rotate ? out : in_padded;
    const int tap = rest / width, second = rest % width;
    const int o = rotate ? second : first, c = rotate ? first : second;
    float value = 0;
    if (tap < taps && c < in)
      value = weights[(std::int64_t{o} * taps + (rotate ? taps - 1 - tap : tap)) * in + c] *
              (scale != nullptr ? scale[o] : 1.0F);
    result[i] = Stored<T>::from(value);
  }
};

/// Second half of the input gradient of a convolution on images. The first is a matrix product: for each pixel of dy
/// and each tap and channel, products [n*h_out*w_out][row] = what this pixel sends there, tap*c + channel inside a row.
/// Here every image pixel adds up what it gets; then dx is written, or PGD's step is done where `update` is given. The
/// image is HWC.
struct TapProducts {
  const float* products;
  float* dx;
  int c, h, w, h_out, w_out, kernel, stride, pad, row;
  PgdUpdate update;
};

/// The sum. A template argument that is not 0 says what the member of its name is: the compiler then divides by it
/// without a division, and unrolls the taps. Runs over n*h*w*c.
template <int Kernel, int Stride, int Channels>
struct ImageGradient {
  TapProducts of;
  DAT_HD void operator()(std::int64_t i) const {
    const int kernel = Kernel > 0 ? Kernel : of.kernel, stride = Stride > 0 ? Stride : of.stride,
              channels = Channels > 0 ? Channels : of.c;
    // 32 bits: 64-bit divisions would take longer than the rest.
    const auto element = static_cast<std::uint32_t>(i), c = static_cast<std::uint32_t>(channels),
               h = static_cast<std::uint32_t>(of.h), w = static_cast<std::uint32_t>(of.w);
    const std::uint32_t pixel = element / c, line = pixel / w, n = line / h;
    const int channel = static_cast<int>(element - pixel * c), x = static_cast<int>(pixel - line * w),
              y = static_cast<int>(line - n * h);
    const float* const from = of.products + std::int64_t{n} * of.h_out * of.w_out * of.row + channel;
    float total = 0;
    DAT_UNROLL
    for (int ky = 0; ky < kernel; ++ky) {
      const int above = y + of.pad - ky, from_y = above / stride;
      if (above < 0 || above % stride != 0 || from_y >= of.h_out) continue;
      DAT_UNROLL
      for (int kx = 0; kx < kernel; ++kx) {
        const int left = x + of.pad - kx, from_x = left / stride;
        if (left < 0 || left % stride != 0 || from_x >= of.w_out) continue;
        total += from[(from_y * of.w_out + from_x) * of.row + (ky * kernel + kx) * channels];
      }
    }
    if (of.update.x != nullptr)
      pgd_step(of.update, i, total);
    else
      of.dx[i] = total;
  }
};
using ImageGradientRgb = ImageGradient<3, 1, 3>;   ///< what the networks begin with
using ImageGradientGrey = ImageGradient<3, 1, 1>;  ///< the same on images of one channel
using ImageGradientAny = ImageGradient<0, 0, 0>;

/// The sum, by the code for its shape where there is some.
inline void image_gradient(const Device& device, std::int64_t elements, const TapProducts& of) {
  const bool known = of.kernel == 3 && of.stride == 1;
  if (known && of.c == 3)
    each(device, elements, ImageGradientRgb{of});
  else if (known && of.c == 1)
    each(device, elements, ImageGradientGrey{of});
  else
    each(device, elements, ImageGradientAny{of});
}

/// Numbers in [-1, 1) for trials. Runs over ceil(n/4).
template <class T>
struct RandomFill {
  T* x;
  std::int64_t n;
  std::uint32_t key;
  DAT_HD void operator()(std::int64_t i) const {
    const Philox4 words =
        philox4x32({{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0}}, key, 0);
    for (int k = 0; k < 4; ++k)
      if (4 * i + k < n) x[4 * i + k] = Stored<T>::from(2.0F * uniform(words.v[k]) - 1.0F);
  }
};

enum class ConvolutionPass : std::uint8_t { forward, data, weights };

/// Some elements of a convolution's result against its definition in double precision. All tensors are NHWC, weights
/// [out][kh][kw][in]. error[i] = |result - definition|, size[i] = the sum of the absolute values of its terms, value[i]
/// = |definition|. Runs over the elements to be looked at, chosen at random.
template <class T>
struct CheckConvolution {
  using Pass = ConvolutionPass;
  Pass pass;
  const T *x, *w, *dy;  // two of them are read
  const T* result;      // y, dx or dw
  const T* z;           // forward: added before the ReLU; null: nothing
  const float* bias;    // forward: [c_out] or null
  bool relu;            // forward
  int n, c_in, h, w_in, c_out, h_out, w_out, kernel, stride, pad;
  float *error, *size, *value;

  DAT_HD void operator()(std::int64_t i) const {
    const Philox4 r = philox4x32({{static_cast<std::uint32_t>(i), 0, 0, 0}}, 7, 0);
    const auto pick = [](std::uint32_t word, int count) {
      return static_cast<int>(word % static_cast<std::uint32_t>(count));
    };
    double sum = 0, terms = 0;
    const auto add = [&](double a, double b) {
      sum += a * b;
      terms += a * b < 0 ? -a * b : a * b;
    };
    std::int64_t at = 0;
    if (pass == Pass::forward) {
      const int k = pick(r.v[0], n), o = pick(r.v[1], c_out), y = pick(r.v[2], h_out), column = pick(r.v[3], w_out);
      for (int tap = 0; tap < kernel * kernel; ++tap) {
        const int from_y = y * stride - pad + tap / kernel, from_x = column * stride - pad + tap % kernel;
        if (from_y < 0 || from_y >= h || from_x < 0 || from_x >= w_in) continue;
        for (int c = 0; c < c_in; ++c)
          add(double(to_float(x[((std::int64_t{k} * h + from_y) * w_in + from_x) * c_in + c])),
              double(to_float(w[(std::int64_t{o} * kernel * kernel + tap) * c_in + c])));
      }
      at = ((std::int64_t{k} * h_out + y) * w_out + column) * c_out + o;
      if (z != nullptr) add(double(to_float(z[at])), 1);
      if (bias != nullptr) add(double(bias[o]), 1);
      if (relu && sum < 0) sum = 0;
    } else if (pass == Pass::data) {
      const int k = pick(r.v[0], n), c = pick(r.v[1], c_in), y = pick(r.v[2], h), column = pick(r.v[3], w_in);
      for (int tap = 0; tap < kernel * kernel; ++tap) {
        const int above = y + pad - tap / kernel, left = column + pad - tap % kernel;
        if (above < 0 || above % stride != 0 || above / stride >= h_out) continue;
        if (left < 0 || left % stride != 0 || left / stride >= w_out) continue;
        for (int o = 0; o < c_out; ++o)
          add(double(to_float(dy[((std::int64_t{k} * h_out + above / stride) * w_out + left / stride) * c_out + o])),
              double(to_float(w[(std::int64_t{o} * kernel * kernel + tap) * c_in + c])));
      }
      at = ((std::int64_t{k} * h + y) * w_in + column) * c_in + c;
    } else {
      const int o = pick(r.v[0], c_out), tap = pick(r.v[1], kernel * kernel), c = pick(r.v[2], c_in);
      for (int k = 0; k < n; ++k)
        for (int y = 0; y < h_out; ++y)
          for (int column = 0; column < w_out; ++column) {
            const int from_y = y * stride - pad + tap / kernel, from_x = column * stride - pad + tap % kernel;
            if (from_y < 0 || from_y >= h || from_x < 0 || from_x >= w_in) continue;
            add(double(to_float(x[((std::int64_t{k} * h + from_y) * w_in + from_x) * c_in + c])),
                double(to_float(dy[((std::int64_t{k} * h_out + y) * w_out + column) * c_out + o])));
          }
      at = (std::int64_t{o} * kernel * kernel + tap) * c_in + c;
    }
    const double difference = double(to_float(result[at])) - sum;
    error[i] = static_cast<float>(difference < 0 ? -difference : difference);
    size[i] = static_cast<float>(terms);
    value[i] = static_cast<float>(sum < 0 ? -sum : sum);
  }
};

}  // namespace dat::kernels
