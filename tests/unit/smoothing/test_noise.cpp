#include <numbers>

#include "all.hpp"
#include "catch.hpp"
#include "data_path.hpp"
#include "device.hpp"
#include "smoothing/bounds.hpp"
#include "smoothing/grid_noise.hpp"

using namespace dat;
using namespace dat::test;
using namespace dat::kernels;

namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kAfter = 64;  // numbers after the last image, which stay 0

/// What a kernel is given and leaves.
struct Noisy {
  Noisy(const Layout& of, int samples, std::uint64_t id = 3, Purpose purpose = Purpose::certification,
        std::uint32_t first = 0)
      : layout(of),
        n(samples),
        image(static_cast<std::size_t>(of.elements()), 0.4F),
        x(static_cast<std::size_t>(samples * of.elements()) + kAfter),
        unknown(static_cast<std::size_t>(groups())) {
    what = {.image = image.data(),
            .x = x.data(),
            .layout = layout,
            .seed = 11,
            .purpose = purpose,
            .id = id,
            .first_sample = first};
  }
  [[nodiscard]] std::int64_t groups() const { return n * ((layout.elements() + 3) / 4); }
  void normal(float sigma) {
    what.image = image.data();
    const NormalNoise noise{what, sigma};
    run(n * noise.rows(), noise);
    check_after();
  }
  void table(const GridNoise& noise) {
    CHECK(n * layout.fours() == groups());
    const Shared<std::uint64_t> entries = shared(noise.entries);
    const Shared<std::int32_t> guide = shared(noise.guide);
    run(groups(), TableNoise{what, entries.data(), guide.data(), noise.half, noise.low, noise.high, unknown.data()});
    check_after();
  }
  void check_after() const {
    CHECK(std::all_of(x.end() - kAfter, x.end(), [](float v) { return v == 0; }));
  }

  Layout layout;
  int n;
  Shared<float> image, x;
  Shared<std::uint8_t> unknown;
  NoisySamples what;
};

/// A table with these entries.
[[nodiscard]] GridNoise table_of(std::vector<std::uint64_t> entries) {
  GridNoise noise;
  noise.half = static_cast<int>(entries.size() / 2);
  noise.entries = std::move(entries);
  for (std::uint64_t place = 0; place < 1024; ++place)
    noise.guide.push_back(static_cast<std::int32_t>(
        std::lower_bound(noise.entries.begin(), noise.entries.end(), place << 54) - noise.entries.begin()));
  noise.low = -255;
  noise.high = 510;
  return noise;
}

/// 64 bits of pixel p of sample 0, as the keys say.
[[nodiscard]] std::uint64_t draw_of(const NoisySamples& what, std::uint32_t p) {
  const auto word = [&](std::uint32_t more) {
    return random_words(what.seed, what.purpose, what.first_sample, what.id, p / 4 | more).v[p % 4];
  };
  return std::uint64_t{word(0)} << 32 | word(0x80000000U);
}

}  // namespace

TEST_CASE("The table of noise is that of 60 digits", "[smoothing]") {
  std::ifstream file(data_path("golden/noise_table.txt"));
  REQUIRE(file.is_open());
  std::map<double, GridNoise> tables;
  double sigma = 0;
  int half = 0, count = 0, compared = 0;
  while (file >> sigma >> half >> count) {
    const GridNoise& noise = tables[sigma] = grid_noise(sigma);
    REQUIRE(noise.half == half);
    REQUIRE(noise.entries.size() == 2 * static_cast<std::size_t>(half));
    std::size_t place = 0;
    for (std::uint64_t entry = 0; count > 0 && file >> place >> entry; --count, ++compared) {
      INFO("sigma " << sigma << ", entry " << place);
      REQUIRE(noise.entries[place] == entry);
      REQUIRE(noise.entries[noise.entries.size() - 1 - place] == kMost - entry);
    }
  }
  CHECK(compared > 500);
  for (const auto& [of, noise] : tables) {
    CHECK((std::is_sorted(noise.entries.begin(), noise.entries.end()) && noise.entries.front() == 0));
    CHECK((noise.entries.back() == kMost && noise.guide.size() == 1024));
  }
  CHECK(grid_noise(0.00109).half == 4);  // with a point at 12.6, far beyond the last one that counts, at 9.0
  CHECK((tables.at(0.12).low == -255 && tables.at(0.12).high == 510));
  CHECK((tables.at(0.5).low == -3 * 255 && tables.at(0.5).high == 4 * 255));
}

TEST_CASE("A deviation that the grid has no room for is refused, and an entry beside an integer is not known",
          "[smoothing]") {
  constexpr std::uint64_t kLeast = 1 << 24;
  CHECK((integer_is_known(kLeast) && integer_is_known(kMost - kLeast) && !integer_is_known(kLeast - 1) &&
         !integer_is_known(kMost - kLeast + 1)));
  for (const double sigma : {0.0, 0.0009, 16.5, std::nan("")}) {
    CHECK(code_of([&] { (void)grid_noise(sigma); }) == ExitCode::usage);
  }
}

TEST_CASE("Logarithm and direction of a normal number are those of double precision", "[smoothing]") {
  double logarithm = 0, turn = 0;
  for (std::uint32_t k = 1; k <= 1U << 24; k += k < 4096 ? 1 : 15) {  // 1 and 2^24 among them
    const float u = static_cast<float>(k) * 0x1p-24F, t = static_cast<float>(k - 1) * 0x1p-24F;
    const double exact = std::log(double{u}), angle = 2 * std::numbers::pi * double{t};
    logarithm = std::max(logarithm, std::abs(natural_logarithm(u) - exact) / std::max(std::abs(exact), 1e-7));
    const Direction to = direction(t);
    turn = std::max({turn, std::abs(to.cosine - std::cos(angle)), std::abs(to.sine - std::sin(angle))});
  }
  CHECK((natural_logarithm(1) == 0 && logarithm < 1.2e-7));
  CHECK(turn < 1.2e-7);
}

TEST_CASE("Normal noise is that of each group's own words", "[smoothing]") {
  Noisy noisy({3, 9, 9, 1}, 3, std::uint64_t{5} << 33 | 7, Purpose::candidate, 40);  // rows that are not full
  for (std::size_t p = 0; p < 243; ++p) noisy.image[p] = static_cast<float>(p % 5) / 4;
  noisy.normal(1);
  double worst = 0;
  for (std::uint32_t n = 0; n < 3; ++n)
    for (std::uint32_t p = 0; p < 243; ++p) {
      const Philox4 words = random_words(11, Purpose::candidate, 40 + n, std::uint64_t{5} << 33 | 7, p / 4);
      const double z = normal_number<double>(words, static_cast<int>(p % 4));
      worst = std::max(worst, std::abs(double{noisy.x[n * 243 + p]} - noisy.image[p] - z));
    }
  CHECK(worst < 2e-6);
}

TEST_CASE("Noise on the grid is the number of entries that are below a draw", "[smoothing]") {
  Noisy noisy({3, 32, 32, 1}, 1);
  for (std::uint32_t p = 0; p < 3072; ++p) noisy.image[p] = static_cast<float>(p % 200) / 255.0F;
  for (const double sigma : {0.02, 0.12}) {
    const GridNoise noise = grid_noise(sigma);
    noisy.table(noise);
    for (std::uint32_t p = 0; p < 3072; ++p) {
      const auto below = std::ranges::lower_bound(noise.entries, draw_of(noisy.what, p)) - noise.entries.begin();
      REQUIRE(std::abs(noisy.x[p] * 255 - static_cast<float>(p % 200 + below - noise.half)) < 1e-3F);
    }
    CHECK(std::ranges::all_of(noisy.unknown, [](std::uint8_t flag) { return flag == 0; }));
  }
}

TEST_CASE("All 64 bits of a draw decide, and a draw that equals an entry is not known", "[smoothing]") {
  Noisy noisy({1, 2, 2, 1}, 1);
  std::fill(noisy.image.begin(), noisy.image.end(), 0.0F);
  for (std::uint32_t p = 0; p < 4; ++p) {
    const std::uint64_t draw = draw_of(noisy.what, p);
    const auto noise_with = [&](std::uint64_t entry) {
      noisy.table(table_of({0, entry, entry, kMost}));
      return std::lround(noisy.x[p] * 255);
    };
    CHECK((noise_with(draw - 1) == 1 && noisy.unknown[0] == 0));
    CHECK((noise_with(draw + 1) == -1 && noisy.unknown[0] == 0));
    (void)noise_with(draw);
    CHECK(noisy.unknown[0] == 1);
  }
}

TEST_CASE("The sum of pixel and noise is cut", "[smoothing]") {
  Noisy noisy({3, 32, 32, 1}, 50);
  std::fill(noisy.image.begin(), noisy.image.end(), 1.0F);
  const GridNoise wide = grid_noise(0.9);
  CHECK((wide.low == -5 * 255 && wide.high == 6 * 255));
  noisy.table(wide);
  const auto [least, most] = std::minmax_element(noisy.x.begin(), noisy.x.end());
  CHECK((*least >= -5 && *most <= 6));
  GridNoise narrow = wide;
  narrow.low = -255;
  narrow.high = 510;
  noisy.table(narrow);
  CHECK(*std::min_element(noisy.x.begin(), noisy.x.end()) == -1);
  CHECK(*std::max_element(noisy.x.begin(), noisy.x.end()) == 2);
}

TEST_CASE("A sample's noise depends on seed, image, number and purpose, not on its neighbours or the layout",
          "[smoothing]") {
  const Layout plain{16, 4, 4, 1}, blocked{16, 4, 4, 8};
  for (const bool grid : {false, true}) {
    const auto samples_of = [&](const Layout& layout, int n, std::uint64_t id, Purpose purpose, std::uint32_t first) {
      Noisy noisy(layout, n, id, purpose, first);
      grid ? noisy.table(grid_noise(0.25)) : noisy.normal(0.25F);
      std::vector<float> values;
      for_each_pixel(n, layout, [&](std::int64_t s, int y, int x, int c) {
        values.push_back(noisy.x[static_cast<std::size_t>(layout.offset(s, c, y, x))]);
      });
      return values;
    };
    const auto all = samples_of(plain, 3, 5, Purpose::certification, 10);
    CHECK(all == samples_of(blocked, 3, 5, Purpose::certification, 10));
    const auto last = samples_of(plain, 1, 5, Purpose::certification, 12);
    CHECK(std::equal(last.begin(), last.end(), all.end() - 256));
    CHECK(last != samples_of(plain, 1, 6, Purpose::certification, 12));
    CHECK(last != samples_of(plain, 1, 5, Purpose::candidate, 12));
    CHECK(last != samples_of(plain, 1, 5, Purpose::certification, 13));
  }
}
