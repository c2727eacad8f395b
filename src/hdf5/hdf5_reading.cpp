// Reading by the library: of what `data convert` is given.

#include <algorithm>
#include <filesystem>
#include <functional>

#include "dat/tick.hpp"
#include "hdf5/hdf5_handles.hpp"

namespace dat {

namespace {

// Adds the name of a link or an attribute to the vector `out`.
constexpr auto kCollect = [](hid_t, const char* name, const auto*, void* out) -> herr_t {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return {};
};

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

Hdf5File Hdf5File::open(const std::string& path, ExitCode code) {
  prepare_hdf5();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require(std::filesystem::exists(status), code, path, ": no such file");
  require(std::filesystem::is_regular_file(status), code, path, ": not a file");
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, 0, 1);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (file == H5I_INVALID_HID) fail(code, path, ": not a whole HDF5 file: ", hdf5_reason());
  return {path, code, file};
}

bool Hdf5File::has(const std::string& name) const { return H5Oexists_by_name(file_, name.c_str(), reading_hdf5()) > 0; }

bool Hdf5File::is_group(const std::string& name) const {
  const Hdf5Handle object(check(H5Oopen(file_, name.c_str(), reading_hdf5()), "open", name), H5Oclose);
  return H5Iget_type(object) == H5I_GROUP;
}

std::vector<std::string> Hdf5File::list(const std::string& group) const {
  const Hdf5Handle object(check(H5Gopen2(file_, group.c_str(), reading_hdf5()), "open group", group), H5Gclose);
  const Hdf5Handle creation(H5Gget_create_plist(object), H5Pclose);
  unsigned order{};
  H5Pget_link_creation_order(creation, &order);
  std::vector<std::string> names;
  check(H5Literate(object, (order & H5P_CRT_ORDER_INDEXED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME, H5_ITER_INC,
                   nullptr, kCollect, &names),
        "list group", group);
  return names;
}

// Sizes in a file are claims: what they would take must be in proportion to the file that makes them. Compressed data
// may grow a hundredfold (and small data by more), no further.
Hdf5Info Hdf5File::info(const std::string& name) const {
  constexpr std::int64_t kAlwaysFine = 16 << 20, kMaxGrowth = 100;
  const Hdf5Handle dataset(check(H5Dopen2(file_, name.c_str(), reading_hdf5()), "open dataset", name), H5Dclose);
  const Hdf5Handle type(check(H5Dget_type(dataset), "read the type of", name), H5Tclose);
  const Hdf5Handle space(check(H5Dget_space(dataset), "read the shape of", name), H5Sclose);
  const Hdf5Handle creation(check(H5Dget_create_plist(dataset), "read the layout of", name), H5Pclose);
  require(H5Sget_simple_extent_type(space) != H5S_NULL, code_, path_, ": dataset ", name, " holds nothing");

  Hdf5Info info;
  const std::size_t element = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  info.element = static_cast<std::int64_t>(element);
  if (kind == H5T_INTEGER) {
    info.is_unsigned = H5Tget_sign(type) == H5T_SGN_NONE;
    info.kind = element == 1 && info.is_unsigned ? Hdf5Info::Kind::u8 : Hdf5Info::Kind::integer;
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

  const std::int64_t size =
      bytes / static_cast<std::int64_t>(std::max<std::size_t>(8, element)) * static_cast<std::int64_t>(element);
  require(H5Pget_layout(creation) != H5D_VIRTUAL && H5Pget_external_count(creation) <= 0, code_, path_, ": dataset ",
          name, " lies in other files; copy it into this one");
  const std::int64_t file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  const haddr_t offset = H5Dget_offset(dataset);  // of one piece in this file
  if (offset != HADDR_UNDEF) {
    info.offset = static_cast<std::int64_t>(offset);
    require(offset <= static_cast<haddr_t>(file_bytes) && size <= file_bytes - info.offset, code_, path_, ": dataset ",
            name, " is cut off: it needs ", size, " bytes from byte ", info.offset, ", the file has ", file_bytes);
  } else {
    const auto stored = static_cast<std::int64_t>(std::min<hsize_t>(H5Dget_storage_size(dataset), file_bytes));
    require(bytes <= kAlwaysFine || size / kMaxGrowth <= stored, code_, path_, ": dataset ", name, " claims ", size,
            " bytes, but only ", stored, " are stored");
  }
  return info;
}

Shape Hdf5File::check_readable(const std::string& name, Hdf5Type type) const {
  const Hdf5Info found = info(name);
  require_kind(found.kind, type, code_, path_, name);
  return found.shape;
}

void Hdf5File::read(const std::string& name, Hdf5Type type, void* values) const {
  tick();
  const Hdf5Handle dataset(check(H5Dopen2(file_, name.c_str(), reading_hdf5()), "open dataset", name), H5Dclose);
  check(H5Dread(dataset, hdf5_memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "read dataset", name);
}

void Hdf5File::read_rows(const std::string& name, std::int64_t first, std::int64_t count, Hdf5Type type,
                         void* values) const {
  const Hdf5Handle dataset(check(H5Dopen2(file_, name.c_str(), reading_hdf5()), "open dataset", name), H5Dclose);
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space))), start(dims.size(), 0);
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  start[0] = static_cast<hsize_t>(first);
  dims[0] = static_cast<hsize_t>(count);
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, dims.data(), nullptr), "select rows of",
        name);
  const Hdf5Handle memory(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  check(H5Dread(dataset, hdf5_memory_type(type), memory, space, H5P_DEFAULT, values), "read dataset", name);
}

std::vector<std::string> Hdf5File::read_texts(const std::string& name) const {
  const Hdf5Info found = info(name);
  require(found.kind == Hdf5Info::Kind::text && found.shape.size() == 1, code_, path_, ": dataset ", name,
          " must be a row of strings");
  const Hdf5Handle dataset(check(H5Dopen2(file_, name.c_str(), reading_hdf5()), "open dataset", name), H5Dclose);
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  return read_strings(type, space, static_cast<std::size_t>(found.shape[0]), [&](void* out) {
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out), "read dataset", name);
  });
}

// Calls `use` with attribute, type, space and number of elements, if there is one of this class.
void Hdf5File::with_attribute(const std::string& object, const std::string& key, H5T_class_t kind,
                              const std::function<void(hid_t, hid_t, hid_t, std::size_t)>& use) const {
  if (!has(object)) return;
  const Hdf5Handle owner(check(H5Oopen(file_, object.c_str(), reading_hdf5()), "open", object), H5Oclose);
  if (H5Aexists(owner, key.c_str()) <= 0) return;
  const std::string name = object + ":" + key;
  const Hdf5Handle attribute(check(H5Aopen(owner, key.c_str(), H5P_DEFAULT), "open attribute", name), H5Aclose);
  const Hdf5Handle type(check(H5Aget_type(attribute), "read the type of", name), H5Tclose);
  const Hdf5Handle space(check(H5Aget_space(attribute), "read the shape of", name), H5Sclose);
  if (H5Tget_class(type) != kind) return;
  const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space));
  require(count <= std::filesystem::file_size(path_) / H5Tget_size(type), code_, path_, ": attribute ", name,
          " claims an impossible size");
  use(attribute, type, space, count);
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
    check(H5Aread(attribute, H5T_NATIVE_INT64, &value.emplace()), "read attribute", object + ":" + key);
  });
  return value;
}

std::optional<double> Hdf5File::real(const std::string& object, const std::string& key) const {
  std::optional<double> value;
  with_attribute(object, key, H5T_FLOAT, [&](hid_t attribute, hid_t, hid_t, std::size_t count) {
    if (count != 1) return;
    check(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value.emplace()), "read attribute", object + ":" + key);
  });
  return value;
}

std::vector<std::string> Hdf5File::attribute_names(const std::string& object) const {
  std::vector<std::string> names;
  if (!has(object)) return names;
  const Hdf5Handle owner(check(H5Oopen(file_, object.c_str(), reading_hdf5()), "open", object), H5Oclose);
  check(H5Aiterate2(owner, H5_INDEX_NAME, H5_ITER_INC, nullptr, kCollect, &names), "list the attributes of", object);
  return names;
}

}  // namespace dat
