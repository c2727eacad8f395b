#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

// Functions marked DAT_HD run on the host and on the device.
#ifdef __CUDACC__
#define DAT_HD __host__ __device__
#else
#define DAT_HD
#endif

namespace dat {

/// Bits of a number, and the number with these bits.
[[nodiscard]] DAT_HD inline std::uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}
[[nodiscard]] DAT_HD inline float with_bits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

enum class DType : std::uint8_t { f32, f16, bf16, u8 };

/// Name of a type that activations have.
[[nodiscard]] constexpr const char* storage_name(DType type) {
  return type == DType::f32 ? "f32" : type == DType::f16 ? "f16" : "bf16";
}
[[nodiscard]] constexpr std::size_t size_of(DType type) { return type == DType::f32 ? 4 : type == DType::u8 ? 1 : 2; }

/// Layout of the activations of one sample in memory: [c/block][h][w][block]. block = 1 is CHW, block = c is HWC, block
/// = 16 is the blocked layout of CPU libraries. The backend decides; point-wise kernels only ask for `channel`.
struct Layout {
  int c = 0, h = 0, w = 0, block = 1;

  [[nodiscard]] DAT_HD std::int64_t elements() const { return std::int64_t{c} * h * w; }
  /// Groups of four elements, for each of which four random words are drawn.
  [[nodiscard]] DAT_HD std::int64_t fours() const { return (elements() + 3) / 4; }
  /// Elements of group k of them: 4, fewer in the last one.
  [[nodiscard]] DAT_HD int in_four(std::int64_t k) const {
    return k + 1 < fours() ? 4 : static_cast<int>(elements() - 4 * k);
  }

  /// Channel of the element at `index` (counted over the whole batch).
  [[nodiscard]] DAT_HD int channel(std::int64_t index) const {
    const std::int64_t row = index / block;
    return static_cast<int>((row / (std::int64_t{h} * w)) % (c / block)) * block +
           static_cast<int>(index - row * block);
  }

  [[nodiscard]] DAT_HD std::int64_t offset(std::int64_t n, int channel, int y, int x) const {
    return (((n * (c / block) + channel / block) * h + y) * w + x) * block + channel % block;
  }
  /// Offset of element p of image n, counted in CHW order whatever the layout: random numbers are drawn by it.
  [[nodiscard]] DAT_HD std::int64_t offset_chw(std::int64_t n, std::int64_t p) const {
    if (block == 1) return n * elements() + p;
    const int element = static_cast<int>(p), hw = h * w;
    return offset(n, element / hw, element % hw / w, element % w);
  }

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Images [count] of the layout `theirs` at `to` in the layout `mine`, which has as many channels and pixels.
inline const float* turned(const float* from, const Layout& theirs, std::int64_t count, const Layout& mine, float* to) {
  for (std::int64_t n = 0; n < count; ++n)
    for (std::int64_t p = 0; p < mine.elements(); ++p) to[mine.offset_chw(n, p)] = from[theirs.offset_chw(n, p)];
  return to;
}
/// The images where they are, if the layouts are the same, else turned().
inline const float* in_layout(const float* from, const Layout& theirs, std::int64_t count, const Layout& mine,
                              float* to) {
  return theirs == mine ? from : turned(from, theirs, count, mine, to);
}

/// Place of an augmented image in the zero-padded original, and whether it is mirrored. {0, 0, 0}: the original.
struct Crop {
  /// Corner of the cut, relative to the original: from -padding to that of the cut in the other corner.
  std::int16_t top = 0, left = 0;
  std::int16_t flip = 0;
};

/// One iteration of PGD at an image whose gradient has just been computed (kernels::PgdStep); arrays of the size of the
/// images. x null: no step.
struct PgdUpdate {
  const float* x = nullptr;
  float *eta = nullptr, *x_adv = nullptr;
  float alpha = 0, eps = 0;
};

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Device of a kernel: its kind, and the stream on which it is queued (null on the CPU, where calls return when done).
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  void* stream = nullptr;
  const double* when =
      nullptr;  ///< flag on a GPU: kernels do nothing where it is 0 once they run; null: they always run
};

}  // namespace dat
