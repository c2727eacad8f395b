#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "dat/file.hpp"
#include "data/images/decode.hpp"
#include "data/images/image_files.hpp"
#include "data/images/index.hpp"
#include "data/images/jpeg.hpp"
#include "data/images/members.hpp"
#include "data/images/png.hpp"
#include "data/images/tar.hpp"
#include "data/indexing/check.hpp"
#include "data/indexing/indexing.hpp"
#include "data/indexing/tar_writer.hpp"
#include "data_path.hpp"
#include "datasets.hpp"
#include "files/bytes.hpp"
#include "files/confined.hpp"
#include "hdf5/hdf5.hpp"

using namespace dat;
using std::string_literals::operator""s;

namespace {

namespace fs = std::filesystem;

/// A small image of the corpus.
std::string image(const std::string& name) { return read_bytes(test::data_path("fuzz/corpus/image/" + name)); }

void put(const std::string& path, const std::string& bytes) { write_bytes(path, bytes); }

/// A source of two classes, one of whose paths would break a list of lines.
void put_source(const std::string& folder) {
  put(folder + "/train/a/rgb\n.jpg", image("rgb.jpg"));
  put(folder + "/train/a/cmyk.JPEG", image("cmyk.jpg"));
  put(folder + "/train/b b/grey.jpg", image("grey.jpg"));
  put(folder + "/val/b b/rgba.png", image("rgba.png"));
  put(folder + "/val/b b/readme", "no image");
}

/// All there is to know of a split.
std::vector<std::string> all_of(const std::string& path, const std::string& split) {
  const auto set = open_dataset({path}, split, 0, {.size = 8});
  std::vector<std::string> images;
  for (std::int64_t k = 0; k < set->size(); ++k) {
    const auto pixels = test::pixels_of(*set, k);
    images.push_back(std::to_string(set->label(k)) + " " + std::to_string(set->shape(k).height) + " " +
                     std::string(pixels.begin(), pixels.end()));
  }
  return images;
}

std::vector<std::string> sorted(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

using Files = std::vector<std::pair<std::string, std::string>>;

/// Writes a tar of names and contents, and returns its bytes.
std::string put_tar(const std::string& path, const Files& files) {
  fs::create_directories(fs::path(path).parent_path());
  TarWriter tar(path);
  for (const auto& [name, content] : files) tar.add(name, as_bytes(content));
  tar.close();
  return read_bytes(path);
}

/// "SPLIT CLASS PATH" of the images of a source.
std::vector<std::string> found_in(const std::string& source) {
  const Members members = members_of(source);
  std::vector<std::string> found;
  for (const Member& one : members.all)
    found.push_back((one.test ? "test " : "train ") + members.class_names[static_cast<std::size_t>(one.label)] + " " +
                    one.path);
  return found;
}

/// Four bytes, the highest first.
std::string four_bytes(std::uint64_t value) {
  std::string four;
  for (int shift = 24; shift >= 0; shift -= 8) four.push_back(static_cast<char>(value >> shift));
  return four;
}

/// A part of a PNG file, of its name and content.
std::string png_chunk(const std::string& chunk) {
  return four_bytes(chunk.size() - 4) + chunk + four_bytes(crc32_z(0, as_bytes(chunk).data(), chunk.size()));
}

std::string deflated(const std::string& text) {
  std::string packed(compressBound(text.size()), '\0');
  uLongf bytes = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &bytes, as_bytes(text).data(), text.size());
  return packed.substr(0, bytes);
}

/// A PNG file whose head says another shape.
std::string png_head(int height, int width) {
  const std::string file = image("rgba.png");
  return file.substr(0, 8) + png_chunk("IHDR" + four_bytes(width) + four_bytes(height) + file.substr(24, 5)) +
         file.substr(33);
}

/// A PNG file with packed texts of 8 MB each after its head.
std::string with_texts(const std::string& png, int count) {
  const std::string whole = png_chunk(std::string("zTXta\0\0", 7) + deflated(std::string(8'000'000, 'x')));
  std::string file = png.substr(0, 33);
  for (int k = 0; k < count; ++k) file += whole;
  return file + png.substr(33);
}

/// A head of a JPEG file, without an image.
std::string jpeg_head(int height, int width) {
  std::string head("\xff\xd8\xff\xc0\0\x11\x08????\x03\1\x22\0\2\x11\1\3\x11\1\xff\xda\0\x0c\3\1\0\2\x11\3\x11\0\x3f\0",
                   35);
  head[7] = static_cast<char>(height >> 8), head[8] = static_cast<char>(height);
  head[9] = static_cast<char>(width >> 8), head[10] = static_cast<char>(width);
  return head;
}

}  // namespace

TEST_CASE("An index has the images of a folder, of its tar and of its packed tars, whatever their names are",
          "[index]") {
  const TemporaryFolder folder;
  const std::string source = folder / "so\nurce";
  put_source(source);
  double last = 0;
  const auto progress = [&](double part) { last = part; };
  const Indexed made = write_index({.source = source, .output = folder / "one.h5", .threads = 2});
  CHECK((made.train == 3 && made.test == 1 && made.classes == 2 && made.others == 1 && made.damaged == 0));
  const std::vector<std::string> train = all_of(folder / "one.h5", "train"), test = all_of(folder / "one.h5", "test");
  CHECK(train.size() == 3);
  CHECK(Hdf5File::open(folder / "one.h5", ExitCode::data).integer("/", "format_version") == 1);
  CHECK(open_dataset({folder / "one.h5"}, "train", 0, {.size = 8})->info().class_names ==
        std::vector<std::string>{"a", "b b"});
  CHECK(class_remarks(*open_dataset({folder / "one.h5"}, "train", 0, {.size = 8}), nullptr) == made.remarks);

  Files files;
  for (const char* name : {"train/a/rgb\n.jpg", "train/a/cmyk.JPEG", "train/b b/grey.jpg", "val/b b/rgba.png"})
    files.emplace_back(name, read_bytes(source + "/" + name));
  put_tar(folder / "tars/odd\nname.tar", files);
  write_index({.source = folder / "tars", .output = folder / "tars/own.h5", .progress = progress});
  CHECK(last == Approx(1));
  CHECK(sorted(all_of(folder / "tars/own.h5", "train")) == sorted(train));
  CHECK(all_of(folder / "tars/own.h5", "test") == test);
  const auto own = open_dataset({folder / "tars/own.h5"}, "train", 0, {.size = 8}),
             pool = open_dataset({folder / "one.h5", folder / "tars/own.h5"}, "train", 0, {.size = 8});
  CHECK((pool->info().decoded && pool->name(3) == own->name(0) && pool->shape(3) == own->shape(0)));
  // Found from where it lies, whatever leads there.
  fs::create_symlink("tars/own.h5", folder / "link.h5");
  CHECK(all_of(folder / "link.h5", "test") == test);

  std::vector<double> parts;  // of four images, and of each tar once more
  const Indexed packed =
      write_pack({.source = source, .output = folder / "pack", .shard_bytes = 4000, .progress = [&](double part) {
                    parts.push_back(part);
                  }});
  CHECK(packed.containers > 2);
  CHECK((std::ssize(parts) == 4 + packed.containers && std::is_sorted(parts.begin(), parts.end())));
  CHECK((parts.front() == Approx(0.25) && parts.back() == Approx(1)));
  write_index({.source = folder / "pack", .output = folder / "pack.h5"});
  const std::string about = inspect_dataset(folder / "pack.h5");
  CHECK((contains(about, " tars: ") && contains(about, ".tar, ...\n")));
  CHECK((sorted(all_of(folder / "pack.h5", "train")) == sorted(train) && all_of(folder / "pack.h5", "test") == test));
  CHECK(open_dataset({folder / "pack.h5"}, "test", 0, {.size = 8})->info().class_names ==
        std::vector<std::string>{"a", "b b"});

  last = 0;
  write_sized({.source = source, .output = folder / "plain.h5", .threads = 2, .size = 8, .progress = progress});
  CHECK(last == Approx(1));
  for (const auto& [split, images] : {std::pair{"train", &train}, std::pair{"test", &test}}) {
    const auto plain = open_dataset({folder / "plain.h5"}, split, 0);
    REQUIRE(plain->size() == std::ssize(*images));
    for (std::int64_t k = 0; k < plain->size(); ++k) {
      const auto pixels = test::pixels_of(*plain, k);
      const std::string& wanted = (*images)[static_cast<std::size_t>(k)];
      CHECK(wanted.starts_with(std::to_string(plain->label(k)) + " "));
      CHECK(wanted.ends_with(std::string(pixels.begin(), pixels.end())));
    }
  }
  parts.clear();
  write_sized({.source = source, .output = folder / "large.h5", .size = 2048, .progress = [&](double part) {
                 parts.push_back(part);
               }});
  CHECK((open_dataset({folder / "large.h5"}, "train", 0)->size() == 3 && parts.size() == 7));  // two at a time
  std::string other = image("rgba.png");
  other.back() ^= 1;
  const std::pair<std::string, const char*> changes[] = {{"", "has 0 bytes instead of 146"},
                                                         {other, "has changed while it was read"}};
  for (const auto& change : changes) {
    put_source(source);
    const auto progress_with = [&](double part) {
      if (part > 0.59) write_bytes(source + "/val/b b/rgba.png", change.first);
    };
    CHECK(error_of([&] {
            write_sized({.source = source, .output = folder / "plain.h5", .size = 8, .progress = progress_with});
          }) == "3: " + folder / "so urce" + "/val/b b/rgba.png: " + change.second);
  }
}

TEST_CASE("Splits and classes are what folders and tars are called, shards what has labels", "[index]") {
  using Found = std::vector<std::string>;
  const TemporaryFolder folder;
  const std::string source = folder / "source", in = source + "/";
  SECTION("tars of splits") {
    put_tar(in + "train.tar", {{"./ant/1.jpg", ""}, {"bee/2.jpg", ""}, {"bee/about.json", "{}"}});
    put_tar(in + "val-0.tar", {{"ace/3.jpg", ""}});
    put_tar(in + "valencia.tar", {{"bee/4.jpg", ""}});
    put(in + "._train.tar", "of another system");
    CHECK(found_in(source) ==
          Found{"test ace ace/3.jpg", "train ant ant/1.jpg", "train bee bee/2.jpg", "train bee bee/4.jpg"});
    CHECK(members_of(source).class_names == Found{"ant", "bee", "ace"});  // what has test images alone comes last
    put(in + "ant/5.jpg", "");
    CHECK(error_of([&] { found_in(source); }) ==
          "3: " + source + ": has tars (train.tar) and images beside them (ant/5.jpg); move one kind elsewhere");
  }
  SECTION("tars of splits with folders of their own") {
    put_tar(in + "train.tar", {{"our_train/ant/1.jpg", ""}, {"our_train/bee/2.jpg", ""}});
    put_tar(in + "val.tar", {{"our_val/ant/3.jpg", ""}, {"our_val/bee/4.jpg", ""}});
    CHECK(found_in(source) == Found{"train ant our_train/ant/1.jpg", "train bee our_train/bee/2.jpg",
                                    "test ant our_val/ant/3.jpg", "test bee our_val/bee/4.jpg"});
  }
  SECTION("a tar that is cut off between two files") {
    const std::string whole = put_tar(folder / "all.tar", {{"ant/1.jpg", ""}, {"bee/2.jpg", ""}, {"bee/3.jpg", ""}});
    constexpr std::size_t kBlock = 512;
    write_bytes(folder / "all.tar", whole.substr(0, 2 * kBlock));  // files without bytes are a block each
    CHECK(contains(error_of([&] { found_in(folder / "all.tar"); }), "all.tar: is cut off: nothing ends it"));
    write_bytes(folder / "all.tar", put_tar(folder / "all.tar", {{"ant/1.jpg", "x"}}).substr(0, kBlock));
    CHECK(contains(error_of([&] { found_in(folder / "all.tar"); }), "all.tar: is cut off in ant/1.jpg"));
  }
  SECTION("shards in a tar") {
    const std::string train = put_tar(folder / "a.tar", {{"x.jpg", ""}, {"x.cls", "0"}}),
                      test = put_tar(folder / "b.tar", {{"x.jpg", ""}, {"x.cls", "1"}});
    put_tar(folder / "all.tar", {{"packed/train-0.tar", train}, {"test-0.tar", test}});
    CHECK(found_in(folder / "all.tar") == Found{"train class 0 packed/train-0/x.jpg", "test class 1 test-0/x.jpg"});
  }
  SECTION("tars in a tar") {
    const std::string one = put_tar(folder / "one.tar", {{"1.jpg", ""}}),
                      two = put_tar(folder / "two.tar", {{"2.jpg", ""}});
    put_tar(folder / "all.tar", {{"train/ant.tar", one}, {"train/bee.tar", two}, {"val/ant.tar", one}});
    CHECK(found_in(folder / "all.tar") ==
          Found{"train ant train/ant/1.jpg", "train bee train/bee/2.jpg", "test ant val/ant/1.jpg"});
  }
  SECTION("folders") {
    for (const char* path : {"set/cat/day1/1.jpg", "set/dog/day1/2.jpg", "set/.old/3.jpg"}) put(in + path, "");
    CHECK(found_in(source) == Found{"train cat set/cat/day1/1.jpg", "train dog set/dog/day1/2.jpg"});
    put(in + "train/4.jpg", "");
    CHECK(contains(error_of([&] { found_in(source); }), "train/4.jpg lies in no folder of a class"));
    std::string deep = in;
    for (int k = 0; k < 34; ++k) deep += "d/";
    fs::create_directories(deep);
    CHECK(contains(error_of([&] { found_in(source); }), "d: folders in folders, 32 deep"));
  }
  SECTION("labels of shards, and what is none") {
    const auto told = [&](const std::string& kind, const std::string& label) {
      put_tar(in + "0.tar", {{"x.jpg", ""}, {"x." + kind, label}});
      return error_of([&] { found_in(source); });
    };
    for (const char* none : {"", " 1", "1x"}) CHECK(told("cls", none) == "3: 0.tar: x.cls: is no label");
    CHECK(told("cls", std::string((1 << 20) + 1, '1')) == "3: 0.tar: x.cls: a label of 1048577 bytes");
    CHECK(told("json", "{") == "3: 0.tar: x.json: is no JSON");
    CHECK(told("json", R"({"cls": 1.5})") == "3: 0.tar: x.json: \"cls\" is no whole number");
    for (const char* none : {"[1]", "{}"}) CHECK(contains(told("json", none), "0.tar: x.jpg: no .cls and no \"cls\""));
    for (const char* none : {"-1", "32767"})
      CHECK(contains(told("cls", none), std::string("0.tar: x.jpg: label ") + none + ", there can be 0 to 32766"));
    CHECK((told("cls", "32766 \r\n") == "none" && found_in(source) == Found{"train class 32766 x.jpg"}));
    put(in + "class_names.txt", "a\nb\n");
    CHECK((told("json", R"({"cls": 1})") == "none" && found_in(source) == Found{"train b x.jpg"}));
    CHECK(contains(told("cls", "2"), "class_names.txt names 2 classes, and there is the label 2"));
    CHECK(contains(told("txt", "1"), "x.jpg lies in no folder of a class"));
    put_tar(in + "0.tar", {{"readme", ""}});
    CHECK(contains(error_of([&] { found_in(source); }), "holds no images"));
  }
  SECTION("shards") {
    for (const char* tar : {"train-0.tar", "test-0.tar", "val-0.tar"})
      put_tar(in + tar,
              {{"x.jpg", ""}, {"x.cls", tar[1] == 'r' ? "0" : "1"}, {"x.seg.png", ""}, {"y.cls", "no label"}});
    CHECK(found_in(source) == Found{"test class 1 x.jpg", "train class 0 x.jpg"});
    CHECK((members_of(source).others == 6 && members_of(source).class_names.size() == 2));
    std::string lines;
    for (int k = 0; k <= kMostClasses; ++k) lines += std::to_string(k) + "\n";
    put(in + "class_names.txt", lines);
    CHECK(contains(error_of([&] { found_in(source); }), "names 32768 classes, at most 32767 are taken"));
    fs::resize_file(in + "class_names.txt", (8 << 20) + 1);
    CHECK(contains(error_of([&] { found_in(source); }), "has 8388609 bytes: too many for names"));
    put_tar(in + "train-0.tar", {{"x.jpg", ""}, {"x.png", ""}, {"x.cls", "0"}});
    CHECK(contains(error_of([&] { found_in(source); }), "train-0.tar: x.png: stands beside x.jpg"));
  }
}

TEST_CASE("Few tars are open, whatever the number of indexes", "[index]") {
  const TemporaryFolder folder;
  put(folder / "x.tar", "x");
  const auto open = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = open();
  CHECK_THROWS_AS(open_bytes(folder / ""), Error);  // which leaves nothing open
  const std::vector<std::string> names(300, "x.tar");
  const ImageFiles one(folder / "", names);
  {
    const ImageFiles two(folder / "", names);
    CHECK(open() - before == 400);
    std::vector<std::uint8_t> bytes;
    two.read(100, "", 0, 1, bytes);  // the first one that is not open
    CHECK(bytes == std::vector<std::uint8_t>{'x'});
    CHECK(error_of([&] { two.read(100, "", 1, 1, bytes); }) == "3: has 1 bytes instead of 1");
  }
  const ImageFiles three(folder / "", {"x.tar"});
  CHECK(open() - before == 301);
}

TEST_CASE("A view has the pixels of its window, and a fast one those of the image that the transform makes smaller",
          "[index]") {
  const std::string png = image("rgba.png"), jpeg = image("rgb.jpg");
  const ImageWindow all{0, 0, 13, 21}, inner{2, 4, 8, 12};
  ImageDecoder decoder;
  const auto seen = [&](const std::string& file, ImageShape shape, const ImageWindow& window, ImageShape to,
                        bool fast) {
    std::vector<std::uint8_t> pixels(ImageWindow{0, 0, to.height, to.width}.rgb_bytes());
    decoder.see(as_bytes(file), shape, {window, to, {0, 0, to.height, to.width}}, fast, pixels.data());
    return pixels;
  };
  const auto whole = seen(png, {13, 21}, all, {13, 21}, true), cut = seen(png, {13, 21}, inner, {8, 12}, true);
  for (std::ptrdiff_t y = 0; y < 8; ++y)
    CHECK(std::equal(cut.begin() + 36 * y, cut.begin() + 36 * (y + 1), whole.begin() + 3 * (21 * (y + 2) + 4)));
  CHECK(seen(png, {13, 21}, inner, {2, 2}, true) == seen(png, {13, 21}, inner, {2, 2}, false));
  const std::tuple<ImageWindow, ImageShape, int, ImageWindow> views[] = {
      {all, {7, 10}, 8, all},          {all, {6, 11}, 8, all},         {all, {6, 10}, 4, {0, 0, 6, 10}},
      {all, {3, 2}, 2, {0, 0, 3, 5}},  {all, {1, 1}, 1, {0, 0, 1, 2}}, {inner, {4, 6}, 4, {1, 2, 4, 6}},
      {inner, {3, 6}, 4, {1, 2, 4, 6}}};
  for (const auto& [window, to, eighths, smaller] : views) {
    const ImageShape from{smaller.height, smaller.width};
    const ImageWindow part{0, 0, to.height, to.width}, needed = Resizer::needed(from, to, part);
    std::vector<std::uint8_t> in(needed.rgb_bytes()), out(part.rgb_bytes());
    decode_jpeg(as_bytes(jpeg), {13, 21},
                {smaller.top + needed.top, smaller.left + needed.left, needed.height, needed.width}, in.data(),
                eighths);
    Resizer().resize(in.data(), from, to, part, out.data());
    CHECK(seen(jpeg, {13, 21}, window, to, true) == out);
  }
  CHECK(seen(jpeg, {13, 21}, all, {6, 10}, true) != seen(jpeg, {13, 21}, all, {6, 10}, false));
  for (const std::string& file : {png, jpeg})
    CHECK(error_of([&] {
            (void)seen(file, {13, 22}, all, {13, 21}, false);
          }) == "3: has 21 x 13 pixels instead of 22 x 13");
  for (const std::string& none : {"GIF89a"s, 'p' + png.substr(1)})
    CHECK(error_of([&] { (void)image_shape(as_bytes(none)); }) == "3: is neither JPEG nor PNG");
  // A comment begins after the last row, where the end should be.
  CHECK(error_of([&] { decoder.check(as_bytes(jpeg.substr(0, jpeg.size() - 1) + '\xfe')); }).starts_with("3: "));
  CHECK(error_of([&] { decoder.check(as_bytes(png.substr(0, png.size() - 20))); }) == "3: the file is cut off");
  const std::string deep = png.substr(0, 8) + png_chunk("IHDR" + four_bytes(2) + four_bytes(1) + "\x10\2\0\0\0"s) +
                           png_chunk("IDAT" + deflated("\0A1B2C3a4b5c6"s)) + png_chunk("IEND");
  const auto upper = seen(deep, {1, 2}, {0, 0, 1, 2}, {1, 2}, false);  // of two bytes each
  CHECK(std::string(upper.begin(), upper.end()) == "ABCabc");
}

TEST_CASE("A JPEG of too many scans, or of too much work in them, is refused", "[index]") {
  std::string scans = image("progressive.jpg");  // of ten of them; the first one again and again
  const std::size_t first = scans.find("\xff\xda"), next = scans.find("\xff\xc4", first);
  for (int k = 0; k < 491; ++k) scans.insert(next, scans, first, next - first);
  CHECK(error_of([&] { ImageDecoder().check(as_bytes(scans)); }).starts_with("3: Invalid progressive parameters"));
  // Scans of one colour of 4096 x 4096 pixels, of which 128 are 2^31.
  std::string work = "\xff\xd8\xff\xdb\0\x43\0"s + std::string(64, '\1') + "\xff\xc4\0\x14\0\1"s +
                     std::string(16, '\0') + "\xff\xc2\0\x11\x08\x10\0\x10\0\3\1\x44\0\2\x11\0\3\x11\0"s;
  for (int k = 0; k < 129; ++k) work += "\xff\xda\0\x08\1\2\0\0\0\0"s + std::string(2048, '\0');
  std::uint8_t pixel[3];
  CHECK(error_of([&] {
          decode_jpeg(as_bytes(work), {4096, 4096}, {0, 0, 1, 1}, pixel);
        }).starts_with("3: Invalid progressive parameters"));
}

TEST_CASE("Texts in a PNG take no memory", "[index]") {
  const std::string file = with_texts(image("rgba.png"), 30);
  CHECK(error_of([&] {
          confined("source", {.memory = std::int64_t{1} << 30}, [&] {
            const auto most = [] {
              rusage used{};
              ::getrusage(RUSAGE_SELF, &used);
              return used.ru_maxrss;
            };
            const auto before = most();
            ImageDecoder decoder;
            require(decoder.check(as_bytes(file)) == image_shape(as_bytes(image("rgba.png"))), ExitCode::data, "shape");
            constexpr int kMost = 64'000;  // KB
            require(most() - before < kMost, ExitCode::data, "took ", most() - before, " KB");
          });
        }) == "none");
}

TEST_CASE("Packed tars that fit are kept, and others are written anew or refused", "[index]") {
  const TemporaryFolder folder;
  const std::string source = folder / "source", first = folder / "pack/train-000000.tar";
  put_source(source);
  const IndexOptions options{.source = source, .output = folder / "pack", .shard_bytes = 6000};  // two images
  const Indexed made = write_pack(options);
  CHECK(made.kept == 0);
  const auto time = fs::last_write_time(first);
  const std::string bytes = read_bytes(first);
  fs::last_write_time(first, time - std::chrono::hours(1));
  CHECK((write_pack(options).kept == made.containers && fs::last_write_time(first) == time - std::chrono::hours(1)));
  SECTION("cut off") { fs::resize_file(first, 700); }
  SECTION("another label") {
    std::string other = bytes;
    other[other.find(".cls") / 512 * 512 + 512] ^= 1;
    write_bytes(first, other);
  }
  SECTION("another image before one of its own") { put_tar(first, {{"mine/1.jpg", "mine"}, {bytes.c_str(), ""}}); }
  SECTION("no image") { write_bytes(first, std::string(1024, '\0')); }
  SECTION("an image less") { write_bytes(first, bytes.substr(0, 2560) + std::string(1024, '\0')); }
  SECTION("an image of the next one, too") {
    write_bytes(first, bytes.substr(0, 5120) + read_bytes(folder / "pack/train-000001.tar"));
  }
  SECTION("an image of other bytes") {
    put_tar(first, {{bytes.c_str(), "other"}, {&bytes[1536], bytes.substr(2048, 1)}});
  }
  CHECK((write_pack(options).kept == made.containers - 1 && read_bytes(first) == bytes));
  put(folder / "pack/mine.tar", "");
  CHECK(error_of([&] { write_pack(options); }) ==
        "3: " + options.output + ": has mine.tar already, which is not of this pack; give another folder");
  fs::remove(folder / "pack/mine.tar");
  const std::string other = put_tar(first, {{"mine/1.jpg", "mine"}});
  for (const char* name : {".mine.h5.tmp-1", ".train-000000.tar.tmp-1"}) put(folder / "pack/" + name, "");
  CHECK(error_of([&] { write_pack(options); }) ==
        "3: " + options.output + ": has train-000000.tar already, which is not of this pack; give another folder");
  CHECK(read_bytes(first) == other);
  fs::remove(first);
  write_pack(options);
  CHECK((fs::exists(folder / "pack/.mine.h5.tmp-1") && !fs::exists(folder / "pack/.train-000000.tar.tmp-1")));
}

TEST_CASE("Damaged images are all listed, and then refused or left out", "[index]") {
  const TemporaryFolder folder;
  const std::string source = folder / "source";
  put_source(source);
  put(source + "/train/a/cut.jpg", image("rgb.jpg").substr(0, 700));
  put(source + "/train/a/empty.png", "");
  put(source + "/train/b b/text.png", "t");
  fs::create_symlink("nowhere", source + "/train/a/link.png");
  const auto never = [](double) { FAIL("an image was decoded"); };
  for (const auto write : {write_index, write_sized})
    for (const std::string& output : {folder / "none/out", source})
      CHECK(error_of([&] {
              (void)write({.source = source, .output = output, .size = 8, .progress = never});
            }).starts_with("9: cannot write " + output));
  for (const int shard_bytes : {0, 1, 100'000}) {  // an index; tars of an image each; one with all of them
    const bool pack = shard_bytes != 0;
    IndexOptions options{.source = source, .output = folder / "out", .threads = 2, .shard_bytes = shard_bytes};
    const auto write = [&] { return pack ? write_pack(options) : write_index(options); };
    const std::string list = options.output + (pack ? "/damaged.txt" : ".damaged.txt"),
                      error = error_of([&] { write(); });
    CHECK(
        error.starts_with("3: " + source + ": 4 damaged images, listed in " + list + "; --on-damage skip leaves them"));
    CHECK(!fs::exists(folder / ".out.tmp-try"));
    const std::string lines = read_bytes(list);
    for (const char* line : {"/train/a/empty.png: has 0 bytes\n", "/train/b b/text.png: is neither JPEG nor PNG\n",
                             "/train/a/link.png: is no file, but a link in a tar or one that leads nowhere\n"})
      CHECK(contains(lines, source + line));
    CHECK((contains(lines, source + "/train/a/cut.jpg: ") && std::count(lines.begin(), lines.end(), '\n') == 4));
    CHECK(!fs::exists(options.output + "/class_names.txt"));
    options.skip_damage = true;
    const Indexed made = write();
    CHECK((made.train == 3 && made.damaged == 4));
    if (pack) CHECK(write().kept == made.containers);
    fs::remove_all(options.output);
  }
  CHECK(write_sized({.source = source, .output = folder / "out", .skip_damage = true, .size = 8}).damaged == 4);
  CHECK(open_dataset({folder / "out"}, "train", 0)->size() == 3);
  for (const char* name : {"/a/1.png", "/b/2.png"}) put(folder / "damaged" + name, "text");
  CHECK(error_of([&] {
          (void)write_index({.source = folder / "damaged", .output = folder / "out", .skip_damage = true});
        }) == "3: " + folder / "damaged" + ": no image is whole");
  // An image that goes away while another is read, and one that is too large.
  put_source(folder / "source 2");
  const std::string gone = folder / "source 2/val/b b/rgba.png";
  const auto takes = [&](double) { fs::remove(gone); };
  CHECK(error_of([&] {
          (void)write_index({.source = folder / "source 2", .output = folder / "out", .progress = takes});
        }).ends_with("leaves it out; " + gone + ": cannot be opened: No such file or directory"));
  put(gone, png_head(8192, 16384));
  if (kLimitsMemory)
    CHECK(error_of([&] {
            confined("source", {.memory = 64 << 20},
                     [&] { (void)write_index({.source = folder / "source 2", .output = folder / "out"}); });
          }).ends_with("leaves it out; " + gone + ": wants more memory than it may have"));
}

TEST_CASE("An index whose images have moved or changed, or whose paths leave its folder, is refused by their names",
          "[index]") {
  const TemporaryFolder folder;
  const std::string source = folder / "source", index = folder / "index.h5";
  put_source(source);
  write_index({.source = source, .output = index});
  fs::copy_file(index, folder / "whole.h5");
  const std::string changed = source + "/val/b b/rgba.png",
                    remedy = "; put back what " + index + " was made of, or make it anew";
  const auto error = [&] { return error_of([&] { all_of(index, "test"); }); };
  const std::string bytes = read_bytes(changed);
  write_bytes(changed, bytes + "x");
  CHECK(error() == "3: " + changed + ": has 147 bytes instead of 146" + remedy);
  std::string other = bytes;
  other[100] ^= 1;
  write_bytes(changed, other);
  CHECK(error() == "3: " + changed + ": has other bytes than it had" + remedy);
  fs::remove(changed);
  CHECK(error() == "3: " + changed + ": cannot be opened: No such file or directory" + remedy);
  REQUIRE(::mkfifo(changed.c_str(), 0600) == 0);
  CHECK(error() == "3: " + changed + ": not a file" + remedy);
  CHECK(error_of([&] { all_of(changed, "train"); }) == "3: " + changed + ": not a file");
  CHECK(check_seal(changed) == "is not a file");

  TarWriter tar(folder / "source.tar");
  tar.add("a/1.jpg", as_bytes(image("rgb.jpg")));
  tar.add("b b/2.jpg", as_bytes(image("grey.jpg")));
  tar.close();
  write_index({.source = folder / "source.tar", .output = index});
  CHECK(error_of([&] { all_of(index, "test"); }) == "3: " + index + ": has no test images (/test/records)");
  CHECK(open_dataset({index, folder / "whole.h5"}, "test", 0, {.size = 8})->size() == 1);
  fs::resize_file(folder / "source.tar", 512);
  CHECK(error_of([&] { all_of(index, "train"); }) ==
        "3: " + (folder / "source.tar") + ": has 512 bytes instead of 4096" + remedy);

  const std::string secret = image("rgb.jpg");
  put(folder / "secret.jpg", secret);
  const auto record_of = [&](const std::string& path) {
    return ImageRecord{
        .name_end = std::ssize(path), .bytes = static_cast<std::int32_t>(secret.size()), .height = 13, .width = 21};
  };
  const auto error_of_index = [&](const std::string& path, const ImageRecord& record,
                                  const std::string& classes = "a\nb\n") {
    Hdf5File file = Hdf5File::create(index);
    file.set_text("/", "filetype", "image index");
    file.set_text("/", "folder", "source");
    if (!classes.empty()) file.write("/class_names", {std::ssize(classes)}, as_bytes(classes));
    file.write("/train/names", {std::ssize(path)}, as_bytes(path));
    const std::size_t count = path.empty() ? 0 : 1;
    file.write("/train/records", {static_cast<std::int64_t>(count), 40},
               std::span(reinterpret_cast<const std::uint8_t*>(&record), 40 * count));
    if (path.ends_with('/')) file.write("/containers", {3}, std::vector<std::uint8_t>{'x', 0, 0});
    if (path == "x/") file.write("/container_bytes", {1}, std::vector<std::int64_t>{4096});
    file.close();
    return error_of([&] { all_of(index, "train"); });
  };
  for (const std::string& path :
       {std::string("../secret.jpg"), folder / "secret.jpg", std::string("a/../../secret.jpg")})
    CHECK(contains(error_of_index(path, record_of(path)), "the path " + path + " leaves the folder of the images"));
  CHECK(error_of_index("", record_of("")) == "3: " + index + ": /train/records is damaged");
  ImageRecord least = record_of("x");
  least.bytes = 1, least.height = 1, least.width = 1;
  CHECK(contains(error_of_index("x", least), "/x: cannot be opened"));
  CHECK(contains(error_of_index("x/", record_of("x/")), "the names of its containers are damaged"));
  CHECK(contains(error_of_index("y/", record_of("y/")), "has no sizes of its containers"));
  CHECK(error_of_index("a.jpg", record_of("a.jpg"), "") == "3: " + index + ": names no classes");
  CHECK(error_of_index("a.jpg", record_of("a.jpg"), "a\n") == "3: " + index + ": names 1 classes, must be 2 to 32767");
  const std::string endless((1 << 16) + 1, 'x');
  CHECK(error_of_index(endless, record_of(endless)) == "3: " + index + ": the name of image 0 is damaged");
  using Damage = void (*)(ImageRecord&);
  for (const Damage damage :
       std::vector<Damage>{[](ImageRecord& r) { r.container = 0; }, [](ImageRecord& r) { r.container = -2; },
                           [](ImageRecord& r) { r.offset = 1; }, [](ImageRecord& r) { r.bytes = 0; },
                           [](ImageRecord& r) { r.bytes = kMostImageBytes + 1; }, [](ImageRecord& r) { r.height = 0; },
                           [](ImageRecord& r) { r.width = 0; }, [](ImageRecord& r) { r.height = 16385; },
                           [](ImageRecord& r) { r.width = 16385; }, [](ImageRecord& r) { r.height = r.width = 16384; },
                           [](ImageRecord& r) { r.label = -1; }, [](ImageRecord& r) { r.label = 2; },
                           [](ImageRecord& r) { r.name_end = 0; }, [](ImageRecord& r) { ++r.name_end; }}) {
    ImageRecord record = record_of("a.jpg");
    damage(record);
    CHECK(error_of_index("a.jpg", record) == "3: " + index + ": the record of image 0 is damaged");
  }
}

TEST_CASE("Images of more pixels than memory is for are refused by their heads", "[index]") {
  for (const std::string& head : {jpeg_head(8192, 16384), png_head(8192, 16384)})
    CHECK(image_shape(as_bytes(head)) == ImageShape{8192, 16384});
  CHECK(error_of([] { (void)image_shape(as_bytes(png_head(8193, 16384))); }) == "3: has more pixels than are taken");
  CHECK(error_of([] { (void)image_shape(as_bytes(jpeg_head(16384, 16384))); }) ==
        "3: has 16384 x 16384 pixels, at most 128 million are taken");
  CHECK(error_of([] { (void)image_shape(as_bytes(jpeg_head(10, 16385))); }) ==
        "3: has 16385 x 10 pixels, at most 16384 on a side are taken");
}

TEST_CASE("Work in the process with limits has more time where it gets on, and no other process has", "[index]") {
  const auto seconds = [] {
    rlimit both{};
    ::getrlimit(RLIMIT_CPU, &both);
    return both.rlim_cur;
  };
  const auto before = seconds();
  CHECK(error_of([&] {
          confined("source", {.cpu_seconds = 5}, [&] {
            require(seconds() == 5, ExitCode::data, "is limited");
            rlimit core{1, 1};
            ::getrlimit(RLIMIT_CORE, &core);
            require(core.rlim_max == 0, ExitCode::data, "may leave an image of its memory");
            more_time(100);
            require(seconds() >= 100 && seconds() < 200, ExitCode::data, "has no more time");
          });
        }) == "none");
  more_time(100);
  CHECK(seconds() == before);
}

TEST_CASE("A source of one class, or of one path that is two, is refused; links are followed", "[index]") {
  const TemporaryFolder folder;
  put(folder / "source/a/1.jpg", image("rgb.jpg"));
  const IndexOptions options{.source = folder / "source", .output = folder / "out.h5"};
  CHECK(contains(error_of([&] { write_index(options); }),
                 "all images are of one class, a: there is nothing to tell apart"));
  put(folder / "elsewhere/2.jpg", image("grey.jpg"));
  fs::create_directory_symlink(folder / "elsewhere", folder / "source/b");
  CHECK(write_index(options).train == 2);
  write_sized({.source = options.source, .output = folder / "plain.h5", .size = 8});  // without test images
  CHECK(open_dataset({folder / "plain.h5"}, "train", 0)->size() == 2);
  // Paths that become one name are told apart.
  put(folder / "source/a/1.png", image("grey.png"));
  put(folder / "source/a/1_.jpg", image("grey.jpg"));
  put(folder / "source/a/1!.jpg", image("cmyk.jpg"));
  const auto packed = [&](const std::string& source) {
    write_pack({.source = folder / source, .output = folder / (source + " pack")});
    std::vector<std::string> images;
    for_each_in_tar(*open_bytes(folder / (source + " pack/train-000000.tar")), [&](const TarEntry& one) {
      if (!one.path.ends_with(".cls")) images.push_back(one.path.substr(0, one.path.find('.')));
    });
    return images;
  };
  CHECK(packed("source").at(1) == "b/2");  // the second one by the hashes of their paths
  CHECK(sorted(packed("source")) == std::vector<std::string>{"a/1", "a/1-2", "a/1_", "a/1_-2", "b/2"});
  // Of long ones the end, which is no path from the root.
  for (const int length : {83, 84}) put(folder / ("long/aa/" + std::string(length, 'x') + ".jpg"), image("rgb.jpg"));
  put(folder / "long/b/1.jpg", image("grey.jpg"));
  CHECK(sorted(packed("long")) == std::vector<std::string>{"_/" + std::string(83, 'x'), "b/1", std::string(84, 'x')});
  const auto bytes = static_cast<std::int64_t>(fs::file_size(folder / "long pack/train-000000.tar")) - 1024;  // its end
  CHECK(write_pack({.source = folder / "long", .output = folder / "full", .shard_bytes = bytes}).containers == 1);
}

TEST_CASE("A packed tar has the bytes of Python's", "[index]") {
  const TemporaryFolder folder;
  const std::string bytes = put_tar(folder / "x.tar", {{"a/1.jpg", "abcde"}, {"b.cls", std::string(512, 'x')}});
  CHECK(sha256_hex(bytes.data(), bytes.size()) ==  // tarfile's, USTAR_FORMAT, with two blocks at the end
        "9d40155874fb2d14827908e58c19c415f6400ca19ffc5ccec16b269892816e69");
  CHECK(error_of([&] { TarWriter(folder / "none/x.tar"); }) ==
        "9: cannot write " + folder / "none/x.tar" + ": No such file or directory");
}

TEST_CASE("Images that are squares of one size have that size where nobody says another; others have none", "[index]") {
  for (const auto& [first, second, size] : {std::tuple(ImageShape{8, 8}, ImageShape{8, 8}, "8"),
                                            {{8, 8}, {9, 8}, "several shapes"},
                                            {{8, 8}, {8, 9}, "several shapes"},
                                            {{8, 9}, {8, 9}, "none that is a square"}}) {
    const TemporaryFolder folder;
    for (const auto& [name, shape] : {std::pair("/in/a/1.png", first), {"/in/b/2.png", second}})
      put(folder.path() + name, png_of(shape, std::vector<std::uint8_t>(std::size_t(3) * shape.height * shape.width)));
    write_index({.source = folder / "in", .output = folder / "index.h5"});
    std::string found;
    const std::string error =
        error_of([&] { found = std::to_string(open_dataset({folder / "index.h5"}, "train", 0)->info().size); });
    CHECK(contains(found + error, size));
  }
}

TEST_CASE("What keeps a tar from being read is said as it was found") {
  class Gone final : public ByteSource {
   public:
    [[nodiscard]] const std::string& name() const override { return name_; }
    [[nodiscard]] std::int64_t size() const override { return 10240; }
    void read(std::int64_t, void*, std::int64_t) const override { fail(ExitCode::io, name_, ": the disk is gone"); }

   private:
    std::string name_ = "far.tar";
  };
  CHECK(error_of([] { for_each_in_tar(Gone(), [](const TarEntry&) {}); }) == "9: far.tar: the disk is gone");
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  write_bytes(path, "abc");
  const auto file = open_bytes(path);
  fs::resize_file(path, 2);
  CHECK(beginning_of(*file, 1) == "a");
  CHECK(error_of([&] { (void)beginning_of(*file, 3); }) ==
        "3: " + path + ": ends at byte 2, where more should follow: it is cut off");
}
