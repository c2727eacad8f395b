#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace dat::cpu {

/// A convolution with a 3x3 kernel and padding 1 by our own code. The result of a sample does not depend on the other
/// samples, nor on the threads.
///
/// x [n, c_in, h, w] and y [n, c_out, h_out, w_out] lie in blocks of `block` channels; c_in and c_out are multiples of
/// it.
class Convolution3x3 {
 public:
  /// Stride 1; stride 2; the input gradient of stride 2, in which x is dy. The input gradient of stride 1 is a
  /// convolution of stride 1. Either input gradient takes turned weights, and c_in and c_out are the channels of dy and
  /// dx.
  enum class Kind : std::uint8_t { same, down, up };
  struct Spec {
    Kind kind = Kind::same;
    int n = 0, c_in = 0, h = 0, w = 0, c_out = 0, h_out = 0, w_out = 0;
    int block = 16, threads = 1;
    int bf16_parts = 0;   ///< bf16 parts of each factor, multiplied by AMX, which this processor must have; 0: f32
    bool frozen = false;  ///< true: the same weights for many calls; small ones are transformed when they are packed
    /// The specification of the input gradient, as a convolution of dy.
    [[nodiscard]] Spec turned() const;
  };
  /// Words of bits, one for 16 elements as in ReLU masks, say what is open; the rest counts as zero. Null: all is.
  /// Words are for blocks of 16 channels only.
  struct Input {
    const float* data;
    int samples;  ///< number of the n samples that are wanted, the first ones; the y of the others is left as it is
    const std::uint16_t* open = nullptr;
    const float *scale = nullptr, *shift = nullptr;  ///< [c_in]: relu(scale * x + shift) is convolved; null: x itself
    /// Places where the result of the norm is > 0, an output with scale and shift; null: not wanted.
    std::uint16_t* positive = nullptr;
  };
  struct Epilogue {
    const float* bias = nullptr;          ///< [c_out]; null: none
    bool accumulate = false;              ///< y = conv(x) + bias + y
    const std::uint16_t* open = nullptr;  ///< places at which the added y is open; null: everywhere
    bool relu = false;                    ///< last
    /// Gets where the final y > 0; null: not wanted. For blocks of 16 channels only.
    std::uint16_t* bits = nullptr;
  };

  explicit Convolution3x3(const Spec& spec)
      : spec_(spec), plain_size_(std::size_t(spec.c_in) * kTaps * std::size_t(spec.c_out)) {}
  virtual ~Convolution3x3() = default;
  [[nodiscard]] const Spec& spec() const { return spec_; }
  [[nodiscard]] virtual std::string name() const = 0;

  /// Floats of packed weights: as they are, and after these transformed, where they are.
  [[nodiscard]] virtual std::size_t weight_count() const = 0;
  /// packed = weights [c_out][3][3][c_in] * scale [c_out] (null: 1).
  void pack(const float* weights, const float* scale, float* packed) const;
  /// Packs for the input gradient of a convolution c_out to c_in: weights [c_in][3][3][c_out], scale [c_in].
  void pack_turned(const float* weights, const float* scale, float* packed) const;

  virtual void run(const Input& x, const float* packed, const Epilogue& epilogue, float* y, void* scratch) const = 0;
  /// Bytes that run() works in.
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;

  /// dw [c_out][3][3][c_in] = or += the weight gradient. Not for Kind::up.
  virtual void weight_gradient(const float* x, const float* dy, float* dw, bool accumulate, void* scratch) const = 0;
  /// Bytes that weight_gradient() works in.
  [[nodiscard]] virtual std::size_t gradient_scratch_bytes() const = 0;

 protected:
  virtual void transform(float* packed) const = 0;

  /// One thread's part of the weight gradient: channels of y, of x. At most 128 and 64, multiples of the units; smaller
  /// until there are so many parts. row_unit: no larger than input_unit.
  struct Part {
    int rows, inputs;
  };
  [[nodiscard]] Part part(int row_unit, int input_unit, int wanted) const;
  /// Number of parts of a size; part_of: start of one of so many equal parts.
  [[nodiscard]] static int parts(int size, int all) { return (all + size - 1) / size; }
  [[nodiscard]] static int part_of(int all, int part, int parts) {
    return static_cast<int>(std::int64_t{all} * part / parts);
  }

  static constexpr int kTaps = 9;
  const Spec spec_;
  const std::size_t plain_size_;  ///< floats of the packed weights as they are
};

/// Makes the convolution; null where this processor has no fast code for such blocks: by AMX where the specification
/// asks for it and channels are multiples of 32, else by Winograd's algorithm with AVX-512 for blocks of 16 channels
/// and with AVX2 for blocks of 8.
[[nodiscard]] std::unique_ptr<Convolution3x3> make_convolution3x3(const Convolution3x3::Spec& spec);

// One file each, compiled for that instruction set.
[[nodiscard]] std::unique_ptr<Convolution3x3> make_winograd_avx2(const Convolution3x3::Spec& spec);
[[nodiscard]] std::unique_ptr<Convolution3x3> make_winograd_avx512(const Convolution3x3::Spec& spec);
[[nodiscard]] std::unique_ptr<Convolution3x3> make_amx_convolution(const Convolution3x3::Spec& spec);

}  // namespace dat::cpu
