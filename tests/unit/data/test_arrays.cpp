// Pickles, .npz and .npy: what users have, and what nobody should have.

#include <zlib.h>

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "data/arrays/arrays.hpp"
#include "data_path.hpp"
#include "memory_bytes.hpp"

using namespace dat;
using std::string_literals::operator""s;

namespace {

using test::MemoryBytes;

const std::vector<std::string> kFiles = {"p2.pickle",      "p3.pickle",     "p4.pickle",   "p5.pickle",
                                         "python2.pickle", "numpy2.pickle", "list.pickle", "scalars.pickle",
                                         "stored.npz",     "deflated.npz",  "zip64.npz"};

std::string golden(const std::string& name) { return read_bytes(test::data_path("golden/extra_set/" + name)); }

struct Contents {
  std::vector<std::uint8_t> labels, pixels;
};

/// All that is in a file of arrays.
Contents contents(const std::string& bytes, int classes = 256) {
  const MemoryBytes source(bytes);
  const ImageArrays arrays = find_images(source.name(), *open_arrays(source));
  Contents all;
  const std::vector<std::int16_t> labels = read_labels(arrays, classes);
  all.labels.assign(labels.begin(), labels.end());
  read_images(arrays, [&](const std::vector<std::uint8_t>& pixels) {
    all.pixels.insert(all.pixels.end(), pixels.begin(), pixels.end());
  });
  return all;
}

std::string error_in(const std::string& bytes) {
  return error_of([&] { static_cast<void>(contents(bytes)); });
}

void refused(const std::string& bytes, const std::string& reason) {
  const std::string error = error_in(bytes);
  CAPTURE(error, reason);
  CHECK((error.starts_with("3: ") && contains(error, reason)));
}

/// As extra_set.py makes them.
Contents expected() {
  Contents all;
  for (int sample = 0; sample < 6; ++sample) {
    all.labels.push_back(static_cast<std::uint8_t>((3 * sample + 1) % 10));
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 4; ++x)
        for (int channel = 0; channel < 3; ++channel)
          all.pixels.push_back(static_cast<std::uint8_t>(sample * 89 + channel * 61 + y * 17 + x * 3));
  }
  return all;
}

void replace(std::string& bytes, const std::string& old, const std::string& with) {
  const std::size_t at = bytes.find(old);
  REQUIRE(at != std::string::npos);
  bytes.replace(at, old.size(), with);
}

}  // namespace

TEST_CASE("Pickles of each protocol and Python, .npz and .npy hold the images and labels that were written",
          "[arrays]") {
  const Contents right = expected();
  for (const std::string& name : kFiles) {
    CAPTURE(name);
    const Contents found = contents(golden(name));
    CHECK((found.labels == right.labels && found.pixels == right.pixels));
  }
  const TemporaryFolder folder;
  const std::string sets = test::data_path("golden/extra_set/");
  ConvertOptions options{.source = sets + "p5.pickle", .output = folder / "set.h5", .labels = ""};
  CHECK(convert_dataset(options).contents.ends_with("; arrays data and extrapolated_targets of p5.pickle"));
  options.source = sets + "images.npy", options.labels = sets + "labels.npy";
  convert_dataset(options);
  options.val = "train";
  CHECK(error_of([&] { convert_dataset(options); }).ends_with("has no validation images; leave --val off"));
  const auto set = open_dataset({folder / "set.h5"}, "train", 0);
  REQUIRE(set->size() == 6);
  CHECK(set->info().classes == 8);  // the file names none: the highest label is 7
  std::vector<std::uint8_t> pixels(48);
  for (std::int64_t i = 0; i < 6; ++i) {
    set->read(i, pixels.data());
    CHECK(std::equal(pixels.begin(), pixels.end(), right.pixels.begin() + 48 * i));
    CHECK(set->label(i) == right.labels[static_cast<std::size_t>(i)]);
  }
  CHECK(contains(inspect_dataset(folder / "set.h5"), "6 images of 4 x 4 x 3, 8 classes"));
}

TEST_CASE("Nothing in a pickle is executed: every name and operation that is no part of an array is refused",
          "[arrays]") {
  refused("\x80\x02"s + "cos\nsystem\nX\x0b\0\0\0touch pwned\x85R."s, "byte 2: wants os.system, which is no part");
  refused("\x80\x02"s + "cposix\nsystem\nU\x05touch\x85R."s, "wants posix.system");
  refused("\x80\x04\x8c\x08"s + "builtins\x8c\x04"s + "eval\x93\x8c\x01"s + "1\x85R."s, "byte 18: wants builtins.eval");
  refused("\x80\x02"s + "cnumpy\nload\n."s, "wants numpy.load");
  refused("\x80\x02"s + "cnumpi\nndarray\n."s, "wants numpi.ndarray");  // another one's, of a name that is known
  refused("\x80\x02"s + "c\x1b[31m\nx~\n."s, "wants ?[31m.x~,");
  refused("\x80\x02(S'ls'\nios\nsystem\n."s, "byte 3: has the operation 0x53");
  refused("\x80\x02(ios\nsystem\n."s, "has the operation 0x69");                 // INST
  refused("\x80\x02(cnumpy\nndarray\no."s, "has the operation 0x6f");            // OBJ
  refused("\x80\x02"s + "cnumpy\nndarray\n)\x81."s, "has the operation 0x81");   // NEWOBJ
  refused("\x80\x04"s + "cnumpy\nndarray\n)}\x92."s, "has the operation 0x92");  // NEWOBJ_EX
  refused("\x80\x02\x82\x01."s, "has the operation 0x82");                       // EXT1
  refused("\x80\x02Pid\n."s, "has the operation 0x50");                          // PERSID
  refused("\x80\x05\x97."s, "out-of-band");
  refused("\x80\x02"s + "cnumpy\nndarray\n)R."s, "makes an array in an unknown way");
  refused("\x80\x02}cnumpy\nndarray\n)Rb."s, "makes an array in an unknown way");
  refused("\x80\x02"s + "cnumpy\ndtype\nK\1\x85R."s, "makes an array in an unknown way");
  for (const char* given :
       {"K\1\x8c\6latin1\x86", "\x8c\1a\x8c\6latin2\x86", "\x8c\1a\x85", "\x8c\1a\x8c\6latin1N\x87"})
    refused("\x80\2c_codecs\nencode\n"s + given + "R.", "makes an array in an unknown way");
  const std::string array = "cnumpy.core.multiarray\n_reconstruct\n", buffer = "cnumpy.core.numeric\n_frombuffer\n",
                    scalar = "cnumpy.core.multiarray\nscalar\n", type = "cnumpy\ndtype\n\x8c\2u1\x85R";
  for (const std::string& call :
       {array + "K\3\x85", "cnumpy\ndtype\ncnumpy\nndarray\n\x85"s, "cbuiltins\nbytes\nK\1\x85"s,
        buffer + "C\1a" + type + ")\x87", buffer + "(C\1aC\1u)C\1Ct", buffer + "(C\1a" + type + "NC\1Ct",
        scalar + "NN\x86", "cnumpy\nndarray\n" + type + "C\1a\x86"})
    refused("\x80\4" + call + "R.", "makes an array in an unknown way");
  const std::string named = "\x80\2}U\4data" + array + "cnumpy\nndarray\n\x85R", end = "sU\5labelNs.";
  refused(named + end, "data is no array and no list");
  refused(named + "(K\1K\1\x85NK\0Ntb"s + end, "data is an array of an unknown type");
  refused(named + "(K\1K\1\x85" + type + "K\0Ntb"s + end, "data has no bytes in the file");
  // Two letters for each byte, as many as there can be.
  refused(named + "(K\1K\1\x85" + type + "K\0c_codecs\nencode\n\x8c\2\xc2\x80\x8c\6latin1\x86Rtb"s + end,
          "label is no array and no list");
  refused("\x80\2](NNNNNtb."s, "no state that is known");
  refused("\x80\x02]N\x85"s + "b."s, "no state that is known");
  refused("\x80\x02]."s, "holds no dictionary");
  refused("\x80\x02}."s,
          "has no images under the names in use (data, image, images, X, x, features, arr_0); it holds nothing");
  refused("\x80\x06}."s, "is of protocol 6");
  refused("(dp0\n."s, "neither a folder of binary records nor a pickle");
  refused("\x80\x02"s + "R."s, "byte 2: takes an object where none is");
  refused("\x80\x02h\x07."s, "refers to object 7");
  refused("\x80\x02"s + "e."s, "ends a group that has not begun");
  refused("\x80\x02(}e."s, "takes an object where none is");
  refused("\x80\2N(0.", "byte 4: takes an object where none is");  // that of another group is none
  for (const std::string& key : {"K\1"s, "X\1\1\0\0"s + std::string(257, 'x')})
    refused("\x80\2}" + key + "Ns.", "(data, image, images, X, x, features, arr_0); it holds ?");
  refused("\x80\x02}(Nu."s, "a key without a value");
  refused("\x80\x02X\xff\xff\xff\x7f"s + "ab."s, "needs 2147483647 more bytes, the file has 3");
  refused("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff"s + "ab."s, "needs 18446744073709551615 more bytes");
  refused("\x80\x02"s, "ends at byte 2 in the middle of the pickle");
  refused("\x80\2U\2ab", "ends at byte 6 in the middle of the pickle");
  refused("\x80\x02"s + "c" + std::string(300, 'x') + "\ny\n."s, "a name of more than 256 bytes");
  refused("\x80\x02NNa."s, "adds to an object that cannot hold others");
  refused("\x80\x02\x8a\x09"s + std::string(9, '\1') + "."s, "holds an integer of 9 bytes");
  refused("\x80\x02N)R."s, "calls what is no function of NumPy's");
}

TEST_CASE("Each operation on numbers, texts and the stack does what Python does", "[arrays]") {
  const auto pickled = [](const std::string& operations) { return "\x80\x04}U\1l]("s + operations + "es."; };
  const MemoryBytes numbers(
      pickled("K\xff"
              "M\x01\xff"
              "J\xfe\xff\xff\xff"
              "\x88\x89\x8a\0\x8a\1\x80\x8a\2\xff\x7f"
              "\x8a\x08\1\0\0\0\0\0\0\x80"
              "K\5K\6"
              "0"
              "2"
              "(K\1K\2"
              "1"
              "K\7q\3K\x08r\1\2\0\0h\3j\1\2\0\0"
              "K\x09\x94h\2"
              "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\2u2\x85RU\2\1\2\x86R"
              "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\2u2\x85RK\3U\1>\x86"
              "bU\2\1\2\x86R"s));
  const StoredArray array = open_pickle(numbers)->array("l");
  std::vector<std::int64_t> found(static_cast<std::size_t>(array.shape.at(0)));
  const auto stream = array.open();
  for (std::int64_t& one : found) stream->read(&one, sizeof one);
  CHECK(found == std::vector<std::int64_t>{255, 0xff01, -2, 1, 0, 0, -128, 32767,
                                           std::numeric_limits<std::int64_t>::min() + 1, 5, 5, 7, 8, 7, 8, 9, 9, 513,
                                           258});
  const std::string four = "\2\0\0\0"s, eight = four + std::string(4, '\0');
  const MemoryBytes texts(pickled("T" + four + "T1B" + four + "B1X" + four + "X1U\2U1C\2C1\x8c\2S1\x8e" + eight +
                                  "E1\x96" + eight + "V1\x8d" + eight + "D1U\0"s));
  CHECK(open_pickle(texts)->words("l") ==
        std::vector<std::string>{"T1", "B1", "X1", "U1", "C1", "S1", "E1", "V1", "D1", ""});
  const std::string scalar = "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\2";
  for (const std::string& one : {"NG12345678))\x85"s, scalar + "f4\x85RU\4abcd\x86R", scalar + "u2\x85RU\1a\x86R",
                                 scalar + "u9\x85RU\x09" + "abcdefghi\x86R"}) {
    const MemoryBytes other(pickled(one));
    CHECK(contains(error_of([&] { (void)open_pickle(other)->array("l"); }), "is a list of other things than integers"));
  }
  std::string many;
  for (const char name : "abcdefghij"s) many += "U\1"s + name + "N";
  CHECK(error_in("\x80\x02}("s + many + "u.")
            .ends_with("(data, image, images, X, x, features, arr_0); it holds a, b, c, d, e, f, g, h, ..."));
  refused("\x80\x02}U\24extrapolated_targetsNs.", "it holds extrapolated_targets. The scripts of Carmon et al.");
}

TEST_CASE("Images are square, of 1 to 4096 pixels and 1 to 4 channels, and channels stand at either end", "[arrays]") {
  using Shape = std::vector<std::int64_t>;
  const auto told = [](const Shape& shape, const Shape& labels = {2}, std::int64_t bytes = 1) {
    ImageArrays found;
    const std::string error = error_of([&] {
      found = image_arrays("f", {.name = "i", .kind = 'u', .item_bytes = 1, .shape = shape, .open = {}},
                           {.name = "l", .kind = 'i', .item_bytes = bytes, .shape = labels, .open = {}});
    });
    std::ostringstream text;
    text << found.count << " " << found.size << " " << found.channels << " " << found.channels_first;
    return error == "none" ? text.str() : error;
  };
  CHECK((told({2, 4096, 4096, 1}) == "2 4096 1 0" && told({2, 1, 1, 4}) == "2 1 4 0"));
  CHECK((told({2, 4, 4096, 4096}) == "2 4096 4 1" && told({2, 7, 7}, {2, 1}, 8) == "2 7 1 0"));
  for (const Shape& other : std::vector<Shape>{{2, 4097, 4097, 3},
                                               {2, 0, 0, 3},
                                               {2, 7, 7, 0},
                                               {2, 0, 7, 7},
                                               {2, 7, 6, 3},
                                               {2, 3, 7, 6},
                                               {2, 49},
                                               {2},
                                               {},
                                               {2, 7, 7, 3, 1}})
    CHECK((contains(told(other), "but images must be square") &&
           told(other).ends_with(other.size() == 2 ? "size]; reshape them" : "size]")));
  CHECK(told({0, 7, 7, 3}) == "3: f: i holds no image");
  for (const Shape& other : std::vector<Shape>{{3}, {2, 2}, {2, 1, 1}, {}})
    CHECK(contains(told({2, 7, 7}, other), "one label"));
  for (const int bytes : {3, 16}) CHECK(contains(told({2, 7, 7}, {2}, bytes), "labels must be integers"));
}

TEST_CASE("Deep, cyclic and endless pickles cost no stack and little memory", "[arrays]") {
  refused("\x80\x02)"s + std::string(10000, '\x85') + "."s, "holds no dictionary");
  refused("\x80\x02]q\0h\0a."s, "holds no dictionary");                              // in itself
  refused("\x80\x02}q\0X\4\0\0\0datah\0sX\5\0\0\0labelh\0s."s, "data is no array");  // in itself
  // Four bytes of memory for each of the file, and 1 MiB.
  refused("\x80\x02"s + std::string(5000000, 'N') + "."s, "byte 239190: has too many objects for its 5000003 bytes");
  refused("\x80\x02"s + std::string(5000000, ']') + "."s, "byte 239190: has too many objects");
  refused("\x80\x02)"s + std::string(5000000, '\x85') + "."s, "byte 219258: has too many objects");
  refused("\x80\x02"s + std::string(5000000, '(') + "."s, "byte 1315538: has too many objects");
  // (1 MiB + 4 x 5,000,004 bytes - 88 of an object) / 64 bytes of each entry = 328,882 entries
  refused("\x80\x04N"s + std::string(5000000, '\x94') + "."s, "memory: byte 328885: has too many objects");
}

TEST_CASE("An unknown layout, another type and labels that do not fit are refused with what was found", "[arrays]") {
  const auto changed = [](const std::string& name, const std::string& old, const std::string& with) {
    std::string bytes = golden(name);
    replace(bytes, old, with);
    return error_in(bytes);
  };
  const auto npy = [](std::string header, std::size_t bytes) {
    header += '\n';
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header +
           std::string(bytes, '\1');
  };
  const std::string dota = changed("p4.pickle", "\x8c\4data", "\x8c\4dota");
  CHECK(contains(
      dota,
      "the names in use (data, image, images, X, x, features, arr_0); it holds dota, extrapolated_targets, ti_index"));
  CHECK(contains(dota, "without the images: add these as 'data'"));
  CHECK(contains(changed("p4.pickle", "extrapolated", "interpolated"), "has no labels under the names in use"));
  CHECK(contains(changed("stored.npz", "<i4", "<f4"), "label is float32 [6], but labels must be integers"));
  CHECK(contains(changed("stored.npz", "<i4", ">i4"), "its checksum is another"));
  CHECK(contains(changed("p3.pickle", "u1q", "i1q"), "data is int8 [6, 4, 4, 3], but images must be uint8"));
  CHECK(
      contains(changed("p3.pickle", "i8q", "f8q"), "extrapolated_targets is float64 [6], but labels must be integers"));
  CHECK(contains(changed("p3.pickle", "u1q", "O1q"), "data is type O1 [6, 4, 4, 3]"));
  CHECK(contains(changed("p5.pickle", "\x8c\1C", "\x8c\1F"), "data is uint8 [6, 4, 4, 3] in Fortran's order"));
  CHECK(contains(changed("p2.pickle", "\xc3", "\xc4"), "holds no bytes: damaged"));  // a letter that is no byte
  CHECK(contains(changed("p2.pickle", "\xc2\x80", "\xc2\xc0"), "holds no bytes: damaged"));
  CHECK(contains(changed("p2.pickle", "\xc2\x80", "\x80\x80"), "holds no bytes: damaged"));
  CHECK(contains(changed("p2.pickle", "=z", "\xc2\x80"), "is too short"));  // one letter for two
  CHECK(contains(changed("p2.pickle", "i8", "i4"), "is too long"));         // labels, 48 letters
  CHECK(contains(changed("p2.pickle", "i8", "i3"), "extrapolated_targets has 48 bytes from byte"));
  // Shape (6, 4, 4, 3) of the images: K 6 K 4 K 4 K 3.
  const std::string shape = std::string("K\6K\4K\4K\3", 8);
  CHECK(contains(changed("p3.pickle", shape, std::string("K\6K\4K\3K\4", 8)), "images must be square"));
  CHECK(contains(changed("p3.pickle", shape, std::string("K\4K\4K\6K\3", 8)), "images must be square"));
  CHECK(contains(changed("p3.pickle", shape, std::string("K\6K\3K\4K\4", 8)), "none"));  // as well as channels first
  for (const char count : {'\5', '\7'})
    CHECK(contains(changed("p3.pickle", shape, "K"s + count + "K\4K\4K\3"), "has 288 bytes from byte"));
  std::string ones;
  for (int dim = 4; dim < 32; ++dim) ones += "K\1";
  CHECK(contains(changed("p3.pickle", shape, ones + shape), "images must be square"));
  CHECK(contains(changed("p3.pickle", shape, ones + "K\1" + shape), "data has no known shape"));
  CHECK(contains(changed("p3.pickle", shape, std::string("M\xff\xffM\xff\xff", 6) + std::string("K\3")), "but uint8"));
  CHECK(contains(error_of([] { static_cast<void>(contents(golden("p4.pickle"), 7)); }),
                 "3: memory: label 7 of image 2 is not in 0..6"));

  const auto pair = [](const std::string& images, const std::string& labels) {
    const MemoryBytes first(images), second(labels);
    return error_of([&] { (void)read_labels(image_arrays(first.name(), open_npy(first), open_npy(second)), 10); });
  };
  const auto header = [](const std::string& type, const std::string& size) {
    return "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + size + ")}";
  };
  const std::string images = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4, 4, 3), }", 96);
  CHECK(pair(images, npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", 2)) == "none");
  // Without a dimension for channels there is one.
  const std::string labels = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", 2);
  CHECK(pair(npy(header("|u1", "2, 4, 4"), 32), labels) == "none");
  CHECK(contains(pair(npy(header("|u1", "2, 4, 3"), 24), labels), "square"));
  CHECK(pair(npy(header("|u1", "2, 5, 5, 4"), 200), labels) == "none");
  CHECK(contains(pair(npy(header("|u1", "2, 6, 6, 5"), 360), labels), "of 1 to 4 channels"));
  CHECK(contains(pair(images, npy(header("|u1", "3,"), 3)), "one label for each of the 2 images"));
  CHECK(contains(pair(images, npy(header("<i2", "2,"), 5)), "5 bytes"));
  CHECK(contains(pair(images, npy(header("<i2", "2,"), 4)), "label 257"));
  CHECK(contains(pair(images, npy(header("|u1x", "2,"), 2)), "has the unknown type '|u1x'"));
  CHECK(
      contains(pair(images, npy("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (2,), }", 4)), "records"));
  CHECK(contains(pair(images, npy("{'descr': '<i2', 'shape': (2,), }", 4)), "incomplete header"));
  CHECK(contains(pair(images, npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2", 4)), "cut off"));
  CHECK(contains(pair(images, npy(header("<i2", "4611686018427387904,"), 4)), "impossible size"));
  CHECK(contains(pair(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 4, 4, 3), }", 96), images),
                 "Fortran's order"));
  CHECK(contains(error_in(images), "name the other one with --labels"));
  CHECK(contains(pair(images, "\x93NUMPY\1"), "too short for a .npy file"));
  const std::pair<std::string, const char*> begins[] = {
      {std::string("\x93NUMPY\1\0\0\0", 10), "has a header that is cut off"},
      {std::string("\x93NUMPY\2\0\0\0\0", 11), "too short for a .npy file"},
      {std::string("\x93NUMPX\1\0\0\0", 10), "no .npy file"},
      {std::string("\x93NUMPY\1\0\2\0 ", 11), "claims a header of 2 bytes"},
      {std::string("\x93NUMPY\1\0\x11\x27", 10) + std::string(10001, ' '), "claims a header of 10001 bytes"}};
  for (const auto& [bytes, told] : begins) CHECK(contains(pair(images, bytes), told));
  std::string dims = "2";
  for (int k = 1; k < 32; ++k) dims += ",1";
  const std::pair<std::string, const char*> headers[] = {
      {header("|u1", "2L,"), "none"},
      {R"({"descr":"|u1",'fortran_order':True,'shape':(2,),})", "none"},
      {header("|u0", "2,"), "has the unknown type '|u0'"},
      {header("12", "2,"), "has the unknown type '12'"},
      {header("|", "2,"), "has the unknown type '|'"},
      {header("|S4097", "2,"), "has the unknown type '|S4097'"},
      {header("|u1", "-2,"), "claims an impossible size"},
      {header("|u1", dims), "but there must be one label"},
      {header("|u1", dims + ",1"), "has a damaged header: shape"},
      {"{'shape': (2,)}", "has an unknown header"},
      {"{'descr': '|u1', 'fortran_order': Maybe}", "has a damaged header: fortran_order"},
      {"{'descr': '|u1' 'fortran_order': False}", "no ',' where it should be"},
      {"{descr: 1}", "no name where it should be"}};
  for (const auto& [text, told] : headers) CHECK(contains(pair(images, npy(text, 2)), told));
  for (int version = 0; version < 5; ++version) {
    std::string file = labels;
    file[6] = static_cast<char>(version);
    if (version > 1) file.insert(10, 2, '\0');  // the length has four bytes
    CHECK(contains(pair(images, file), version % 4 == 0 ? "has the .npy version" : "none"));
  }
}

TEST_CASE("A zip archive that lies about itself is refused", "[arrays]") {
  const std::string good = golden("deflated.npz");
  const std::size_t end = good.rfind("PK\5\6"), directory = good.find("PK\1\2");
  REQUIRE(end != std::string::npos);
  REQUIRE(directory != std::string::npos);
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string changed = good;
    changed.replace(at, bytes.size(), bytes);
    return error_in(changed);
  };
  CHECK(error_in(good) == "none");
  CHECK(contains(with(directory + 10, "\1"), "image.npy is packed by method 1; known are 0"));
  CHECK(contains(with(directory + 8, "\1"), "image.npy is encrypted"));
  CHECK(contains(with(directory + 24, "\xff\xff\xff\x7f"), "image.npy claims 2147483647 bytes, packed in"));
  CHECK(contains(with(directory + 24, "\xff"), "image.npy: holds"));
  CHECK(contains(with(directory + 16, "\1\2\3\4"), "is damaged: its checksum is another"));
  CHECK(contains(with(directory + 42, "\1"), "no header at byte 1"));
  CHECK(contains(with(end + 10, "\xff\xff"), "has a directory of 65535 entries"));
  CHECK(contains(with(end + 10, "\3"), "has a directory that is cut off"));
  CHECK(contains(with(end + 12, "\xff\xff\xff"), "entries in 16777215 bytes"));
  CHECK(contains(with(directory + 20, "\xff\xff\xff\x7f"), "packed in 2147483647, which cannot be"));
  CHECK(contains(with(26, "\xff\xff"), "image.npy is cut off: it needs"));
  std::string stored = golden("stored.npz");
  ++stored[stored.find("PK\1\2") + 24];
  CHECK(contains(error_in(stored), "which cannot be"));
  // Any comment may follow the directory.
  CHECK(error_in(good + std::string(65535, 'x')) == "none");
  CHECK(contains(error_in(good + std::string(65536, 'x')), "has no directory at its end"));
  CHECK(contains(with(directory, "XX"), "has a damaged directory"));
  std::string zip64 = golden("zip64.npz");
  const std::size_t field = zip64.find("\1\0\x10\0"s, zip64.find("PK\1\2"));
  for (const std::size_t at : {field, field + 2}) {  // of another kind; of more bytes than all fields have
    std::string changed = zip64;
    ++changed.at(at);
    CHECK(contains(error_in(changed), "image.npy claims 4294967295 bytes"));
  }
  replace(zip64, "PK\6\6", "PK\6\5");
  CHECK(contains(error_in(zip64), "has a damaged zip64 directory"));
  CHECK(contains(with(end + 16, "\xff\xff\xff"), "refers to byte 16777215"));
  CHECK(contains(with(end, "XX"), "has no directory at its end: it is cut off, or no .npz file"));
  CHECK(contains(error_in(good.substr(0, good.size() - 30)), "has no directory at its end"));
  CHECK(contains(error_in(good.substr(0, 2)), "too short for an .npz file"));
  CHECK(contains(error_in("PK\5\6" + std::string(18, '\0')), "has no images under the names in use"));
  CHECK(contains(error_in("PK\6\7" + std::string(16, '\0') + "PK\5\6" + std::string(18, '\0')),
                 "the zip64 directory at byte 0 is not wholly in the file"));
  const auto size = static_cast<std::uint32_t>(good.size());
  CHECK(contains(with(end + 16, {reinterpret_cast<const char*>(&size), 4}),
                 "the directory at byte " + std::to_string(size) + " is not"));
}

TEST_CASE("MATLAB's arrays of numbers are read, packed or not, dimensions turned, and others are refused", "[arrays]") {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string digits;
    for (; bytes > 0; --bytes, value >>= 8) digits += static_cast<char>(value & 0xff);
    return digits;
  };
  const auto element = [&](std::uint32_t type, const std::string& data) {  // up to four bytes stand in the tag
    if (data.size() <= 4) return number(type, 2) + number(data.size(), 2) + data + std::string(4 - data.size(), '\0');
    return number(type, 4) + number(data.size(), 4) + data + std::string(-data.size() % 8, '\0');
  };
  const auto head = [&](const std::string& name, const std::vector<std::uint32_t>& dims, std::uint64_t flags = 9) {
    std::string shape;
    for (const std::uint32_t dim : dims) shape += number(dim, 4);
    return element(6, number(flags, 8)) + element(5, shape) + element(1, name);
  };
  const auto whole = [&](const std::string& content) { return number(14, 4) + number(content.size(), 4) + content; };
  const auto packed = [&](const std::string& content) {
    std::string bytes(compressBound(content.size()), '\0');
    uLongf size = bytes.size();
    compress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(content.data()),
             content.size());
    return number(15, 4) + number(size, 4) + bytes.substr(0, size);
  };
  const std::string begin = std::string(124, ' ') + "\0\1IM"s;
  const auto told = [&](const std::string& variables, const std::string& name) {
    const MemoryBytes source(begin + variables);
    std::string text;
    const std::string error = error_of([&] {
      const auto file = open_mat(source);
      const StoredArray array = file->array(name);
      std::string bytes(static_cast<std::size_t>(array.bytes), ' ');
      const auto stream = array.open();  // read in two parts
      stream->read(bytes.data(), array.bytes / 2);
      stream->read(bytes.data() + array.bytes / 2, array.bytes - array.bytes / 2);
      text = array.text() + " " + bytes;
    });
    return error == "none" ? text : error;
  };
  const std::string six = whole(head("x", {2, 3}) + element(2, "abcdef")),
                    four = whole(head("numbers", {1, 2, 2}, 0x0406) + element(1, "abcd")),
                    eight = whole(head(std::string(256, 'y'), std::vector<std::uint32_t>(32, 1), 15) +
                                  element(9, "abcdefgh"));
  for (const std::string& all :
       {six + whole(head("t", {1, 1}, 4)) + four + eight, packed(six) + packed(four) + packed(eight)}) {
    CHECK((told(all, "x") == "uint8 [3, 2] abcdef" && told(all, "numbers") == "int8 [2, 2, 1] abcd"));
    CHECK(told(all, std::string(256, 'y')).ends_with(", 1] abcdefgh"));
    CHECK(told(all, "y") == "3: memory: has no array y");
  }
  CHECK(open_mat(MemoryBytes(begin))->names().empty());
  CHECK(open_mat(MemoryBytes(begin + six + whole(head("t", {1, 1}, 4)) + four))->names() ==
        std::vector<std::string>{"x", "t", "numbers"});
  std::string changed = packed(six);
  changed.back() ^= 1;  // the checksum's
  std::string padded = packed(six) + '\0';
  ++padded[4];
  const auto shaped = [&](const std::vector<std::uint32_t>& dims) {
    return whole(head("x", dims) + element(2, "abcde"));
  };
  const auto of_class = [&](std::uint64_t flags) { return whole(head("x", {1, 1}, flags) + element(2, "a")); };
  const std::string damaged = "a variable has a damaged header, or is no array", none = "x is no array of numbers",
                    nothing = "byte 128: no variable begins here", empty = "byte 128: no variable is packed here";
  const std::pair<std::string, std::string> all[] = {
      {"x", "is cut off at byte 128"},
      {whole(""), "the array at byte 136 is too short"},
      {six + "1234567", "is cut off at byte " + std::to_string(128 + six.size())},
      {number(13, 4) + number(0, 4), nothing},
      {number(14, 2) + number(4, 2) + "abcd", nothing},
      {number(14, 4) + "\4\3\2\1", "is cut off: the variable at byte 128 needs 16909060 bytes, the file has 0"},
      {packed(number(13, 4) + number(8, 4) + head("x", {2, 3})), empty},
      {packed(number(14, 4) + number(0x7fffffff, 4)), empty},
      {changed, "the variable at byte 136 is damaged: it cannot be unpacked"},
      {padded, "the variable at byte 136 is longer than it says"},
      {whole(element(5, number(9, 8))), damaged},
      {whole(element(6, number(9, 4))), "a variable has no flags"},
      {whole(element(6, number(9, 9))), damaged},
      {whole(number(6, 2) + number(5, 2) + "abcd"), damaged},
      {whole(head("x", std::vector<std::uint32_t>(33, 1))), damaged},
      {whole(head(std::string(257, 'x'), {1, 1})), damaged},
      {whole(head("x", {2, 3}) + number(2, 4) + number(7, 4) + "abcdef"), "x is larger than its place"},
      {shaped({2, 3}), "x is uint8 [3, 2] and has 5 bytes: it is damaged"},
      {shaped(std::vector<std::uint32_t>(3, 0xffffffff)), "x is uint8 [] and has 5 bytes: it is damaged"},
      {whole(head("x", {1, 1}) + element(8, "abcde")), none},
      {packed(whole(head("x", {1, 7}) + element(2, "abcdefg"))), "uint8 [7, 1] abcdefg"},  // a byte follows
      {of_class(5), none},
      {of_class(6), "uint8 [1, 1] a"},
      {of_class(15), "uint8 [1, 1] a"},
      {of_class(16), none},
      {of_class(0x0806), none}};
  for (const auto& [variables, why] : all) {
    CAPTURE(why);
    CHECK(contains(told(variables, "x"), why));
  }
  CHECK(contains(error_of([&] { (void)open_mat(MemoryBytes(begin.substr(1))); }), "too short for a MATLAB file"));
  CHECK(contains(error_of([&] { (void)open_mat(MemoryBytes(std::string(126, ' ') + "MI")); }), "little-endian order"));
}
