#pragma once

#include <string>

#include "hdf5/hdf5.hpp"

/// Base of writing and reading by the HDF5 library.
namespace dat {

/// An HDF5 identifier with the function that gives it back.
class Hdf5Handle {
 public:
  Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Hdf5Handle() { close_(id_); }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// HDF5's innermost words about the last failure, or the system's where it was the system.
[[nodiscard]] std::string hdf5_reason();
/// Prepares the library before each file, because the settings belong to the calling thread, and before anything else
/// of the library. Plug-ins would be code from outside, and at the end of the program the library would go through
/// files that could not be written (see give_up_or_close).
void prepare_hdf5();
/// Access settings of datasets: external links are refused.
[[nodiscard]] Hdf5Handle reading_hdf5();
[[nodiscard]] hid_t hdf5_memory_type(Hdf5Type type);
[[nodiscard]] Hdf5Handle hdf5_space(const Shape& shape);

}  // namespace dat
