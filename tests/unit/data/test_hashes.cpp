// What a start reads of a data file: hashes of images, seals that leave images out, labels, names of many classes.

#include <fmt/format.h>
#include <xxhash.h>

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "dat/file.hpp"
#include "dat/random.hpp"
#include "dat/tick.hpp"
#include "data/data_file.hpp"
#include "data/images/index.hpp"
#include "data/indexing/indexing.hpp"
#include "data_path.hpp"
#include "datasets.hpp"
#include "hdf5/hdf5.hpp"

using namespace dat;
using std::string_literals::operator""s;
using test::pixels_of;

namespace {

constexpr std::int64_t kTrain = 20, kTest = 3;
constexpr int kSide = 6;

/// A data file whose splits of more than `sealed` bytes have hashes; images of random pixels, two blocks of them.
void write_file(const std::string& path, std::int64_t sealed, const std::vector<std::string>& names = {"a", "b"}) {
  DatasetInfo info{.size = kSide, .classes = static_cast<int>(names.size()), .class_names = names};
  const auto fill = [&](DataFileWriter& writer) {
    std::mt19937 random(1);
    for (const auto& [split, count] : {std::pair{"train", kTrain}, std::pair{"test", kTest}}) {
      writer.begin(split, count);
      for (std::int64_t first = 0; first < count; first += 16) {
        const auto block = static_cast<std::size_t>(std::min<std::int64_t>(16, count - first));
        std::vector<std::uint8_t> pixels(block * info.image_bytes());
        for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
        std::vector<std::int16_t> labels(block);
        for (std::size_t k = 0; k < block; ++k)
          labels[k] = static_cast<std::int16_t>((first + static_cast<std::int64_t>(k) * 37) % info.classes);
        labels.back() = static_cast<std::int16_t>(info.classes - 1);
        writer.add(pixels, labels);
      }
      writer.end();
    }
  };
  write_data_file(path, info, "random pixels", fill, sealed);
}

/// Opens all of a file and reads every image of it.
void read_all(const std::string& path) {
  for (const char* split : {"train", "test"}) {
    const auto set = open_dataset({path}, split, 0);
    for (std::int64_t i = 0; i < set->size(); ++i) (void)pixels_of(*set, i);
  }
}

/// Bytes of this process, by their name in /proc/self/status.
std::int64_t memory_of(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kilobytes = 0; word == what + ":" && status >> kilobytes) return kilobytes * 1024;
  return 0;
}

/// The peak of memory, VmHWM, begins anew with what is returned.
std::int64_t peak_begins() {
  std::ofstream("/proc/self/clear_refs") << "5";
  return memory_of("VmRSS");
}

/// A number that nightly.sh sets higher.
std::int64_t wanted(const char* variable, std::int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoll(text) : otherwise;
}

std::string flipped(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

}  // namespace

TEST_CASE("A large split has a hash of each image, its seal leaves both out, and all else is as in a small file") {
  const TemporaryFolder folder;
  write_file(folder / "small.h5", DataFileWriter::kSealed);
  write_file(folder / "large.h5", 1000);  // test images have 324 bytes
  std::vector<SealGap> gaps;
  CHECK((check_seal(folder / "small.h5", &gaps).empty() && gaps.empty()));
  CHECK(check_seal(folder / "large.h5", &gaps).empty());
  REQUIRE(gaps.size() == 2);
  CHECK((gaps[0].bytes == kTrain * kSide * kSide * 3 && gaps[1].bytes == kTrain * 8));
  CHECK(contains(check_seal(folder / "large.h5"), "leaves out"));
  const Hdf5Reader file = Hdf5Reader::open(folder / "large.h5", ExitCode::data);
  CHECK((file.info("train/hashes").is_unsigned && !file.has("test/hashes")));

  for (const char* split : {"train", "test"}) {
    const auto small = open_dataset({folder / "small.h5"}, split, 0),
               large = open_dataset({folder / "large.h5"}, split, 0);
    REQUIRE(large->size() == small->size());
    std::uint64_t hashes[kTest];
    CHECK((small->stored_hashes(0, hashes) == 0 && large->stored_hashes(0, hashes) == (split == "train"s ? kTest : 0)));
    for (std::int64_t i = 0; i < small->size(); ++i) {
      const auto pixels = pixels_of(*large, i);
      CHECK((pixels == pixels_of(*small, i) && large->label(i) == small->label(i)));
      CHECK((large->hash(i) == XXH3_64bits(pixels.data(), pixels.size()) && small->hash(i) == large->hash(i)));
    }
    std::string all;  // that is hashed
    const auto add = [&](const auto& number) { all.append(reinterpret_cast<const char*>(&number), sizeof number); };
    for (const std::int64_t number : {small->size(), std::int64_t{3}, std::int64_t{2}}) add(number);
    all += std::string("a\0b\0", 4);
    for (std::int64_t i = 0; i < small->size(); ++i) add(static_cast<std::int16_t>(small->label(i)));
    for (std::int64_t i = 0; i < small->size(); ++i) {
      for (int side = 0; side < 2; ++side) add(std::int64_t{kSide});
      add(small->hash(i));
    }
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    CHECK(content_hash(*small) == fmt::format("{:016x}{:016x}", hash.high64, hash.low64));
    CHECK(content_hash(*large) == content_hash(*small));
    // At another size, the same images.
    CHECK(content_hash(*open_dataset({folder / "large.h5"}, split, 0, {.size = 4})) == content_hash(*small));
    CHECK(content_hash(*open_dataset({folder / "large.h5"}, split, 2)) != content_hash(*small));
  }
  CHECK(contains(inspect_dataset(folder / "large.h5"), "(as recorded)"));
  CHECK(!contains(inspect_dataset(folder / "large.h5"), "NOT AS RECORDED"));
}

TEST_CASE("A damaged image, or its damaged hash, is found when the image is read, and is named") {
  const TemporaryFolder folder;
  write_file(folder / "whole.h5", 1000);
  std::vector<SealGap> gaps;
  REQUIRE(check_seal(folder / "whole.h5", &gaps).empty());
  const std::string whole = read_bytes(folder / "whole.h5"), path = folder / "damaged.h5";
  const std::int64_t image = kSide * kSide * 3, damaged = 7;
  for (const std::int64_t byte : {gaps[0].offset + damaged * image + 5, gaps[1].offset + damaged * 8 + 7}) {
    write_bytes(path, flipped(whole, static_cast<std::size_t>(8 * byte + 3)));
    const auto set = open_dataset({path}, "train", 0);
    CHECK(set->label(7) == open_dataset({folder / "whole.h5"}, "train", 0)->label(7));
    CHECK(pixels_of(*set, 6).size() == static_cast<std::size_t>(image));
    const std::string error = error_of([&] { (void)pixels_of(*set, damaged); });
    CHECK(error.starts_with("3: " + path + ": image 7 of 20 is damaged"));
    CHECK(error_of([&] { (void)inspect_dataset(path); }) == error);
  }
}

TEST_CASE("A flip of any bit of a file with hashes is found, in the seal's list too, and so is a list that lies") {
  const TemporaryFolder folder;
  write_file(folder / "whole.h5", 100);  // both splits
  const std::string whole = read_bytes(folder / "whole.h5"), path = folder / "damaged.h5";
  constexpr std::size_t kMagic = 28;  // without these bytes the file counts as a user's own
  std::vector<std::size_t> bits;
  for (std::size_t byte = kMagic; byte < kSealBytes; ++byte) bits.push_back(8 * byte + byte % 8);
  for (std::uint32_t k = 0; k < 500; ++k)
    bits.push_back(8 * kMagic + random_words(2, Purpose::shuffle, 0, 0, k).v[0] % (8 * (whole.size() - kMagic)));
  int undetected = 0;
  for (const std::size_t bit : bits) {
    write_bytes(path, flipped(whole, bit));
    undetected += error_of([&] { read_all(path); }).starts_with("3: ") ? 0 : 1;
  }
  CHECK(undetected == 0);

  // Lists that nobody wrote, some of them with the right hash.
  const auto listed = [&](const std::vector<std::pair<std::string, std::string>>& changes) {
    std::string bytes = whole;
    for (const auto& [from, to] : changes) {
      const std::size_t at = bytes.find(from);
      REQUIRE(at < kSealBytes);
      std::string block = bytes.substr(0, kSealBytes).replace(at, from.size(), to);
      block.resize(kSealBytes);
      bytes.replace(0, kSealBytes, block);
    }
    write_bytes(path, bytes);
    return error_of([&] { read_all(path); });
  };
  std::vector<SealGap> gaps;
  REQUIRE(check_seal(folder / "whole.h5", &gaps).empty());
  REQUIRE(gaps.size() == 4);
  const auto line = [](std::int64_t offset, std::int64_t bytes) {
    return "without " + std::to_string(offset) + " " + std::to_string(bytes) + "\n";
  };
  const std::string first = line(gaps[0].offset, gaps[0].bytes);
  const std::int64_t size = std::ssize(whole), highest = std::numeric_limits<std::int64_t>::max();
  for (const std::string& other :
       {std::string(), line(0, 600), line(gaps[0].offset, -1), line(gaps[0].offset, 0), line(gaps[0].offset, size),
        line(size + 1, 1), line(highest, highest), line(gaps[0].offset, highest),
        line(gaps[1].offset, gaps[1].bytes) + first, first + line(gaps[0].offset + gaps[0].bytes, 1)}) {
    CAPTURE(other);
    CHECK(listed({{first, other}})
              .starts_with("3: " + path + ": the data file is damaged: its " +
                           (other.empty() ? "SHA-256 is not" : "seal leaves out what none does")));
  }
  for (const char* none : {"without ", "without 1\n", "without 1 2 3\n"})
    CHECK(contains(listed({{first, none}}), "3: " + path + ": the data file has no seal: it is of another kind"));
  // The labels left out, under a seal that fits.
  write_sealed(path, [&](const std::string& temporary) {
    write_bytes(temporary, whole);
    const Hdf5Info labels = Hdf5Reader::open(folder / "whole.h5", ExitCode::data).info("train/labels");
    leave_out(temporary, {{labels.offset, kTrain}});
  });
  CHECK(contains(error_of([&] { read_all(path); }), "which are no images with hashes"));
}

TEST_CASE("Hashes that are no uint64 for each image are refused") {
  const TemporaryFolder folder;
  const auto opened = [&](const Shape& shape, auto values) {
    {
      Hdf5File file = Hdf5File::create(folder / "data.h5", 0);
      file.write("train/images", {2, 4, 4, 3}, std::vector<std::uint8_t>(96));
      file.write("train/labels", {2}, std::vector<std::int64_t>{0, 1});
      file.write("train/hashes", shape, values);
    }
    return error_of([&] { (void)open_dataset({folder / "data.h5"}, "train", 0); });
  };
  CHECK(opened({2}, std::vector<std::uint64_t>(2)) == "none");
  for (const std::string& error :
       {opened({3}, std::vector<std::uint64_t>(3)), opened({2, 1}, std::vector<std::uint64_t>(2)),
        opened({2}, std::vector<std::int64_t>(2)), opened({2}, std::vector<std::uint8_t>(2))})
    CHECK(contains(error, "/train/hashes must hold one uint64 for each of the 2 images"));
}

TEST_CASE("21,841 classes go through a file with their names, and through convert") {
  const TemporaryFolder folder;
  const int classes = GENERATE(256, 257, 21841, kMostClasses);
  std::vector<std::string> names;
  for (int k = 0; k < classes; ++k) names.push_back("kind " + std::to_string(k * 7919) + std::string(60, 'x'));
  write_file(folder / "many.h5", DataFileWriter::kSealed, names);
  const Hdf5Reader file = Hdf5Reader::open(folder / "many.h5", ExitCode::data);
  CHECK(file.texts("/", "class_names").has_value() == (classes == 256));
  CHECK(file.has("/class_names") == (classes > 256));
  CHECK(file.info("train/labels").element == (classes == 256 ? 1 : 8));
  (void)convert_dataset({.source = folder / "many.h5", .output = folder / "again.h5", .labels = ""});
  for (const char* name : {"many.h5", "again.h5"}) {
    const auto set = open_dataset({folder / name}, "train", 0);
    CHECK((set->info().class_names == names && set->label(kTrain - 1) == classes - 1 && set->label(1) == 37 % classes));
    CHECK(!contains(inspect_dataset(folder / name), "NOT AS RECORDED"));
  }
  CHECK(content_hash(*open_dataset({folder / "many.h5"}, "train", 0)) ==
        content_hash(*open_dataset({folder / "again.h5"}, "train", 0)));
  if (classes < kMostClasses) return;
  names.emplace_back("one too many");
  write_file(folder / "more.h5", DataFileWriter::kSealed, names);
  CHECK(contains(error_of([&] { (void)open_dataset({folder / "more.h5"}, "train", 0); }),
                 "class_names lists 32768 classes, must be 2 to 32767"));
  {
    Hdf5File most = Hdf5File::create(folder / "most.h5", 0);
    const std::vector<std::uint8_t> lines(kMostClasses * std::size_t{201} + 1, '\n');
    most.write("class_names", {std::ssize(lines)}, lines);
    most.write("train/images", {1, 1, 1, 1}, std::vector<std::uint8_t>{0});
  }
  CHECK(contains(error_of([&] { (void)open_dataset({folder / "most.h5"}, "train", 0); }), "/class_names is damaged"));
}

namespace {

/// Images of which the first ones have stored hashes; stored: -1: every second one has.
class PartlyHashed final : public Dataset {
 public:
  PartlyHashed(std::int64_t all, std::int64_t stored, std::int64_t changed, int side = 128)
      : size_(all), stored_(stored), changed_(changed) {
    info_ = {.size = side, .channels = 4, .classes = 2, .class_names = {"a", "b"}};
  }
  const DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return size_; }
  int label(std::int64_t) const override { return 0; }
  ImageShape shape(std::int64_t index) const override {  // the first ones are wide
    return index < 2 ? ImageShape{info_.size / 4, info_.size * 4} : Dataset::shape(index);
  }
  std::uint64_t hash(std::int64_t index) const override {
    ++asked;
    return index == changed_ ? 0 : static_cast<std::uint64_t>(index);
  }
  std::int64_t stored_hashes(std::int64_t first, std::span<std::uint64_t> to) const override {
    CHECK(first + std::ssize(to) <= size_);
    const std::int64_t there = stored_ < 0 ? first % 2 : std::clamp<std::int64_t>(stored_ - first, 0, std::ssize(to));
    for (std::int64_t k = 0; k < there; ++k)
      to[static_cast<std::size_t>(k)] = first + k == changed_ ? 0 : static_cast<std::uint64_t>(first + k);
    return there;
  }
  void read(std::int64_t, std::uint8_t*) const override {}
  mutable int asked = 0;

 private:
  DatasetInfo info_;
  std::int64_t size_, stored_, changed_;
};

}  // namespace

TEST_CASE("All stored hashes count, and no more pixels are read than a start has time for") {
  const PartlyHashed set(200'000, 190'000, -1);
  const std::string hash = content_hash(set);
  CHECK(set.asked == 10'000 / 3 + 1);  // 256 MiB are 4096 of these images
  for (const std::int64_t changed :
       {std::int64_t{1}, std::int64_t{100'001}, std::int64_t{189'999}, std::int64_t{190'003}})
    CHECK(content_hash(PartlyHashed(200'000, 190'000, changed)) != hash);
  CHECK(content_hash(PartlyHashed(200'000, 190'000, 190'001)) == hash);
  const PartlyHashed mixed(5, -1, -1), most(65'536, 0, -1, 1), more(65'537, 0, -1, 1), large(1000, 0, -1, 512),
      whole(4096, 0, -1);
  for (const PartlyHashed* one : {&mixed, &most, &more, &large, &whole}) CHECK(content_hash(*one).size() == 32);
  CHECK((mixed.asked == 3 && most.asked == 65'536 && more.asked == 32'769 && whole.asked == 4096));
  CHECK(large.asked == 250);  // every fourth
  CHECK(content_hash(PartlyHashed(5, 5, -1)) == content_hash(PartlyHashed(5, 0, -1)));
  const bool ticked = std::exchange(ticking, true);
  const std::uint64_t before = ticks;
  CHECK(content_hash(mixed) == content_hash(PartlyHashed(5, -1, -1)));
  CHECK(ticks - before == 2 * (5 + 3));  // of all images, and of those that are asked for
  ticking = ticked;
}

TEST_CASE("Labels come in blocks as one by one, of pools and of parts of them") {
  const TemporaryFolder folder;
  write_file(folder / "one.h5", 100, std::vector<std::string>(5, "x"));
  write_file(folder / "two.h5", 1000000, std::vector<std::string>(5, "x"));
  const auto pool = [&] { return open_dataset({folder / "one.h5", folder / "two.h5"}, "train", 0); };
  const auto whole = pool();
  std::vector<std::unique_ptr<Dataset>> sets;
  sets.push_back(pool());
  sets.push_back(open_dataset({folder / "one.h5", folder / "two.h5"}, "train", 23));
  for (const bool kept : {true, false}) {
    sets.push_back(held_out(pool(), 2 * kTrain, 11, 3, kept));
    sets.push_back(held_out(pool(), kTrain, 19, 4, kept));
  }
  sets.push_back(first_of_first_file(pool(), 7));
  sets.push_back(first_of(pool(), 22));
  sets.push_back(synthetic_dataset({.classes = 7, .size = 8, .train = 9000, .test = 1, .seed = 1}, "train"));
  const std::vector<std::int64_t> sizes = {40, 23, 29, 21, 11, 19, 27, 22, 9000},
                                  first = {20, 20, 14, 1, 6, 19, 7, 20, 9000};
  for (std::size_t k = 0; k < sets.size(); ++k) {
    CAPTURE(k);
    const Dataset& set = *sets[k];
    CHECK(set.size() == sizes[k]);
    std::vector<int> blocks, singles;
    for_labels(set,
               [&](std::span<const std::int16_t> block) { blocks.insert(blocks.end(), block.begin(), block.end()); });
    for (std::int64_t i = 0; i < set.size(); ++i) singles.push_back(set.label(i));
    CHECK(blocks == singles);
    for (std::int64_t i = 0, count = 0; k < 8 && i < set.size(); i += std::max<std::int64_t>(1, count)) {
      std::vector<std::uint64_t> stored(static_cast<std::size_t>(set.size() - i));
      count = set.stored_hashes(i, stored);
      for (std::int64_t j = 0; j < count; ++j) CHECK(stored[static_cast<std::size_t>(j)] == set.hash(i + j));
    }
    std::int64_t of_first = 0;  // by the pixels: those of the second file are the same, 20 further on
    if (k < 8) {
      std::int64_t before = -1;
      for (std::int64_t i = 0; i < set.size(); ++i) {
        const auto same = [&](std::int64_t j) { return whole->hash(j) == set.hash(i); };
        std::int64_t j = before + 1;
        while (j < whole->size() && !same(j)) ++j;
        REQUIRE(j < whole->size());
        CHECK(pixels_of(set, i) == pixels_of(*whole, j));
        before = j;
        of_first += j < kTrain ? 1 : 0;
      }
      if (k != 4) CHECK(set.first_file() == of_first);
    }
    if (k != 4 && k != 2) CHECK(set.first_file() == first[k]);
  }
  CHECK(sets[2]->first_file() + sets[4]->first_file() == kTrain);
  std::uint64_t none[2] = {};
  CHECK(sets.back()->stored_hashes(0, none) == 0);
  constexpr std::int64_t kMany = (1 << 16) + 1;  // more than a block of a data file
  write_data_file(folder / "many.h5", {.size = 1, .channels = 1, .class_names = {}}, "", [](DataFileWriter& writer) {
    writer.begin("train", kMany);
    std::vector<std::int16_t> labels(kMany);
    labels.back() = 5;
    writer.add(std::vector<std::uint8_t>(kMany), labels);
    writer.end();
  });
  const auto many = open_dataset({folder / "many.h5"}, "train", 0);
  CHECK((many->size() == kMany && many->label(kMany - 2) == 0 && many->label(kMany - 1) == 5));
}

TEST_CASE("A start on millions of images keeps few bytes of each, and reads no pixel") {
  // At night 50 million: 154 GB, of which the disk has those that are not zero.
  const std::int64_t images = wanted("DAT_LARGE_IMAGES", 2'000'000);
  const TemporaryFolder folder;
  const char* const kept = std::getenv("DAT_LARGE_FILE");
  const std::string path = kept != nullptr ? kept : folder / "large.h5";
  const std::vector<std::uint8_t> zeros(3072);
  const std::uint64_t hash = XXH3_64bits(zeros.data(), zeros.size());
  write_sealed(path, [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary);
    file.declare<std::uint8_t>("train/images", {images, 32, 32, 3});
    file.write_rows("train/images", images - 1, zeros);
    file.write("test/images", {1, 32, 32, 3}, zeros);
    file.write("test/labels", {1}, std::vector<std::uint8_t>{9});
    file.declare<std::uint64_t>("train/hashes", {images});
    file.declare<std::uint8_t>("train/labels", {images});
    for (std::int64_t first = 0; first < images; first += 1 << 20) {
      const auto block = static_cast<std::size_t>(std::min<std::int64_t>(1 << 20, images - first));
      file.write_rows("train/hashes", first, std::vector<std::uint64_t>(block, hash));
      std::vector<std::uint8_t> labels(block);
      for (std::size_t k = 0; k < block; ++k) labels[k] = static_cast<std::uint8_t>(k % 10);
      file.write_rows("train/labels", first, labels);
    }
    file.close();
    const Hdf5Reader written = Hdf5Reader::open(temporary, ExitCode::data);
    std::vector<SealGap> gaps = {{written.info("train/images").offset, images * 3072},
                                 {written.info("train/hashes").offset, images * 8}};
    std::sort(gaps.begin(), gaps.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    leave_out(temporary, gaps);
  });
  const std::int64_t before = peak_begins();
  const auto train = held_out(open_dataset({path}, "train", 0), images, 1000, 1, true);
  const auto aside = held_out(open_dataset({path}, "train", 0), images, 1000, 1, false);
  const auto test = open_dataset({path}, "test", 0);
  CHECK(content_hash(*train) != content_hash(*aside));
  CHECK(class_remarks(*train, test.get()).empty());
  CHECK((train->size() == images - 1000 && pixels_of(*train, 12345) == zeros));
  const std::int64_t taken = memory_of("VmHWM") - before;
  INFO(taken << " bytes of " << images << " images");
#ifndef __SANITIZE_ADDRESS__  // which keeps what has been freed
  CHECK(taken <= 8 * images);
#endif
}

TEST_CASE("A start on an index of many images reads no image, and its hash knows no size") {
  const std::int64_t images = wanted("DAT_LARGE_INDEX", 100'000);  // at night ImageNet's 1.28 million
  constexpr int kClasses = 1000;
  const TemporaryFolder folder;
  const std::string image = read_bytes(test::data_path("fuzz/corpus/image/rgb.jpg"));
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder / "train/" + name);
    write_bytes(folder / "train/" + name + "/x.jpg", image);
  }
  write_index({.source = folder.path(), .output = folder / "small.h5"});
  // The same image so many times, in as many classes as ImageNet has.
  const char* const kept = std::getenv("DAT_LARGE_INDEX_FILE");
  const std::string path = kept != nullptr ? kept : folder / "large.h5";
  const Hdf5File small = Hdf5File::open(folder / "small.h5", ExitCode::data);
  Shape shape;
  const std::vector<std::uint8_t> known = small.read<std::uint8_t>("train/records", shape);
  ImageRecord record;
  std::memcpy(&record, known.data(), sizeof record);
  const std::int64_t name_bytes = record.name_end;
  const std::vector<std::uint8_t> name = small.read_rows<std::uint8_t>("train/names", 0, name_bytes);
  write_sealed_hdf5(path, [&](Hdf5File& file) {
    for (const std::string& key : small.attribute_names("/")) {
      if (const auto number = small.integer("/", key)) file.set_integer("/", key, *number);
      if (const auto text = small.text("/", key)) file.set_text("/", key, *text);
    }
    const std::string lines = lines_of(numbered_classes(kClasses));
    file.write("class_names", {std::ssize(lines)}, std::vector<std::uint8_t>(lines.begin(), lines.end()));
    file.declare<std::uint8_t>("train/records", {images, std::ssize(known) / 2});
    file.declare<std::uint8_t>("train/names", {images * name_bytes});
    constexpr std::int64_t kBlock = 1 << 16;
    for (std::int64_t first = 0; first < images; first += kBlock) {
      std::vector<std::uint8_t> records, names;
      for (std::int64_t k = first; k < std::min(images, first + kBlock); ++k) {
        record.label = static_cast<std::int16_t>(k % kClasses);
        record.name_end = (k + 1) * name_bytes;
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&record);
        records.insert(records.end(), bytes, bytes + sizeof record);
        names.insert(names.end(), name.begin(), name.end());
      }
      file.write_rows("train/records", first, records);
      file.write_rows("train/names", first * name_bytes, names);
    }
  });
  const std::int64_t before = peak_begins();
  const auto set = open_dataset({path}, "train", 0, {.size = 8});
  const std::string hash = content_hash(*set);
  CHECK(class_remarks(*set, nullptr).empty());
  const std::int64_t taken = memory_of("VmHWM") - before;
  INFO(taken << " bytes of " << images << " images");
  CHECK(taken <= 8 * images + (4 << 20));
  CHECK((set->size() == images && set->info().classes == kClasses));
  CHECK(set->label(images - 1) == (images - 1) % kClasses);
  CHECK(set->hash(images - 1) == XXH3_64bits(image.data(), image.size()));
  std::uint64_t stored[1]{};
  CHECK((set->stored_hashes(images - 1, stored) == 1 && stored[0] == set->hash(images - 1)));
  CHECK(content_hash(*open_dataset({path}, "train", 0, {.size = 16, .fast = true})) == hash);
  if (kept == nullptr) CHECK(pixels_of(*set, images - 1) == pixels_of(*set, 0));
}
