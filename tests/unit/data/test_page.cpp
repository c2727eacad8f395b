// What a person sees of data files of any kind: names of images, descriptions, pages.

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "dat/file.hpp"
#include "data/images/png.hpp"
#include "data/images/view.hpp"
#include "data/indexing/indexing.hpp"

using namespace dat;

namespace {

std::vector<std::uint8_t> pixels_of(ImageShape shape, int seed) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 3 * shape.height * shape.width; ++i) pixels.push_back(static_cast<std::uint8_t>(seed + 31 * i));
  return pixels;
}

/// An index over PNG files of several shapes, some of each of 300 classes for training and one of one class for
/// testing.
void write_some_index(const TemporaryFolder& folder) {
  for (int k = 0; k < 300; ++k) {
    const std::string name = folder / ("images/train/class" + std::to_string(1000 + k));
    std::filesystem::create_directories(name);
    for (int i = 0; i < (k == 256 ? 2 : k == 299 ? 5 : 3); ++i) {
      const ImageShape shape{5 + k % 3, k == 0 && i == 1 ? 21 : 20 - i};  // the second and the last one alone so large
      write_png(name + "/" + std::to_string(i) + ".png", shape, pixels_of(shape, k + i));
    }
  }
  std::filesystem::create_directories(folder / "images/val/class1007");
  write_png(folder / "images/val/class1007/a b.png", {9, 9}, pixels_of({9, 9}, 1));
  static_cast<void>(write_index({.source = folder / "images", .output = folder / "index.h5"}));
}

std::string lines_of_file(const TemporaryFolder& folder, const std::string& text) {
  write_bytes(folder / "list.txt", text);
  return folder / "list.txt";
}

}  // namespace

TEST_CASE("A list names images by paths or their ends, each once, and the set's order stays", "[page]") {
  const TemporaryFolder folder;
  write_some_index(folder);
  const auto chosen = [&](const std::string& text) {
    std::string names;
    const auto set =
        named_in(open_dataset({folder / "index.h5"}, "train", 0, {.size = 8}), lines_of_file(folder, text));
    for (std::int64_t i = 0; i < set->size(); ++i) names += set->name(i) + ":" + std::to_string(set->label(i)) + " ";
    return names;
  };
  const auto refused = [&](const std::string& text) { return error_of([&] { static_cast<void>(chosen(text)); }); };
  CHECK(chosen("class1200/1.png\r\n\ntrain/class1007/2.png\n/data/imagenet/train/class1007/0.png") ==
        "train/class1007/0.png:7 train/class1007/2.png:7 train/class1200/1.png:200 ");
  // A pack has given images other endings; one that fits counts first.
  write_png(folder / "images/train/class1000/0.PNG", {5, 20}, pixels_of({5, 20}, 7));
  static_cast<void>(write_index({.source = folder / "images", .output = folder / "index.h5"}));
  CHECK(chosen("class1200/1.JPEG\ntrain/class1000/0.png") == "train/class1000/0.png:0 train/class1200/1.png:200 ");
  CHECK(contains(refused("class1000/0.jpg"), "class1000/0.jpg (line 1) is the name of several images"));
  CHECK(contains(refused("s1007/2.png\nclass1007/2.png\nlass1007/2.png\n2.pn\nx\n"),
                 "list.txt: 4 of its 5 names are not among the images: s1007/2.png (line 1), lass1007/2.png (line 3), "
                 "2.pn (line 4), ..."));
  CHECK(contains(refused("class1007/1.png\n2.png"),
                 "2.png (line 2) is the name of several images, train/class1000/2.png and train/class1001/2.png"));
  CHECK(contains(refused("class1007/2.png\ntrain/class1007/2.png"),
                 "lines 1 and 2 name the same image, train/class1007/2.png"));
  CHECK(contains(refused("class1200/1.png\nclass1200/1.jpg"),
                 "1 of its 2 names are not among the images: class1200/1.jpg (line 2)"));
  CHECK(contains(refused("\n"), "list.txt: names no image"));
  CHECK(contains(error_of([&] { static_cast<void>(named_in(synthetic_dataset({}, "test"), folder / "none.txt")); }),
                 "3: " + (folder / "none.txt") + ": there is no such file"));
  CHECK(contains(error_of([] { static_cast<void>(named_in(synthetic_dataset({}, "test"), "/proc/self/mem")); }),
                 "3: /proc/self/mem: cannot be read"));
  const auto numbers = named_in(synthetic_dataset({}, "test"), lines_of_file(folder, "17\n0\n499\n"));
  CHECK((numbers->size() == 3 && numbers->name(1) == "17"));
  std::vector<std::uint8_t> seen(numbers->info().image_bytes()), whole = seen;
  numbers->see(1, centre_view(numbers->shape(1), numbers->info().size), seen.data());
  synthetic_dataset({}, "test")->read(17, whole.data());
  CHECK(seen == whole);
  CHECK(contains(
      error_of([&] { static_cast<void>(named_in(synthetic_dataset({}, "test"), lines_of_file(folder, "500\n03"))); }),
      "2 of its 2 names are not among the images: 500 (line 1), 03 (line 2)"));
}

TEST_CASE("An index is described by what it says, and no image is read", "[page]") {
  const TemporaryFolder folder;
  write_some_index(folder);
  std::filesystem::remove_all(folder / "images/train/class1000");
  const std::string text = inspect_dataset(folder / "index.h5");
  CAPTURE(text);
  CHECK(contains(text, "source   images in images, files of their own\n"));
  CHECK(contains(text,
                 "train    901 images of (5 to 7) x (16 to 21) x 3, 300 classes; an image is checked when it is read"));
  CHECK((contains(text, "test     1 images of 9 x 9 x 3") && contains(text, "    7         3         1  class1007\n")));
  CHECK(contains(text,
                 "  255         3         0  class1255\nand 44 classes more: 2 to 5 train images each, 0 to 0 test "
                 "images each\n"));
}

TEST_CASE("A page has images of all classes alike, each above the name of its class", "[page]") {
  const TemporaryFolder folder;
  SyntheticOptions options{.classes = 3, .size = 26, .train = 150, .test = 5};
  write_synthetic(options, folder / "set.h5");
  CHECK(draw_page(folder / "set.h5", folder / "page.png") == 64);
  const auto set = synthetic_dataset(options, "train");
  std::vector<std::int64_t> order;
  for (int label = 0; label < 3; ++label)
    for (std::int64_t i = 0; i < set->size(); ++i)
      if (set->label(i) == label) order.push_back(i);

  std::string bytes = read_bytes(folder / "page.png");
  CHECK(bytes.ends_with("IEND\xae\x42\x60\x82"));
  CHECK(error_of([] { (void)png_of({0, 1}, {0, 0, 0}); }).starts_with("9: an image cannot be written as PNG: "));
  const ImageBytes file(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const ImageShape shape = png_shape(file);
  constexpr int kSide = 26, kZoom = 4, kWidth = kSide * kZoom + 4, kHeight = kWidth + 12;
  REQUIRE(shape == ImageShape{8 * kHeight + 4, 8 * kWidth + 4});
  std::vector<std::uint8_t> page(static_cast<std::size_t>(3 * shape.height * shape.width));
  decode_png(file, shape, page.data());
  const auto at = [&](int y, int x) { return &page[static_cast<std::size_t>((y * shape.width + x) * 3)]; };
  std::vector<std::uint8_t> image(set->info().image_bytes());
  int wrong = 0;
  std::vector<std::vector<std::uint8_t>> labels;
  for (int cell = 0; cell < 64; ++cell) {
    set->read(order[static_cast<std::size_t>((2 * cell + 1) * 150 / 128)], image.data());
    const int top = cell / 8 * kHeight + 4, left = cell % 8 * kWidth + 4;
    for (int y = 0; y < kSide * kZoom; ++y)
      for (int x = 0; x < kSide * kZoom; ++x)
        wrong += std::equal(at(top + y, left + x), at(top + y, left + x) + 3,
                            &image[static_cast<std::size_t>((y / kZoom * kSide + x / kZoom) * 3)])
                     ? 0
                     : 1;
    labels.emplace_back();
    for (int y = top + kSide * kZoom; y < top + kHeight - 4; ++y)
      for (int x = left; x < left + kWidth - 4; ++x) labels.back().push_back(*at(y, x));
  }
  CHECK((wrong == 0 && labels[0] == labels[1]));
  std::vector<std::uint8_t> drawn;
  for (const std::size_t cell : {0, 31, 63}) drawn.insert(drawn.end(), labels[cell].begin(), labels[cell].end());
  CHECK(sha256_hex(drawn.data(), drawn.size()) ==  // of "disc, hue 0", "square, hue 120", "triangle up, hue 2"
        "c60ea825fadb29aaf3ed1bac341a59e402a1ba2c85c2a88d05e09542d4a763f6");
}

TEST_CASE("Letters of a class's name beyond ASCII are question marks", "[page]") {
  const TemporaryFolder folder;
  const auto page_of = [&](const std::string& name) {
    const std::string root = folder / std::to_string(name.size());
    for (const std::string& one : {"/train/" + name, "/val/" + name, std::string("/train/\u00ff")}) {
      std::filesystem::create_directories(root + one);
      write_png(root + one + "/0.png", {9, 9}, pixels_of({9, 9}, 1));
    }
    static_cast<void>(write_index({.source = root, .output = root + ".h5"}));
    static_cast<void>(draw_page(root + ".h5", root + ".png"));
    return read_bytes(root + ".png");
  };
  CHECK(page_of("\u00e4~") == page_of("?~"));
}
