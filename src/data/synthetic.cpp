#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/random.hpp"
#include "data/data_file.hpp"
#include "files/bytes.hpp"

namespace dat {
namespace {

constexpr int kShapes = 8, kGrid = 5;
constexpr std::array<const char*, kShapes> kShapeNames = {"disc", "square", "triangle up",    "triangle down",
                                                          "ring", "plus",   "horizontal bar", "vertical bar"};

using Colour = std::array<double, 3>;

// The random numbers of one sample, one after the other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint32_t split, std::int64_t sample)
      : seed_(seed), split_(split), sample_(static_cast<std::uint64_t>(sample)) {}
  double between(double low, double high) {
    if (next_ % 4 == 0) words_ = random_words(seed_, Purpose::synthetic_data, split_, sample_, next_ / 4);
    return low + (high - low) * static_cast<double>(uniform(words_.v[next_++ % 4]));
  }

 private:
  std::uint64_t seed_;
  std::uint32_t split_;
  std::uint64_t sample_;
  std::uint32_t next_ = 0;
  Philox4 words_{};
};

// hue in turns
Colour from_hsv(double hue, double saturation, double value) {
  Colour colour{};
  for (int c = 0; c < 3; ++c) {
    const double turn = hue + (c == 0 ? 0.0 : c == 1 ? 2.0 / 3 : 1.0 / 3);
    const double ramp = std::clamp(std::abs((turn - std::floor(turn)) * 6 - 3) - 1, 0.0, 1.0);
    colour[static_cast<std::size_t>(c)] = value * (1 - saturation * (1 - ramp));
  }
  return colour;
}

// Distance to the edge, negative inside, in units of the shape's radius; v points down.
double distance(int shape, double u, double v) {
  const auto box = [&](double half_width, double half_height) {
    return std::max(std::abs(u) - half_width, std::abs(v) - half_height);
  };
  const auto triangle = [&](double y) { return std::max(y - 0.7, (2 * std::abs(u) - y - 0.9) / std::sqrt(5.0)); };
  if (shape == 0) return std::hypot(u, v) - 0.85;
  if (shape == 1) return box(0.75, 0.75);
  if (shape == 2) return triangle(v);
  if (shape == 3) return triangle(-v);
  if (shape == 4) return std::abs(std::hypot(u, v) - 0.7) - 0.25;
  if (shape == 5) return std::min(box(0.95, 0.3), box(0.3, 0.95));
  return shape == 6 ? box(1.0, 0.4) : box(0.4, 1.0);
}

double class_hue(int label, int classes) { return static_cast<double>(label) / classes; }

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(const SyntheticOptions& options, const std::string& split)
      : seed_(options.seed),
        split_(split == "train" ? 0 : 1),
        samples_(split == "train" ? options.train : options.test) {
    require(options.classes >= 2 && options.classes <= kMostClasses, ExitCode::usage, "the synthetic set has 2 to ",
            kMostClasses, " classes, not ", options.classes);
    require(options.size >= 8 && options.size <= 1024, ExitCode::usage,
            "the synthetic set has images of 8 to 1024 pixels, not ", options.size);
    require(options.train > 0 && options.test > 0, ExitCode::usage,
            "the synthetic set needs at least one sample a split");
    require(split == "train" || split == "test", ExitCode::usage, "there is no split '", split,
            "', only train and test");
    info_.size = options.size;
    info_.classes = options.classes;
    for (int i = 0; i < options.classes; ++i) {
      const double degrees = 360 * class_hue(i, options.classes);
      const char* const shape = kShapeNames[static_cast<std::size_t>(i % kShapes)];
      // Names differ for many classes, too.
      info_.class_names.push_back(options.classes > 256 ? fmt::format("{}, hue {:.2f}", shape, degrees)
                                                        : fmt::format("{}, hue {}", shape, std::lround(degrees)));
    }
  }

  const DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return samples_; }
  int label(std::int64_t index) const override { return static_cast<int>(index % info_.classes); }

  void read(std::int64_t index, std::uint8_t* pixels) const override {
    assert(index >= 0 && index < samples_);
    Draws draws(seed_, split_, index);
    const int label_of = label(index), size = info_.size;
    // Classes of one shape lie kShapes / classes of a turn apart; the jitter stays well inside.
    const double jitter = 0.25 * std::min(0.2, static_cast<double>(kShapes) / info_.classes);
    const double hue = class_hue(label_of, info_.classes) + draws.between(-jitter, jitter);
    const double saturation = draws.between(0.55, 0.95);
    const Colour colour = from_hsv(hue, saturation, draws.between(0.65, 1.0));
    const double radius = draws.between(0.24, 0.36) * size;
    const double cx = draws.between(0.36, 0.64) * size, cy = draws.between(0.36, 0.64) * size;
    const double angle = draws.between(-0.2, 0.2);
    const double cosine = std::cos(angle) / radius, sine = std::sin(angle) / radius;

    std::array<Colour, kGrid * kGrid> grid{};
    for (Colour& node : grid) {
      const double grey = draws.between(0.15, 0.65);
      for (double& value : node) value = grey + draws.between(-0.12, 0.12);
    }
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        const double dx = x + 0.5 - cx, dy = y + 0.5 - cy;
        const double edge = distance(label_of % kShapes, dx * cosine + dy * sine, dy * cosine - dx * sine) * radius;
        const double cover = std::clamp(0.5 - edge, 0.0, 1.0);
        const Colour behind = background(grid, (x + 0.5) / size, (y + 0.5) / size);
        for (std::size_t c = 0; c < 3; ++c) {
          const double value = behind[c] + cover * (colour[c] - behind[c]) + draws.between(-0.04, 0.04);
          *pixels++ = static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
        }
      }
    }
  }

 private:
  static Colour background(const std::array<Colour, kGrid * kGrid>& grid, double x, double y) {
    const double gx = x * (kGrid - 1), gy = y * (kGrid - 1);
    const auto ix = static_cast<std::size_t>(gx), iy = static_cast<std::size_t>(gy);
    const double fx = gx - static_cast<double>(ix), fy = gy - static_cast<double>(iy);
    Colour colour{};
    for (std::size_t c = 0; c < 3; ++c) {
      const Colour* row = &grid[iy * kGrid + ix];
      const double above = row[0][c] + fx * (row[1][c] - row[0][c]);
      const double below = row[kGrid][c] + fx * (row[kGrid + 1][c] - row[kGrid][c]);
      colour[c] = above + fy * (below - above);
    }
    return colour;
  }

  DatasetInfo info_;
  std::uint64_t seed_;
  std::uint32_t split_;
  std::int64_t samples_;
};

}  // namespace

std::unique_ptr<Dataset> synthetic_dataset(const SyntheticOptions& options, const std::string& split) {
  return std::make_unique<SyntheticDataset>(options, split);
}

void write_synthetic(const SyntheticOptions& options, const std::string& path) {
  const SyntheticDataset train(options, "train"), test(options, "test");
  const std::string source = "synthetic: coloured shapes on a cluttered background, seed ";
  write_data_file(path, train.info(), source + std::to_string(options.seed), [&](DataFileWriter& writer) {
    for (const auto& [name, set] : {std::pair{"train", &train}, std::pair{"test", &test}}) {
      writer.begin(name, set->size());
      const std::int64_t image = std::int64_t{3} * options.size * options.size, block = rows_at_once(image);
      std::vector<std::uint8_t> pixels;
      std::vector<std::int16_t> labels;
      for (std::int64_t begin = 0; begin < set->size(); begin += block) {
        const std::int64_t count = std::min(block, set->size() - begin);
        pixels.resize(static_cast<std::size_t>(count * image));
        labels.resize(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
          set->read(begin + i, pixels.data() + i * image);
          labels[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(set->label(begin + i));
        }
        writer.add(pixels, labels);
      }
      writer.end();
    }
  });
}

}  // namespace dat
