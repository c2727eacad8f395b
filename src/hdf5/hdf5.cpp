#include "hdf5/hdf5.hpp"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <numeric>
#include <utility>

#include "dat/tick.hpp"
#include "hdf5/hdf5_handles.hpp"

namespace dat {

namespace {

// Closing a file of which a part cannot be written (disk full) leaves HDF5 1.10 with a freed file in its tables, on
// which it crashes later. Such a file stays open: a descriptor and some memory are lost, and no more. Returns the
// reason.
std::string give_up_or_close(hid_t file) {
  return H5Fflush(file, H5F_SCOPE_GLOBAL) < 0 || H5Fclose(file) < 0 ? hdf5_reason() : "";
}

Hdf5Handle naming_in_utf8() {
  const hid_t list = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_char_encoding(list, H5T_CSET_UTF8);
  return {list, H5Pclose};
}

// No time stamps: the same content gives the same bytes.
Hdf5Handle making(hid_t kind) {
  const hid_t list = H5Pcreate(kind);
  H5Pset_obj_track_times(list, 0);
  return {list, H5Pclose};
}

hid_t file_type(Hdf5Type type) {
  const hid_t all[] = {H5T_STD_U8LE, H5T_STD_U64LE, H5T_STD_I64LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
  return all[static_cast<std::size_t>(type)];
}

Hdf5Handle text_type() {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return {type, H5Tclose};
}

std::vector<const char*> pointers(const std::vector<std::string>& values) {
  std::vector<const char*> all(values.size());
  std::ranges::transform(values, all.begin(), [](const std::string& value) { return value.c_str(); });
  return all;
}

}  // namespace

std::string hdf5_version() {
  prepare_hdf5();
  unsigned major{}, minor{}, release{};
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

hid_t Hdf5File::check(hid_t result, const char* action, const std::string& name) const {
  if (result < 0) fail(code_, path_, ": cannot ", action, " ", name, ": ", hdf5_reason());
  return result;
}

Hdf5File Hdf5File::create(const std::string& path, std::size_t user_block) {
  prepare_hdf5();
  const Hdf5Handle creation = making(H5P_FILE_CREATE);
  H5Pset_userblock(creation, user_block);
  H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, 0, 1);                                   // parallel file systems without flock
  H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);  // HDF5 2 has another default
  // Small data would be written when their dataset is closed, which reports no failure.
  H5Pset_sieve_buf_size(access, 0);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
  if (file == H5I_INVALID_HID) fail(ExitCode::io, path, ": cannot create the file: ", hdf5_reason());
  return {path, ExitCode::io, file};
}

Hdf5File::~Hdf5File() { give_up_or_close(file_); }

void Hdf5File::close() {
  const std::string reason = give_up_or_close(std::exchange(file_, -1));
  require(reason.empty(), code_, path_, ": cannot write the file: ", reason);
}

void write_sealed_hdf5(const std::string& path, const std::function<void(Hdf5File& file)>& write) {
  write_sealed(path, [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary);
    write(file);
    file.close();
  });
}

void Hdf5File::declare(const std::string& name, const Shape& shape, Hdf5Type type) {
  const Hdf5Handle links = naming_in_utf8();
  const Hdf5Handle creation = making(H5P_DATASET_CREATE);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  make_parents(name);
  const Hdf5Handle dataset(
      check(H5Dcreate2(file_, name.c_str(), file_type(type), hdf5_space(shape), links, creation, H5P_DEFAULT),
            "create dataset", name),
      H5Dclose);
}

void Hdf5File::write_rows(const std::string& name, std::int64_t first, Hdf5Type type, const void* values,
                          std::int64_t count) {
  tick();
  const Hdf5Handle dataset(check(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), "open dataset", name), H5Dclose);
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  if (count == 0) return;
  if (rank == 0) {
    assert(first == 0 && count == 1);
    check(H5Dwrite(dataset, hdf5_memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write dataset", name);
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
  const Hdf5Handle memory(H5Screate_simple(rank, dims.data(), nullptr), H5Sclose);
  check(H5Dwrite(dataset, hdf5_memory_type(type), memory, space, H5P_DEFAULT, values), "write dataset", name);
}

void Hdf5File::write_texts(const std::string& name, const std::vector<std::string>& values) {
  const Hdf5Handle links = naming_in_utf8();
  const Hdf5Handle creation = making(H5P_DATASET_CREATE);
  const Hdf5Handle type = text_type();
  const Hdf5Handle space = hdf5_space({static_cast<std::int64_t>(values.size())});
  make_parents(name);
  const Hdf5Handle dataset(
      check(H5Dcreate2(file_, name.c_str(), type, space, links, creation, H5P_DEFAULT), "create dataset", name),
      H5Dclose);
  if (values.empty()) return;
  check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers(values).data()), "write dataset", name);
}

// HDF5 would make missing groups by itself, but they would forget the order of their members.
void Hdf5File::make_parents(const std::string& name) { make_group(std::filesystem::path(name).parent_path().string()); }

void Hdf5File::make_group(const std::string& name) {
  if (name.empty() || has(name)) return;
  make_parents(name);
  const Hdf5Handle creation = making(H5P_GROUP_CREATE);
  H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  const Hdf5Handle group(
      check(H5Gcreate2(file_, name.c_str(), naming_in_utf8(), creation, H5P_DEFAULT), "create group", name), H5Gclose);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& key, hid_t type, hid_t space, hid_t memory,
                             const void* value) {
  make_group(object);
  const Hdf5Handle owner(check(H5Oopen(file_, object.c_str(), H5P_DEFAULT), "open", object), H5Oclose);
  const std::string name = object + ":" + key;
  const Hdf5Handle attribute(
      check(H5Acreate2(owner, key.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), "create attribute", name), H5Aclose);
  if (value != nullptr) check(H5Awrite(attribute, memory, value), "write attribute", name);
}

void Hdf5File::set_text(const std::string& object, const std::string& key, const std::string& value) {
  const Hdf5Handle type = text_type();
  const char* text = value.c_str();
  set_attribute(object, key, type, hdf5_space({}), type, &text);
}

void Hdf5File::set_texts(const std::string& object, const std::string& key, const std::vector<std::string>& values) {
  const Hdf5Handle type = text_type();
  const Hdf5Handle space = hdf5_space({static_cast<std::int64_t>(values.size())});
  set_attribute(object, key, type, space, type, pointers(values).data());
}

void Hdf5File::set_integer(const std::string& object, const std::string& key, std::int64_t value) {
  set_attribute(object, key, H5T_STD_I64LE, hdf5_space({}), H5T_NATIVE_INT64, &value);
}

}  // namespace dat
