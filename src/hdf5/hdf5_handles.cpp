#include "hdf5/hdf5_handles.hpp"

#include <cstdlib>
#include <vector>

namespace dat {

std::string hdf5_reason() {
  std::string reason = "no reason given";
  const auto first = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return {};
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &reason);
  if (const auto at = reason.find("errno = "); at != std::string::npos)
    return system_reason(std::atoi(reason.c_str() + at + 8));
  return reason;
}

void prepare_hdf5() {
  static const herr_t once = H5dont_atexit();
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

Hdf5Handle reading_hdf5() {
  const hid_t list = H5Pcreate(H5P_DATASET_ACCESS);
  const auto refuse = [](auto...) -> herr_t { return -1; };
  H5Pset_elink_cb(list, refuse, nullptr);
  return {list, H5Pclose};
}

hid_t hdf5_memory_type(Hdf5Type type) {
  const hid_t all[] = {H5T_NATIVE_UINT8, H5T_NATIVE_UINT64, H5T_NATIVE_INT64, H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE};
  return all[static_cast<std::size_t>(type)];
}

Hdf5Handle hdf5_space(const Shape& shape) {
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose};
}

}  // namespace dat
