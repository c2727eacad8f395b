// A page of images with their labels, for a person's eyes. gnuplot, which draws curves, would draw it in other pixels.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "data/data_file.hpp"
#include "data/images/index.hpp"
#include "data/images/indexed.hpp"
#include "data/images/png.hpp"
#include "data/images/view.hpp"
#include "files/bytes.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

constexpr int kColumns = 8, kMostCells = 64, kGap = 4;
constexpr int kLetter = 6, kLine = 12;  // a letter's width with the gap after it; a label's height
constexpr int kLeast = 96, kLargest = 256, kUsualSide = 128;  // pixels of a side; images above the largest become usual

/// Letters '!' to '~', five columns each, a byte a column: bit 0 is the upper end.
constexpr std::string_view kLetters =
    "00005f00000007000700147f147f14242a7f2a12231308646236495522500004030000001c2241000041221c0014083e081408083e0808"
    "0000a060000808080808000040000060100804033e5149453e00427f4000426151494641494949361814127f1027454545393e49494930"
    "0101710d033649494936064949493e00002400000000a4600008142241001414141414412214080002015109063e415d551e7e0909097e"
    "7f494949363e414141227f4141413e7f494949417f090909013e4141497a7f0808087f00417f4100204040403f7f081422417f40404040"
    "7f020c027f7f0608307f3e4141413e7f090909063e4151215e7f09192946464949493101017f01013f4040403f1f2040201f7f2018207f"
    "631408146303047804036151494543007f41410003040810600041417f0004020102048080808080000102000020545454787f44444438"
    "3844444444384444447f3854545458047e05050018a4a4a47c7f0404047800447d40000080847d007f1028440000417f40007c04780478"
    "7c040404783844444438fc2424241818242424fc7c080404004854545424043f4444003c4040407c1c2040201c3c4030403c4428102844"
    "1ca0a0a07c4464544c44000836410000007f00000041360800180408100c";

/// An image that is drawn on.
class Canvas {
 public:
  Canvas(int height, int width)
      : width_(width), rgb_(ImageWindow{0, 0, height, width}.rgb_bytes(), 255), shape_{height, width} {}
  void dot(int y, int x, const std::uint8_t* rgb) { std::copy_n(rgb, 3, &rgb_[(std::size_t(y) * width_ + x) * 3]); }
  /// Writes a text in black, as far as it fits into `room` pixels. Letters beyond ASCII become question marks.
  void write(int y, int x, const std::string& text, int room) {
    constexpr std::uint8_t kBlack[3] = {};
    for (const char c : text) {
      if ((c & '\xc0') == '\x80') continue;  // goes on in UTF-8
      if ((room -= kLetter) < 0) return;
      const std::size_t letter = c > ' ' && c <= '~' ? c - '!' : '?' - '!';
      for (int column = 0; column < 5 && c != ' '; ++column) {
        const std::string bits(kLetters.substr(letter * 10 + std::size_t(2) * column, 2));
        const long set = std::strtol(bits.c_str(), nullptr, 16);
        for (int bit = 0; bit < 8; ++bit)
          if ((set >> bit & 1) != 0) dot(y + bit, x + column, kBlack);
      }
      x += kLetter;
    }
  }
  void save(const std::string& path) const { write_png(path, shape_, rgb_); }

 private:
  int width_;
  std::vector<std::uint8_t> rgb_;
  ImageShape shape_;
};

/// The images of a page: evenly spread over all, in the order of their labels and then of their numbers.
std::vector<std::int64_t> spread(const Dataset& set, std::int64_t cells) {
  const auto place = [&](std::int64_t i) { return static_cast<std::size_t>(set.label(i) + 1); };  // first: unknown
  std::vector<std::int64_t> begins(set.info().class_names.size() + 2), places, chosen(static_cast<std::size_t>(cells));
  for (std::int64_t i = 0; i < set.size(); ++i) ++begins.at(place(i) + 1);
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  for (std::int64_t cell = 0; cell < cells; ++cell) places.push_back((2 * cell + 1) * set.size() / (2 * cells));
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const std::int64_t own = begins[place(i)]++;
    const auto cell = std::ranges::lower_bound(places, own);
    if (cell != places.end() && *cell == own) chosen[static_cast<std::size_t>(cell - places.begin())] = i;
  }
  return chosen;
}

/// Draws an image [side][side][channels], each of its pixels as a square.
void draw(const std::vector<std::uint8_t>& pixels, int side, int channels, int zoom, int top, int left,
          Canvas& canvas) {
  for (int y = 0; y < side * zoom; ++y)
    for (int x = 0; x < side * zoom; ++x) {
      const std::uint8_t* pixel = &pixels[(std::size_t(y / zoom) * side + x / zoom) * channels];
      std::uint8_t rgb[3];
      for (int c = 0; c < 3; ++c) rgb[c] = c < channels ? pixel[c] : channels == 1 ? *pixel : std::uint8_t{0};
      canvas.dot(top + y, left + x, rgb);
    }
}

/// Error(usage): what the page would be written over is no picture, or one of an index's images.
void require_free(const Hdf5Reader& file, const std::string& output) {
  std::error_code error;
  if (!fs::is_regular_file(output, error)) return;
  const std::string old = beginning_of(*open_bytes(output), 8);
  require(is_png({reinterpret_cast<const std::uint8_t*>(old.data()), old.size()}), ExitCode::usage, output,
          ": is there already and is no PNG; give the page another name");
  if (!is_index(file) || file.has("/containers")) return;
  const fs::path from = fs::weakly_canonical(folder_of_index(file), error);
  const fs::path below = fs::canonical(output, error).lexically_relative(from);
  require(!below.empty() && *below.begin() == "..", ExitCode::usage, output,
          ": is there already, in the folder of the images; give the page another name");
}

}  // namespace

int draw_page(const std::string& path, const std::string& output) {
  const Hdf5Reader file = open_data_file(path);
  require_free(file, output);
  const std::string split = file.has("train") ? "train" : "test";
  const std::unique_ptr<Dataset> set = open_dataset({path}, split, 0, {.usual = kUsualSide});
  const DatasetInfo& info = set->info();
  const int side = info.size <= kLargest ? info.size : kUsualSide, zoom = (kLeast + side - 1) / side;
  const int cells = static_cast<int>(std::min<std::int64_t>(set->size(), kMostCells));
  const int width = side * zoom + kGap, height = width + kLine;
  Canvas canvas((cells + kColumns - 1) / kColumns * height + kGap, std::min(cells, kColumns) * width + kGap);
  std::vector<std::uint8_t> pixels(std::size_t(side) * side * info.channels);
  const std::vector<std::int64_t> chosen = spread(*set, cells);
  for (int cell = 0; cell < cells; ++cell) {
    const std::int64_t image = chosen[static_cast<std::size_t>(cell)];
    const int label = set->label(image), top = cell / kColumns * height + kGap, left = cell % kColumns * width + kGap;
    set->see(image, centre_view(set->shape(image), side), pixels.data());
    draw(pixels, side, info.channels, zoom, top, left, canvas);
    canvas.write(top + width - 1, left, label < 0 ? "unknown" : info.class_names[static_cast<std::size_t>(label)],
                 width);
  }
  canvas.save(output);
  return cells;
}

}  // namespace dat
