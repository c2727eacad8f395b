#include "hdf5/hdf5.hpp"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>

#include "dat/tick.hpp"

namespace dat {
namespace {

// An HDF5 identifier with the function that gives it back.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// HDF5's innermost words about the last failure, or the system's where it was the system.
std::string library_reason() {
  std::string reason;
  const auto first = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &reason);
  if (const auto at = reason.find("errno = "); at != std::string::npos) {
    return system_reason(std::atoi(reason.c_str() + at + 8));
  }
  return reason.empty() ? "no reason given" : reason;
}

// Before each file, because the settings belong to the calling thread, and before anything else of the library. Plug-ins
// would be code from outside, and at the end of the program the library would go through files that could not be written
// (see give_up_or_close).
void prepare_library() {
  static const herr_t once = H5dont_atexit();
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

// Closing a file of which a part cannot be written (disk full) leaves HDF5 1.10 with a freed file in its tables, on
// which it crashes later. Such a file stays open: a descriptor and some memory are lost, and no more. Returns the
// reason.
std::string give_up_or_close(hid_t file) {
  if (H5Fflush(file, H5F_SCOPE_GLOBAL) < 0) return library_reason();
  return H5Fclose(file) < 0 ? library_reason() : "";
}

herr_t refuse_external_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) { return -1; }

Id reading() {
  const hid_t list = H5Pcreate(H5P_DATASET_ACCESS);
  H5Pset_elink_cb(list, refuse_external_link, nullptr);
  return {list, H5Pclose};
}

Id naming_in_utf8() {
  const hid_t list = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_char_encoding(list, H5T_CSET_UTF8);
  return {list, H5Pclose};
}

// No time stamps: the same content gives the same bytes.
Id making(hid_t kind) {
  const hid_t list = H5Pcreate(kind);
  H5Pset_obj_track_times(list, 0);
  return {list, H5Pclose};
}

hid_t file_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8:
      return H5T_STD_U8LE;
    case Hdf5Type::i64:
      return H5T_STD_I64LE;
    case Hdf5Type::f32:
      return H5T_IEEE_F32LE;
    case Hdf5Type::f64:
      return H5T_IEEE_F64LE;
  }
  return -1;
}

hid_t memory_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8:
      return H5T_NATIVE_UINT8;
    case Hdf5Type::i64:
      return H5T_NATIVE_INT64;
    case Hdf5Type::f32:
      return H5T_NATIVE_FLOAT;
    case Hdf5Type::f64:
      return H5T_NATIVE_DOUBLE;
  }
  return -1;
}

Id text_type() {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return {type, H5Tclose};
}

Id space_of(const Shape& shape) {
  if (shape.empty()) return {H5Screate(H5S_SCALAR), H5Sclose};
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose};
}

std::vector<const char*> pointers(const std::vector<std::string>& values) {
  std::vector<const char*> all(values.size());
  std::transform(values.begin(), values.end(), all.begin(), [](const std::string& value) { return value.c_str(); });
  return all;
}

// The strings of a dataset or attribute with `count` elements; `read` fills memory in the file's own `type`.
std::vector<std::string> read_strings(hid_t type, hid_t space, std::size_t count,
                                      const std::function<void(void*)>& read) {
  std::vector<std::string> values;
  if (count == 0) return values;
  if (H5Tis_variable_str(type) > 0) {
    std::vector<char*> raw(count, nullptr);
    read(raw.data());
    for (const char* text : raw) values.emplace_back(text == nullptr ? "" : text);
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw.data());
  } else {
    const std::size_t size = H5Tget_size(type);
    std::vector<char> raw(count * size);
    read(raw.data());
    for (std::size_t i = 0; i < count; ++i) {
      const char* begin = raw.data() + i * size;
      values.emplace_back(begin, std::find(begin, begin + size, '\0'));
    }
  }
  return values;
}

}  // namespace

std::string hdf5_version() {
  prepare_library();
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

hid_t Hdf5File::check(hid_t result, const char* action, const std::string& name) const {
  if (result < 0) fail(code_, path_, ": cannot ", action, " ", name, ": ", library_reason());
  return result;
}

Hdf5File Hdf5File::create(const std::string& path, std::size_t user_block) {
  prepare_library();
  const Id creation = making(H5P_FILE_CREATE);
  H5Pset_userblock(creation, user_block);
  H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, 0, 1);  // parallel file systems without flock
  H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);
  // Small data would be written when their dataset is closed, which tells nobody that it failed.
  H5Pset_sieve_buf_size(access, 0);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
  if (file < 0) fail(ExitCode::io, path, ": cannot create the file: ", library_reason());
  return {path, ExitCode::io, file};
}

Hdf5File Hdf5File::open(const std::string& path, ExitCode code) {
  prepare_library();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require(std::filesystem::exists(status), code, path, ": no such file");
  require(std::filesystem::is_regular_file(status), code, path, ": not a file");
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, 0, 1);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (file < 0) fail(code, path, ": not a whole HDF5 file: ", library_reason());
  return {path, code, file};
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(other.path_), code_(other.code_), file_(std::exchange(other.file_, -1)) {}

Hdf5File::~Hdf5File() {
  if (file_ >= 0) give_up_or_close(file_);
}

void Hdf5File::close() {
  const std::string reason = give_up_or_close(std::exchange(file_, -1));
  require(reason.empty(), code_, path_, ": cannot write the file: ", reason);
}

void Hdf5File::declare(const std::string& name, const Shape& shape, Hdf5Type type) {
  const Id links = naming_in_utf8();
  const Id creation = making(H5P_DATASET_CREATE);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  make_parents(name);
  const Id dataset(
      check(H5Dcreate2(file_, name.c_str(), file_type(type), space_of(shape), links, creation, H5P_DEFAULT),
            "create dataset", name),
      H5Dclose);
}

void Hdf5File::write_rows(const std::string& name, std::int64_t first, Hdf5Type type, const void* values,
                          std::int64_t count) {
  tick();
  const Id dataset(check(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), "open dataset", name), H5Dclose);
  const Id space(H5Dget_space(dataset), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  if (count == 0) return;
  if (rank == 0) {
    assert(first == 0 && count == 1);
    check(H5Dwrite(dataset, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write dataset", name);
    return;
  }
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank)), start(dims.size(), 0);
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  const hsize_t row = std::accumulate(dims.begin() + 1, dims.end(), hsize_t{1}, std::multiplies<>());
  assert(static_cast<hsize_t>(count) % row == 0);
  start[0] = static_cast<hsize_t>(first);
  dims[0] = static_cast<hsize_t>(count) / row;
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, dims.data(), nullptr), "select rows of",
        name);
  const Id memory(H5Screate_simple(rank, dims.data(), nullptr), H5Sclose);
  check(H5Dwrite(dataset, memory_type(type), memory, space, H5P_DEFAULT, values), "write dataset", name);
}

void Hdf5File::write_texts(const std::string& name, const std::vector<std::string>& values) {
  const Id links = naming_in_utf8();
  const Id creation = making(H5P_DATASET_CREATE);
  const Id type = text_type();
  const Id space = space_of({static_cast<std::int64_t>(values.size())});
  make_parents(name);
  const Id dataset(
      check(H5Dcreate2(file_, name.c_str(), type, space, links, creation, H5P_DEFAULT), "create dataset", name),
      H5Dclose);
  if (values.empty()) return;
  check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers(values).data()), "write dataset", name);
}

// HDF5 would make missing groups by itself, but they would forget the order of their members.
void Hdf5File::make_parents(const std::string& name) {
  for (auto slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    make_group(name.substr(0, slash));
  }
}

void Hdf5File::make_group(const std::string& name) {
  if (has(name)) return;
  const Id creation = making(H5P_GROUP_CREATE);
  H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  const Id group(check(H5Gcreate2(file_, name.c_str(), naming_in_utf8(), creation, H5P_DEFAULT), "create group", name),
                 H5Gclose);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& key, hid_t type, hid_t space, hid_t memory,
                             const void* value) {
  make_parents(object);
  make_group(object);
  const Id owner(check(H5Oopen(file_, object.c_str(), H5P_DEFAULT), "open", object), H5Oclose);
  const std::string name = object + ":" + key;
  const Id attribute(
      check(H5Acreate2(owner, key.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), "create attribute", name), H5Aclose);
  if (value != nullptr) check(H5Awrite(attribute, memory, value), "write attribute", name);
}

void Hdf5File::set_text(const std::string& object, const std::string& key, const std::string& value) {
  const Id type = text_type();
  const char* text = value.c_str();
  set_attribute(object, key, type, space_of({}), type, &text);
}

void Hdf5File::set_texts(const std::string& object, const std::string& key, const std::vector<std::string>& values) {
  const Id type = text_type();
  const Id space = space_of({static_cast<std::int64_t>(values.size())});
  set_attribute(object, key, type, space, type, values.empty() ? nullptr : pointers(values).data());
}

void Hdf5File::set_integer(const std::string& object, const std::string& key, std::int64_t value) {
  set_attribute(object, key, H5T_STD_I64LE, space_of({}), H5T_NATIVE_INT64, &value);
}

void Hdf5File::set_real(const std::string& object, const std::string& key, double value) {
  set_attribute(object, key, H5T_IEEE_F64LE, space_of({}), H5T_NATIVE_DOUBLE, &value);
}

bool Hdf5File::has(const std::string& name) const {
  if (name == "/") return true;
  for (auto slash = name.find('/', 1);; slash = name.find('/', slash + 1)) {
    if (H5Lexists(file_, name.substr(0, slash).c_str(), reading()) <= 0) return false;
    if (slash == std::string::npos) break;
  }
  return H5Oexists_by_name(file_, name.c_str(), reading()) > 0;
}

bool Hdf5File::is_group(const std::string& name) const {
  const Id object(check(H5Oopen(file_, name.c_str(), reading()), "open", name), H5Oclose);
  return H5Iget_type(object) == H5I_GROUP;
}

std::vector<std::string> Hdf5File::list(const std::string& group) const {
  const Id object(check(H5Gopen2(file_, group.c_str(), reading()), "open group", group), H5Gclose);
  const Id creation(H5Gget_create_plist(object), H5Pclose);
  unsigned order = 0;
  H5Pget_link_creation_order(creation, &order);
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check(H5Literate(object, (order & H5P_CRT_ORDER_INDEXED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME, H5_ITER_INC,
                   nullptr, visit, &names),
        "list group", group);
  return names;
}

// Sizes in a file are claims: what they would take must be in proportion to the file that makes them. Compressed data
// may grow a hundredfold (and small data by more), no further.
Hdf5Info Hdf5File::info(const std::string& name) const {
  constexpr std::int64_t kAlwaysFine = 16 << 20, kMaxGrowth = 100;
  const Id dataset(check(H5Dopen2(file_, name.c_str(), reading()), "open dataset", name), H5Dclose);
  const Id type(check(H5Dget_type(dataset), "read the type of", name), H5Tclose);
  const Id space(check(H5Dget_space(dataset), "read the shape of", name), H5Sclose);
  const Id creation(check(H5Dget_create_plist(dataset), "read the layout of", name), H5Pclose);
  require(H5Sget_simple_extent_type(space) != H5S_NULL, code_, path_, ": dataset ", name, " holds nothing");

  Hdf5Info info;
  const std::size_t element = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  info.element = static_cast<std::int64_t>(element);
  if (kind == H5T_INTEGER) {
    const bool byte = element == 1 && H5Tget_sign(type) == H5T_SGN_NONE;
    info.kind = byte ? Hdf5Info::Kind::u8 : Hdf5Info::Kind::integer;
  } else if (kind == H5T_FLOAT) {
    info.kind = Hdf5Info::Kind::real;
  } else if (kind == H5T_STRING) {
    info.kind = Hdf5Info::Kind::text;
  }
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  std::int64_t bytes = static_cast<std::int64_t>(std::max<std::size_t>(8, element));  // 8: `read` may widen elements
  for (const hsize_t dim : dims) {
    info.shape.push_back(static_cast<std::int64_t>(dim));
    require(info.shape.back() >= 0 && !__builtin_mul_overflow(bytes, info.shape.back(), &bytes), code_, path_,
            ": dataset ", name, " claims an impossible size");
  }

  const H5D_layout_t layout = H5Pget_layout(creation);
  require(layout != H5D_VIRTUAL && H5Pget_external_count(creation) <= 0, code_, path_, ": dataset ", name,
          " lies in other files; copy it into this one");
  const std::int64_t file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  const haddr_t offset = layout == H5D_CONTIGUOUS ? H5Dget_offset(dataset) : HADDR_UNDEF;
  if (offset != HADDR_UNDEF) {
    const std::int64_t size =
        bytes / static_cast<std::int64_t>(std::max<std::size_t>(8, element)) * static_cast<std::int64_t>(element);
    info.offset = static_cast<std::int64_t>(offset);
    require(info.offset >= 0 && info.offset <= file_bytes && size <= file_bytes - info.offset, code_, path_,
            ": dataset ", name, " is cut off: it needs ", size, " bytes from byte ", info.offset, ", the file has ",
            file_bytes);
  } else {
    const auto stored = static_cast<std::int64_t>(std::min<hsize_t>(H5Dget_storage_size(dataset), file_bytes));
    require(bytes <= kAlwaysFine || bytes / kMaxGrowth <= stored, code_, path_, ": dataset ", name, " claims ", bytes,
            " bytes, but only ", stored, " are stored");
  }
  return info;
}

Shape Hdf5File::check_readable(const std::string& name, Hdf5Type type) const {
  const Hdf5Info found = info(name);
  const bool real = type == Hdf5Type::f32 || type == Hdf5Type::f64;
  const bool fits =
      real ? found.kind == Hdf5Info::Kind::real
           : found.kind == Hdf5Info::Kind::u8 || (type == Hdf5Type::i64 && found.kind == Hdf5Info::Kind::integer);
  require(fits, code_, path_, ": dataset ", name, " must hold ",
          real                    ? "real numbers"
          : type == Hdf5Type::i64 ? "integers"
                                  : "unsigned bytes");
  return found.shape;
}

void Hdf5File::read(const std::string& name, Hdf5Type type, void* values) const {
  tick();
  const Id dataset(check(H5Dopen2(file_, name.c_str(), reading()), "open dataset", name), H5Dclose);
  check(H5Dread(dataset, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "read dataset", name);
}

void Hdf5File::read_rows(const std::string& name, std::int64_t first, std::int64_t count, Hdf5Type type,
                         void* values) const {
  const Id dataset(check(H5Dopen2(file_, name.c_str(), reading()), "open dataset", name), H5Dclose);
  const Id space(H5Dget_space(dataset), H5Sclose);
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space))), start(dims.size(), 0);
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  start[0] = static_cast<hsize_t>(first);
  dims[0] = static_cast<hsize_t>(count);
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, dims.data(), nullptr), "select rows of",
        name);
  const Id memory(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  check(H5Dread(dataset, memory_type(type), memory, space, H5P_DEFAULT, values), "read dataset", name);
}

std::vector<std::string> Hdf5File::read_texts(const std::string& name) const {
  const Hdf5Info found = info(name);
  require(found.kind == Hdf5Info::Kind::text && found.shape.size() == 1, code_, path_, ": dataset ", name,
          " must be a row of strings");
  const Id dataset(check(H5Dopen2(file_, name.c_str(), reading()), "open dataset", name), H5Dclose);
  const Id type(H5Dget_type(dataset), H5Tclose);
  const Id space(H5Dget_space(dataset), H5Sclose);
  return read_strings(type, space, static_cast<std::size_t>(found.shape[0]), [&](void* out) {
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out), "read dataset", name);
  });
}

// Calls `use` with attribute, type, space and number of elements, if there is one of this class.
void Hdf5File::with_attribute(const std::string& object, const std::string& key, H5T_class_t kind,
                              const std::function<void(hid_t, hid_t, hid_t, std::size_t)>& use) const {
  if (!has(object)) return;
  const Id owner(check(H5Oopen(file_, object.c_str(), reading()), "open", object), H5Oclose);
  if (H5Aexists(owner, key.c_str()) <= 0) return;
  const std::string name = object + ":" + key;
  const Id attribute(check(H5Aopen(owner, key.c_str(), H5P_DEFAULT), "open attribute", name), H5Aclose);
  const Id type(check(H5Aget_type(attribute), "read the type of", name), H5Tclose);
  const Id space(check(H5Aget_space(attribute), "read the shape of", name), H5Sclose);
  if (H5Tget_class(type) != kind) return;
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  const auto file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  require(count >= 0 && count <= file_bytes / static_cast<std::int64_t>(H5Tget_size(type)), code_, path_,
          ": attribute ", name, " claims an impossible size");
  use(attribute, type, space, static_cast<std::size_t>(count));
}

std::optional<std::vector<std::string>> Hdf5File::texts(const std::string& object, const std::string& key) const {
  std::optional<std::vector<std::string>> values;
  with_attribute(object, key, H5T_STRING, [&](hid_t attribute, hid_t type, hid_t space, std::size_t count) {
    values = read_strings(type, space, count, [&](void* out) {
      check(H5Aread(attribute, type, out), "read attribute", object + ":" + key);
    });
  });
  return values;
}

std::optional<std::string> Hdf5File::text(const std::string& object, const std::string& key) const {
  const auto values = texts(object, key);
  if (!values || values->size() != 1) return std::nullopt;
  return values->front();
}

std::optional<std::int64_t> Hdf5File::integer(const std::string& object, const std::string& key) const {
  std::optional<std::int64_t> value;
  with_attribute(object, key, H5T_INTEGER, [&](hid_t attribute, hid_t, hid_t, std::size_t count) {
    if (count != 1) return;
    std::int64_t number = 0;
    check(H5Aread(attribute, H5T_NATIVE_INT64, &number), "read attribute", object + ":" + key);
    value = number;
  });
  return value;
}

std::optional<double> Hdf5File::real(const std::string& object, const std::string& key) const {
  std::optional<double> value;
  with_attribute(object, key, H5T_FLOAT, [&](hid_t attribute, hid_t, hid_t, std::size_t count) {
    if (count != 1) return;
    double number = 0;
    check(H5Aread(attribute, H5T_NATIVE_DOUBLE, &number), "read attribute", object + ":" + key);
    value = number;
  });
  return value;
}

std::vector<std::string> Hdf5File::attribute_names(const std::string& object) const {
  std::vector<std::string> names;
  if (!has(object)) return names;
  const Id owner(check(H5Oopen(file_, object.c_str(), reading()), "open", object), H5Oclose);
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check(H5Aiterate2(owner, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "list the attributes of", object);
  return names;
}

}  // namespace dat
