// Sets in the forms in which they are published: CIFAR's pickles, MNIST's files, .npz with training and test images.

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "data/arrays/inflate.hpp"
#include "data/convert/forms.hpp"
#include "datasets.hpp"
#include "memory_bytes.hpp"

using namespace dat;

namespace {

using std::string_literals::operator""s;

/// Bytes that depend on the place alone.
std::string some_bytes(std::size_t count, std::uint32_t seed) {
  std::string bytes(count, ' ');
  std::uint32_t state = seed * 2654435761U + 1;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

std::string number(std::uint64_t value, int bytes, bool big_endian) {
  std::string digits;
  for (int i = 0; i < bytes; ++i) digits += static_cast<char>(value >> (8 * (big_endian ? bytes - 1 - i : i)) & 0xff);
  return digits;
}

/// A pickle as cPickle of Python 2 writes it by protocol 2, but for the memos, which nothing refers to.
namespace python2 {

std::string text(const std::string& bytes) {
  return (bytes.size() < 256 ? "U" + number(bytes.size(), 1, false) : "T" + number(bytes.size(), 4, false)) + bytes;
}
std::string integer(std::uint64_t value) {
  return value < 256     ? "K" + number(value, 1, false)
         : value < 65536 ? "M" + number(value, 2, false)
                         : "J" + number(value, 4, false);
}
std::string list(const std::vector<int>& values) {
  std::string out = "](";
  for (const int value : values) out += integer(static_cast<std::uint64_t>(value));
  return out + "e";
}
std::string array(std::uint64_t rows, std::uint64_t width, const std::string& bytes, bool column_major = false,
                  const std::string& type = "u1") {
  return "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01"s + "b\x87R(K\x01"s + integer(rows) +
         integer(width) + "\x86"s + "cnumpy\ndtype\nU\x02" + type +
         "K\0K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"s + (column_major ? "\x88" : "\x89") +
         text(bytes) + "tb";
}
/// Of pairs of a key and what has been pickled.
std::string dictionary(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "\x80\x02}q\x01("s;
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u.";
}

}  // namespace python2

/// What a data file holds in a split.
struct Contents {
  std::string pixels;
  std::vector<int> labels;
  DatasetInfo info;
};
Contents contents(const std::string& path, const std::string& split) {
  const auto set = open_dataset({path}, split, 0);
  Contents all;
  all.info = set->info();
  for (std::int64_t i = 0; i < set->size(); ++i) {
    const std::vector<std::uint8_t> image = test::pixels_of(*set, i);
    all.pixels.append(image.begin(), image.end());
    all.labels.push_back(set->label(i));
  }
  return all;
}

/// Rows of planes [3][32][32] as images [32][32][3].
std::string interleaved(const std::string& rows) {
  std::string out;
  for (std::size_t begin = 0; begin < rows.size(); begin += 3072)
    for (std::size_t at = 0; at < 1024; ++at)
      for (std::size_t channel = 0; channel < 3; ++channel) out += rows[begin + channel * 1024 + at];
  return out;
}

std::string convert(const std::string& source, const std::string& output, const ConvertOptions& how = {}) {
  ConvertOptions options = how;
  options.source = source;
  options.output = output;
  return convert_dataset(options).contents;
}

struct Idx {
  std::vector<std::uint32_t> shape;
  std::string elements;
  std::uint8_t type = 8;
  [[nodiscard]] std::string bytes() const {
    std::string out = "\0\0"s + static_cast<char>(type) + static_cast<char>(shape.size());
    for (const std::uint32_t dim : shape) out += number(dim, 4, true);
    return out + elements;
  }
};

/// A gzip file whose blocks are not packed.
std::string gzip(const std::string& bytes) {
  std::string out = "\x1f\x8b\x08\0\0\0\0\0\0\x03"s;
  constexpr std::size_t kBlock = 65535;
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(kBlock, bytes.size() - at);
    out += static_cast<char>(at + size == bytes.size());
    out += number(size, 2, false) + number(~size, 2, false) + bytes.substr(at, size);
    at += size;
  } while (at < bytes.size());
  return out + number(crc_of(0, bytes.data(), std::ssize(bytes)), 4, false) + number(bytes.size(), 4, false);
}

std::string elements_of(const std::string& file) {
  const test::MemoryBytes source(file);
  const StoredArray array = open_idx(source);
  std::string bytes(static_cast<std::size_t>(array.bytes), ' ');
  array.open()->read(bytes.data(), std::ssize(bytes));
  return array.text() + " " + bytes;
}

/// A folder of files, and where the data file goes that is made of them.
struct Source {
  const TemporaryFolder folder, output;
  [[nodiscard]] std::string error(const ConvertOptions& how = {}) const {
    std::string text = error_of([&] { convert(folder.path(), output / "set.h5", how); });
    CHECK((text == "none" || output.names().empty()));
    return text;
  }
};

/// A damage to such a folder, or options that do not fit it, and what is told of it.
template <class Set>
struct Damage {
  std::string told;
  std::function<void(const Set& set, ConvertOptions& how)> done;
  const char* code = "3: ";
};
template <class Set>
void check_refused(const std::vector<Damage<Set>>& all) {
  for (const Damage<Set>& damage : all) {
    const Set set;
    ConvertOptions how;
    damage.done(set, how);
    const std::string error = set.error(how);
    CAPTURE(error, damage.told);
    CHECK((error.starts_with(damage.code) && contains(error, damage.told)));
  }
}

/// A folder with MNIST's files, of 3 and 2 images of 4 x 4.
struct Mnist : Source {
  const std::string train = some_bytes(48, 1), test = some_bytes(32, 2);

  Mnist() {
    put("train-images-idx3-ubyte", {{3, 4, 4}, train});
    put("train-labels-idx1-ubyte", {{3}, "\1\0\2"s});
    put("t10k-images-idx3-ubyte", {{2, 4, 4}, test});
    put("t10k-labels-idx1-ubyte", {{2}, "\3\1"s});
  }
  void put(const std::string& name, const Idx& file) const { write_bytes(folder / name, file.bytes()); }
};

/// A folder with CIFAR-10's pickles, of two images each.
struct Cifar10 : Source {
  std::string rows[6];

  Cifar10() {
    for (std::uint32_t i = 0; i < 6; ++i) {
      rows[i] = some_bytes(2 * 3072, i);
      put(i, python2::array(2, 3072, rows[i]), {static_cast<int>(i), 9});
    }
    std::string names;
    for (const std::string& name : cifar10_names()) names += python2::text(name + "'");
    write_bytes(folder / "batches.meta", python2::dictionary({{"num_cases_per_batch", python2::integer(2)},
                                                              {"label_names", "](" + names + "e"},
                                                              {"num_vis", python2::integer(3072)}}));
  }
  [[nodiscard]] static std::string name(std::uint32_t i) {
    return i == 5 ? "test_batch" : "data_batch_" + std::to_string(i + 1);
  }
  void put(std::uint32_t i, const std::string& data, const std::vector<int>& labels) const {
    write_bytes(folder / name(i), python2::dictionary({{"batch_label", python2::text("training batch")},
                                                       {"labels", python2::list(labels)},
                                                       {"data", data},
                                                       {"filenames", "](" + python2::text("a.png") + "e"}}));
  }
};

}  // namespace

TEST_CASE("CIFAR's pickles, as Python 2 wrote them, become training and test images in their order, with names",
          "[published]") {
  Cifar10 set;
  if (GENERATE(false, true)) {  // an array that lies column by column
    std::string columns;
    for (std::size_t at = 0; at < 3072; ++at) (columns += set.rows[2][at]) += set.rows[2][3072 + at];
    set.put(2, python2::array(2, 3072, columns, true), {2, 9});
  }
  CHECK(set.error() == "none");
  CHECK(convert(set.folder.path(), set.output / "set.h5") ==
        "10 train images of 32 x 32 x 3, 2 test images of 32 x 32 x 3; pickles data_batch_1 data_batch_2 data_batch_3 "
        "data_batch_4 data_batch_5 test_batch");
  const Contents train = contents(set.output / "set.h5", "train"), test = contents(set.output / "set.h5", "test");
  std::string all;
  for (int i = 0; i < 5; ++i) all += interleaved(set.rows[i]);
  CHECK((train.pixels == all && train.labels == std::vector<int>{0, 9, 1, 9, 2, 9, 3, 9, 4, 9}));
  CHECK((test.pixels == interleaved(set.rows[5]) && test.labels == std::vector<int>{5, 9}));
  CHECK(train.info.class_names[9] == "truck'");
  std::filesystem::remove(set.folder / "batches.meta");
  CHECK((set.error() == "none" && contents(set.output / "set.h5", "test").info.class_names == cifar10_names()));
}

TEST_CASE("Of CIFAR-100's pickles the fine labels are taken", "[published]") {
  const TemporaryFolder folder;
  const std::string rows = some_bytes(3 * 3072, 7);
  for (const char* name : {"train", "test"})
    write_bytes(folder / name, python2::dictionary({{"fine_labels", python2::list({99, 0, 50})},
                                                    {"coarse_labels", python2::list({1, 2, 3})},
                                                    {"data", python2::array(3, 3072, rows)}}));
  convert(folder.path(), folder / "set.h5");
  CHECK(contents(folder / "set.h5", "train").labels == std::vector<int>{99, 0, 50});
  CHECK(contents(folder / "set.h5", "test").info.class_names[99] == "class 99");
  CHECK((contents(folder / "set.h5", "test").pixels == interleaved(rows)));
  std::string names;
  for (int i = 0; i < 100; ++i) names += python2::text("name " + std::to_string(i));
  write_bytes(folder / "meta", python2::dictionary({{"coarse_label_names", "](" + python2::text("x") + "e"},
                                                    {"fine_label_names", "](" + names + "e"}}));
  convert(folder.path(), folder / "set.h5");
  CHECK(contents(folder / "set.h5", "test").info.class_names[99] == "name 99");
}

TEST_CASE("Damaged and incomplete folders of pickles are refused, and leave no file behind", "[published]") {
  const std::string rows = some_bytes(2 * 3072, 0);
  const auto puts = [](std::uint32_t i, const std::string& data, const std::vector<int>& labels) {
    return [=](const Cifar10& set, ConvertOptions&) { set.put(i, data, labels); };
  };
  const auto removes = [](const char* name) {
    return [=](const Cifar10& set, ConvertOptions&) { std::filesystem::remove(set.folder / name); };
  };
  const auto writes = [](const char* name, const std::string& bytes) {
    return [=](const Cifar10& set, ConvertOptions&) { write_bytes(set.folder / name, bytes); };
  };
  const std::string unknown =
      "](K\1J\xff\xff\xff\xff"
      "e"s;
  check_refused<Cifar10>(
      {{"data_batch_5 is missing", removes("data_batch_5")},
       {"test_batch is missing", removes("test_batch")},
       {"data_batch_4: label 10 of image 1 is not in 0..9", puts(3, python2::array(2, 3072, rows), {1, 10})},
       {"test_batch: label -1 of image 1 is not in 0..9",
        writes("test_batch", python2::dictionary({{"labels", unknown}, {"data", python2::array(2, 3072, rows)}}))},
       {"there must be one label for each of the 2 images", puts(0, python2::array(2, 3072, rows), {1})},
       {"data is uint8 [2, 1024], but must be uint8 [n, 3072]",
        puts(0, python2::array(2, 1024, rows.substr(0, 2048)), {1, 2})},
       {"data is int8 [2, 3072], but must be uint8 [n, 3072]",
        puts(0, python2::array(2, 3072, rows, false, "i1"), {1, 2})},
       {"data has 6144 bytes from byte", puts(0, python2::array(3, 3072, rows), {1, 2, 3})},
       {"data_batch_1: byte",
        [](const Cifar10& set, ConvertOptions&) {
          write_bytes(set.folder / "data_batch_1", read_bytes(set.folder / "data_batch_1").substr(0, 3000));
        }},
       {"wants os.system, which is no part of an array", puts(0, "cos\nsystem\nU\4true\x85R", {1, 2})},
       {"batches.meta: names 1 classes, must be 10",
        writes("batches.meta", python2::dictionary({{"label_names", "](" + python2::text("cat") + "e"}}))},
       {"data_batch_1: byte 0: no pickle of protocol 2 or newer", writes("data_batch_1", "text")},
       {"test_batch: label -256 of image 1 is not in 0..9",  // of no bytes, of two
        writes("test_batch", python2::dictionary({{"labels",
                                                   "](\x8a\0\x8a\2\0\xff"
                                                   "e"s},
                                                  {"data", python2::array(2, 3072, rows)}}))},
       {"batches.meta: has no array or list label_names", writes("batches.meta", python2::dictionary({}))},
       {"label_names lists more than 1024 names",
        writes("batches.meta", python2::dictionary({{"label_names", python2::list(std::vector<int>(1025))}}))},
       {"label_names is no list", writes("batches.meta", python2::dictionary({{"label_names", "N"}}))},
       {"label_names is a list of other things than names",
        writes("batches.meta", python2::dictionary({{"label_names", python2::list({1, 2})}}))},
       {" is a folder of CIFAR's pickles; leave it off",
        [](const Cifar10&, ConvertOptions& how) { how.label_bytes = 2; },
        "2: --label-bytes is for a folder of binary records"},
       {"names 10 classes, but 20 were asked for", [](const Cifar10&, ConvertOptions& how) { how.classes = 20; }}});
}

TEST_CASE("A file of type idx holds the array that was written, packed or not", "[published]") {
  CHECK(elements_of(Idx{{2, 3}, "abcdef"}.bytes()) == "uint8 [2, 3] abcdef");
  CHECK(elements_of(gzip(Idx{{2, 3}, "abcdef"}.bytes())) == "uint8 [2, 3] abcdef");
  CHECK(elements_of(gzip(Idx{{2, 3}, "abc"}.bytes()) + gzip("") + gzip("def") + std::string(3, '\0')) ==
        "uint8 [2, 3] abcdef");
  CHECK(elements_of(Idx{{3}, "abcdef", 0x0b}.bytes()) == "int16 [3] abcdef");
  CHECK(elements_of(Idx{{1}, "abcdefgh", 0x0e}.bytes()) == "float64 [1] abcdefgh");
  const std::string much = some_bytes(200000, 3);
  CHECK((elements_of(gzip(Idx{{200000}, much}.bytes())) == "uint8 [200000] " + much));

  const auto error = [](const std::string& bytes) { return error_of([&] { static_cast<void>(elements_of(bytes)); }); };
  const std::string good = Idx{{2, 3}, "abcdef"}.bytes(), packed = gzip(good);
  CHECK(contains(error(good.substr(0, good.size() - 1)),
                 "3: memory: holds 5 bytes after its header, but uint8 [2, 3] needs 6"));
  CHECK(contains(error(good + "x"), "holds 7 bytes"));
  CHECK(contains(error(good.substr(0, 9)), "cut off in its header"));
  CHECK(contains(error(good.substr(0, 3)), "too short for an idx file"));
  CHECK(contains(error("\1" + good.substr(1)), "no idx file"));
  CHECK(contains(error(Idx{{2, 3}, "abcdef", 7}.bytes()), "no idx file"));
  CHECK(contains(error(Idx{{}, ""}.bytes()), "no idx file"));
  CHECK(contains(error(Idx{std::vector<std::uint32_t>(9, 1), "a"}.bytes()), "no idx file"));
  const std::vector<std::uint32_t> endless(3, 0xffffffff);
  CHECK(contains(error(Idx{endless, "a"}.bytes()), "claims an impossible size"));
  CHECK(contains(error(gzip(Idx{endless, "a"}.bytes())), "claims an impossible size"));
  CHECK(contains(error(gzip(Idx{{1000, 1000}, "a"}.bytes())), "packed bytes cannot hold"));
  CHECK(contains(error(gzip(Idx{{33 * 1032}, "a"}.bytes())), "which 32 packed bytes cannot hold"));
  CHECK(contains(error(gzip(Idx{{33 * 1032 - 1}, "a"}.bytes())), "memory is too short"));
  CHECK((contains(error("\x1f\x8b"), "memory is cut off") && contains(error("\x1f" + good.substr(1)), "no idx file")));
  CHECK(elements_of(Idx{{0, 3}, ""}.bytes()) == "uint8 [0, 3] ");
  CHECK(contains(error(gzip(Idx{{2, 4}, "abcdef"}.bytes())), "memory is too short"));
  CHECK(contains(error(gzip(Idx{{2, 2}, "abcdef"}.bytes())), "memory is longer than it says"));
  CHECK(contains(error(packed + "x"), "memory is longer than it says"));
  CHECK(contains(error(packed.substr(0, packed.size() - 12)), "memory is cut off"));
  CHECK(contains(error(packed.substr(0, packed.size() - 1)), "memory is cut off"));  // in the checksum
  std::string changed = packed;
  changed[changed.size() - 9] = 'x';  // the last element
  CHECK(contains(error(changed), "memory is damaged"));
}

TEST_CASE("MNIST's files are found under each of their names, and a plain one sooner than a packed one",
          "[published]") {
  const Mnist set;
  const int names = GENERATE(0, 1, 2, 3);
  std::string text = "3 train images of 4 x 4 x 1, 2 test images of 4 x 4 x 1; idx files";
  for (const std::string stem : {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"}) {
    const std::string all[] = {stem + "-ubyte",
                               stem.substr(0, stem.size() - 5) + "." + stem.substr(stem.size() - 4) + "-ubyte",
                               stem + ".ubyte", stem + "-ubyte.gz"};
    const std::string bytes = read_bytes(set.folder / all[0]);
    if (names == 0) write_bytes(set.folder / all[3], "x");  // must not be looked at
    if (names != 0) std::filesystem::remove(set.folder / all[0]);
    if (names != 0) write_bytes(set.folder / all[names], names == 3 ? gzip(bytes) : bytes);
    text += " " + all[names];
  }
  CHECK((set.error() == "none" && convert(set.folder.path(), set.output / "set.h5") == text));
  const Contents train = contents(set.output / "set.h5", "train"), test = contents(set.output / "set.h5", "test");
  CHECK((train.pixels == set.train && train.labels == std::vector<int>{1, 0, 2}));
  CHECK((test.pixels == set.test && test.labels == std::vector<int>{3, 1}));
  CHECK((train.info.channels == 1 && train.info.size == 4 && train.info.class_names == numbered_classes(4)));
}

TEST_CASE("EMNIST's images are turned and its letters counted from 0, QMNIST's classes are the first column",
          "[published]") {
  const TemporaryFolder folder, output;
  const std::string pixels = some_bytes(48, 3);  // 3 images of 4 x 4
  std::string turned;
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t x = 0; x < 4; ++x)
      for (std::size_t y = 0; y < 4; ++y) turned += pixels[16 * i + 4 * y + x];
  const auto put = [&](const std::string& name, const Idx& file, bool packed) {
    write_bytes(folder / (name + (packed ? ".gz" : "")), packed ? gzip(file.bytes()) : file.bytes());
  };
  for (const std::string set : {"emnist-letters", "emnist-digits"})
    for (const std::string split : {"train", "test"}) {
      put(set + "-" + split + "-images-idx3-ubyte", {{3, 4, 4}, turned}, true);
      put(set + "-" + split + "-labels-idx1-ubyte", {{3}, set == "emnist-letters" ? "\2\1\3"s : "\1\0\2"s}, true);
    }
  const auto error = [&](const std::string& source) { return error_of([&] { convert(source, output / "set.h5"); }); };
  CHECK(contains(error(folder.path()), "has several sets (emnist-digits, emnist-letters); name a file of the one"));
  const auto check = [&](const std::string& source) {
    CHECK(error(source) == "none");
    for (const std::string split : {"train", "test"}) {
      const Contents all = contents(output / "set.h5", split);
      CHECK((all.pixels == pixels && all.labels == std::vector<int>{1, 0, 2}));
    }
    return contents(output / "set.h5", "test").info.class_names;
  };
  CHECK(check(folder / "emnist-digits-test-labels-idx1-ubyte.gz")[1] == "class 1");
  write_bytes(folder / "emnist-letters-mapping.txt", "1 65 97\n2 66 98\n3 67 99\n");
  CHECK(check(folder / "emnist-letters-train-images-idx3-ubyte.gz") == std::vector<std::string>{"A", "B", "C"});
  const std::string one = folder / "emnist-letters-test-labels-idx1-ubyte.gz";
  for (const std::string name : {"train-images-idx3-ubyte.gz", "test-labels-idx1-ubyte.gz", "mapping.txt"}) {
    const std::string of_set = folder / ("emnist-letters-" + name), before = read_bytes(of_set);
    CHECK(contains(error_of([&] { convert(one, of_set); }), "2: " + of_set + ": would be written over"));
    CHECK(read_bytes(of_set) == before);
  }
  CHECK(error_of([&] { convert(one, folder / "emnist-digits-train-images-idx3-ubyte.gz"); }) == "none");
  put("emnist-letters-test-images-idx3-ubyte", {{3, 4, 4, 1}, turned}, true);
  CHECK(contains(error(one), "is uint8 [3, 4, 4, 1], but EMNIST's images have three dimensions"));
  put("emnist-letters-test-images-idx3-ubyte", {{3, 4, 4}, turned}, true);
  put("emnist-letters-test-labels-idx1-ubyte", {{3}, std::string(12, '\1'), 0x0c}, true);
  CHECK(contains(error(one), "is int32 [3], but must be uint8"));
  put("emnist-letters-test-labels-idx1-ubyte", {{3}, "\0\1\3"s}, true);
  CHECK(contains(error(folder / "emnist-letters-test-labels-idx1-ubyte.gz"), "has a label 0"));
  write_bytes(folder / "emnist-letters-mapping.txt", "1 65 97\n2 32 0\n3 127 0\n4 126 0\n");  // A and ~
  CHECK(contains(error(one), "label 2 of image 2 is not in 0..1"));

  const TemporaryFolder other;
  for (const std::uint32_t columns : {2, 64, 65}) {
    std::string rows;  // class, writer, ...: int32 [3, columns]
    for (const int label : {1, 0, 2}) {
      rows += number(static_cast<std::uint64_t>(label), 4, true);
      for (std::uint32_t column = 1; column < columns; ++column) rows += number(77, 4, true);
    }
    for (const std::string split : {"train", "test"}) {
      write_bytes(other / ("qmnist-" + split + "-images-idx3-ubyte"), Idx{{3, 4, 4}, pixels}.bytes());
      write_bytes(other / ("qmnist-" + split + "-labels-idx2-int"), Idx{{3, columns}, rows, 12}.bytes());
    }
    if (columns < 65) CHECK(check(other.path()).size() == 3);
  }
  CHECK(contains(error(other.path()), "labels-idx2-int is int32 [3, 65], but there must be one label"));
}

TEST_CASE("STL-10's planes are turned and its labels counted from 0", "[published]") {
  const TemporaryFolder folder, output;
  const std::string planes = some_bytes(std::size_t{2} * 3 * 96 * 96, 5);
  std::string pixels;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t y = 0; y < 96; ++y)
      for (std::size_t x = 0; x < 96; ++x)
        for (std::size_t c = 0; c < 3; ++c) pixels += planes[((i * 3 + c) * 96 + x) * 96 + y];
  for (const std::string split : {"train", "test"}) {
    write_bytes(folder / (split + "_X.bin"), planes);
    write_bytes(folder / (split + "_y.bin"), "\1\x0a");
  }
  const auto error = [&] { return error_of([&] { convert(folder.path(), output / "set.h5"); }); };
  CHECK(error() == "none");
  const Contents all = contents(output / "set.h5", "test");
  CHECK((all.pixels == pixels && all.labels == std::vector<int>{0, 9} && all.info.class_names[9] == "truck"));
  write_bytes(folder / "class_names.txt", "0\n1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
  CHECK((error() == "none" && contents(output / "set.h5", "test").info.class_names[9] == "nine"));
  write_bytes(folder / "test_X.bin", planes.substr(1));
  CHECK(contains(error(), "test_X.bin: has 55295 bytes, which is no positive multiple of 27648"));
  write_bytes(folder / "train_y.bin", "\1\x0b");
  write_bytes(folder / "test_X.bin", planes);
  CHECK(contains(error(), "label 10 of image 1 is not in 0..9"));
  write_bytes(folder / "train_X.bin", planes.substr(0, planes.size() / 2));
  write_bytes(folder / "train_y.bin", "\1");  // of one image
  CHECK(error() == "none");
  write_bytes(folder / "train_y.bin", "");
  CHECK(contains(error(), "train_y.bin: has 0 bytes, which is no positive multiple of 1"));
}

TEST_CASE("Two files for the same images are refused, whichever of them the folder lists first", "[published]") {
  Cifar10 set;
  write_bytes(set.folder / "data_batch_1.bin", std::string(3073, '\0'));
  CHECK(contains(set.error(), "is a folder of CIFAR's pickles and a folder of binary records in one"));
  std::filesystem::rename(set.folder / "data_batch_1.bin", set.folder / "train");
  CHECK(contains(set.error(), "has files of CIFAR-10 and of CIFAR-100; give each a folder of its own"));
  Mnist mnist;
  mnist.put("train-images.idx3-ubyte", {{3, 4, 4}, mnist.train});
  CHECK(contains(mnist.error(), "has both train-images-idx3-ubyte and train-images.idx3-ubyte for the same data"));
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"data_batch_1.bin", "data_batch_01.bin"}, {"data_batch_1.bin", "train.bin"}, {"test_batch.bin", "test.bin"}};
  for (const auto& [one, other] : pairs) {
    const TemporaryFolder folder, output;
    for (const std::string& name : {std::string("data_batch_1.bin"), std::string("test_batch.bin"), one, other})
      write_bytes(folder / name, std::string(3073, '\0'));
    CHECK(contains(error_of([&] { convert(folder.path(), output / "set.h5"); }), " for the same images; leave one"));
  }
}

TEST_CASE("Damaged and incomplete folders of idx files are refused, and leave no file behind", "[published]") {
  const auto puts = [](const char* name, const Idx& file) {
    return [=](const Mnist& set, ConvertOptions&) { set.put(name, file); };
  };
  const std::string pixels = some_bytes(48, 1);
  check_refused<Mnist>(
      {{"t10k-labels-idx1-ubyte is missing",
        [](const Mnist& set, ConvertOptions&) { std::filesystem::remove(set.folder / "t10k-labels-idx1-ubyte"); }},
       {"train-labels-idx1-ubyte is uint8 [4], but there must be one label for each of the 3 images",
        puts("train-labels-idx1-ubyte", {{4}, "\1\0\2\1"s})},
       {"label 3 of image 0 is not in 0..2", [](const Mnist&, ConvertOptions& how) { how.classes = 3; }},
       {"there must be one label for each", puts("train-labels-idx1-ubyte", {{3, 4, 4}, pixels})},
       {"t10k-images-idx3-ubyte is uint8 [2, 3, 3], but the first images are 4 x 4 x 1",
        puts("t10k-images-idx3-ubyte", {{2, 3, 3}, some_bytes(18, 1)})},
       {"but images must be square", puts("train-images-idx3-ubyte", {{3, 2, 8}, pixels})},
       {"a folder of idx files; leave it off", [](const Mnist&, ConvertOptions& how) { how.val = "train"; },
        "2: --val is for a file with validation images, "},
       {"a folder of idx files; leave it off", [](const Mnist&, ConvertOptions& how) { how.labels = "x.npy"; },
        "2: --labels is for a .npy file of images, "},
       {"train-images-idx3-ubyte: holds 24 bytes after its header", [&](const Mnist& set, ConvertOptions&) {
          write_bytes(set.folder / "train-images-idx3-ubyte", Idx{{3, 4, 4}, pixels}.bytes().substr(0, 40));
        }}});
}

TEST_CASE("A folder without a known set is refused, with the command for a folder in it that has one", "[published]") {
  const TemporaryFolder folder, output;
  const auto error = [&] { return error_of([&] { convert(folder.path(), output / "set.h5"); }); };
  write_bytes(folder / "a/b/c/t10k-images-idx3-ubyte.gz", "");  // deeper than anybody looks
  CHECK(contains(error(), "this folder has none of the forms that are known"));
  CHECK(contains(error(), "data/README.md lists them all"));
  std::filesystem::create_directories(folder / "MNIST/raw");
  write_bytes(folder / "MNIST/raw/t10k-images-idx3-ubyte.gz", "");
  CHECK(contains(error(), "but one below has: 'dat_hpc data convert " + (folder / "MNIST/raw") + " data.h5'"));
  for (const char* name : {"x", "y"}) write_bytes(folder / (std::string(name) + "/t10k-images-idx3-ubyte.gz"), "");
  CHECK(contains(error(), "but one below has: 'dat_hpc data convert " + (folder / "x") + " x.h5'"));
}

TEST_CASE("A run that is given a source of data instead of a data file says what to do", "[published]") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& path) {
    return error_of([&] { static_cast<void>(open_dataset({path}, "train", 0)); });
  };
  CHECK(contains(error(folder.path() + "/"), "3: " + folder.path() +
                                                 "/: is a folder, and data files are files; of a set in a "
                                                 "form that is known, 'dat_hpc data convert " +
                                                 folder.path() + "/ "));
  write_bytes(folder / "set.npz", "PK\3\4");
  CHECK(contains(error(folder / "set.npz"),
                 "not a whole HDF5 file; of a set in another form that is known, 'dat_hpc data "
                 "convert " +
                     (folder / "set.npz") + " set.h5' makes one"));
  CHECK(contains(error("a.h5,b.h5"),
                 "there is no such file; names of several files are separated by spaces: --data a.h5 b.h5"));
  CHECK(contains(error("a.h5"), "a.h5: cannot be opened"));
  write_bytes(folder / "a,b.h5", "");
  CHECK(!contains(error(folder / "a,b.h5"), "separated"));
}
