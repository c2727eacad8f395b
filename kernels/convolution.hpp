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
/// of a stride-1 convolution is a convolution of dy. Places without a weight are zero. Runs over the result, of `type`,
/// which has fewer than 2^31 elements.
struct FoldWeights {
  const float *weights, *scale;
  void* result;
  int out, in, taps, in_padded, row;
  bool rotate;
  DType type;
  [[nodiscard]] std::int64_t size() const { return std::int64_t{rotate ? in : out} * row; }
  DAT_HD void operator()(std::int64_t i) const {
    // 32 bits: 64-bit divisions would take longer than the rest.
    const auto element = static_cast<std::uint32_t>(i), length = static_cast<std::uint32_t>(row),
               width = static_cast<std::uint32_t>(rotate ? out : in_padded);
    const std::uint32_t line = element / length, rest = element - line * length, group = rest / width;
    const int first = static_cast<int>(line), tap = static_cast<int>(group),
              second = static_cast<int>(rest - group * width), o = rotate ? second : first, c = rotate ? first : second;
    float value = 0;
    if (tap < taps && c < in)
      value = weights[(std::int64_t{o} * taps + (rotate ? taps - 1 - tap : tap)) * in + c] *
              (scale != nullptr ? scale[o] : 1.0F);
    if (type == DType::f32)
      static_cast<float*>(result)[i] = value;
    else if (type == DType::f16)
      static_cast<Half*>(result)[i] = Stored<Half>::from(value);
    else
      static_cast<BFloat16*>(result)[i] = Stored<BFloat16>::from(value);
  }
};

/// All of these in one launch. Runs over chunks whose segments are their numbers, and whose elements are counted in
/// each result.
struct FoldAllWeights {
  const FoldWeights* all;
  DAT_HD void operator()(std::int32_t k, std::int64_t i) const {
    const FoldWeights one = all[k];
    one(i);
  }
};

/// The weight gradient of a 16-bit convolution, [out][taps][in_padded], as, or added to, that of the f32 weights,
/// [out][taps][in], times a factor. Runs over the latter.
template <class T>
struct TakeWeightGradient {
  const T* from;
  float* to;
  int in, in_padded;
  const float* factor;  ///< argument of factor_of()
  bool accumulate;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t row = i / in;
    const float value = factor_of(factor) * to_float(from[row * in_padded + (i - row * in)]);
    to[i] = accumulate ? to[i] + value : value;
  }
};

/// Samples [from_h][from_w][c] as [h][w][c], or added to what is there: rows are left out below, and columns at the
/// right, or zeros are put there. Each call moves up to 16 channels of one pixel. Runs over n * h * w * groups(c).
template <class T>
struct FitPixels {
  const T* from;
  T* to;
  int c, from_h, from_w, h, w;
  bool add;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t pieces = (c + kGroup - 1) / kGroup, pixel = i / pieces, row = pixel / w;
    const int first = static_cast<int>(i % pieces) * kGroup, last = smaller(first + kGroup, c);
    const int x = static_cast<int>(pixel % w), y = static_cast<int>(row % h);
    const bool inside = y < from_h && x < from_w;
    const T* const source = from + ((row / h * from_h + y) * from_w + x) * c;
    for (int k = first; k < last; ++k) {
      const float value = inside ? to_float(source[k]) : 0.0F;
      T& there = to[pixel * c + k];
      there = Stored<T>::from(add ? to_float(there) + value : value);
    }
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
  const float* factor = nullptr;  ///< argument of factor_of(), for dx
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
      of.dx[i] = of.factor != nullptr ? *of.factor * total : total;
  }
};
using ImageGradientRgb = ImageGradient<3, 1, 3>;   ///< first convolution of the networks
using ImageGradientGrey = ImageGradient<3, 1, 1>;  ///< first convolution on images of one channel
using ImageGradientStem = ImageGradient<7, 2, 3>;  ///< first convolution of networks for images of 224 pixels
using ImageGradientAny = ImageGradient<0, 0, 0>;

/// The sum, by the code for its shape where there is some.
inline void image_gradient(const Device& device, std::int64_t elements, const TapProducts& of) {
  const bool known = of.kernel == 3 && of.stride == 1;
  if (known && of.c == 3)
    each(device, elements, ImageGradientRgb{of});
  else if (known && of.c == 1)
    each(device, elements, ImageGradientGrey{of});
  else if (of.kernel == 7 && of.stride == 2 && of.c == 3)
    each(device, elements, ImageGradientStem{of});
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

/// Images [n][pixels][c] as [n][c][pixels], channels first. Each call moves up to 16 channels of one pixel: it reads
/// whole sectors of memory, and neighbours write side by side. Runs over n * groups(c) * pixels.
template <class T>
struct ChannelsFirst {
  const T* from;
  T* to;
  int c, pixels;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t piece = i / pixels, pixel = i % pixels, pieces = (c + kGroup - 1) / kGroup, n = piece / pieces;
    const int first = static_cast<int>(piece % pieces) * kGroup, last = smaller(first + kGroup, c);
    for (int k = first; k < last; ++k) to[(n * c + k) * pixels + pixel] = from[(n * pixels + pixel) * c + k];
  }
};

/// Transposes back: [n][c][pixels] as [n][pixels][c], or added to what is there.
template <class T>
struct ChannelsLast {
  const T* from;
  T* to;
  int c, pixels;
  bool add;
  DAT_HD void operator()(std::int64_t i) const {
    const std::int64_t piece = i / pixels, pixel = i % pixels, pieces = (c + kGroup - 1) / kGroup, n = piece / pieces;
    const int first = static_cast<int>(piece % pieces) * kGroup, last = smaller(first + kGroup, c);
    for (int k = first; k < last; ++k) {
      const T value = from[(n * c + k) * pixels + pixel];
      T& there = to[(n * pixels + pixel) * c + k];
      there = add ? Stored<T>::from(to_float(there) + to_float(value)) : value;
    }
  }
};

enum class ConvolutionPass : std::uint8_t { forward, data, weights };

/// Some elements of a convolution's result, chosen at random, and their definition in double precision: a sum of terms.
/// All tensors are NHWC, weights [out][kh][kw][in].
template <class T>
struct ConvolutionSamples {
  using Pass = ConvolutionPass;
  Pass pass;
  const T *x, *w, *dy;             // two of them are read
  const T* before;                 // summand of the result (forward: before the ReLU); null: none
  const float* bias;               // forward: [c_out] or null
  bool relu;                       // forward
  const T* relu_output = nullptr;  // input gradient: zero where this is not positive. Null: nowhere
  int n, c_in, h, w_in, c_out, h_out, w_out, kernel, stride, pad;

  struct Element {
    int n, c, y, x;  // indices of the result; weight gradient: output channel, input channel, row and column of the tap
    std::int64_t at;  // in memory
  };
  [[nodiscard]] DAT_HD Element element(std::int64_t sample) const {
    const Philox4 r = philox4x32({{static_cast<std::uint32_t>(sample), 0, 0, 0}}, 7, 0);
    const auto pick = [](std::uint32_t word, int count) {
      return static_cast<int>(word % static_cast<std::uint32_t>(count));
    };
    const bool forward = pass == Pass::forward, weights = pass == Pass::weights;
    const int channels = forward ? c_out : c_in,
              rows = forward   ? h_out
                     : weights ? kernel
                               : h,
              columns = forward   ? w_out
                        : weights ? kernel
                                  : w_in;
    Element e{pick(r.v[0], weights ? c_out : n), pick(r.v[1], channels), pick(r.v[2], rows), pick(r.v[3], columns), 0};
    e.at = ((std::int64_t{e.n} * rows + e.y) * columns + e.x) * channels + e.c;
    return e;
  }

  /// Number of terms of each of the sums; those that lie in the padding are zero.
  [[nodiscard]] DAT_HD int terms() const {
    return pass == Pass::weights ? n * h_out * w_out : kernel * kernel * (pass == Pass::forward ? c_in : c_out);
  }
  [[nodiscard]] DAT_HD double term(const Element& e, int t) const {
    if (pass == Pass::forward) {
      const int tap = t / c_in, c = t % c_in;
      return read_x(e.n, e.y * stride - pad + tap / kernel, e.x * stride - pad + tap % kernel, c) *
             double(to_float(w[(std::int64_t{e.c} * kernel * kernel + tap) * c_in + c]));
    }
    if (pass == Pass::weights) {
      const int column = t % w_out, rows = t / w_out, row = rows % h_out, image = rows / h_out;
      return read_x(image, row * stride - pad + e.y, column * stride - pad + e.x, e.c) *
             double(to_float(dy[((std::int64_t{image} * h_out + row) * w_out + column) * c_out + e.n]));
    }
    const int tap = t / c_out, o = t % c_out, above = e.y + pad - tap / kernel, left = e.x + pad - tap % kernel;
    if (above < 0 || above % stride != 0 || above / stride >= h_out) return 0;
    if (left < 0 || left % stride != 0 || left / stride >= w_out) return 0;
    const std::int64_t at = ((std::int64_t{e.n} * h_out + above / stride) * w_out + left / stride) * c_out + o;
    return double(to_float(dy[at])) * double(to_float(w[(std::int64_t{o} * kernel * kernel + tap) * c_in + e.c]));
  }

 private:
  [[nodiscard]] DAT_HD double read_x(int image, int row, int column, int c) const {
    if (row < 0 || row >= h || column < 0 || column >= w_in) return 0;
    return double(to_float(x[((std::int64_t{image} * h + row) * w_in + column) * c_in + c]));
  }
};

/// Adds a term to their sum, the sum of their absolute values, and that of their squares.
DAT_HD inline void add_term(Sums& sums, double term) {
  sums.v[0] += term;
  sums.v[1] += std::fabs(term);
  sums.v[2] += term * term;
}

/// partial[sample*parts + part] = every parts-th term of a sample: their sum, the sum of their absolute values, that of
/// their squares. A weight gradient's sum has millions of terms, more than one thread should have. Runs over samples *
/// parts.
template <class T>
struct SumTerms {
  ConvolutionSamples<T> samples;
  int parts;
  Sums* partial;
  DAT_HD void operator()(std::int64_t i) const {
    const auto element = samples.element(i / parts);
    const int terms = samples.terms();
    Sums sums;
    for (int t = static_cast<int>(i % parts); t < terms; t += parts) add_term(sums, samples.term(element, t));
    partial[i] = sums;
  }
};

/// One element of a result against its definition.
struct CheckedElement {
  float error;  ///< |result - definition|; where a ReLU's mask bit is wrong, at least what the ReLU was applied to
  float size;   ///< the sum of the absolute values of the terms
  float norm;   ///< the root of the sum of their squares
  float value;  ///< |definition|
};

/// checked[sample] = how right the result is there. The summand and the bias are terms, too. Adds up what SumTerms
/// left, in a fixed order. Runs over the samples.
template <class T>
struct CheckConvolution {
  ConvolutionSamples<T> samples;
  int parts;
  const Sums* partial;
  const T* result;            // y, dx or dw
  const std::uint16_t* bits;  // forward: the mask that was stored, or null
  CheckedElement* checked;

  DAT_HD void operator()(std::int64_t i) const {
    const auto element = samples.element(i);
    Sums sums;
    for (int part = 0; part < parts; ++part)
      for (int j = 0; j < kSums; ++j) sums.v[j] += partial[i * parts + part].v[j];
    if (samples.before != nullptr) add_term(sums, double(to_float(samples.before[element.at])));
    if (samples.bias != nullptr) add_term(sums, double(samples.bias[element.c]));
    const bool closed = samples.relu
                            ? sums.v[0] < 0
                            : samples.relu_output != nullptr && !(to_float(samples.relu_output[element.at]) > 0);
    const double value = closed ? 0 : sums.v[0];
    const auto there = double(to_float(result[element.at]));
    CheckedElement& c = checked[i];
    c.error = static_cast<float>(std::fabs(there - value));
    c.size = static_cast<float>(sums.v[1]);
    c.norm = static_cast<float>(std::sqrt(sums.v[2]));
    c.value = static_cast<float>(std::fabs(value));
    if (bits == nullptr || ((bits[element.at / kGroup] >> (element.at % kGroup) & 1) != 0) == (there > 0)) return;
    c.error = larger(c.error, static_cast<float>(std::fabs(sums.v[0])));
  }
};

}  // namespace dat::kernels
