#include "backend/cpu/convolution3x3.hpp"

#if defined(__AMX_BF16__)
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/amx_tiles.hpp"

namespace dat::cpu {

namespace {

/// Channels of a block of x, of a panel of y.
constexpr int kBlock = 32, kPanel = 32;
/// Floats of x, or of both factors of a weight gradient, that a thread has at hand: a quarter of an L2 cache.
constexpr std::int64_t kAtHand = 128 * 1024;

/// Convolution by its definition: for each tap of the kernel, a product of pixels [entries, c_in] and weights [c_in,
/// c_out] is added. Pixels of a row of y, of one or more samples side by side, are the rows of tiles, so that another
/// tap is another place in x, which therefore has a border of zeros. The input gradient of stride 2 makes the pixels of
/// odd and even rows and columns in four turns, each with its own taps.
template <int kParts>
class AmxConvolution final : public Convolution3x3 {
 public:
  explicit AmxConvolution(const Spec& spec) : Convolution3x3(spec) {
    const bool down = s.kind == Kind::down;
    for (int row = 0; row < turns(); ++row)
      for (int column = 0; column < turns(); ++column) {
        Turn turn{{}, row, column};
        for (int ky = 0; ky < 3; ++ky)
          for (int kx = 0; kx < 3; ++kx)
            if (s.kind != Kind::up)
              turn.taps.push_back({ky * 3 + kx, ky, down ? kx % 2 : 0, down ? kx / 2 : kx});
            else if (ky % 2 != row && kx % 2 != column)
              turn.taps.push_back({ky * 3 + kx, ky / 2, 0, kx / 2});
        turns_.push_back(turn);
      }
  }

  [[nodiscard]] std::string name() const override { return kParts == 1 ? "AMX in bf16" : "AMX in bf16x3"; }

  void run(const Input& x, const float* packed, const Epilogue& epilogue, float* y, void* scratch) const override {
    const Grid g = grid(16);
    const int groups = parts(g.samples, x.samples), at_once = std::min(groups_at_once(g), parts(s.threads, groups));
    const int pieces = parts(at_once, groups), teams = std::max(1, s.threads / pieces), panels = s.c_out / kPanel;
    const float* const weights = packed + plain_size_;
#pragma omp parallel num_threads(s.threads)
    {
      const Tiles tiles;
      float* const own = static_cast<float*>(scratch) + omp_get_thread_num() * own_floats();
      // Cores may be of unequal speed: where another program has the other half of one, its tiles take thrice as long.
#pragma omp for collapse(2) schedule(dynamic)
      for (int piece = 0; piece < pieces; ++piece)
        for (int team = 0; team < teams; ++team) {
          Input read = x;
          if (team > 0) read.positive = nullptr;  // one thread writes
          const int first = piece * at_once, count = std::min(at_once, groups - first);
          for (int i = 0; i < count; ++i)
            if (x.scale != nullptr)
              load_group<true>(g, read, first + i, own + i * group_floats(g));
            else
              load_group<false>(g, read, first + i, own + i * group_floats(g));
          for (int panel = part_of(panels, team, teams); panel < part_of(panels, team + 1, teams); ++panel)
            for (int i = 0; i < count; ++i)
              for (const Turn& turn : turns_)
                multiply_group(g, turn, own + i * group_floats(g), weights, panel, (first + i) * g.samples, x.samples,
                               epilogue, y, own + at_once * group_floats(g));
        }
    }
  }
  [[nodiscard]] std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(s.threads * own_floats()) * sizeof(float);
  }

  void weight_gradient(const float* x, const float* dy, float* dw, bool accumulate, void* scratch) const override {
    assert(s.kind != Kind::up);
    const Grid g = grid(32);
    const Part p = gradient_part();
#pragma omp parallel num_threads(s.threads)
    {
      const Tiles tiles;
#pragma omp for collapse(2) schedule(dynamic)
      for (int k = 0; k < s.c_out; k += p.rows)
        for (int c = 0; c < s.c_in; c += p.inputs)
          sum_part(g, {std::min(p.rows, s.c_out - k), std::min(p.inputs, s.c_in - c)}, gradient_groups(g, p), k, c, x,
                   dy, dw, accumulate, static_cast<float*>(scratch) + omp_get_thread_num() * part_floats(g, p));
    }
  }
  [[nodiscard]] std::size_t gradient_scratch_bytes() const override {
    return static_cast<std::size_t>(s.threads * part_floats(grid(32), gradient_part())) * sizeof(float);
  }
  [[nodiscard]] std::size_t weight_count() const override { return plain_size_ + plain_size_ * kParts / 2; }

 protected:
  /// [panel][tap][channel block][part][2 blocks of 16 outputs][16 pairs of channels][16]; pair i has the channels i and
  /// 16 + i of its block.
  void transform(float* packed) const override {
    const int blocks = s.c_in / kBlock;
#pragma omp parallel for collapse(2) schedule(static) num_threads(s.threads)
    for (int panel = 0; panel < s.c_out / kPanel; ++panel)
      for (int tap = 0; tap < kTaps; ++tap)
        for (int block = 0; block < blocks; ++block) {
          float* const to = packed + plain_size_ + weight_offset(panel, tap, block);
          for (int i = 0; i < 16; ++i)
            for (int q = 0; q < 2; ++q) {
              const auto load = [&](int c) {
                return Bf16Parts<kParts>(
                    _mm512_load_ps(packed + (std::int64_t{c} * kTaps + tap) * s.c_out + panel * kPanel + q * 16));
              };
              const Bf16Parts<kParts> first = load(block * kBlock + i), second = load(block * kBlock + 16 + i);
              for (int part = 0; part < kParts; ++part)
                _mm512_store_si512(to + (part * 2 + q) * kTile + i * 16, pairs(first.bits[part], second.bits[part]));
            }
        }
  }

 private:
  const Spec& s = spec_;

  /// Place of a tap's pixels in the grid: for the output's first row and column, in rows, and in columns of one parity.
  struct Tap {
    int index, row, parity, column;
  };
  struct Turn {
    std::vector<Tap> taps;
    int row, column;  ///< first row and column of y among its pixels
  };
  std::vector<Turn> turns_;
  [[nodiscard]] int turns() const { return s.kind == Kind::up ? 2 : 1; }

  /// Arrangement of pixels of x, and the pixels of y that one turn makes: a group is `samples` samples side by side,
  /// [rows] [parities][columns][samples] entries, of which those of a row of y are a multiple of `unit` one after the
  /// other.
  struct Grid {
    int samples, rows, parities, columns, border;
    int out_rows, out_columns, row_step;
    int shift;  ///< log2(samples)

    [[nodiscard]] std::int64_t line() const { return std::int64_t{parities} * columns * samples; }
    [[nodiscard]] std::int64_t plane() const { return rows * line() * kVector; }  ///< floats
    [[nodiscard]] std::int64_t offset(const Tap& tap) const {
      return (tap.row * line() + (tap.parity * columns + tap.column) * samples) * kVector;
    }
    [[nodiscard]] int run() const { return out_columns * samples; }
  };
  [[nodiscard]] Grid grid(int unit) const {
    Grid g{};
    const bool down = s.kind == Kind::down, up = s.kind == Kind::up;
    g.out_rows = down ? s.h_out : s.h;
    g.out_columns = down ? s.w_out : s.w;
    g.samples = unit / std::gcd(unit, g.out_columns);
    g.shift = std::countr_zero(static_cast<unsigned>(g.samples));
    g.row_step = down ? 2 : 1;
    g.border = up ? 0 : 1;
    g.rows = down ? 2 * s.h_out + 1 : s.h + (up ? 1 : 2);
    g.parities = down ? 2 : 1;
    g.columns = down ? s.w_out + 1 : s.w + (up ? 1 : 2);
    return g;
  }
  [[nodiscard]] std::int64_t group_floats(const Grid& g) const { return s.c_in / kBlock * kParts * g.plane(); }
  [[nodiscard]] int groups_at_once(const Grid& g) const {
    return static_cast<int>(std::clamp<std::int64_t>(kAtHand / group_floats(g), 1, parts(g.samples, s.n)));
  }
  [[nodiscard]] std::int64_t own_floats() const {
    const Grid g = grid(16);
    return groups_at_once(g) * group_floats(g) + 2 * 16 * kPanel;
  }
  [[nodiscard]] std::int64_t weight_offset(int panel, int tap, int block) const {
    return ((std::int64_t{panel} * kTaps + tap) * (s.c_in / kBlock) + block) * kParts * 2 * kTile;
  }

  /// visit(place of the entry in the grid, pixel of x, or -1 outside) for the pixels of a sample, row by row.
  template <class Visit>
  [[gnu::always_inline]] void each_pixel(const Grid& g, Visit visit) const {
    for (int row = 0; row < g.rows; ++row)
      for (int parity = 0; parity < g.parities; ++parity)
        for (int column = 0; column < g.columns; ++column) {
          const int y = row - g.border, x = column * g.parities + parity - g.border;
          const bool inside = y >= 0 && y < s.h && x >= 0 && x < s.w;
          visit(row, parity * g.columns + column, inside ? y * s.w + x : -1);
        }
  }

  /// Pixels of the samples of a group: [channel block][part][entry][16 pairs]; pair i has the channels i and 16 + i of
  /// its block. Entries of samples that are not there are left as they are.
  template <bool norm>
  void load_group(const Grid& g, const Input& x, int group, float* to) const {
    const std::int64_t pixels = std::int64_t{s.h} * s.w;
    for (int block = 0; block < s.c_in / kBlock; ++block)
      for (int k = 0; k < g.samples && group * g.samples + k < x.samples; ++k) {
        const std::int64_t begin = (std::int64_t{group * g.samples + k} * (s.c_in / kVector) + block * 2) * pixels;
        const auto load = [&] [[gnu::always_inline]] (int half, int pixel) {
          const std::int64_t place = begin + half * pixels + pixel;
          const __m512 value = _mm512_load_ps(x.data + place * kVector);
          if constexpr (norm) {
            const int c = block * kBlock + half * kVector;
            const __m512 normed = value * _mm512_load_ps(x.scale + c) + _mm512_load_ps(x.shift + c);
            const __mmask16 positive = _mm512_cmp_ps_mask(normed, _mm512_setzero_ps(), _CMP_GT_OQ);
            if (x.positive != nullptr) x.positive[place] = positive;
            return Bf16Parts<kParts>(_mm512_maskz_mov_ps(positive, normed));
          } else {
            return Bf16Parts<kParts>(x.open == nullptr ? value : _mm512_maskz_mov_ps(x.open[place], value));
          }
        };
        float* const base = to + block * kParts * g.plane() + k * kVector;
        each_pixel(g, [&] [[gnu::always_inline]] (int row, int column, int pixel) {
          float* const entry = base + (row * g.line() + column * g.samples) * kVector;
          if (pixel < 0) {
            for (int part = 0; part < kParts; ++part) _mm512_store_ps(entry + part * g.plane(), _mm512_setzero_ps());
            return;
          }
          const Bf16Parts<kParts> first = load(0, pixel), second = load(1, pixel);
          for (int part = 0; part < kParts; ++part)
            _mm512_store_si512(entry + part * g.plane(), pairs(first.bits[part], second.bits[part]));
        });
      }
  }

  /// One panel of y for the samples of a group, the first of which is `sample`.
  void multiply_group(const Grid& g, const Turn& turn, const float* x, const float* weights, int panel, int sample,
                      int samples, const Epilogue& epilogue, float* y, float* sums) const {
    const int tiles_of_row = g.run() / 16, tiles = g.out_rows * tiles_of_row;
    const auto place = [&](int tile) {
      return (tile / tiles_of_row * g.row_step * g.line() + tile % tiles_of_row * 16) * kVector;
    };
    for (int tile = 0; tile < tiles; tile += 2) {
      const std::int64_t begin = place(tile);
      if (tile + 1 < tiles)
        multiply<2>(g, turn, x + begin, place(tile + 1) - begin, weights, panel, sums);
      else
        multiply<1>(g, turn, x + begin, 0, weights, panel, sums);
      for (int i = tile; i < std::min(tile + 2, tiles); ++i)
        store_tile(g, turn, i / tiles_of_row, i % tiles_of_row * 16, panel, sample, samples, epilogue,
                   sums + (i - tile) * 16 * kPanel, y);
    }
  }
  template <int R>
  [[gnu::always_inline]] void multiply(const Grid& g, const Turn& turn, const float* x, std::int64_t next,
                                       const float* weights, int panel, float* sums) const {
    using Products = Sums<kParts, R>;
    Products::clear();
    for (const Tap& tap : turn.taps) {
      const float *a = x + g.offset(tap), *b = weights + weight_offset(panel, tap.index, 0);
      for (int block = 0; block < s.c_in / kBlock; ++block, a += kParts * g.plane(), b += kParts * 2 * kTile)
        Products::add(a, next, g.plane(), b, kTile, 2 * kTile);
    }
    Products::store(sums, kPanel);
  }
  /// Sixteen entries of a row of y, from `first` on, and the epilogue.
  void store_tile(const Grid& g, const Turn& turn, int row, int first, int panel, int sample, int samples,
                  const Epilogue& epilogue, const float* sums, float* y) const {
    const int y_row = row * turns() + turn.row;
    if (y_row >= s.h_out) return;
    const std::int64_t pixels = std::int64_t{s.h_out} * s.w_out;
    for (int i = 0; i < 16; ++i) {
      const int n = sample + ((first + i) & (g.samples - 1)), column = ((first + i) >> g.shift) * turns() + turn.column;
      if (n >= samples || column >= s.w_out) continue;
      for (int q = 0; q < 2; ++q) {
        const int k = panel * kPanel + q * kVector;
        const std::int64_t pixel =
            (std::int64_t{n} * (s.c_out / kVector) + k / kVector) * pixels + y_row * s.w_out + column;
        __m512 value = _mm512_load_ps(sums + i * kPanel + q * kVector);
        if (epilogue.bias != nullptr) value = value + _mm512_load_ps(epilogue.bias + k);
        if (epilogue.accumulate) {
          const __m512 before = _mm512_load_ps(y + pixel * kVector);
          value = value + (epilogue.open == nullptr ? before : _mm512_maskz_mov_ps(epilogue.open[pixel], before));
        }
        if (epilogue.relu) value = _mm512_max_ps(value, _mm512_setzero_ps());
        _mm512_store_ps(y + pixel * kVector, value);
        if (epilogue.bits != nullptr) epilogue.bits[pixel] = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_GT_OQ);
      }
    }
  }

  /// A weight gradient is a product over entries of dy and of x, for each tap. More parts than threads, which may be of
  /// unequal speed.
  [[nodiscard]] Part gradient_part() const { return part(16, kBlock, s.threads > 1 ? 2 * s.threads : 1); }
  /// Floats of x and of dy of a group.
  [[nodiscard]] static std::int64_t input_floats(const Grid& g, const Part& p) {
    return p.inputs / kVector * kParts * g.plane();
  }
  [[nodiscard]] static std::int64_t row_floats(const Grid& g, const Part& p) {
    return std::int64_t{p.rows / 16} * (g.out_rows * g.run() / 32) * kParts * kTile;
  }
  [[nodiscard]] int gradient_groups(const Grid& g, const Part& p) const {
    return static_cast<int>(
        std::clamp<std::int64_t>(kAtHand / (input_floats(g, p) + row_floats(g, p)), 1, parts(g.samples, s.n)));
  }
  [[nodiscard]] std::int64_t part_floats(const Grid& g, const Part& p) const {
    return gradient_groups(g, p) * (input_floats(g, p) + row_floats(g, p)) + std::int64_t{kTaps} * p.rows * p.inputs;
  }

  void sum_part(const Grid& g, const Part& p, int at_once, int k, int c, const float* x, const float* dy, float* dw,
                bool accumulate, float* scratch) const {
    const int groups = parts(g.samples, s.n);
    float *const inputs = scratch, *const rows = inputs + at_once * input_floats(g, p);
    float* const sums = rows + at_once * row_floats(g, p);
    for (int first = 0; first < groups; first += at_once) {
      const int count = std::min(at_once, groups - first);
      for (int i = 0; i < count; ++i) {
        load_inputs(g, p, x, c, first + i, inputs + i * input_floats(g, p));
        load_rows(g, p, dy, k, first + i, rows + i * row_floats(g, p));
      }
      for (const Tap& tap : turns_.front().taps)
        for (int row = 0; row < p.rows; row += 32)
          for (int input = 0; input < p.inputs; input += 32) {
            float* const sum = sums + (std::int64_t{tap.index} * p.rows + row) * p.inputs + input;
            if (p.rows - row > 16)
              add_products<2>(g, p, tap, count, row, input, inputs, rows, first > 0, sum);
            else
              add_products<1>(g, p, tap, count, row, input, inputs, rows, first > 0, sum);
          }
    }
    for (int row = 0; row < p.rows; ++row)
      for (int tap = 0; tap < kTaps; ++tap)
        for (int input = 0; input < p.inputs; input += kVector) {
          // Segments begin anywhere.
          float* const to = dw + (std::int64_t{k + row} * kTaps + tap) * s.c_in + c + input;
          const __m512 sum = _mm512_load_ps(sums + (std::int64_t{tap} * p.rows + row) * p.inputs + input);
          _mm512_storeu_ps(to, accumulate ? _mm512_loadu_ps(to) + sum : sum);
        }
  }

  template <int R>
  void add_products(const Grid& g, const Part& p, const Tap& tap, int groups, int row, int input, const float* inputs,
                    const float* rows, bool add, float* sum) const {
    using Products = Sums<kParts, R>;
    const int blocks_of_row = g.run() / 32;
    const std::int64_t blocks = std::int64_t{g.out_rows} * blocks_of_row;
    if (add)
      Products::load(sum, p.inputs);
    else
      Products::clear();
    for (int i = 0; i < groups; ++i) {
      const float* a = rows + i * row_floats(g, p) + row / 16 * blocks * kParts * kTile;
      const float* line = inputs + i * input_floats(g, p) + input / kVector * kParts * g.plane() + g.offset(tap);
      for (int y = 0; y < g.out_rows; ++y, line += g.row_step * g.line() * kVector)
        for (int block = 0; block < blocks_of_row; ++block, a += kParts * kTile)
          Products::add(a, blocks * kParts * kTile, kTile, line + std::int64_t{block} * 32 * kVector,
                        kParts * g.plane(), g.plane());
    }
    Products::store(sum, p.inputs);
  }

  /// Pixels of x of a group: [block of 16 channels][part][entry][16]; the pair of an entry has its number and that of
  /// the sixteenth entry after it in its row, so that tiles may begin at any entry.
  void load_inputs(const Grid& g, const Part& p, const float* x, int c, int group, float* to) const {
    const std::int64_t pixels = std::int64_t{s.h} * s.w;
    for (int block = 0; block < p.inputs / kVector; ++block)
      for (int k = 0; k < g.samples; ++k) {
        const int n = group * g.samples + k;
        const float* const from = x + (std::int64_t{n} * (s.c_in / kVector) + c / kVector + block) * pixels * kVector;
        float* const base = to + block * kParts * g.plane();
        each_pixel(g, [&] [[gnu::always_inline]] (int row, int column, int pixel) {
          const Bf16Parts<kParts> value(pixel < 0 || n >= s.n ? _mm512_setzero_ps()
                                                              : _mm512_load_ps(from + std::int64_t{pixel} * kVector));
          const int entry = column * g.samples + k;
          float* const place = base + (row * g.line() + entry) * kVector;
          for (int part = 0; part < kParts; ++part) {
            _mm512_mask_storeu_epi16(place + part * g.plane(), kFirsts, _mm512_srli_epi32(value.bits[part], 16));
            if (entry >= 16)
              _mm512_mask_storeu_epi16(place + part * g.plane() - 16 * kVector, kSeconds, value.bits[part]);
          }
        });
      }
  }

  /// Pixels of dy of a group: [block of 16 channels][block of 32 entries][part][16 channels][16 pairs]; pair i has the
  /// entries i and 16 + i.
  void load_rows(const Grid& g, const Part& p, const float* dy, int k, int group, float* to) const {
    const std::int64_t pixels = std::int64_t{s.h_out} * s.w_out;
    for (int block = 0; block < p.rows / 16; ++block)
      for (int row = 0; row < g.out_rows; ++row)
        for (int first = 0; first < g.run(); first += 32, to += kParts * kTile) {
          const auto load = [&] [[gnu::always_inline]] (int entry) {
            const int n = group * g.samples + (entry & (g.samples - 1));
            if (n >= s.n) return Bf16Parts<kParts>(_mm512_setzero_ps());
            const std::int64_t plane = std::int64_t{n} * (s.c_out / kVector) + k / kVector + block;
            return Bf16Parts<kParts>(
                _mm512_load_ps(dy + (plane * pixels + row * s.w_out + (entry >> g.shift)) * kVector));
          };
          __m512i tile[kParts][16];
#pragma GCC unroll 16
          for (int i = 0; i < 16; ++i) {
            const Bf16Parts<kParts> upper = load(first + i), lower = load(first + 16 + i);
            for (int part = 0; part < kParts; ++part) tile[part][i] = pairs(upper.bits[part], lower.bits[part]);
          }
          for (int part = 0; part < kParts; ++part) store_transposed(tile[part], to + part * kTile);
        }
  }
};

}  // namespace

std::unique_ptr<Convolution3x3> make_amx_convolution(const Convolution3x3::Spec& spec) {
  if (spec.bf16_parts == 1) return std::make_unique<AmxConvolution<1>>(spec);
  return std::make_unique<AmxConvolution<2>>(spec);
}

}  // namespace dat::cpu
#endif
