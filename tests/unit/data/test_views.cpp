#include "catch.hpp"
#include "data/images/pixels.hpp"
#include "data/images/resize.hpp"
#include "data/images/view.hpp"

using namespace dat;

namespace {

/// Windows as torchvision's RandomResizedCrop.get_params draws them, by another generator.
struct Windows {
  std::vector<double> area, ratio, top, left;
  void add(ImageShape image, const ImageWindow& window) {
    area.push_back(1.0 * window.height * window.width / image.height / image.width);
    ratio.push_back(1.0 * window.width / window.height);
    top.push_back(1.0 * window.top / image.height);
    left.push_back(1.0 * window.left / image.width);
  }
  void add_drawn(ImageShape image, std::mt19937_64& generator) {
    const auto between = [&](double low, double high) {
      return std::uniform_real_distribution<double>(low, high)(generator);
    };
    const auto up_to = [&](int last) { return std::uniform_int_distribution<int>(0, last)(generator); };
    for (int k = 0; k < 10; ++k) {
      const double target = image.height * image.width * between(.08, 1);
      const double ratio_of = std::exp(between(std::log(3. / 4), std::log(4. / 3)));
      const int w = static_cast<int>(std::lround(std::sqrt(target * ratio_of))),
                h = static_cast<int>(std::lround(std::sqrt(target / ratio_of)));
      if (w <= 0 || w > image.width || h <= 0 || h > image.height) continue;
      const int y = up_to(image.height - h);
      return add(image, {y, up_to(image.width - w), h, w});
    }
    const int w = std::min(image.width, static_cast<int>(std::lround(image.height * 4. / 3))),
              h = std::min(image.height, static_cast<int>(std::lround(image.width / (3. / 4))));
    add(image, {(image.height - h) / 2, (image.width - w) / 2, h, w});
  }
};

/// The greatest distance between two distributions of so many numbers each.
double distance(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double most = 0;
  for (const std::vector<double>* all : {&a, &b})
    for (const double value : *all) {
      const auto below = [&](const std::vector<double>& of) {
        return static_cast<double>(std::upper_bound(of.begin(), of.end(), value) - of.begin()) /
               static_cast<double>(of.size());
      };
      most = std::max(most, std::abs(below(a) - below(b)));
    }
  return most;
}

bool inside(ImageShape image, const ImageWindow& w) {
  return w.top >= 0 && w.left >= 0 && w.height >= 1 && w.width >= 1 && w.top + w.height <= image.height &&
         w.left + w.width <= image.width;
}

}  // namespace

TEST_CASE("10,000 windows have torchvision's law") {
  constexpr int kCount = 10000;
  const double critical = 1.628 * std::sqrt(2.0 / kCount);  // Kolmogorov and Smirnov, p = .01
  for (const ImageShape image : {ImageShape{375, 500}, ImageShape{500, 333}, ImageShape{90, 300}}) {
    Windows ours, theirs;
    std::mt19937_64 generator(5);
    for (int k = 0; k < kCount; ++k) {
      const ImageView view = random_view(image, 224, 3, 2, k);
      CHECK((inside(image, view.window) && view.resized == ImageShape{224, 224}));
      ours.add(image, view.window);
      theirs.add_drawn(image, generator);
    }
    CAPTURE(image.height, image.width);
    CHECK((distance(ours.area, theirs.area) < critical && distance(ours.ratio, theirs.ratio) < critical));
    CHECK((distance(ours.top, theirs.top) < critical && distance(ours.left, theirs.left) < critical));
  }
}

TEST_CASE("A window is a function of seed, epoch and sample, and lies in any image") {
  const ImageShape image{375, 500};
  const ImageView one = random_view(image, 224, 1, 2, 3);
  CHECK((one == random_view(image, 224, 1, 2, 3) && one.window != random_view(image, 224, 2, 2, 3).window));
  CHECK(one.window != random_view(image, 224, 1, 3, 3).window);
  CHECK(one.window != random_view(image, 224, 1, 2, 4).window);
  CHECK(one.window == random_view(image, 128, 1, 2, 3).window);
  // By a program in Python, whose second and sixth try fit.
  CHECK(one.window == ImageWindow{53, 20, 304, 359});
  CHECK(random_view({90, 300}, 224, 1, 2, 3).window == ImageWindow{2, 62, 73, 79});
  for (const ImageShape odd : {ImageShape{1, 1}, ImageShape{33, 500}, ImageShape{500, 33}, ImageShape{1, 16384}})
    for (int k = 0; k < 200; ++k) CHECK(inside(odd, random_view(odd, 20, 1, 0, k).window));
  for (int corner = 0; corner < 4; ++corner) {  // of all windows of one pixel each is drawn
    const ImageWindow pixel{corner / 2, corner % 2, 1, 1};
    int k = 0;
    while (k < 200 && random_view({2, 2}, 20, 1, 0, k).window != pixel) ++k;
    CHECK(k < 200);
  }
  CHECK(random_view({1, 300}, 20, 1, 0, 0).window == ImageWindow{0, 149, 1, 1});  // nothing fits: the centre
  CHECK(random_view({300, 1}, 20, 1, 0, 0).window == ImageWindow{149, 0, 1, 1});
}

TEST_CASE("Evaluations see the centre as torchvision's Resize and CenterCrop do") {
  const auto seen = [](ImageShape image, int size) {
    const ImageView view = centre_view(image, size);
    CHECK(view.window == ImageWindow{0, 0, image.height, image.width});
    CHECK((view.part.height == size && view.part.width == size));
    return std::tuple(view.resized.height, view.resized.width, view.part.top, view.part.left);
  };
  // Printed by torchvision 0.14.1 for Resize(S * 256 // 224), CenterCrop(S).
  CHECK(seen({375, 500}, 224) == std::tuple(256, 341, 16, 58));
  CHECK(seen({500, 375}, 224) == std::tuple(341, 256, 58, 16));
  CHECK((seen({33, 500}, 224) == std::tuple(256, 3878, 16, 1827) && seen({64, 64}, 64) == std::tuple(64, 64, 0, 0)));
  CHECK((seen({64, 64}, 56) == std::tuple(64, 64, 4, 4) && seen({32, 32}, 20) == std::tuple(22, 22, 1, 1)));
  CHECK(seen({32, 33}, 21) == std::tuple(24, 24, 2, 2));
}

TEST_CASE("Images are resized to the numbers of Pillow") {
  // Pixels whose distance is less than the kernel's width.
  CHECK(Resizer::needed({37, 50}, {7, 13}, {2, 3, 2, 4}) == ImageWindow{8, 10, 16, 19});
  CHECK(Resizer::needed({9, 15}, {20, 21}, {5, 4, 6, 6}) == ImageWindow{1, 2, 5, 6});
  // Sums of the bytes, each times 1 to 7 in turn, of Pillow 9.4's resize((W, H), BILINEAR).
  const std::tuple<ImageShape, ImageShape, int> sizes[] = {
      {{9, 15}, {20, 21}, 642886}, {{13, 17}, {5, 4}, 30003}, {{37, 50}, {7, 13}, 139004}};
  for (const auto& [from, to, wanted] : sizes) {
    std::vector<std::uint8_t> in, out(ImageWindow{0, 0, to.height, to.width}.rgb_bytes());
    for (int y = 0; y < from.height; ++y)
      for (int x = 0; x < from.width; ++x)
        for (int c = 0; c < 3; ++c) in.push_back(static_cast<std::uint8_t>(37 * x + 91 * y + 53 * c));
    Resizer().resize(in.data(), from, to, {0, 0, to.height, to.width}, out.data());
    int sum = 0, weight = 0;
    for (const std::uint8_t byte : out) sum += (weight++ % 7 + 1) * byte;
    CHECK(sum == wanted);
  }
}

TEST_CASE("Images of 1 to 4 channels are resized channel by channel") {
  const ImageShape from{13, 17};
  const ImageView view{.window = {2, 1, 9, 15}, .resized = {20, 21}, .part = {3, 8, 12, 13}};
  std::mt19937 generator(1);
  for (int channels = 1; channels <= 4; ++channels) {
    std::vector<std::uint8_t> image(static_cast<std::size_t>(from.height * from.width * channels));
    for (std::uint8_t& one : image) one = static_cast<std::uint8_t>(generator());
    std::vector<std::uint8_t> out(static_cast<std::size_t>(12 * 13 * channels));
    see_pixels(image.data(), from, channels, view, out.data());
    for (int c = 0; c < channels; ++c) {  // each alone, as a grey image
      std::vector<std::uint8_t> grey, seen(3 * 12 * 13);
      const ImageWindow needed = Resizer::needed({9, 15}, view.resized, view.part);
      for (int y = 0; y < needed.height; ++y)
        for (int x = 0; x < needed.width; ++x)
          grey.insert(grey.end(), 3,
                      image[static_cast<std::size_t>(
                          ((2 + needed.top + y) * from.width + 1 + needed.left + x) * channels + c)]);
      Resizer().resize(grey.data(), {9, 15}, view.resized, view.part, seen.data());
      for (std::size_t k = 0; k < 12 * 13; ++k)
        REQUIRE(out[k * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)] == seen[3 * k]);
    }
  }
}
