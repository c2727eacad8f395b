// Hdf5Reader against the HDF5 library, which writes the files and reads them, too.

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sys/file.h>
#include <unistd.h>

#include "catch.hpp"
#include "dat/checkpoint.hpp"
#include "dat/dataset.hpp"
#include "dat/file.hpp"
#include "data_path.hpp"
#include "hdf5/hdf5.hpp"
#include "hdf5/hdf5_reader.hpp"

using namespace dat;

namespace {

// All that a file says, read by either of the two.
template <class File>
void tell(const File& file, const std::string& group, std::ostringstream& text) {
  for (const std::string& member : file.list(group)) {
    const std::string name = group == "/" ? member : group + "/" + member;
    text << name;
    if (file.is_group(name)) {
      text << " group\n";
      tell(file, name, text);
      continue;
    }
    const Hdf5Info info = file.info(name);
    text << " kind " << static_cast<int>(info.kind);
    // A text of any length takes a pointer in memory, which is what the library tells, and more in the file.
    if (info.kind != Hdf5Info::Kind::text) text << " of " << info.element;
    text << " [";
    for (const std::int64_t dim : info.shape) text << dim << " ";
    text << "]";
    Shape shape;
    switch (info.kind) {
      case Hdf5Info::Kind::u8:
        for (const std::uint8_t value : file.template read<std::uint8_t>(name, shape)) text << " " << int{value};
        [[fallthrough]];
      case Hdf5Info::Kind::integer:
        for (const std::int64_t value : file.template read<std::int64_t>(name, shape)) text << " " << value;
        break;
      case Hdf5Info::Kind::real:
        for (const float value : file.template read<float>(name, shape)) text << " " << value;
        for (const double value : file.template read<double>(name, shape)) text << " " << value;
        break;
      default:
        break;
    }
    CHECK(shape == (info.kind == Hdf5Info::Kind::text || info.kind == Hdf5Info::Kind::other ? Shape{} : info.shape));
    text << "\n";
  }
  for (const std::string& name : file.attribute_names(group)) {
    text << group << ":" << name;
    if (const auto value = file.integer(group, name)) text << " integer " << *value;
    if (const auto value = file.text(group, name)) text << " text '" << *value << "'";
    if (const auto values = file.texts(group, name))
      for (const std::string& value : *values) text << " '" << value << "'";
    text << "\n";
  }
}

template <class File>
std::string told(const File& file) {
  std::ostringstream text;
  text.precision(17);
  tell(file, "/", text);
  return text.str();
}

void check_reads_as_the_library(const std::string& path) {
  CAPTURE(path);
  const std::string expected = told(Hdf5File::open(path, ExitCode::data));
  CHECK(told(Hdf5Reader::open(path, ExitCode::data)) == expected);
}

std::string error_in(const std::string& path) {
  return error_of([&] { static_cast<void>(told(Hdf5Reader::open(path, ExitCode::data))); });
}

// A file in the library's own hands. newest: the latest form of everything.
class RawFile {
 public:
  explicit RawFile(const std::string& path, bool newest = false, bool by_order = false) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    if (newest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    if (by_order) H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
    REQUIRE(id >= 0);
    H5Pclose(access);
    H5Pclose(creation);
  }
  ~RawFile() { H5Fclose(id); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  void group(const std::string& name) const {
    H5Gclose(H5Gcreate2(id, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }
  template <class T>
  void dataset(const std::string& name, hid_t type, hid_t memory, const std::vector<hsize_t>& dims,
               const std::vector<T>& values, hid_t creation = H5P_DEFAULT) const {
    const hid_t space =
        dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
    const hid_t set = H5Dcreate2(id, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    REQUIRE(set >= 0);
    if (!values.empty()) REQUIRE(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(set);
    H5Sclose(space);
  }
  void attribute(const std::string& name, hid_t type, const void* value, hsize_t count = 0) const {
    const hid_t space = count == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
    const hid_t made = H5Acreate2(id, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
    REQUIRE(H5Awrite(made, type, value) >= 0);
    H5Aclose(made);
    H5Sclose(space);
  }

  hid_t id = -1;
};

// Every kind of number, in both orders of bytes.
void write_numbers(const RawFile& file) {
  const std::vector<std::int64_t> whole = {0, 1, 127, 5, 100, 3};
  const std::vector<std::int64_t> wide = {-1, std::numeric_limits<std::int64_t>::max(), -77, 1 << 20, 0, 5};
  const std::vector<double> real = {0.5, -1.25, 1e-3, 65504, 0, -2};
  int number = 0;
  for (const hid_t type : {H5T_STD_U8LE, H5T_STD_I8LE, H5T_STD_U16BE, H5T_STD_I16LE, H5T_STD_U32LE, H5T_STD_I32BE,
                           H5T_STD_U64LE, H5T_STD_U64BE})
    file.dataset("whole" + std::to_string(number++), type, H5T_NATIVE_INT64, {2, 3}, whole);
  for (const hid_t type : {H5T_STD_I64LE, H5T_STD_I64BE, H5T_STD_I32LE})
    file.dataset("wide" + std::to_string(number++), type, H5T_NATIVE_INT64, {6}, wide);
  for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_IEEE_F64BE})
    file.dataset("real" + std::to_string(number++), type, H5T_NATIVE_DOUBLE, {3, 1, 2}, real);
  const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(half, 15, 10, 5, 0, 10);
  H5Tset_size(half, 2);
  H5Tset_ebias(half, 15);
  file.dataset("half", half, H5T_NATIVE_DOUBLE, {6}, real);
  H5Tclose(half);
  file.dataset("scalar", H5T_STD_I32LE, H5T_NATIVE_INT64, {}, std::vector<std::int64_t>{42});
  file.dataset("empty", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {0, 4}, std::vector<double>{});
  const hid_t compact = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_layout(compact, H5D_COMPACT);
  file.dataset("compact", H5T_STD_I16LE, H5T_NATIVE_INT64, {6}, whole, compact);
  H5Pclose(compact);
}

void write_attributes(const RawFile& file) {
  const int small = -5;
  file.attribute("integer", H5T_NATIVE_INT, &small);
  const std::int64_t row[] = {3, 4};
  file.attribute("one", H5T_STD_I64BE, row, 1);
  file.attribute("two", H5T_NATIVE_INT64, row, 2);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  file.attribute("beyond", H5T_NATIVE_UINT64, &most);  // the library takes the largest that fits
  const hid_t fixed = H5Tcopy(H5T_C_S1);
  H5Tset_size(fixed, 9);
  file.attribute("fixed", fixed, "five!\0\0\0");
  H5Tset_size(fixed, H5T_VARIABLE);
  const char* text = "of any length, für alle";
  file.attribute("variable", fixed, &text);
  H5Tclose(fixed);
  const double reals[] = {3.14, 2.72};
  file.attribute("real", H5T_NATIVE_DOUBLE, reals);
  file.attribute("reals", H5T_NATIVE_DOUBLE, reals, 2);
}

}  // namespace

TEST_CASE("The reader tells of any plain file what the library tells") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  const bool newest = GENERATE(false, true), by_order = GENERATE(false, true);
  CAPTURE(newest, by_order);
  {
    const RawFile file(path, newest, by_order);
    write_numbers(file);
    write_attributes(file);
    file.group("z");
    file.group("a");
    file.group("a/deep");
    file.dataset("a/deep/er", H5T_STD_U8LE, H5T_NATIVE_INT64, {3}, std::vector<std::int64_t>{1, 2, 3});
  }
  check_reads_as_the_library(path);
  const Hdf5File library = Hdf5File::open(path, ExitCode::data);
  CHECK((library.real("/", "real") == 3.14 && !library.real("/", "reals") && !library.real("/", "integer")));
}

TEST_CASE("Groups of any size are read: compact ones, heaps of one block, of rows of blocks, trees of several levels") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  const bool by_order = GENERATE(false, true), newest = GENERATE(false, true);
  const int members = GENERATE(1, 8, 9, 40, 700, 6000);  // 6000: rows of blocks stand in rows
  CAPTURE(by_order, newest, members);
  {
    const RawFile file(path, newest, by_order);
    for (int i = 0; i < members; ++i)
      file.group("member number " + std::to_string((i * 7919) % members) +
                 std::string(static_cast<std::size_t>(i % 140), 'x'));
  }
  check_reads_as_the_library(path);
}

TEST_CASE("What the program writes is read as the library reads it") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  // Locks, which some file systems lack, are not asked for.
  const int locked = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(flock(locked, LOCK_EX) == 0);
  {
    Hdf5File file = Hdf5File::create(path, GENERATE(0, 512, 1024));
    file.set_text("/", "filetype", "something");
    file.set_text("/", "long", std::string(200000, 'y'));
    file.set_text("/", "empty", "");
    file.set_texts("/", "names", {"one", "", "three"});
    file.set_texts("/", "none", {});
    file.set_integer("state", "step", std::numeric_limits<std::int64_t>::min());
    for (int i = 0; i < 100; ++i)
      file.write("param/layer" + std::to_string(100 - i) + ".weight", {2, 2}, std::vector<float>{1, 2, 3, 4});
    file.write("bytes", {3, 0}, std::vector<std::uint8_t>{});
    file.write_texts("texts", {"a", "b"});
    file.write_texts("without", {});
    file.close();
  }
  check_reads_as_the_library(path);
  close(locked);
  const Hdf5Reader file = Hdf5Reader::open(path, ExitCode::data);
  CHECK(file.list("/") == std::vector<std::string>{"state", "param", "bytes", "texts", "without"});
  CHECK((file.list("param").front() == "layer100.weight" && !file.text("nothing", "names")));
  CHECK(hdf5_version() == fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE));
  for (const auto& [name, told] :
       {std::pair{"param", "param is a group, not a dataset"}, std::pair{"nothing", "there is no nothing"}})
    CHECK(error_of([&, name = name] { static_cast<void>(file.info(name)); }) == "3: " + path + ": " + told);
  // The first elements alone.
  std::vector<float> found;
  const auto take = [&](std::span<const float> block) { found.insert(found.end(), block.begin(), block.end()); };
  file.read_blocks<float>("param/layer1.weight", take, 3);
  CHECK(found == std::vector<float>{1, 2, 3});
}

TEST_CASE("What is not plain is refused with the command that makes it plain") {
  const TemporaryFolder folder;
  const bool quoted = GENERATE(false, true);
  const std::string path = folder / (quoted ? "two words.h5" : "file.h5");
  std::string reason;
  {
    const RawFile file(path);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 2;
    const std::vector<std::int64_t> values = {1, 2, 3, 4};
    const auto write = [&] { file.dataset("set", H5T_STD_U8LE, H5T_NATIVE_INT64, {4}, values, creation); };
    SECTION("chunks") {
      H5Pset_chunk(creation, 1, &chunk);
      write();
      reason = "in chunks";
    }
    SECTION("compression") {
      H5Pset_chunk(creation, 1, &chunk);
      H5Pset_deflate(creation, 6);
      write();
      reason = "compressed";
    }
    SECTION("other files") {
      H5Pset_external(creation, "elsewhere", 0, 4);
      file.dataset("set", H5T_STD_U8LE, H5T_NATIVE_INT64, {4}, std::vector<std::int64_t>{}, creation);
      reason = "lies in other files";
    }
    SECTION("a soft link") {
      write();
      H5Lcreate_soft("/set", file.id, "link", H5P_DEFAULT, H5P_DEFAULT);
      reason = "soft";
    }
    SECTION("an external link") {
      const RawFile other(folder / "other.h5");
      other.dataset("set", H5T_STD_U8LE, H5T_NATIVE_INT64, {4}, values);
      H5Lcreate_external("other.h5", "/set", file.id, "link", H5P_DEFAULT, H5P_DEFAULT);
      reason = "external link";
    }
    SECTION("two names of one dataset") {
      write();
      H5Lcreate_hard(file.id, "set", file.id, "again", H5P_DEFAULT, H5P_DEFAULT);
      reason = "is a second name of";
    }
    SECTION("a group in itself") {
      file.group("a");
      H5Lcreate_hard(file.id, "/", file.id, "a/root", H5P_DEFAULT, H5P_DEFAULT);
      reason = "is a second name of";
    }
    SECTION("a type with a name") {
      const hid_t type = H5Tcopy(H5T_STD_U8LE);
      H5Tcommit2(file.id, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      file.dataset("set", type, H5T_NATIVE_INT64, {4}, values);
      H5Tclose(type);
      reason = "share a type";
    }
    H5Pclose(creation);
  }
  if (reason == "external link") CHECK(!Hdf5File::open(path, ExitCode::data).has("link"));
  const std::string error = error_in(path);
  CAPTURE(error);
  CHECK((error.starts_with("3: " + path) && contains(error, reason)));
  const std::string command = "dat_hpc data convert " + (quoted ? "'" + path + "' NEW" : path + " NEW'");
  CHECK(contains(error, (quoted ? "; " : "; '") + command + " makes a plain file of it"));
}

TEST_CASE("The library is asked for no more than a file can hold, and for nothing in other files") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  {
    const RawFile file(path);
    const hid_t chunks = H5Pcreate(H5P_DATASET_CREATE), outside = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {1 << 15, 1}, first[] = {0, 0};
    H5Pset_chunk(chunks, 2, chunk);
    H5Pset_external(outside, "elsewhere", 0, 4);
    const auto write = [&](const char* name, const std::vector<hsize_t>& dims, hid_t creation) {
      file.dataset(name, H5T_STD_U8LE, H5T_NATIVE_INT64, dims, std::vector<std::int64_t>{}, creation);
    };
    write("fine", {1 << 21, 1}, chunks);  // which takes 16 MiB where it is widened
    write("more", {(1 << 21) + 1, 1}, chunks);
    write("just", {100 << 15, 1}, chunks);  // a hundred times the chunk in which its first element lies
    const hid_t just = H5Dopen2(file.id, "just", H5P_DEFAULT), space = H5Dget_space(just);
    const hid_t one = H5Screate(H5S_SCALAR);
    H5Sselect_elements(space, H5S_SELECT_SET, 1, first);
    REQUIRE(H5Dwrite(just, H5T_STD_U8LE, one, space, H5P_DEFAULT, "x") >= 0);
    for (const hid_t one_space : {one, space}) H5Sclose(one_space);
    H5Dclose(just);
    write("most", {hsize_t{1} << 40, 100'000'000}, chunks);
    write("outside", {4}, outside);
    file.dataset("word", H5T_C_S1, H5T_C_S1, {}, std::vector<char>{'x'});
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    file.dataset("unwritten", text, text, {2}, std::vector<const char*>{});
    H5Tclose(text);
    H5Pclose(chunks);
    H5Pclose(outside);
  }
  const Hdf5File file = Hdf5File::open(path, ExitCode::data);
  unsigned plugins = 1;
  CHECK((H5PLget_loading_state(&plugins) >= 0 && plugins == 0));
  H5E_auto2_t print = nullptr;
  void* to = nullptr;
  CHECK((H5Eget_auto2(H5E_DEFAULT, &print, &to) >= 0 && print == nullptr));
  CHECK((file.info("fine").shape == Shape{1 << 21, 1} && file.info("just").shape == Shape{100 << 15, 1}));
  CHECK(file.read_texts("unwritten") == std::vector<std::string>(2));
  for (const auto& [name, told] : {std::pair{"more", "claims 2097153 bytes, but only 0 are stored"},
                                   std::pair{"most", "claims an impossible size"},
                                   std::pair{"outside", "lies in other files; copy it into this one"}})
    CHECK(error_of([&, name = name] { static_cast<void>(file.info(name)); }) ==
          "3: " + path + ": dataset " + name + " " + told);
  CHECK(error_of([&] {
          static_cast<void>(file.info("none"));
        }).starts_with("3: " + path + ": cannot open dataset none: "));
  for (const char* name : {"word", "fine"})
    CHECK(error_of([&] { static_cast<void>(file.read_texts(name)); }) ==
          "3: " + path + ": dataset " + name + " must be a row of strings");
}

TEST_CASE("A header that goes on in itself is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  {
    Hdf5File file = Hdf5File::create(path, 0);
    file.write("set", {10}, std::vector<std::uint8_t>(10));
    for (int k = 0; k < 40; ++k) file.set_integer("set", "attribute " + std::to_string(k), k);
  }
  std::string bytes = read_bytes(path);
  // A message of the header, "continuation": type and length of the message, then place and length of more messages.
  const std::string begin("\x10\0\x10\0", 4);
  int turned = 0;
  for (auto at = bytes.find(begin); at != std::string::npos && at + 24 <= bytes.size();
       at = bytes.find(begin, at + 4)) {
    std::uint64_t place = 0, length = 0;
    std::memcpy(&place, bytes.data() + at + 8, 8);
    std::memcpy(&length, bytes.data() + at + 16, 8);
    if (length < 24 || place >= bytes.size() || length > bytes.size() - place) continue;
    bytes.replace(place, 24, bytes.substr(at, 24));
    ++turned;
    break;
  }
  REQUIRE(turned == 1);
  write_bytes(path, bytes);
  const std::string error = error_in(path);
  CAPTURE(error);
  CHECK(contains(error, "an object's header has no end"));
}

TEST_CASE("Texts that are all one and the same, in a small file, are refused before they take memory") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  constexpr std::size_t kTexts = 4000, kLong = 20011,
                        kElement = 16;  // an element: length, address and number of a text
  {
    Hdf5File file = Hdf5File::create(path, 0);
    std::vector<std::string> texts(kTexts, "a");
    texts[0].assign(kLong, 'b');
    file.set_texts("/", "texts", texts);
  }
  std::string bytes = read_bytes(path);
  const auto number_at = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  std::size_t table = 0;
  while (table + kTexts * kElement < bytes.size() && (number_at(table) != kLong || number_at(table + kElement) != 1))
    ++table;
  REQUIRE(number_at(table) == kLong);
  CHECK(bytes.size() < 4 << 20);
  // All that may be read goes to the texts, of which each costs 128 bytes more; the rest of the file costs fewer.
  const auto fits = static_cast<std::uint32_t>(((std::size_t{16} << 20) + 2 * bytes.size()) / kTexts);
  for (const std::uint32_t length : {fits - 300, fits, static_cast<std::uint32_t>(kLong)}) {
    std::memcpy(bytes.data() + table, &length, sizeof length);
    for (std::size_t k = 1; k < kTexts; ++k) std::memcpy(&bytes[table + k * kElement], &bytes[table], kElement);
    write_bytes(path, bytes);
    const std::string error =
        error_of([&] { static_cast<void>(Hdf5Reader::open(path, ExitCode::data).texts("/", "texts")); });
    CAPTURE(length, error);
    CHECK((length < fits ? error == "none" : contains(error, "its parts overlap or lead in a circle")));
  }
}

TEST_CASE("Claims beyond the file are refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  {
    Hdf5File file = Hdf5File::create(path, 0);
    file.write("set", {1000}, std::vector<std::uint8_t>(1000));
    file.write("floats", {1234}, std::vector<float>(1234));
  }
  const std::string whole = read_bytes(path);
  const auto changed = [&](std::uint64_t from, std::uint64_t to) {
    std::string bytes = whole;
    const std::string before(reinterpret_cast<const char*>(&from), 8), after(reinterpret_cast<const char*>(&to), 8);
    const auto at = bytes.find(before);
    REQUIRE(at != std::string::npos);
    bytes.replace(at, 8, after);
    write_bytes(path, bytes);
    return error_in(path);
  };
  // The first 1000 is the shape's, the second one the layout's.
  CHECK(contains(changed(1000, 1001), "larger than what is stored"));
  CHECK(contains(changed(1000, std::uint64_t{1} << 61), "larger than what is stored"));
  CHECK(contains(changed(1000, std::uint64_t{1} << 63), "larger than anything"));
  CHECK(contains(changed(1234, 1235), "larger than what is stored"));
  std::string shared = whole;  // the message of a dataset's layout: type, length, flags, ...
  const auto layout = shared.find(std::string("\x08\0\x18\0\0\0\0\0\3\1", 10));
  REQUIRE(layout != std::string::npos);
  shared[layout + 4] = 2;
  write_bytes(path, shared);
  CHECK(contains(error_in(path), "share a type or a shape"));
  std::string beyond = whole;
  beyond[layout + 17] = 1;  // the highest byte of the dataset's place
  write_bytes(path, beyond);
  CHECK(contains(error_of([&] { static_cast<void>(Hdf5File::open(path, ExitCode::data).info("set")); }),
                 "dataset set is cut off: it needs 1000 bytes from byte 720575940379"));
  std::string endless = read_bytes(test::data_path("fuzz/corpus/data_file/old_form"));
  const auto names = endless.begin() + static_cast<std::ptrdiff_t>(endless.find("HEAP")) + 32;
  std::replace(names, names + 88, '\0', 'x');
  write_bytes(path, endless);
  CHECK(contains(error_in(path), "a name lies outside of its heap"));
  std::string packed = read_bytes(test::data_path("fuzz/corpus/checkpoint/large_group")), bare = packed;
  bare.replace(bare.find("BTHD") + 16, 8, 8, '\xff');  // a tree without a root, which has no links
  write_bytes(path, bare);
  CHECK(error_in(path) == "none");
  packed[packed.find("FRHP") + 7] = 1;  // the length of what describes a filter
  write_bytes(path, packed);
  CHECK(contains(error_in(path), "has a group whose links are compressed"));
  for (std::size_t part = 0; part < 64; ++part) {
    write_bytes(path, whole.substr(0, whole.size() * part / 64));
    CHECK(error_in(path).starts_with("3: " + path));
  }
  write_bytes(path, "nothing of the kind");
  CHECK(error_of([&] { static_cast<void>(Hdf5File::open(path, ExitCode::data)); }) ==
        "3: " + path + ": not a whole HDF5 file: file signature not found");
}

TEST_CASE("Members of one name, datasets in one place and groups without end are refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  {
    Hdf5File file = Hdf5File::create(path, 0);
    for (const std::int64_t count : {50001, 50003})
      file.write("set" + std::to_string(count), {count}, std::vector<std::uint8_t>(static_cast<std::size_t>(count)));
  }
  const std::string whole = read_bytes(path);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1))
      bytes.replace(at, from.size(), to);
    write_bytes(path, bytes);
    return error_in(path);
  };
  CHECK(contains(changed("set50003", "set50001"), "two members of a group have one name"));
  // Bytes of the first one, in its shape and its layout: 100002, among which the second one has its own.
  CHECK(contains(changed({"\x51\xc3\0\0\0\0\0\0", 8}, {"\xa2\x86\1\0\0\0\0\0", 8}), "its datasets overlap"));
  for (const int depth : {16, 17}) {
    {
      const RawFile file(path);
      std::string name;
      for (int k = 0; k < depth; ++k) file.group(name += "/g");
    }
    CHECK(contains(error_in(path), depth == 16 ? "none" : "more groups or objects than there can be"));
  }
}

TEST_CASE("Of each bit of some files it stays as it is whether its flip changes nothing, what is read, or is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "file.h5";
  // The SHA-256 of a letter for each flip: s, o and r. Every n-th byte that is not zero.
  for (const auto& [name, n, letters] :
       {std::tuple{"data_file/newest_form", 1, "6d7c1a3d31644447fffd3c7337a978c71d371139d4f7ec425c63ddb25d6828cb"},
        std::tuple{"data_file/old_form", 1, "46fe71fceb29c79c733d7fc09562b6e7995426e6bf502469eec8017ecce0ff1d"},
        std::tuple{"checkpoint/large_group", 4, "0765f0248ff42bc6ce55529ae29b799032585a6f6437a066f262805bdbb58b33"}}) {
    std::string bytes = read_bytes(test::data_path(std::string("fuzz/corpus/") + name)), found;
    const auto told = [&] {
      write_bytes(path, bytes);
      std::string text;
      const std::string error = error_of([&] { text = inspect_dataset(path); });
      return std::pair(error, text);
    };
    const auto whole = told();
    int number = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == 0 || ++number % n != 0) continue;
      const char before = bytes[i];
      bytes[i] = static_cast<char>(before ^ (1 << i % 8));
      const auto now = told();
      found += now == whole ? 's' : now.first == "none" ? 'o' : 'r';
      bytes[i] = before;
    }
    CAPTURE(name, std::count(found.begin(), found.end(), 's'), std::count(found.begin(), found.end(), 'r'));
    CHECK(sha256_hex(found.data(), found.size()) == letters);
  }
}
