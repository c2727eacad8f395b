#include <unistd.h>

#include <csignal>

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "dat/file.hpp"
#include "dat/loader.hpp"
#include "datasets.hpp"
#include "files/confined.hpp"
#include "hdf5/hdf5.hpp"

using namespace dat;
using test::pixels_of;

namespace {

// Pixel bytes that depend on everything.
std::uint8_t pixel(std::int64_t sample, int channel, int y, int x) {
  return static_cast<std::uint8_t>(sample * 89 + channel * 61 + y * 17 + x * 3);
}

// A record: label bytes of which the last one counts, then planes.
std::string record(std::int64_t sample, int label, int label_bytes, int size) {
  std::string bytes(static_cast<std::size_t>(label_bytes - 1), '\x7f');
  bytes += static_cast<char>(label);
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) bytes += static_cast<char>(pixel(sample, c, y, x));
  return bytes;
}

std::vector<std::uint8_t> image(std::int64_t sample, int size) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x)
      for (int c = 0; c < 3; ++c) pixels.push_back(pixel(sample, c, y, x));
  return pixels;
}

// named.h5 in a folder, of records with these names of classes.
void convert_records_with(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  std::string text = "\xef\xbb\xbf";
  for (const std::string& name : names) text += name + "\r\n";
  const TemporaryFolder records;
  write_bytes(records / "batches.meta.txt", text);
  for (const char* name : {"train.bin", "test.bin"}) write_bytes(records / name, record(0, 0, 1, 4));
  (void)convert_dataset({.source = records.path(), .output = folder / "named.h5", .labels = "", .size = 4});
}

// What a user may put into a data file.
struct Contents {
  Shape images = {4, 6, 6, 3};
  std::vector<std::int64_t> labels = {0, 2, 1, 2};
};

void write_split(Hdf5File& file, const std::string& split, const Contents& contents) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : contents.images) elements *= dim;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(elements));
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  file.write(split + "/images", contents.images, pixels);
  file.write(split + "/labels", {static_cast<std::int64_t>(contents.labels.size())}, contents.labels);
}

std::unique_ptr<Dataset> opened(const std::string& path, const std::string& split = "train") {
  return open_dataset({path}, split, 0);
}

// Why files are not opened; "none": they are.
std::string refusal(const std::vector<std::string>& paths, const std::string& split = "train") {
  return error_of([&] { static_cast<void>(open_dataset(paths, split, 0)); });
}

void write_data_file(const std::string& path, const Contents& train = {}, std::size_t user_block = 0) {
  Hdf5File file = Hdf5File::create(path, user_block);
  write_split(file, "train", train);
  write_split(file, "test", {});
}

void write_file(const std::string& path, const std::function<void(Hdf5File&)>& fill) {
  Hdf5File file = Hdf5File::create(path, 0);
  fill(file);
}

void write_splits(const std::string& path, const std::vector<std::pair<std::string, Contents>>& splits) {
  write_file(path, [&](Hdf5File& file) {
    for (const auto& [split, contents] : splits) write_split(file, split, contents);
  });
}

// data.h5, two other names of it, and a copy.
void write_with_links(const TemporaryFolder& folder) {
  write_data_file(folder / "data.h5");
  std::filesystem::create_symlink("data.h5", folder / "link.h5");
  std::filesystem::create_hard_link(folder / "data.h5", folder / "hard.h5");
  std::filesystem::copy_file(folder / "data.h5", folder / "copy.h5");
}

std::vector<int> labels_of(const Dataset& set) {
  std::vector<int> found;
  for (std::int64_t i = 0; i < set.size(); ++i) found.push_back(set.label(i));
  return found;
}

// An epoch of all ranks, micro-batch by micro-batch: what `alone`, one rank with all of their micro-batches, has there.
std::vector<std::vector<std::int64_t>> epoch_of(Sampler& alone, std::vector<Sampler>& ranks, std::uint32_t epoch) {
  std::vector<std::vector<std::int64_t>> all;
  const EpochPlan& plan = ranks[0].plan();
  const int of_ranks = static_cast<int>(ranks.size());
  std::vector<std::int64_t> whole(static_cast<std::size_t>(of_ranks * plan.batch)), mine(whole);
  alone.shuffle(epoch);
  for (Sampler& sampler : ranks) sampler.shuffle(epoch);
  for (std::int64_t step = 0; step < plan.steps(); ++step) {
    const int count = alone.batch(step, 0, whole.data()), part = count / of_ranks, size = part / plan.micro_batches;
    REQUIRE(size * plan.micro_batches * of_ranks == count);
    CHECK(part == (step + 1 < plan.steps() ? plan.batch : plan.last_batch()));
    for (int rank = 0; rank < of_ranks; ++rank) {
      REQUIRE(ranks[static_cast<std::size_t>(rank)].batch(step, rank, mine.data()) == part);
      for (int m = 0; m < plan.micro_batches; ++m) {
        const auto& one = all.emplace_back(mine.begin() + m * size, mine.begin() + (m + 1) * size);
        CHECK(std::equal(one.begin(), one.end(), whole.begin() + (m * of_ranks + rank) * size));
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-2") {
  CHECK(sha256_hex("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.add("a", 1);
  pieces.add("", 0);
  pieces.add("bc", 2);
  CHECK(pieces.hex() == sha256_hex("abc", 3));
}

TEST_CASE("A converted folder holds the records' labels and pixels in the batches' numerical order") {
  const int size = GENERATE(1, 5, 32);
  const TemporaryFolder folder;
  std::string names = "binary records of";
  for (int batch = 1; batch <= 11; ++batch) {
    const std::string name = "data_batch_" + std::to_string(batch) + ".bin";
    write_bytes(folder / name,
                record(2 * batch, batch % 10, 1, size) + record(2 * batch + 1, (batch + 3) % 10, 1, size));
    names += " " + name;
  }
  write_bytes(folder / "test_batch.bin", record(100, 9, 1, size));
  write_bytes(folder / "data_batch_x.bin", "none of the set");
  const std::string output = folder / "data.h5";
  convert_dataset({.source = folder.path(), .output = output, .labels = "", .size = size});

  const auto train = opened(output);
  REQUIRE(train->size() == 22);
  CHECK((train->info().size == size && train->info().channels == 3 && train->info().classes == 10));
  CHECK(train->info().class_names[3] == (size == 32 ? "cat" : "class 3"));
  for (int i = 0; i < 22; ++i) {
    CHECK((train->label(i) == (i / 2 + 1 + (i % 2) * 3) % 10 && pixels_of(*train, i) == image(i + 2, size)));
  }
  const auto test = opened(output, "test");
  REQUIRE(test->size() == 1);
  CHECK((test->label(0) == 9 && pixels_of(*test, 0) == image(100, size)));
  CHECK(contains(inspect_dataset(output), "\nsource   " + names + " test_batch.bin\n"));
  CHECK(contains(inspect_dataset(output), "(as recorded)"));
}

TEST_CASE("Records with two to 16 label bytes, up to 256 classes and named classes pass through the same code") {
  const int label_bytes = GENERATE(2, 16);
  const TemporaryFolder folder;
  write_bytes(folder / "train.bin", record(0, 255, label_bytes, 4) + record(1, 0, label_bytes, 4));
  write_bytes(folder / "test.bin", record(2, 254, label_bytes, 4));
  std::string names;
  for (int i = 0; i < 256; ++i) names += "kind" + std::to_string(i) + "\r\n";
  write_bytes(folder / "fine_label_names.txt", names + " \r\n\n");
  const ConvertOptions options = {.source = folder.path(),
                                  .output = folder / "data.h5",
                                  .labels = "",
                                  .size = 4,
                                  .label_bytes = label_bytes == 2 ? 0 : label_bytes};
  convert_dataset(options);
  const auto train = opened(folder / "data.h5");
  CHECK((train->info().classes == 256 && train->info().class_names[255] == "kind255" && train->label(0) == 255));
  CHECK(pixels_of(*train, 1) == image(1, 4));
  write_bytes(folder / "train.bin", record(4, 3, 1, 420) + record(5, 7, 1, 420));  // more than a block each
  write_bytes(folder / "test.bin", record(6, 0, 1, 420));
  const std::string large = folder / "large.h5";
  convert_dataset({.source = folder.path(), .output = large, .labels = "", .size = 420, .label_bytes = 1});
  CHECK((labels_of(*opened(large)) == std::vector<int>{3, 7} && pixels_of(*opened(large), 1) == image(5, 420)));
}

TEST_CASE("A damaged folder of records is refused with the file's name, and leaves no file behind") {
  const std::string good = record(0, 1, 1, 8) + record(1, 9, 1, 8);
  using Damage = std::function<void(const TemporaryFolder&, ConvertOptions&)>;
  const auto writes = [](const char* name, const std::string& bytes) -> Damage {
    return [=](const TemporaryFolder& folder, ConvertOptions&) { write_bytes(folder / name, bytes); };
  };
  const auto removes = [](const char* name) -> Damage {
    return [=](const TemporaryFolder& folder, ConvertOptions&) { std::filesystem::remove(folder / name); };
  };
  const std::vector<std::pair<const char*, Damage>> damages = {
      {"data_batch_2.bin: has 385 bytes", writes("data_batch_2.bin", good.substr(0, good.size() - 1))},
      {"test_batch.bin: has 0 bytes", writes("test_batch.bin", "")},
      {"there is neither test_batch.bin nor test.bin", removes("test_batch.bin")},
      {"batches.meta.txt: lists one class only", writes("batches.meta.txt", "cat\r\n \n")},
      {"batches.meta.txt: lists more than 32767 classes",
       writes("batches.meta.txt", lines_of(std::vector<std::string>(kMostClasses + 1, "x")))},
      {"data_batch_1.bin is missing", removes("data_batch_1.bin")},
      {"data_batch_2.bin: label 10 of record 2 (byte 386) is not in 0..9",
       writes("data_batch_2.bin", good + record(2, 10, 1, 8))},
      {"names 2 classes, but 10",
       [](const TemporaryFolder& folder, ConvertOptions& options) {
         write_bytes(folder / "batches.meta.txt", "cat\ndog\n");
         options.classes = 10;
       }},
      {"there is no such folder or file",
       [](const TemporaryFolder& folder, ConvertOptions& options) { options.source = folder / "nothing"; }}};
  for (const auto& [told, damage] : damages) {
    const TemporaryFolder folder, output;
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"})
      write_bytes(folder / name, good);
    ConvertOptions options{.source = folder.path(), .output = output / "data.h5", .labels = "", .size = 8};
    damage(folder, options);
    const std::string error = error_of([&] { convert_dataset(options); });
    CHECK((error.starts_with("3: ") && contains(error, told) && output.names().empty()));
  }
}

TEST_CASE("A data file that cannot be written is Error(io)") {
  const TemporaryFolder folder;
  SyntheticOptions options;
  CHECK(error_of([&] { write_synthetic(options, folder / "none/data.h5"); }).substr(0, 3) == "9: ");
  CHECK(contains(error_of([&] { write_synthetic(options, folder.path()); }), "is there already and is not a file"));
  write_bytes(folder / "text", "text");
  CHECK(contains(error_of([&] {
                   (void)convert_dataset({.source = folder / "text", .output = folder / "none/data.h5", .labels = ""});
                 }),
                 "3: " + (folder / "text") + ": neither a folder of binary records nor a pickle"));

  CHECK(system_reason(ENOSPC) == "disk full");
}

TEST_CASE("A user's file without attributes is accepted: int64 labels, a user block, classes from the highest label") {
  const TemporaryFolder folder;
  write_data_file(folder / "data.h5", {}, GENERATE(0, 512, 2048));
  const auto set = opened(folder / "data.h5");
  REQUIRE(set->size() == 4);
  CHECK((set->info().size == 6 && set->info().classes == 3));
  CHECK((set->info().class_names[2] == "class 2" && set->label(3) == 2));
  std::vector<std::uint8_t> expected(108);
  std::iota(expected.begin(), expected.end(), static_cast<std::uint8_t>(2 * 108));
  CHECK((pixels_of(*set, 2) == expected && contains(inspect_dataset(folder / "data.h5"), "none recorded")));
}

TEST_CASE("Names of classes are valid UTF-8 on one line, whatever a file has") {
  const TemporaryFolder folder;
  const std::string e = "\xc3\xa9", mark = "\xef\xbb\xbf";
  std::string longest;
  for (int k = 0; k < 100; ++k) longest += e;
  const std::vector<std::string>
      names = {mark + "cat\r", "a\nb", "\t x \t\tyz ", "a,\"b\\c'", "caf" + e,     "bad\xff\xc3(", "",
               "\xc2\x9b[2J",  "cat",  longest + e,    "\x7f",      "\xed\xa0\x80"},
      kept = {"cat",     "a b", "x yz", "a,\"b\\c'", "caf" + e,  "bad?\?(",
              "class 6", "[2J", "cat",  longest,     "class 10", "???"};
  CHECK((clean_class_names(names) == kept && clean_class_names(kept) == kept));
  CHECK(class_names_of(lines_of(kept)) == kept);
  const std::string ends =
      "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";  // beside what is none
  CHECK(clean_class_names({ends,
                           "\xc2\xa0"
                           "a\xe2\x80\xa8"
                           "b\xc2\x80",
                           '\0' + std::string("\x7f~\xc2\xa1"),
                           "\xc0\x9b|\xe0\x9f\xbf|\xf0\x8f\xbf\xbf|\xf4\x90\x80\x80|\xe2\x82"}) ==
        std::vector<std::string>{ends, "a b", "~\xc2\xa1", "?\?|?\??|?\?\??|?\?\??|?\?"});
  write_file(folder / "data.h5", [](Hdf5File& file) {
    file.set_texts("/", "class_names", {"a\nb", "cat\r", "dog"});
    file.write_texts("class_names", {"x", "y", "z"});  // somebody else's, who has names as bytes in none
    write_split(file, "train", {});
    write_split(file, "test", {});
  });
  CHECK(opened(folder / "data.h5")->info().class_names == std::vector<std::string>{"a b", "cat", "dog"});
  // 256 names of the greatest length go into a file and come back.
  convert_records_with(folder, std::vector<std::string>(256, std::string(300, 'x')));
  CHECK(opened(folder / "named.h5", "test")->info().class_names ==
        std::vector<std::string>(256, std::string(200, 'x')));
}

TEST_CASE("Class 0 without an image, one class only, and classes without a training image are told") {
  const TemporaryFolder folder;
  const auto remarks = [&](const std::vector<std::int64_t>& train, const std::vector<std::int64_t>& test) {
    write_splits(folder / "data.h5",
                 {{"train", {{std::ssize(train), 6, 6, 3}, train}}, {"test", {{std::ssize(test), 6, 6, 3}, test}}});
    return class_remarks(*opened(folder / "data.h5"), opened(folder / "data.h5", "test").get());
  };
  using Lines = std::vector<std::string>;
  CHECK((remarks({0, 1, 2}, {0, 1, 2}) == Lines{} && remarks({0, 1, -1}, {1}) == Lines{}));
  CHECK(
      remarks({1, 2, 3}, {3, 1}) ==
      Lines{"class 0 (class 0) has no image: labels count from 0, and where those of the source begin at 1, each must "
            "be one less"});
  CHECK(remarks({1, 1}, {1}) == Lines{"all training images are of one class, class 1: there is nothing to tell apart"});
  CHECK(remarks({1, 1}, {3}) == Lines{"all training images are of one class, class 1: there is nothing to tell apart",
                                      "1 class has test images and no training image: class 3"});
  CHECK(remarks({1, 2}, {0, 4}) == Lines{"2 classes have test images and no training image: class 0, class 4",
                                         "1 class has no image at all: class 3"});
  CHECK(remarks({-1, -1}, {0, 1}) == Lines{});
  CHECK(remarks({0, 6, 7}, {7}) ==
        Lines{"5 classes have no image at all: class 1, class 2, class 3, class 4, class 5"});
  CHECK(remarks({0, 7, 8}, {8}) ==
        Lines{"6 classes have no image at all: class 1, class 2, class 3, class 4, class 5, ..."});
  CHECK(remarks({0, 3}, {1}) ==
        Lines{"1 class has test images and no training image: class 1", "1 class has no image at all: class 2"});
  const Lines told = {"2 classes have test images and no training image: class 1, class 2"};
  CHECK(remarks({0, 3}, {1, 2}) == told);
  CHECK(convert_dataset({.source = folder / "data.h5", .output = folder / "out.h5", .labels = ""}).remarks == told);
}

TEST_CASE("A file that is given twice is refused, also under another name") {
  const TemporaryFolder folder;
  write_with_links(folder);
  const auto error = [&](const std::string& other) { return refusal({folder / "data.h5", folder / other}); };
  for (const char* other : {"data.h5", "link.h5", "hard.h5"})
    CHECK(error(other).starts_with("2: --data has one file twice, " + folder / "data.h5"));
  CHECK(error("copy.h5") == "none");
}

TEST_CASE("An output that is an input is refused, under any name and in a folder that is read") {
  const TemporaryFolder folder;
  write_with_links(folder);
  const auto error = [&](const std::string& output, const std::vector<std::string>& inputs) {
    return error_of([&] { require_apart({folder / "new.h5", output}, inputs); });
  };
  for (const char* name : {"data.h5", "link.h5", "hard.h5"}) {
    CHECK(error(folder / name, {"", folder / "copy.h5", folder / "data.h5"}).starts_with("2: " + folder / name));
    CHECK(error(folder / name, {folder.path()}).starts_with("2: "));
  }
  CHECK(error(folder / "copy.h5", {folder / "data.h5", folder / "absent.h5"}) == "none");
  CHECK(error(folder.path() + "/../" + std::filesystem::path(folder.path()).filename().string() + "/data.h5",
              {folder / "data.h5"})
            .starts_with("2: "));
  CHECK(error(folder.path(), {folder.path()}).starts_with("2: "));
}

TEST_CASE("HDF5 in other layouts becomes a data file, or is refused with what it must be; weights stay what they are") {
  const TemporaryFolder folder;
  const std::string in = folder / "in.h5", out = folder / "out.h5";
  const auto error = [&](const std::function<void(Hdf5File&)>& fill) {
    std::filesystem::remove(out);
    write_file(in, fill);
    const std::string text = error_of([&] { (void)convert_dataset({.source = in, .output = out, .labels = ""}); });
    CHECK(std::filesystem::exists(out) == (text == "none"));
    return text;
  };
  std::vector<std::uint8_t> planes, pixels;
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::string bytes = record(i, 0, 1, 6).substr(1);
    planes.insert(planes.end(), bytes.begin(), bytes.end());
    const std::vector<std::uint8_t> one = image(i, 6);
    pixels.insert(pixels.end(), one.begin(), one.end());
  }
  const std::vector<std::int64_t> labels = {1, 0};
  const auto check = [&](const std::string& split) {
    const auto set = opened(out, split);
    REQUIRE(set->size() == 2);
    for (std::int64_t i = 0; i < 2; ++i) {
      CHECK((pixels_of(*set, i) == image(i, 6) && set->label(i) == labels[static_cast<std::size_t>(i)]));
    }
  };
  CHECK(error([&](Hdf5File& file) {
          file.write("test/images", {2, 3, 6, 6}, planes);
          file.write("test/labels", {2, 1}, labels);
        }) == "none");
  check("test");
  CHECK(error([&](Hdf5File& file) {
          file.set_texts("/", "class_names", {"cat\r", "dog"});
          file.write("X", {2, 6, 6, 3}, pixels);
          file.write("y", {2}, std::vector<std::uint8_t>{1, 0});
        }) == "none");
  check("train");
  CHECK(opened(out)->info().class_names == std::vector<std::string>{"cat", "dog"});
  CHECK(error([&](Hdf5File& file) {
          file.write_texts("class_names", {"owl\r", "bat"});
          file.write("X", {2, 6, 6, 3}, pixels);
          file.write("y", {2}, labels);
        }) == "none");
  CHECK(opened(out)->info().class_names == std::vector<std::string>{"owl", "bat"});
  for (const std::size_t count : {1, 32768})
    CHECK(contains(error([&](Hdf5File& file) {
                     const std::string lines(2 * count, '\n');
                     std::vector<std::uint8_t> names(lines.begin(), lines.end());
                     for (std::size_t k = 0; k < names.size(); k += 2) names[k] = 'x';
                     file.write("class_names", {std::ssize(names)}, names);
                     file.write("X", {2, 6, 6, 3}, pixels);
                     file.write("y", {2}, labels);
                   }),
                   "names " + std::to_string(count) + (count == 1 ? " class" : " classes") + ", must be 2 to 32767"));
  std::vector<std::uint8_t> large(std::size_t{2} * 520 * 520 * 2);  // two images, of more than a block each
  std::fill(large.begin() + std::ssize(large) / 2, large.end(), std::uint8_t{1});
  CHECK(error([&](Hdf5File& file) {
          file.write("X", {2, 520, 520, 2}, large);
          file.write("y", {2}, labels);
        }) == "none");
  CHECK((pixels_of(*opened(out), 0)[0] == 0 && pixels_of(*opened(out), 1)[0] == 1));
  std::vector<std::uint8_t> many((1 << 16) + 1);  // labels of more than a block
  many.back() = 1;
  CHECK(error([&](Hdf5File& file) {
          file.write("X", {std::ssize(many), 1, 1, 1}, many);
          file.write("y", {std::ssize(many)}, many);
        }) == "none");
  CHECK((opened(out)->label(std::ssize(many) - 1) == 1 && pixels_of(*opened(out), std::ssize(many) - 1)[0] == 1));
  // Names of today do not count beside those that others have given their sets.
  const auto with_features = [&](Hdf5File& file) {
    file.write("images", {2, 6, 6, 3}, pixels);
    file.write("label", {2}, labels);
    file.write("features", {2, 4}, std::vector<float>(8, 0.5F));
    file.write("target", {2}, std::vector<float>(2, 0.5F));
  };
  CHECK(error(with_features) == "none");
  check("train");
  CHECK(contains(error([&](Hdf5File& file) {
                   with_features(file);
                   file.write("labels", {2}, labels);
                 }),
                 "has both label and labels for labels"));
  CHECK(contains(error([&](Hdf5File& file) {
                   file.write("X", {2, 6, 6, 3}, pixels);
                   file.write("features", {2, 4}, std::vector<float>(8, 0.5F));
                   file.write("y", {2}, labels);
                 }),
                 "has both X and features for images"));
  const auto images_of = [&](const auto& values) {
    return [&](Hdf5File& file) {
      file.write("train/images", {2, 6, 6, 3}, values);
      file.write("train/labels", {2}, labels);
    };
  };
  // A run that is given such a file says how it becomes a data file.
  const auto refused = [&](const Shape& images, const Shape& of_labels) {
    write_file(in, [&](Hdf5File& file) {
      file.write("train/images", images, pixels);
      file.write("train/labels", of_labels, labels);
    });
    return refusal({in});
  };
  const std::string how = "; 'dat_hpc data convert " + in + " plain.h5' makes such a file";
  CHECK(contains(refused({2, 3, 6, 6}, {2}), "has its channels first, but must have the shape"));
  CHECK(refused({2, 3, 6, 6}, {2}).ends_with(how));
  CHECK(refused({2, 6, 6, 3}, {2, 1}).ends_with("for each of the 2 images, in one dimension" + how));
  CHECK(contains(error(images_of(std::vector<float>(216, 0.5F))),
                 "train/images is float32 [2, 6, 6, 3], but images must be uint8, 0 to 255; of numbers in [0, 1]"));
  CHECK(error(images_of(std::vector<std::int64_t>(216, 5)))
            .ends_with("is int64 [2, 6, 6, 3], but images must be uint8, 0 to 255; save images.astype('uint8') if they "
                       "are that"));
  CHECK(contains(error([&](Hdf5File& file) {
                   file.write("pictures", {2, 6, 6, 3}, pixels);
                 }),
                 "holds neither images under the names in use nor weights: pictures is uint8 [2, 6, 6, 3]"));
  CHECK(contains(error([](Hdf5File& file) { file.write_texts("words", {"a", "b"}); }), "words is strings [2]"));
  for (const int depth : {15, 17}) {
    std::string name = "w";
    for (int k = 0; k < depth; ++k) name.insert(0, "g/");
    CHECK(contains(error([&](Hdf5File& file) { file.write(name, {1}, std::vector<float>{1}); }),
                   depth == 15 ? "none" : "has groups in groups without end"));
  }
  std::vector<float> rows(9 * 65537, 1);  // more than a block, which has eight of them
  rows.back() = 5;
  CHECK(error([&](Hdf5File& file) {
          file.set_text("/", "arch", "net");
          file.set_texts("/", "words", {"a", "b"});
          file.set_integer("/", "epoch", 7);
          file.write("conv1.weight", {2}, std::vector<float>{1, 2});
          file.write("fc.weight", {9, 65537}, rows);
          file.write("one", {1}, std::vector<std::uint8_t>{9});
          file.write("wide", {1}, std::vector<double>{0.1});
          file.write("none", {2, 0}, std::vector<float>{});
          file.write("bn1.num_batches_tracked", {}, std::vector<std::int64_t>{3});
        }) == "none");
  for (int k = 0; k < 3; ++k) {
    const ConvertOptions asked{.source = in,
                               .output = out,
                               .labels = "",
                               .val = k == 0 ? "test" : "leave",
                               .size = k == 1 ? 8 : 0,
                               .classes = k == 2 ? 9 : 0};
    CHECK(error_of([&] { (void)convert_dataset(asked); }).starts_with("2: " + in + ": holds weights; leave --size"));
  }
  Shape shape;
  const Hdf5File weights = Hdf5File::open(out, ExitCode::data);
  CHECK(weights.read<float>("conv1.weight", shape) == std::vector<float>{1, 2});
  CHECK((weights.read<float>("fc.weight", shape) == rows && weights.info("fc.weight").element == 4));
  CHECK((weights.read<double>("wide", shape) == std::vector<double>{0.1} && weights.has("none")));
  CHECK(weights.read<std::int64_t>("bn1.num_batches_tracked", shape) == std::vector<std::int64_t>{3});
  CHECK(weights.read<std::uint8_t>("one", shape) == std::vector<std::uint8_t>{9});
  CHECK((weights.text("/", "arch") == "net" && weights.integer("/", "epoch") == 7 &&
         weights.texts("/", "words") == std::vector<std::string>{"a", "b"}));
}

TEST_CASE("Validation images are left out, or join or replace others, and what a file lacks is told") {
  const TemporaryFolder folder;
  const std::string in = folder / "in.h5", out = folder / "out.h5";
  const auto converted = [&](const std::vector<std::string>& splits, const std::string& val) {
    write_file(in, [&](Hdf5File& file) {
      for (const std::string& split : splits) write_split(file, split, {{2, 6, 6, 3}, {split == "val" ? 1 : 0, 0}});
    });
    std::string text;
    const std::string error =
        error_of([&] { text = convert_dataset({.source = in, .output = out, .labels = "", .val = val}).contents; });
    return error == "none" ? text : error;
  };
  const std::string train = "2 train images of 6 x 6 x 3", test = "2 test images of 6 x 6 x 3",
                    all = "; arrays train/images, val/images, test/images of in.h5, ";
  CHECK(converted({"train", "val", "test"}, "leave") == train + ", " + test + all + "without the 2 validation images");
  CHECK(converted({"train", "val", "test"}, "train") ==
        "4 train images of 6 x 6 x 3, " + test + all + "the validation images among the training images");
  CHECK(opened(out)->label(2) == 1);
  CHECK(converted({"train", "val", "test"}, "test") ==
        train + ", " + test + all + "the validation images in place of the test images");
  CHECK(opened(out, "test")->label(0) == 1);
  CHECK(converted({"train", "val"}, "leave") ==
        train + "; arrays train/images, val/images of in.h5, without the 2 validation images");
  CHECK(converted({"test"}, "leave") == test + "; arrays test/images of in.h5");
  CHECK(contains(converted({"val"}, "test"), "has val/images, but no training images"));
  CHECK(contains(converted({"val", "test"}, "train"), "but no training images"));
  CHECK(converted({"train", "test"}, "train") == "2: " + in + ": has no validation images; leave --val off");
  write_file(in, [](Hdf5File& file) {
    write_split(file, "test", {{2, 6, 6, 3}, {0, 0}});
    file.set_text("/", "source", "by hand");
  });
  CHECK(convert_dataset({.source = in, .output = out, .labels = ""}).contents == test + "; by hand");

  const auto told = [&](const std::vector<std::string>& names, const char* val = "leave", int size = 0,
                        int classes = 0) {
    write_file(in, [&](Hdf5File& file) {
      for (const std::string& name : names)
        if (name.ends_with("images") || name.starts_with("x"))
          file.write(name, {2, 6, 6, 3}, std::vector<std::uint8_t>(216));
        else
          file.write(name, {2}, std::vector<std::int64_t>{0, 3});
    });
    const ConvertOptions how{.source = in, .output = out, .labels = "", .val = val, .size = size, .classes = classes};
    return error_of([&] { (void)convert_dataset(how); });
  };
  using Names = std::vector<std::string>;
  const Names both = {"train_images", "train_labels", "test_images", "test_labels"};
  CHECK(told(both) == "none");
  CHECK(told({both.begin(), both.begin() + 3}).ends_with(": has test_images, but no test_labels"));
  CHECK(told({"train_images", "train_labels", "test_labels"}).ends_with(": has test_labels, but no test_images"));
  CHECK(told({both.begin(), both.begin() + 2})
            .ends_with("no test images; extra images alone are called images and labels"));
  CHECK(told({"train_images", "train_labels", "val_images", "val_labels"}, "test") == "none");
  CHECK(told({both.begin() + 2, both.end()}).ends_with("has test_images, but no training images"));
  CHECK(contains(told({"train_images", "train_labels", "x_train", "y_train"}), "has train_images beside other train"));
  for (const int classes : {1, 3})
    CHECK(contains(told(both, "leave", 0, classes), "label 3 of image 1 is not in 0.." + std::to_string(classes - 1)));
  CHECK(told(both, "leave", 28).ends_with("has images of 6 x 6, not of 28; leave --size off"));
}

TEST_CASE("A training image may have no label, a test image must have one") {
  const TemporaryFolder folder;
  write_data_file(folder / "some.h5", {{4, 6, 6, 3}, {3, -1, 0, -1}});
  const auto set = opened(folder / "some.h5");
  CHECK((set->info().classes == 4 && set->label(0) == 3 && set->label(1) == -1));
  CHECK(contains(inspect_dataset(folder / "some.h5"), "   -1         2         0  unknown"));
  write_data_file(folder / "all.h5", {{4, 6, 6, 3}, {3, 1, 0, 1}});
  CHECK(!contains(inspect_dataset(folder / "all.h5"), "unknown"));
  write_file(folder / "named.h5", [](Hdf5File& file) {
    write_split(file, "train", {{4, 6, 6, 3}, {2, 0, 1, 0}});
    file.set_texts("/", "class_names", {"unknown", "class 0", "class 3"});
  });
  const auto page_of = [&](const char* name) {
    CHECK(draw_page(folder / name, folder / "page.png") == 4);
    return read_bytes(folder / "page.png");
  };
  CHECK(page_of("some.h5") == page_of("named.h5"));
  CHECK(content_hash(*set) != content_hash(*opened(folder / "all.h5")));
  write_splits(folder / "test.h5", {{"test", {{2, 6, 6, 3}, {0, -1}}}});
  CHECK_THROWS_AS(opened(folder / "test.h5", "test"), Error);
}

TEST_CASE("The highest label of either split counts as a class, and there are at least two classes") {
  const TemporaryFolder folder;
  write_data_file(folder / "more.h5", {{2, 6, 6, 3}, {7, 0}});
  CHECK(opened(folder / "more.h5", "test")->info().classes == 8);
  write_splits(folder / "one.h5", {{"test", {{1, 6, 6, 1}, {0}}}});
  const auto set = opened(folder / "one.h5", "test");
  CHECK((set->info().classes == 2 && set->info().channels == 1));
  CHECK(draw_page(folder / "one.h5", folder / "page.png") == 1);  // a test image, as there is no other
}

TEST_CASE("What is read in a confined process may fail, crash, loop or want all memory: the answer is an Error") {
  const Limits limits{.cpu_seconds = 1, .memory = 64 << 20};
  const auto error = [&](const std::function<void()>& work) {
    return error_of([&] { confined("set.h5", limits, work); });
  };
  const TemporaryFolder folder;
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = files();
  const auto held = std::make_unique_for_overwrite<char[]>(std::size_t{200} << 20);  // what is there does not count
  static_cast<volatile char*>(held.get())[0] = 'h';
  CHECK(error([&] {
          write_bytes(folder / "made", std::string(std::size_t{30} << 20, 'x').replace(0, std::string::npos, "here"));
        }) == "none");
  CHECK(read_bytes(folder / "made") == "here");
  CHECK(error([] { fail(ExitCode::io, "disk full: ", std::string(10000, 'x')); }) ==
        "9: disk full: " + std::string(10000, 'x'));
  CHECK(error([] { fail(ExitCode::io, ""); }) == "9: ");
  CHECK(contains(error([] { throw std::runtime_error("odd"); }), "3: set.h5: a library failed: odd"));
  CHECK(contains(error([] { raise(SIGKILL); }), "3: set.h5: the process that read it was ended by signal 9"));
  CHECK(contains(error([] { _exit(7); }), "3: set.h5: the process that read it was ended by signal 0 (none)"));
  volatile bool going = true;
  CHECK(contains(error([&] {
                   while (going) {
                   }
                 }),
                 "3: set.h5: reading it does not end (1 s"));
  CHECK(files() == before);
  if (kLimitsMemory)
    CHECK(contains(error([] {
                     // At once: smaller pieces may lie in what this process has already.
                     const std::vector<char> all(std::size_t{100} << 20, 'x');
                     if (all[5] != 'x') fail(ExitCode::data, "cannot be");
                   }),
                   "3: set.h5: wants more memory than it may have"));
}

TEST_CASE("Data of a wrong shape, type or range are refused with the names of file and dataset") {
  const TemporaryFolder folder;
  const std::string path = folder / "data.h5";
  const auto refused = [&](const std::string& reason) {
    const std::string text = refusal({path});
    CAPTURE(text);
    CHECK((text.substr(0, 3) == "3: " && contains(text, path) && contains(text, reason)));
  };

  refused("No such file");
  write_bytes(path, "nothing of the kind");
  refused("not a whole HDF5 file");
  write_bytes(path, "");
  refused("not a whole HDF5 file");
  for (const auto& [contents, reason] : std::vector<std::pair<Contents, const char*>>{
           {{{4, 6, 6, 3}, {0, 2, 1, 32767}}, "label 32767 of sample 3 in /train/labels is not in 0..32766"},
           {{{4, 6, 6, 3}, {0, -2, 1, 2}},
            "label -2 of sample 1 in /train/labels is not in 0..32766, nor -1 for unknown"},
           {{{4, 6, 6, 3}, {0, 1, 2}}, "/train/labels must hold one number for each of the 4 images"},
           {{{4, 6, 5, 3}, {0, 1, 2, 0}}, "square images"},
           {{{4, 1, 6, 6}, {0, 1, 2, 0}},
            "has its channels first, but must have the shape [n, height, width, channels]"},
           {{{4, 4, 6, 6}, {0, 1, 2, 0}}, "has its channels first"},
           {{{4, 5, 6, 6}, {0, 1, 2, 0}}, "square images, not 5 x 6"},
           {{{4, 0, 6, 6}, {0, 1, 2, 0}}, "square images, not 0 x 6"},
           {{{4, 0, 0, 3}, {0, 1, 2, 0}}, "square images, not 0 x 0"},
           {{{4, 6, 6, 5}, {0, 1, 2, 0}}, "1 to 4 channels"},
           {{{4, 6, 6, 0}, {0, 1, 2, 0}}, "1 to 4 channels"},
           {{{4, 108}, {0, 1, 2, 0}}, "has 2 dimensions"},
           {{{0, 6, 6, 3}, {}}, "holds no image"}}) {
    write_data_file(path, contents);
    refused(reason);
  }
  write_splits(path, {{"test", {}}});
  refused("there is no dataset /train/images");
  write_file(path, [](Hdf5File& file) {
    file.write("train/images", {1, 2, 2, 3}, std::vector<float>(12));
    file.write("train/labels", {1}, std::vector<std::int64_t>{0});
  });
  refused("/train/images must be of type uint8");
  write_file(path, [](Hdf5File& file) {
    file.write("train/images", {1, 2, 2, 3}, std::vector<std::uint8_t>(12));
    file.write("train/labels", {1}, std::vector<float>{0});
  });
  refused("/train/labels must hold integers");
  write_file(path, [](Hdf5File& file) {
    write_split(file, "train", {});
    file.set_texts("/", "class_names", {"cat", "dog"});
  });
  refused("label 2 of sample 1 in /train/labels is not in 0..1");
  write_file(path, [](Hdf5File& file) {
    write_split(file, "train", {});
    file.set_text("/", "filetype", "checkpoint");
  });
  refused("is a file of kind 'checkpoint'");
  write_file(path, [](Hdf5File& file) {
    write_split(file, "train", {});
    file.set_integer("/", "format_version", 2);
  });
  refused("has the data format 2, this program knows 1");
  write_data_file(path);
  CHECK(refusal({path}) == "none");
  CHECK((contains(refusal({path}, "validation"), "/validation/images") && refusal({}) == "2: no data file is given"));
  write_file(path, [](Hdf5File&) {});
  CHECK(contains(error_of([&] { (void)inspect_dataset(path); }), "has neither /train nor /test"));
}

TEST_CASE("A file that becomes shorter after it was opened is Error(data), not garbage") {
  const TemporaryFolder folder;
  write_data_file(folder / "data.h5");
  const auto set = opened(folder / "data.h5");
  std::filesystem::resize_file(folder / "data.h5", 100);
  const std::string error = error_of([&] { static_cast<void>(pixels_of(*set, 3)); });
  CHECK((contains(error, "3: ") && contains(error, "it is cut off")));
}

TEST_CASE("Several files are one pool in the order given, and must fit together") {
  const TemporaryFolder folder;
  write_data_file(folder / "a.h5");
  write_data_file(folder / "c.h5");
  write_data_file(folder / "b.h5", {{2, 6, 6, 3}, {5, 4}});
  write_data_file(folder / "large.h5", {{2, 8, 8, 3}, {0, 1}});
  const auto named = [&](const std::string& name, const std::vector<std::string>& classes) {
    write_file(folder / name, [&](Hdf5File& file) {
      write_split(file, "train", {});
      file.set_texts("/", "class_names", classes);
    });
  };
  named("cat.h5", {"cat", "dog", "cow", "hen", "pig"});
  named("elk.h5", {"elk", "dog", "cow", "hen", "pig"});

  const auto pool = open_dataset({folder / "a.h5", folder / "b.h5", folder / "c.h5"}, "train", 0);
  CHECK((pool->info().classes == 6 && pool->name(5) == "5" && pool->first_file() == 4));
  REQUIRE(labels_of(*pool) == std::vector<int>{0, 2, 1, 2, 5, 4, 0, 2, 1, 2});
  CHECK((pixels_of(*pool, 4) == pixels_of(*pool, 0) && pixels_of(*pool, 5) == pixels_of(*pool, 1)));
  CHECK((pixels_of(*pool, 9) == pixels_of(*pool, 3) && pixels_of(*pool, 3) != pixels_of(*pool, 4)));

  const auto limited = open_dataset({folder / "a.h5", folder / "b.h5"}, "train", 5);
  CHECK((limited->size() == 5 && limited->info().classes == 6));
  const auto all = open_dataset({folder / "a.h5"}, "train", 100);
  CHECK((all->size() == 4 && all->first_file() == 4));

  const auto error = [&](const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(folder / name);
    return refusal(paths);
  };
  CHECK(contains(error({"a.h5", "large.h5"}), "large.h5: has images of 8 x 8 x 3"));
  CHECK(contains(error({"cat.h5", "elk.h5"}), "elk.h5: has other class names than"));
  CHECK(contains(error({"b.h5", "cat.h5"}), "has the label 5"));
  CHECK(open_dataset({folder / "a.h5", folder / "cat.h5"}, "train", 0)->info().class_names[0] == "cat");
}

TEST_CASE("Threads that read at the same time read what one thread reads") {
  const TemporaryFolder folder;
  write_synthetic({.size = 8, .train = 200, .test = 1}, folder / "data.h5");
  const auto set = opened(folder / "data.h5");
  std::vector<std::vector<std::uint8_t>> alone;
  for (int i = 0; i < 200; ++i) alone.push_back(pixels_of(*set, i));
  std::array<int, 4> wrong{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 1000; ++i) {
          const std::size_t sample = (i * 37 + t * 11) % 200;
          if (pixels_of(*set, static_cast<std::int64_t>(sample)) != alone[sample]) ++wrong[t];
        }
      });
    }
  }
  CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("Ranks with micro-batches see what one rank with all of their micro-batches sees, in every step") {
  struct Case {
    std::int64_t samples;
    int ranks, batch, micro_batch;
  };
  // Whole epochs, a rest that fills no micro-batch evenly, fewer samples than one batch, as many as micro-batches.
  for (const Case& c : {Case{96, 2, 16, 8}, Case{83, 2, 16, 8}, Case{50, 3, 8, 2}, Case{101, 4, 8, 8},
                        Case{21, 2, 64, 16}, Case{50, 1, 16, 4}, Case{8, 2, 12, 3}, Case{11, 5, 2, 1}}) {
    INFO(c.samples << " samples, " << c.ranks << " ranks, batch " << c.batch << " in " << c.micro_batch);
    Sampler alone(c.samples, 1, c.ranks * c.batch, c.micro_batch, 7);
    std::vector<Sampler> ranks(static_cast<std::size_t>(c.ranks),
                               Sampler(c.samples, c.ranks, c.batch, c.micro_batch, 7));
    const EpochPlan& plan = ranks[0].plan();
    CHECK((plan.micro_batches == c.batch / c.micro_batch && plan.per_rank % plan.micro_batches == 0));
    CHECK((plan.batch <= c.batch && plan.micro_batch() * plan.micro_batches == plan.batch));
    CHECK(alone.plan().steps() == plan.steps());
    std::vector<std::int64_t> times(static_cast<std::size_t>(c.samples), 0);
    std::int64_t entries = 0;
    for (const std::uint32_t epoch : {0U, 3U})
      for (const auto& micro_batch : epoch_of(alone, ranks, epoch))
        for (const std::int64_t sample : micro_batch) {
          ++times[static_cast<std::size_t>(sample)];
          ++entries;
        }
    // Every sample in every epoch, and no more of them again than make the number of entries a multiple.
    const int hands = c.ranks * plan.micro_batches;
    CHECK(entries == 2 * ((c.samples + hands - 1) / hands * hands));
    CHECK((*std::min_element(times.begin(), times.end()) >= 2 && *std::max_element(times.begin(), times.end()) <= 4));
  }
  // More micro-batches than images: one image each.
  const EpochPlan few(7, 2, 2147483640, 10);
  CHECK((few.micro_batches == 4 && few.micro_batch() == 1 && few.per_rank == 4 && few.steps() == 1));
  CHECK(EpochPlan(50, 1, 16, 0).micro_batches == 1);
}

TEST_CASE(
    "Balanced batches hold their share of the labelled set in every micro-batch, and each labelled image an epoch") {
  struct Case {
    std::int64_t labelled, extra;
    double share;
    int ranks, batch, micro_batch;
  };
  // Sets that fill their groups and such that do not, several epochs of one permutation of the extra set and several
  // turns of it in one epoch, a batch above the set.
  for (const Case& c : {Case{96, 300, 0.5, 2, 16, 8}, Case{83, 1000, 0.25, 3, 8, 8}, Case{50, 7, 0.5, 2, 8, 4},
                        Case{50, 26, 0.5, 2, 8, 4}, Case{40, 90, 0.3, 1, 20, 10}, Case{27, 100, 0.75, 2, 64, 16},
                        Case{10, 200, 1.0 / 3, 4, 6, 3}}) {
    INFO(c.labelled << " + " << c.extra << ", share " << c.share << ", " << c.ranks << " ranks, batch " << c.batch
                    << " in " << c.micro_batch);
    const Mix mix(c.labelled, c.extra, c.share, c.micro_batch);
    CHECK(std::abs(c.share * mix.group - mix.labelled_of_group) < 1e-9);
    CHECK(std::gcd(mix.group, mix.labelled_of_group) == 1);
    Sampler alone(mix, 1, c.ranks * c.batch, c.micro_batch, 7);
    std::vector<Sampler> ranks(static_cast<std::size_t>(c.ranks), Sampler(mix, c.ranks, c.batch, c.micro_batch, 7));
    const EpochPlan& plan = ranks[0].plan();
    const std::int64_t all = plan.per_rank * c.ranks;
    const std::int64_t labelled_entries = all / mix.group * mix.labelled_of_group,
                       extra_entries = all - labelled_entries;
    const std::int64_t epochs = std::max<std::int64_t>(1, c.extra / extra_entries);
    std::vector<int> of_permutation(static_cast<std::size_t>(c.extra), 0);
    std::vector<std::int64_t> before;
    std::vector<std::vector<std::int64_t>> extra_of_epochs;
    for (std::uint32_t epoch = 0; epoch < 2 * epochs; ++epoch) {
      std::vector<std::int64_t> seen;
      std::vector<int> times(static_cast<std::size_t>(c.labelled), 0);
      if (epoch % epochs == 0) std::fill(of_permutation.begin(), of_permutation.end(), 0);
      for (const auto& micro_batch : epoch_of(alone, ranks, epoch)) {
        std::int64_t labelled = 0;
        for (const std::int64_t sample : micro_batch) {
          REQUIRE((sample >= 0 && sample < mix.samples()));
          seen.push_back(sample);
          labelled += sample < c.labelled;
          ++(sample < c.labelled ? times[static_cast<std::size_t>(sample)]
                                 : of_permutation[static_cast<std::size_t>(sample - c.labelled)]);
        }
        CHECK(labelled * mix.group == std::ssize(micro_batch) * mix.labelled_of_group);
      }
      // Each labelled image once, and no more of them again than fill the last groups of the last micro-batches.
      CHECK(std::ssize(seen) == all);
      CHECK(std::accumulate(times.begin(), times.end(), std::int64_t{0}) == labelled_entries);
      CHECK(*std::min_element(times.begin(), times.end()) >= 1);
      CHECK(labelled_entries - c.labelled <
            std::int64_t{c.ranks} * plan.micro_batches * mix.labelled_of_group + mix.labelled_of_group);
      // The extra ones once in the epochs of a permutation, or as often as it takes.
      const auto [least, most] = std::minmax_element(of_permutation.begin(), of_permutation.end());
      CHECK(*most <= (epochs > 1 ? 1 : (extra_entries + c.extra - 1) / c.extra));
      CHECK(*least >= (epochs > 1 ? 0 : extra_entries / c.extra));
      CHECK(seen != before);
      before = seen;
      // The next permutation is another one.
      std::vector<std::int64_t>& extra = extra_of_epochs.emplace_back();
      std::copy_if(seen.begin(), seen.end(), std::back_inserter(extra),
                   [&](std::int64_t k) { return k >= c.labelled; });
      if (epoch >= epochs) CHECK(extra != extra_of_epochs[static_cast<std::size_t>(epoch - epochs)]);
    }
    // The middle of an epoch, without its beginning.
    Sampler later(mix, c.ranks, c.batch, c.micro_batch, 7);
    later.shuffle(1);
    ranks[0].shuffle(0);
    ranks[0].shuffle(1);
    std::vector<std::int64_t> one(static_cast<std::size_t>(c.batch)), other(one);
    const int count = later.batch(plan.steps() - 1, 0, one.data());
    CHECK(ranks[0].batch(plan.steps() - 1, 0, other.data()) == count);
    CHECK(one == other);
  }
}

TEST_CASE("--mix takes pool, balanced and a share that the micro-batch can hold; the rest is a usage error") {
  CHECK((read_mix("pool") == 1 && read_mix("balanced:0.5") == 0.5 && read_mix("balanced:3/4") == 0.75));
  for (const char* wrong : {"", "balanced", "balanced:", "balanced:0", "balanced:1", "balanced:1.5", "balanced:-0.5",
                            "balanced:1/0", "balanced:0.5x", "balanced:nan", "pool:0.5"}) {
    const std::string error = error_of([&] { static_cast<void>(read_mix(wrong)); });
    CAPTURE(wrong, error);
    CHECK(contains(error, "2: --mix is pool or balanced:SHARE"));
  }
  const auto error = [](std::int64_t labelled, std::int64_t extra, double share, int micro_batch) {
    return error_of([&] { static_cast<void>(Mix(labelled, extra, share, micro_batch)); });
  };
  CHECK((error(10, 10, 1.0 / 3, 129) == "none" && error(1, 1, 0.5, 2) == "none"));
  CHECK(
      contains(error(10, 10, 0.3, 128), "2: a micro-batch of 128 images cannot hold the share 0.3 of --mix: that are"));
  CHECK(contains(error(10, 10, 0.3, 128), "such as 38/128"));
  CHECK(contains(error(10, 10, 0.001, 128), "such as 1/128"));
  CHECK(contains(error(10, 0, 0.5, 128), "10 labelled and 0 extra images"));
}

TEST_CASE(
    "Labelled images alone are limited and kept aside where batches are balanced; extra sets need no test images") {
  const TemporaryFolder folder;
  write_splits(folder / "labelled.h5", {{"train", {{5, 6, 6, 3}, {0, 1, 2, 0, 1}}}, {"test", {{2, 6, 6, 3}, {0, 1}}}});
  for (const char* name : {"extra.h5", "more.h5"})
    write_splits(folder / name, {{"train", {{4, 6, 6, 3}, {2, 2, 0, 3}}}});
  const std::vector<std::string> paths = {folder / "labelled.h5", folder / "extra.h5", folder / "more.h5"};
  const auto all = [&] { return open_dataset(paths, "train", 0); };
  CHECK((all()->size() == 13 && all()->first_file() == 5));
  CHECK(open_dataset(paths, "train", 3)->first_file() == 3);
  const auto limited = first_of_first_file(all(), 2);
  CHECK((labels_of(*limited) == std::vector<int>{0, 1, 2, 2, 0, 3, 2, 2, 0, 3} && limited->first_file() == 2));
  CHECK(first_of_first_file(all(), 5)->size() == 13);
  const auto kept = held_out(all(), 5, 2, 7, true), aside = held_out(all(), 5, 2, 7, false);
  CHECK((kept->size() == 11 && kept->first_file() == 3 && aside->size() == 2 && aside->first_file() == 2));
  for (int i = 3; i < 11; ++i) CHECK(pixels_of(*kept, i) == pixels_of(*all(), i + 2));
  CHECK(contains(error_of([&] { static_cast<void>(held_out(all(), 5, 5, 7, true)); }),
                 "leaves nothing of 5 labelled training images"));

  const auto test = open_dataset(paths, "test", 0);
  CHECK(test->size() == 2);
  CHECK(test->info().classes == 4);  // those of the training sets, too
  CHECK(open_dataset({paths[1], paths[0]}, "test", 0)->size() == 2);
  CHECK(contains(error_of([&] {
                   (void)open_dataset({paths[1], paths[2]}, "test", 0);
                 }),
                 "more.h5: has training images and no test images (/test/images)"));
}

TEST_CASE("A batch names the samples of all ranks, where that is asked for") {
  const auto data = synthetic_dataset({.classes = 2, .size = 8, .train = 17, .test = 2, .seed = 1}, "train");
  constexpr int kRanks = 3;
  LoaderOptions options{.batch = 4, .micro_batch = 2, .everyone = true, .seed = 7};
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < kRanks; ++rank) loaders.push_back(std::make_unique<Loader>(*data, kRanks, rank, options));
  options.everyone = options.pixels = false;
  Loader quiet(*data, kRanks, 1, options);
  for (int step = 0; step < 6; ++step) {  // 6 samples a rank: 4 + 2, three epochs
    std::vector<const HostBatch*> batches;
    std::vector<std::int64_t> all;
    for (const auto& loader : loaders) {
      batches.push_back(&loader->next());
      REQUIRE(batches.back()->count == (step % 2 == 0 ? 4 : 2));
      all.insert(all.end(), batches.back()->ids.begin(), batches.back()->ids.begin() + batches.back()->count);
    }
    for (const HostBatch* batch : batches) {
      const int count = batch->count;
      CHECK(std::vector<std::int64_t>(batch->everyone.begin(), batch->everyone.begin() + std::ssize(all)) == all);
      CHECK((batch->begins == std::vector<int>{0, count, 2 * count, 3 * count} && batch->elsewhere == 2 * count));
      CHECK((batch->micro_batches == 2 && !batch->dealt && batch->key.epoch == static_cast<std::uint32_t>(step / 2) &&
             batch->key.step == step));
    }
    const HostBatch& one = quiet.next();
    CHECK((one.everyone.empty() && one.pixels.empty() && one.ids == batches[1]->ids));
  }
}

TEST_CASE("A batch that is dealt to the ranks is that of one rank, micro-batch by micro-batch") {
  const auto data = synthetic_dataset({.classes = 2, .size = 8, .train = 50, .test = 2, .seed = 1}, "train");
  LoaderOptions options{.batch = 20, .micro_batch = 4, .dealt = true, .everyone = true, .seed = 7};
  for (const int ranks : {1, 2, 3, 5}) {
    options.dealt = false;
    Loader whole(*data, 1, 0, options);
    options.dealt = true;
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < ranks; ++rank) loaders.push_back(std::make_unique<Loader>(*data, ranks, rank, options));
    for (int step = 0; step < 6; ++step) {  // an epoch: 20, 20 and 10 samples, those in 5 micro-batches of 2
      const HostBatch& expected = whole.next();
      const std::size_t count = step % 3 == 2 ? 10 : 20, bytes = data->info().image_bytes();
      REQUIRE(expected.count == static_cast<int>(count));
      std::vector<std::int64_t> ids;
      std::vector<std::uint8_t> pixels;
      for (int rank = 0; rank < ranks; ++rank) {
        const HostBatch& batch = loaders[static_cast<std::size_t>(rank)]->next();
        const auto own = static_cast<std::size_t>(batch.count);
        CHECK((own == count / 5 * static_cast<std::size_t>(batch.micro_batches) && batch.dealt));
        CHECK(batch.begins[static_cast<std::size_t>(rank)] == std::ssize(ids));
        CHECK(batch.elsewhere == static_cast<int>(count - own));
        CHECK(std::equal(expected.ids.begin(), expected.ids.begin() + expected.count, batch.everyone.begin()));
        ids.insert(ids.end(), batch.ids.begin(), batch.ids.begin() + batch.count);
        pixels.insert(pixels.end(), batch.pixels.begin(),
                      batch.pixels.begin() + static_cast<std::ptrdiff_t>(own * bytes));
      }
      REQUIRE(ids.size() == count);
      CHECK(std::equal(ids.begin(), ids.end(), expected.ids.begin()));
      CHECK(std::equal(pixels.begin(), pixels.end(), expected.pixels.begin()));
    }
  }
}

TEST_CASE("A batch is read in the order of the file, and lies in the order of the draw") {
  struct Watched final : test::Wrapped {
    using Wrapped::Wrapped;
    mutable std::vector<std::int64_t> order;
    void read(std::int64_t index, std::uint8_t* pixels) const override {
      order.push_back(index);
      whole->read(index, pixels);
    }
  };
  const Watched data(synthetic_dataset({.classes = 2, .size = 8, .train = 64, .test = 2, .seed = 1}, "train"));
  HostBatch batch;
  {
    Loader loader(data, 1, 0, {.batch = 32, .micro_batch = 8, .mix = Mix(40, 24, 0.5, 8), .seed = 7});
    batch = loader.next();
  }  // its thread may have read the next one, too
  REQUIRE(data.order.size() >= 32);
  CHECK(std::is_sorted(data.order.begin(), data.order.begin() + 32));
  CHECK(!std::is_sorted(batch.ids.begin(), batch.ids.end()));
  for (std::size_t k = 0; k < 32; ++k) {
    CHECK(batch.labels[k] == data.label(batch.ids[k]));
    CHECK(std::equal(batch.pixels.begin() + static_cast<std::ptrdiff_t>(192 * k),
                     batch.pixels.begin() + static_cast<std::ptrdiff_t>(192 * (k + 1)),
                     pixels_of(*data.whole, batch.ids[k]).begin()));
    CHECK((batch.ids[k] < 40) == (k % 2 == 0));  // groups of a labelled and an extra image
  }
}

TEST_CASE("A synthetic sample is a function of seed, split and number alone, in memory and in a file") {
  const TemporaryFolder folder;
  const SyntheticOptions options{.train = 300, .test = 50};
  const auto train = synthetic_dataset(options, "train"), test = synthetic_dataset(options, "test");
  CHECK(pixels_of(*train, 7) == pixels_of(*train, 7));
  CHECK((pixels_of(*train, 7) != pixels_of(*train, 17) && pixels_of(*train, 7) != pixels_of(*test, 7)));
  SyntheticOptions other = options;
  other.train = 8;
  CHECK(pixels_of(*synthetic_dataset(other, "train"), 7) == pixels_of(*train, 7));
  other.seed = 2;
  CHECK(pixels_of(*synthetic_dataset(other, "train"), 7) != pixels_of(*train, 7));

  write_synthetic(options, folder / "a.h5");
  write_synthetic(options, folder / "b.h5");
  CHECK(read_bytes(folder / "a.h5") == read_bytes(folder / "b.h5"));
  for (const auto& [split, memory] : {std::pair{"train", train.get()}, std::pair{"test", test.get()}}) {
    const auto file = opened(folder / "a.h5", split);
    REQUIRE(file->size() == memory->size());
    CHECK(file->info().class_names == memory->info().class_names);
    for (std::int64_t i = 0; i < file->size(); ++i) {
      REQUIRE(file->label(i) == memory->label(i));
      REQUIRE(pixels_of(*file, i) == pixels_of(*memory, i));
    }
  }
}

TEST_CASE("The synthetic classes are balanced and differ: the nearest mean image names them far better than chance") {
  const SyntheticOptions options{.classes = GENERATE(2, 10, 32), .size = 16, .train = 1280, .test = 640};
  const auto train = synthetic_dataset(options, "train"), test = synthetic_dataset(options, "test");
  const auto classes = static_cast<std::size_t>(options.classes);
  CHECK(std::set<std::string>(train->info().class_names.begin(), train->info().class_names.end()).size() == classes);
  std::vector<std::vector<double>> means(classes, std::vector<double>(768));
  std::vector<std::int64_t> counts(classes);
  for (std::int64_t i = 0; i < train->size(); ++i) {
    const auto pixels = pixels_of(*train, i);
    ++counts[train->label(i)];
    for (std::size_t k = 0; k < pixels.size(); ++k) means[train->label(i)][k] += pixels[k];
  }
  const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
  CHECK(*most - *fewest <= 1);
  for (std::size_t c = 0; c < classes; ++c)
    for (double& value : means[c]) value /= static_cast<double>(counts[c]);
  int right = 0;
  for (std::int64_t i = 0; i < test->size(); ++i) {
    const auto pixels = pixels_of(*test, i);
    std::vector<double> distances(classes);
    for (std::size_t c = 0; c < classes; ++c)
      for (std::size_t k = 0; k < pixels.size(); ++k)
        distances[c] += (pixels[k] - means[c][k]) * (pixels[k] - means[c][k]);
    right += std::min_element(distances.begin(), distances.end()) - distances.begin() == test->label(i);
  }
  // Of 640 guesses, n/640 are right by chance; five standard deviations of that binomial are below 10 %.
  CHECK(right / 640.0 > 1.0 / options.classes + 0.1);
}

TEST_CASE("Synthetic options out of range are usage errors, and many classes have as many names") {
  const auto error = [](const SyntheticOptions& how, const std::string& split) {
    return error_of([&] { static_cast<void>(synthetic_dataset(how, split)); });
  };
  for (const SyntheticOptions& wrong : std::vector<SyntheticOptions>{
           {.classes = 1}, {.classes = kMostClasses + 1}, {.size = 7}, {.size = 1025}, {.train = 0}, {.test = 0}})
    CHECK(error(wrong, "train").starts_with("2: the synthetic set "));
  CHECK(error({.classes = 2, .size = 1024, .train = 1, .test = 1}, "val").starts_with("2: there is no split 'val'"));
  SyntheticOptions options;
  for (const auto& [classes, second] : {std::pair{256, "square, hue 1"}, std::pair{257, "square, hue 1.40"},
                                        std::pair{int{kMostClasses}, "square, hue 0.01"}}) {
    options.classes = classes;
    const std::vector<std::string> names = synthetic_dataset(options, "test")->info().class_names;
    CHECK(std::set<std::string>(names.begin(), names.end()).size() == static_cast<std::size_t>(classes));
    CHECK(names[1] == second);
  }
}

TEST_CASE("The synthetic images stay as they were, so that results on them can be compared") {
  // Sums of an image's bytes, each times 1 to 7 in turn; another machine may round some of them otherwise.
  constexpr int kSums[] = {80861, 93112, 73030, 85349, 88065, 81456, 80851, 77005};
  const auto set = synthetic_dataset({.classes = 8, .size = 8, .train = 16, .test = 8}, "train");
  for (int i = 0; i < 8; ++i) {
    const std::vector<std::uint8_t> pixels = pixels_of(*set, i);
    int sum = 0;
    for (int k = 0; k < 192; ++k) sum += (k % 7 + 1) * pixels[static_cast<std::size_t>(k)];
    CHECK(std::abs(sum - kSums[i]) < 40);
  }
}

TEST_CASE("Inspection tells a changed pixel from the recorded hash, in a file without a seal too") {
  const TemporaryFolder folder;
  write_synthetic({.classes = 3, .train = 20, .test = 10}, folder / "data.h5");
  const std::string text = inspect_dataset(folder / "data.h5");
  CHECK(text.starts_with("file     " + (folder / "data.h5") + "\nbytes    " +
                         std::to_string(std::filesystem::file_size(folder / "data.h5")) +
                         "\nsource   synthetic: coloured shapes on a cluttered background, seed 1\n"
                         "train    20 images of 32 x 32 x 3, 3 classes, sha256 "));
  CHECK(contains(text, " (as recorded)\ntest     10 images of 32 x 32 x 3, 3 classes, sha256 "));
  CHECK(text.substr(text.find("class  ")) ==
        "class     train      test  name\n    0         7         4  disc, hue 0\n"
        "    1         7         3  square, hue 120\n    2         6         3  triangle up, hue 240\n");
  CHECK(!contains(text, "NOT AS RECORDED"));

  std::string bytes = read_bytes(folder / "data.h5");
  const auto offset = Hdf5File::open(folder / "data.h5", ExitCode::data).info("test/images").offset;
  bytes[static_cast<std::size_t>(offset) + 5000] ^= 1;
  write_bytes(folder / "data.h5", bytes);
  CHECK(contains(error_of([&] { static_cast<void>(inspect_dataset(folder / "data.h5")); }), "is damaged"));
  std::fill_n(bytes.begin(), kSealBytes, '\0');
  write_bytes(folder / "data.h5", bytes);
  CHECK(contains(inspect_dataset(folder / "data.h5"), "NOT AS RECORDED"));
}

TEST_CASE("images kept aside are a part of the set, the rest is what remains, both in the set's order") {
  const SyntheticOptions options{.classes = 3, .size = 8, .train = 50, .test = 5, .seed = 4};
  const auto whole = synthetic_dataset(options, "train");
  const auto kept = held_out(synthetic_dataset(options, "train"), 50, 20, 7, true);
  const auto aside = held_out(synthetic_dataset(options, "train"), 50, 20, 7, false);
  REQUIRE(kept->size() == 30);
  REQUIRE(aside->size() == 20);
  std::int64_t a = 0, b = 0;
  for (std::int64_t i = 0; i < whole->size(); ++i) {
    const bool is_kept =
        a < kept->size() && pixels_of(*kept, a) == pixels_of(*whole, i) && kept->label(a) == whole->label(i);
    const bool is_aside =
        b < aside->size() && pixels_of(*aside, b) == pixels_of(*whole, i) && aside->label(b) == whole->label(i);
    CHECK(is_kept != is_aside);
    (is_kept ? a : b) += 1;
  }
  CHECK((a == 30 && b == 20));
  // Another seed keeps others aside; nothing is left of a set that is kept aside whole.
  const auto other = held_out(synthetic_dataset(options, "train"), 50, 20, 8, false);
  bool differs = false;
  for (std::int64_t i = 0; i < 20; ++i) differs |= pixels_of(*other, i) != pixels_of(*aside, i);
  CHECK(differs);
  std::set<std::vector<std::uint8_t>> drawn;  // each of two, by some of 40 seeds
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    drawn.insert(
        pixels_of(*held_out(synthetic_dataset({.classes = 2, .size = 8, .train = 2}, "train"), 2, 1, seed, false), 0));
  CHECK(drawn.size() == 2);
  CHECK_THROWS_AS(held_out(synthetic_dataset(options, "train"), 50, 50, 7, true), Error);
  const auto first = first_of(held_out(synthetic_dataset(options, "train"), 50, 20, 7, false), 3);
  REQUIRE(first->size() == 3);
  CHECK(pixels_of(*first, 2) == pixels_of(*aside, 2));
  CHECK(first_of(synthetic_dataset(options, "train"), 0)->size() == 50);
}
